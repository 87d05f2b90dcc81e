//! The facts that the kernel states about a host's RDMA devices, for `--report`: firmware, rates,
//! addresses and counters. No secret, key or environment variable is among them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use ringfold::{Communicator, Parts};
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

/// Bytes of a fact, at most.
const FACT_BYTES_MAX: usize = 128;
/// Facts of a host, at most.
const FACTS_MAX: usize = 8192;

/// Files in the folder of a device, and in that of a port.
const OF_DEVICE: &[&str] = &[
    "board_id",
    "device/current_link_speed",
    "device/current_link_width",
    "device/max_link_speed",
    "device/max_link_width",
    "device/numa_node",
    "fw_ver",
    "hca_type",
    "hw_rev",
    "node_type",
];
const OF_PORT: &[&str] = &["lid", "link_layer", "phys_state", "rate", "sm_lid", "state"];
/// Folders of counters, in the folders of devices and ports.
const COUNTERS: &[&str] = &["counters", "hw_counters"];
/// Files in the folder of the network interface of a GID.
const OF_INTERFACE: &[&str] = &["mtu", "operstate", "speed"];
/// The GID of an index that has none.
const NO_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

/// The facts of a host, by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    facts: BTreeMap<String, String>,
    counters: BTreeMap<String, u64>,
}

impl Facts {
    /// Reads the facts of this host, whose files are below `root`.
    pub(super) fn read(root: &Path) -> Self {
        let mut all = Self::default();
        all.note("kernel", &root.join("proc/sys/kernel/osrelease"));
        let devices = root.join("sys/class/infiniband");
        for name in names(&devices) {
            let device = devices.join(&name);
            for file in OF_DEVICE {
                all.note(&format!("{name} {file}"), &device.join(file));
            }
            all.count(&name, &device);
            for number in names(&device.join("ports")) {
                let (subject, port) =
                    (format!("{name}:{number}"), device.join("ports").join(&number));
                for file in OF_PORT {
                    all.note(&format!("{subject} {file}"), &port.join(file));
                }
                all.count(&subject, &port);
                all.note_gids(&subject, &port, &root.join("sys/class/net"));
            }
        }
        all
    }

    fn note(&mut self, subject: &str, file: &Path) {
        if let Some(fact) = text(file).filter(|_| self.facts.len() < FACTS_MAX) {
            self.facts.insert(subject.to_owned(), fact);
        }
    }

    fn count(&mut self, subject: &str, place: &Path) {
        for folder in COUNTERS {
            for name in names(&place.join(folder)) {
                let count = text(&place.join(folder).join(&name)).and_then(|it| it.parse().ok());
                if let Some(count) = count.filter(|_| self.counters.len() < FACTS_MAX) {
                    self.counters.insert(format!("{subject} {name}"), count);
                }
            }
        }
    }

    /// Notes the GIDs of a port, and the interfaces that they belong to.
    fn note_gids(&mut self, subject: &str, port: &Path, interfaces: &Path) {
        for index in names(&port.join("gids")) {
            let Some(gid) = text(&port.join("gids").join(&index)).filter(|it| it != NO_GID) else {
                continue;
            };
            let attribute = |kind| text(&port.join("gid_attrs").join(kind).join(&index));
            let (kind, interface) = (attribute("types"), attribute("ndevs"));
            let words = [Some(gid), kind, interface.clone()].into_iter().flatten();
            if self.facts.len() < FACTS_MAX {
                let words: Vec<String> = words.collect();
                self.facts.insert(format!("{subject} gid {index:>3}"), words.join(", "));
            }
            for interface in interface.iter().filter(|it| !it.contains('/')) {
                for file in OF_INTERFACE {
                    self.note(
                        &format!("{interface} {file}"),
                        &interfaces.join(interface).join(file),
                    );
                }
            }
        }
    }

    /// Lists the facts, and the counters that are not 0 with their growth since `before`.
    fn list(&self, before: &Self) -> String {
        let width = self.facts.keys().chain(self.counters.keys()).map(String::len).max();
        let width = width.unwrap_or(0);
        let mut lines = String::new();
        for (subject, fact) in &self.facts {
            writeln!(lines, "{subject:<width$}  {fact}").ok();
        }
        for (subject, count) in self.counters.iter().filter(|(_, count)| **count > 0) {
            let grown = count.saturating_sub(*before.counters.get(subject).unwrap_or(&0));
            writeln!(lines, "{subject:<width$}  {count}, {grown} of them during the probes").ok();
        }
        lines
    }
}

/// Returns the report of a host: `findings` as printed, and the facts before and after the probes.
pub(super) fn report(findings: &str, hosts: &[(String, Facts, Facts)]) -> String {
    let mut text = format!("ringfold doctor, version {}\n\n{findings}", env!("CARGO_PKG_VERSION"));
    for (host, before, after) in hosts {
        write!(text, "\n{host}\n{}", after.list(before)).ok();
    }
    text
}

/// Gathers the facts of the ranks that have some on rank 0. Every rank calls this. Other ranks get
/// nothing.
pub(super) fn gather(
    comm: &mut Communicator,
    own: Option<&(String, Facts, Facts)>,
) -> anyhow::Result<Vec<(String, Facts, Facts)>> {
    let bytes = own.map(postcard::to_stdvec).transpose()?.unwrap_or_default();
    let mut lens = vec![0_u64; comm.size()];
    comm.all_gather_into(&[bytes.len() as u64], &mut lens)?;
    let lens: Vec<usize> = lens.into_iter().map(usize::try_from).collect::<Result<_, _>>()?;
    let is_first = comm.rank() == Rank(0);
    let mut all = vec![0_u8; if is_first { lens.iter().sum() } else { 0 }];
    comm.gather_v_into(&bytes, &mut all, Parts::new(&lens), Rank(0))?;
    let (mut rest, mut gathered) = (&all[..], Vec::new());
    for (rank, len) in lens.into_iter().enumerate().filter(|(_, len)| is_first && *len > 0) {
        let (facts, others) = rest.split_at(len);
        let invalid = || format!("rank {rank} sent invalid facts");
        gathered.push(postcard::from_bytes(facts).with_context(invalid)?);
        rest = others;
    }
    Ok(gathered)
}

/// Returns the names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|it| it.file_name().into_string().ok()).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names.truncate(FACTS_MAX);
    names
}

/// Returns the first line of a file, if there is one, in printable characters.
fn text(file: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(FACT_BYTES_MAX as u64).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next().unwrap_or_default().trim().replace(char::is_control, "?");
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use ringfold_harness::Folder;

    use super::*;

    #[test]
    fn a_report_has_facts_and_the_growth_of_counters() {
        let root = Folder::new();
        let device = "sys/class/infiniband/mlx5_0";
        root.file("proc/sys/kernel/osrelease", "6.1.0\n");
        root.file(&format!("{device}/fw_ver"), "28.39.1002\n");
        root.file(&format!("{device}/node_guid"), "never asked for");
        root.file(&format!("{device}/ports/1/rate"), "400 Gb/sec (4X NDR)\n");
        root.file(&format!("{device}/ports/1/pkeys/0"), "0xffff\n");
        root.file(&format!("{device}/ports/1/gids/0"), format!("{NO_GID}\n"));
        root.file(&format!("{device}/ports/1/gids/3"), "fe80::1\n");
        root.file(&format!("{device}/ports/1/gid_attrs/types/3"), "RoCE v2\n");
        root.file(&format!("{device}/ports/1/gid_attrs/ndevs/3"), "eth4\n");
        root.file("sys/class/net/eth4/mtu", "9000\n");
        root.file(&format!("{device}/ports/1/counters/symbol_error"), "0\n");
        root.file(&format!("{device}/ports/1/hw_counters/out_of_sequence"), "7\n");
        root.file(&format!("{device}/ports/1/state"), "\x1b[31m4: ACTIVE");
        let before = Facts::read(root.path());
        root.file(&format!("{device}/ports/1/hw_counters/out_of_sequence"), "12\n");
        root.file(&format!("{device}/ports/1/counters/symbol_error"), "nonsense");
        let after = Facts::read(root.path());
        let text = report("ok    all is well\n", &[("node1".to_owned(), before, after)]);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let version = format!("ringfold doctor, version {}", env!("CARGO_PKG_VERSION"));
        let expected = [
            &version,
            "",
            "ok all is well",
            "",
            "node1",
            "eth4 mtu 9000",
            "kernel 6.1.0",
            "mlx5_0 fw_ver 28.39.1002",
            "mlx5_0:1 gid 3 fe80::1, RoCE v2, eth4",
            "mlx5_0:1 rate 400 Gb/sec (4X NDR)",
            "mlx5_0:1 state ?[31m4: ACTIVE",
            "mlx5_0:1 out_of_sequence 12, 5 of them during the probes",
        ];
        assert_eq!(lines, expected);
    }
}
