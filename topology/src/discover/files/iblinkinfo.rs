//! Reads the output of `iblinkinfo`: a line for each port, below a heading for its node or, with
//! `-l`, by itself.
//!
//! Without `-l` a line names the other end by LID. LIDs are unique within one subnet only, so a
//! file of two subnets is refused. With `-l` a line names GUIDs and does not mark switches: a GUID
//! with several ports is one.
//!
//! The last node is the one where the tool ran. So a file that ends within a switch was cut off.

use std::collections::HashMap;

use super::content::lines;
use super::error::Reason;
use super::graph::{End, Graph, Node, NodeKind};
use super::scan::{Scan, gbps, shown};

/// Distinguishes keys that are GUIDs from keys that are LIDs.
const KEY_OF_DOWN: u64 = 1 << 63;

/// Reads either form.
pub(super) fn links(text: &str) -> Result<Graph, Reason> {
    let graph = either(text)?;
    match graph.last() {
        Some((node, end)) if node.kind == NodeKind::Switch => {
            let text = "the file ends within a switch: it is cut off, or lacks adapters; run \
                        iblinkinfo on a host, without --switches-only";
            Err(Reason::new(end.line, text))
        }
        _ => Ok(graph),
    }
}

fn either(text: &str) -> Result<Graph, Reason> {
    let first = text.lines().find(|line| !line.trim().is_empty());
    if first.is_some_and(|line| line.starts_with("0x")) { by_line(text) } else { by_node(text) }
}

/// The part of a line from `==(` on: the rate of the link, and the other end.
struct Link<'a> {
    gbps: u32,
    far: Option<Scan<'a>>,
}

/// `==( 4X 25.78125 Gbps Active/ LinkUp)==> 7 4[  ] "leaf3" (Could be 12X)`, or `==( Down/
/// Polling)==> [  ] "" ( )`.
fn link<'a>(scan: &mut Scan<'a>) -> Result<Link<'a>, Reason> {
    scan.space();
    scan.must("==(")?;
    let mut state = Scan::new(scan.until(")==>")?, scan.line());
    let (width, speed) = (state.word(), state.word());
    let gbps = gbps(width, if state.rest().contains("(FDR10)") { "FDR10" } else { speed });
    scan.space();
    let is_joined = scan.rest().starts_with(|c: char| c.is_ascii_digit());
    if !is_joined && !scan.rest().starts_with("[") && !scan.rest().starts_with('"') {
        let text = format!("expected the other end of the link, found {}", shown(scan.rest()));
        return Err(scan.wrong(text));
    }
    Ok(Link { gbps, far: is_joined.then_some(*scan) })
}

/// `7 4[  ]`: LID, port number, and the number on the outside of a chassis.
fn lid_and_port(scan: &mut Scan<'_>) -> Result<(u16, u16), Reason> {
    let (lid, number) = (scan.number("LID")?, scan.port()?);
    scan.must("[")?;
    scan.until("]")?;
    Ok((lid, number))
}

/// The heading above the lines of ports.
enum Heading<'a> {
    /// A switch with this GUID and name.
    Switch(u64, &'a str),
    /// An adapter or router with this name.
    Other(NodeKind, &'a str),
}

fn by_node(text: &str) -> Result<Graph, Reason> {
    let mut graph = Graph::default();
    let mut heading = None;
    for (line, text) in lines(text)? {
        let mut scan = Scan::new(text, line);
        if text.trim().is_empty() {
            continue;
        }
        if !text.starts_with(' ') {
            heading = Some(node(scan)?);
            continue;
        }
        let Some(heading) = &heading else {
            return Err(scan.wrong("a port precedes the first node"));
        };
        scan.space();
        let port_guid = if scan.rest().starts_with("0x") { scan.guid()? } else { 0 };
        let (lid, number) = lid_and_port(&mut scan)?;
        let link = link(&mut scan)?;
        let far = link.far.map(|mut far| lid_and_port(&mut far)).transpose()?;
        let (kind, guid, name) = match *heading {
            Heading::Switch(guid, name) => (NodeKind::Switch, guid, name),
            Heading::Other(kind, name) => (kind, port_guid, name),
        };
        if guid == 0 {
            return Err(scan.wrong("the port has no GUID"));
        }
        if lid == 0 && far.is_some() {
            return Err(scan.wrong("a port with a link has LID 0: run a subnet manager, or use -l"));
        }
        // A port that is down may have no LID. No other port refers to it.
        let key = if lid == 0 { guid | KEY_OF_DOWN } else { lid.into() };
        let index = match graph.node(key) {
            Some(index) if kind == NodeKind::Switch && graph.guid(index) == guid => index,
            Some(index) => {
                let text = format!(
                    "LID {lid} belongs to {:#x} too: the file joins several subnets; give \
                     each a file of its own, or use iblinkinfo -l",
                    graph.guid(index)
                );
                return Err(Reason::new(line, text));
            }
            None => {
                let name = name.to_owned();
                graph.add_node(Node { key, kind, guid, name, line })?
            }
        };
        let far = far.map(|(lid, number)| (lid.into(), number));
        graph.add_end(End { node: index, number, guid, far, gbps: link.gbps, line })?;
    }
    Ok(graph)
}

/// `Switch: 0xb8cef60000010300 leaf3:`, `CA: host3 mlx5_3:` or `Router: name:`.
fn node(mut scan: Scan<'_>) -> Result<Heading<'_>, Reason> {
    let line = scan;
    let kind = match scan.word() {
        "Switch:" => NodeKind::Switch,
        "CA:" => NodeKind::Adapter,
        "Router:" => NodeKind::Router,
        _ => {
            let text = format!("{} is not a line of iblinkinfo", shown(line.rest()));
            return Err(line.wrong(text));
        }
    };
    scan.space();
    let guid = if kind == NodeKind::Switch { scan.guid()? } else { 0 };
    let Some(name) = scan.rest().strip_suffix(':').map(str::trim) else {
        return Err(line.wrong("the colon after the name of a node is missing"));
    };
    Ok(if kind == NodeKind::Switch {
        Heading::Switch(guid, name)
    } else {
        Heading::Other(kind, name)
    })
}

/// One line of `-l`.
struct Line<'a> {
    line: usize,
    guid: u64,
    name: &'a str,
    number: u16,
    link: (u32, Option<(u64, u16)>),
}

fn by_line(text: &str) -> Result<Graph, Reason> {
    let mut ports = HashMap::new();
    for (number, text) in lines(text)? {
        if !text.trim().is_empty() {
            *ports.entry(line(Scan::new(text, number))?.guid).or_insert(0) += 1;
        }
    }
    let mut graph = Graph::default();
    for (number, text) in lines(text)? {
        if text.trim().is_empty() {
            continue;
        }
        let Line { line, guid, name, number, link: (gbps, far) } = line(Scan::new(text, number))?;
        let kind = if ports[&guid] > 1 { NodeKind::Switch } else { NodeKind::Adapter };
        let node = match graph.node(guid) {
            Some(node) => node,
            None => {
                let name = name.trim().to_owned();
                graph.add_node(Node { key: guid, kind, guid, name, line })?
            }
        };
        graph.add_end(End { node, number, guid, far, gbps, line })?;
    }
    Ok(graph)
}

/// `0x98... "host3 mlx5_3" 22 1[  ] ==(...)==> 0xb8... 7 4[  ] "leaf3" (...)`
fn line(mut scan: Scan<'_>) -> Result<Line<'_>, Reason> {
    let line = scan.line();
    let guid = scan.guid()?;
    scan.space();
    scan.must("\"")?;
    // Names may contain quotes. Numbers do not.
    let Some((before, _)) = scan.rest().split_once("==(") else {
        return Err(scan.wrong("`==(` is missing"));
    };
    let Some((name, _)) = before.rsplit_once('"') else {
        return Err(scan.wrong("the quote after a name is missing"));
    };
    scan.must(name)?;
    scan.must("\"")?;
    let (_, number) = lid_and_port(&mut scan)?;
    let link = link(&mut scan)?;
    let far = match link.far {
        Some(mut far) => Some((far.guid()?, lid_and_port(&mut far)?.1)),
        None => None,
    };
    Ok(Line { line, guid, name, number, link: (link.gbps, far) })
}
