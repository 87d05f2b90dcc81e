//! Slurm's `topology.conf` and the variables that Slurm sets from it for each task.

use crate::evidence::{HostPath, Source};

/// Where `SLURM_TOPOLOGY_ADDR`, as in `root.s1.s5.node7`, puts this host, by the pattern in
/// `SLURM_TOPOLOGY_ADDR_PATTERN`, as in `switch.switch.switch.node`. Nothing if the two do not
/// fit each other, or name no switch.
#[must_use]
pub fn address(address: &str, pattern: &str) -> Option<HostPath> {
    let kinds: Vec<&str> = pattern.split('.').collect();
    let mut names = Vec::new();
    // A name may contain dots only if it is the last.
    let mut rest = address.splitn(kinds.len(), '.');
    for kind in &kinds {
        let name = rest.next().filter(|name| !name.is_empty())?;
        match *kind {
            "switch" | "block" => names.push(name.to_owned()),
            "node" => (),
            _ => return None,
        }
    }
    let ends_in_node = kinds.last() == Some(&"node") && rest.next().is_none();
    let groups = names;
    (ends_in_node && !groups.is_empty()).then_some(HostPath {
        groups,
        order: None,
        source: Source::Slurm,
    })
}
