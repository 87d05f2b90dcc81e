//! Reads Slurm's `topology.conf`, the output of `scontrol show topology`, and the variables that
//! Slurm sets for each task.
//!
//! Leaf switches (or blocks) list nodes, and other switches list switches. A list of switches may
//! be cut off between two lines without a trace. The reader notices a switch that is listed and
//! missing.

use std::collections::{BTreeMap, HashMap};

use ringfold_types::expand_hosts;
use ringfold_types::limits::FABRIC_NODES_MAX;

use super::content::lines;
use super::error::Reason;
use super::scan::shown;
use crate::evidence::{HostPath, Source};

/// The most levels of switches.
const LEVELS_MAX: usize = 16;

/// The place of this host according to `SLURM_TOPOLOGY_ADDR`, such as `root.s1.s5.node7`, and the
/// host's name there, `node7`. `SLURM_TOPOLOGY_ADDR_PATTERN`, such as `switch.switch.switch.node`,
/// gives the pattern. `None` if the two do not match, or name no switch.
#[must_use]
pub fn address<'a>(address: &'a str, pattern: &str) -> Option<(HostPath, &'a str)> {
    let (above, last) = pattern.rsplit_once('.')?;
    let kinds: Vec<&str> = above.split('.').collect();
    let are_known = last == "node" && kinds.iter().all(|kind| ["switch", "block"].contains(kind));
    // Only the node, which comes last, may have dots in its name.
    let mut names = address.splitn(kinds.len() + 1, '.');
    let groups: Vec<String> = names.by_ref().take(kinds.len()).map(str::to_owned).collect();
    let node = names.next().filter(|node| !node.is_empty())?;
    let is_whole = kinds.len() <= LEVELS_MAX && !groups.iter().any(String::is_empty);
    (are_known && is_whole).then(|| (path(groups), node))
}

fn path(groups: Vec<String>) -> HostPath {
    HostPath { groups, order: None, source: Source::Slurm }
}

/// A switch or block, with its line.
struct Group {
    name: String,
    nodes: Vec<String>,
    switches: Vec<String>,
    line: usize,
}

/// Reads `topology.conf`: the place of each host, by name.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, HostPath>, Reason> {
    let mut groups = Vec::new();
    let mut names = 0;
    for (line, text) in joined(text)? {
        if let Some(group) = group(line, &text)? {
            names += group.nodes.len() + group.switches.len() + 1;
            if names > 2 * FABRIC_NODES_MAX {
                let text =
                    format!("the file has more than {} names, the limit", 2 * FABRIC_NODES_MAX);
                return Err(Reason::new(line, text));
            }
            groups.push(group);
        }
    }
    let parents = parents(&groups)?;
    let mut leaves: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        for node in &group.nodes {
            let Some(other) = leaves.insert(node, index) else { continue };
            // scontrol lists a switch's nodes at the switches above it, too.
            if is_above(&parents, index, other) {
                leaves.insert(node, other);
            } else if !is_above(&parents, other, index) || other == index {
                let (line, first) = (group.line, &groups[other]);
                let text = format!("node {node:?} is also on line {}", first.line);
                return Err(Reason::new(line, text));
            }
        }
    }
    if leaves.is_empty() {
        return Err(Reason::new(1, "the file has no node: it is cut off"));
    }
    let paths: Vec<HostPath> =
        (0..groups.len()).map(|group| above(&groups, &parents, group)).collect();
    Ok(leaves.into_iter().map(|(node, group)| (node.to_owned(), paths[group].clone())).collect())
}

/// By switch: the switch above it.
fn parents(groups: &[Group]) -> Result<Vec<Option<usize>>, Reason> {
    let mut by_name = HashMap::new();
    for (index, group) in groups.iter().enumerate() {
        if let Some(first) = by_name.insert(group.name.as_str(), index) {
            let (name, first) = (&group.name, groups[first].line);
            let text = format!("{name:?} occurs a second time, after line {first}");
            return Err(Reason::new(group.line, text));
        }
    }
    let mut parents = vec![None; groups.len()];
    for (index, group) in groups.iter().enumerate() {
        for name in &group.switches {
            let wrong = |text: String| Err(Reason::new(group.line, text));
            let Some(child) = by_name.get(name.as_str()) else {
                return wrong(format!("the file does not have the listed switch {name:?}"));
            };
            if let Some(other) = parents[*child].replace(index) {
                let (other, line): (&Group, _) = (&groups[other], groups[other].line);
                let other = &other.name;
                return wrong(format!("switch {name:?} is already below {other:?} (line {line})"));
            }
        }
    }
    for (index, group) in groups.iter().enumerate() {
        if ancestors(&parents, index).nth(LEVELS_MAX).is_some() {
            let text =
                format!("{:?} is in a circle, or below {LEVELS_MAX} or more others", group.name);
            return Err(Reason::new(group.line, text));
        }
    }
    Ok(parents)
}

/// A group and the groups around it, the innermost first.
fn ancestors(parents: &[Option<usize>], group: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(group), |group| parents[*group])
}

fn is_above(parents: &[Option<usize>], high: usize, low: usize) -> bool {
    high != low && ancestors(parents, low).any(|group| group == high)
}

fn above(groups: &[Group], parents: &[Option<usize>], group: usize) -> HostPath {
    let mut names: Vec<_> = ancestors(parents, group).map(|at| groups[at].name.clone()).collect();
    names.reverse();
    path(names)
}

/// Lines without comments, each with its first number. A line that ends in a backslash is joined
/// with the next.
fn joined(text: &str) -> Result<Vec<(usize, String)>, Reason> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, text) in lines(text)? {
        let text = text.split('#').next().unwrap_or_default().trim();
        let (text, continues) = text.strip_suffix('\\').map_or((text, false), |text| (text, true));
        match joined.last_mut().filter(|_| goes_on) {
            Some((_, line)) => line.push_str(text),
            None => joined.push((number, text.to_owned())),
        }
        goes_on = continues;
    }
    if let Some((number, _)) = joined.last().filter(|_| goes_on) {
        return Err(Reason::new(*number, "the last line ends in a backslash: the file is cut off"));
    }
    Ok(joined)
}

/// `SwitchName=s3 Switches=s[0-2]`; `None` if the line does not describe a group.
fn group(line: usize, text: &str) -> Result<Option<Group>, Reason> {
    let mut group = Group { name: String::new(), nodes: vec![], switches: vec![], line };
    for field in text.split_whitespace() {
        let wrong = |text: String| Reason::new(line, text);
        let Some((key, value)) = field.split_once('=') else {
            return Err(wrong(format!("expected key=value, found {}", shown(field))));
        };
        let list = || match value {
            // scontrol prints this for an empty list.
            "" | "(null)" => Ok(Vec::new()),
            list if list.split(',').any(str::is_empty) => {
                Err(wrong(format!("{} contains an empty name", shown(list))))
            }
            list => expand_hosts(list, FABRIC_NODES_MAX)
                .map_err(|error| wrong(format!("{}: {error}", shown(list)))),
        };
        match key.to_ascii_lowercase().as_str() {
            "switchname" | "blockname" if group.name.is_empty() && !value.is_empty() => {
                value.clone_into(&mut group.name);
            }
            "nodes" => group.nodes = list()?,
            "switches" => group.switches = list()?,
            "linkspeed" | "level" | "blockindex" | "blocksizes" | "blocksize" => (),
            _ => return Err(wrong(format!("ringfold does not know {}", shown(field)))),
        }
    }
    if !group.name.is_empty() {
        return Ok(Some(group));
    }
    if group.nodes.is_empty() && group.switches.is_empty() {
        return Ok(None);
    }
    Err(Reason::new(line, "nodes are listed without a SwitchName or BlockName"))
}
