//! Reads the output of `ibnetdiscover`: its topology file, with or without groups (`-g`) and full
//! information (`-f`), and its ports report (`-p`).
//!
//! A topology file has a block for each node, with a line for each port that has a link. Files of
//! several subnets may follow one another. Adapters follow switches, so a file that was cut off
//! within a switch has no adapter.
//!
//! A ports report has a line for each port. The ports of a node go from the last to the first, so
//! the last node of a complete report ends with its port 1.
//!
//! `-l` lists nodes without links, so it does not describe a fabric.

use super::content::lines;
use super::error::Reason;
use super::graph::{End, Graph, Node, NodeKind};
use super::scan::{Scan, gbps, shown};

/// Keys of the lines of a node's block before the node, such as `vendid=0x2c9`.
const KEYS: &[&str] =
    &["vendid", "devid", "sysimgguid", "switchguid", "caguid", "rtguid", "portguid", "nodeguid"];

/// Beginnings of the lines that `-g` puts between blocks.
const GROUPS: &[&str] = &["Chassis ", "Non-Chassis Nodes", "Hostname:"];

/// Whether a line belongs to a topology file.
pub(super) fn is_topology(line: &str) -> bool {
    let scan = Scan::new(line, 1);
    let word = line.split_whitespace().next().unwrap_or_default();
    ["Switch", "Ca", "Hca", "Rt"].contains(&word) || known(scan).is_ok()
}

/// Reads topology files, one for each subnet. Returns each with its first line.
pub(super) fn topology(text: &str) -> Result<Vec<(usize, Graph)>, Reason> {
    let mut graphs = vec![(1, Graph::default())];
    let mut node = None;
    for (line, text) in lines(text)? {
        let (_, graph) = graphs.last_mut().expect("there is always one");
        let scan = Scan::new(text, line);
        if text.starts_with("# Topology file") && !graph.is_empty() {
            graphs.push((line, Graph::default()));
            node = None;
        } else if text.is_empty() || text.starts_with('#') {
            continue;
        } else if text.starts_with('[') {
            let node = node.ok_or_else(|| scan.wrong("a port precedes the first node"))?;
            end(graph, node, scan)?;
        } else if let Some(found) = block(scan)? {
            let (kind, declared) = (found.0.kind, found.1);
            let index = graph.add_node(found.0)?;
            node = Some(Block { index, kind, declared });
        } else {
            known(scan)?;
            // A port belongs to the last node line above it.
            node = None;
        }
    }
    let (line, last) = graphs.last().expect("there is always one");
    if last.is_empty() {
        return Err(Reason::new(*line, "no node follows: the file is cut off"));
    }
    Ok(graphs)
}

/// The node whose ports follow.
#[derive(Clone, Copy)]
struct Block {
    index: usize,
    kind: NodeKind,
    /// The number of ports in its heading.
    declared: u16,
}

/// `Switch 36 "S-..." # "name" base port 0 lid 1 lmc 0` and the like: the node, and its number of
/// ports.
fn block(mut scan: Scan<'_>) -> Result<Option<(Node, u16)>, Reason> {
    let line = scan;
    let kind = match scan.word() {
        "Switch" => NodeKind::Switch,
        "Rt" => NodeKind::Router,
        "Ca" | "Hca" => NodeKind::Adapter,
        _ => return Ok(None),
    };
    scan.space();
    if scan.take(":") {
        let text = "the node has no links: run ibnetdiscover without -l, -H, -S and -R";
        return Err(line.wrong(text));
    }
    let declared = scan.number("number of ports")?;
    scan.space();
    let guid = node_guid(&mut scan)?;
    scan.until("#")?;
    let name = name(scan)?.trim().to_owned();
    Ok(Some((Node { key: guid, kind, guid, name, line: line.line() }, declared)))
}

/// `"S-b8cef60000010300"`
fn node_guid(scan: &mut Scan<'_>) -> Result<u64, Reason> {
    scan.must("\"")?;
    if !["S-", "H-", "R-"].iter().any(|kind| scan.take(kind)) {
        return Err(scan.wrong(format!("expected a node, found {}", shown(scan.rest()))));
    }
    let guid = scan.guid()?;
    scan.must("\"")?;
    Ok(guid)
}

/// The name between the first and the last quote. Names may contain quotes.
fn name(mut scan: Scan<'_>) -> Result<&str, Reason> {
    scan.until("\"")?;
    let Some((name, _)) = scan.rest().rsplit_once('"') else {
        return Err(scan.wrong("the quote after a name is missing"));
    };
    Ok(name)
}

/// `[1](guid) "S-..."[4](guid) # ... 4xEDR`. Ports of adapters and routers have GUIDs.
fn end(graph: &mut Graph, node: Block, mut scan: Scan<'_>) -> Result<(), Reason> {
    let line = scan;
    let number = bracketed(&mut scan)?;
    if number > node.declared {
        let text =
            format!("port {number} exceeds the range of a node with {} ports", node.declared);
        return Err(line.wrong(text));
    }
    scan.space();
    let mut guid = 0;
    if scan.take("(") {
        guid = scan.guid()?;
        scan.must(")")?;
        scan.space();
    }
    let far_guid = node_guid(&mut scan)?;
    let far = bracketed(&mut scan)?;
    let rate = scan.rest().rsplit_once('"').map_or("", |(_, after)| after);
    let rate = rate.split_whitespace().find_map(|word| word.split_once('x'));
    let gbps = rate.map_or(0, |(width, speed)| gbps(width, speed));
    if guid == 0 && node.kind == NodeKind::Adapter {
        return Err(line.wrong("the adapter's port has no GUID"));
    }
    let far = Some((far_guid, far));
    graph.add_end(End { node: node.index, number, guid, far, gbps, line: line.line() })
}

/// `[5]`, or `[5][ext 3]` with the number on the outside of a chassis.
fn bracketed(scan: &mut Scan<'_>) -> Result<u16, Reason> {
    scan.must("[")?;
    let number = scan.port()?;
    scan.must("]")?;
    if scan.take("[ext") {
        scan.until("]")?;
    }
    Ok(number)
}

/// Refuses lines that are in no topology file.
fn known(scan: Scan<'_>) -> Result<(), Reason> {
    let key = scan.rest().split_once('=').map(|(key, _)| key);
    let is_known = key.is_some_and(|key| KEYS.contains(&key))
        || GROUPS.iter().any(|group| scan.rest().starts_with(group));
    if is_known {
        return Ok(());
    }
    Err(scan.wrong(format!("{} is not a line of ibnetdiscover", shown(scan.rest()))))
}

/// Reads a ports report.
pub(super) fn ports(text: &str) -> Result<Graph, Reason> {
    let mut graph = Graph::default();
    for (line, text) in lines(text)? {
        if !text.is_empty() {
            port(&mut graph, Scan::new(text, line))?;
        }
    }
    match graph.last() {
        Some((node, end)) if node.kind == NodeKind::Switch && end.number != 1 => {
            Err(Reason::new(end.line, "the file ends before port 1 of this switch: it is cut off"))
        }
        _ => Ok(graph),
    }
}

/// `CA 22 1 0x98... 4x EDR - SW 7 4 0xb8... ( 'host3 mlx5_3' - 'leaf3' )`, or `SW 6 2 0xb8... 4x
/// EDR 'leaf2'` for a port without a link.
fn port(graph: &mut Graph, mut scan: Scan<'_>) -> Result<(), Reason> {
    let line = scan;
    let kind = match scan.word() {
        "SW" => NodeKind::Switch,
        "RT" => NodeKind::Router,
        "CA" => NodeKind::Adapter,
        other => {
            return Err(scan.wrong(format!("expected CA, SW or RT, found {}", shown(other))));
        }
    };
    scan.number("LID")?;
    let (number, guid) = (scan.port()?, word_guid(&mut scan)?);
    let (width, speed) = (scan.word(), scan.word());
    scan.space();
    let (far, name) = if scan.take("- ") {
        let kind = scan.word();
        if !["SW", "RT", "CA"].contains(&kind) {
            return Err(line.wrong(format!("expected CA, SW or RT, found {}", shown(kind))));
        }
        scan.number("LID")?;
        let (number, guid) = (scan.port()?, word_guid(&mut scan)?);
        scan.space();
        scan.must("( '")?;
        let name = scan.until("' - '")?;
        (Some((guid, number)), name)
    } else {
        scan.must("'")?;
        (
            None,
            scan.rest()
                .strip_suffix('\'')
                .ok_or_else(|| line.wrong("the last quote is missing"))?,
        )
    };
    let node = match graph.node(guid) {
        Some(node) if kind != NodeKind::Adapter && graph.kind(node) == kind => node,
        _ => {
            let name = name.trim().to_owned();
            graph.add_node(Node { key: guid, kind, guid, name, line: line.line() })?
        }
    };
    graph.add_end(End { node, number, guid, far, gbps: gbps(width, speed), line: line.line() })
}

fn word_guid(scan: &mut Scan<'_>) -> Result<u64, Reason> {
    scan.space();
    scan.guid()
}
