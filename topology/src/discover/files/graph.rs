//! Builds a fabric from the output of tools, which list each link twice, once at either end.
//!
//! This proves a file complete. A tool walks a subnet from one port, so its whole output is
//! connected. If a file is cut off between two nodes, some link has lost one end. A reader detects
//! a cut within a node itself.

use std::collections::HashMap;

use ringfold_types::limits::{FABRIC_NAME_BYTES_MAX, FABRIC_NODES_MAX, FABRIC_PORTS_MAX};

use super::error::Reason;
use crate::fabric::{Cable, EndPort, Fabric, PortId, Switch};

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Switch,
    Router,
    /// An adapter, or a port of one where a tool lists ports without their adapter.
    Adapter,
}

/// A node, or one port of an adapter.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The key by which the ends of links refer to it. Unique within a graph.
    pub(super) key: u64,
    pub(super) kind: NodeKind,
    /// The identifier of a switch or router.
    pub(super) guid: u64,
    /// The node description.
    pub(super) name: String,
    pub(super) line: usize,
}

/// A port, by its node's key and its number.
pub(super) type PortKey = (u64, u16);

/// One end of a link, as the line of its port describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The node of this port, as an index into `Graph::nodes`.
    pub(super) node: usize,
    pub(super) number: u16,
    /// The port's GUID; 0 on switches.
    pub(super) guid: u64,
    /// The port at the other end; `None` if the port is down.
    pub(super) far: Option<PortKey>,
    pub(super) gbps: u32,
    pub(super) line: usize,
}

/// All nodes and ends of one subnet.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    ends: Vec<End>,
    by_key: HashMap<u64, usize>,
    by_port: HashMap<PortKey, usize>,
    /// GUIDs of switches and of adapters' ports, with their lines.
    guids: HashMap<u64, usize>,
}

impl Graph {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn node(&self, key: u64) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    /// The last added end, and its node.
    pub(super) fn last(&self) -> Option<(&Node, &End)> {
        let end = self.ends.last()?;
        Some((&self.nodes[end.node], end))
    }

    /// The kind of a node by its index.
    pub(super) fn kind(&self, index: usize) -> NodeKind {
        self.nodes[index].kind
    }

    /// The GUID of a node by its index.
    pub(super) fn guid(&self, index: usize) -> u64 {
        self.nodes[index].guid
    }

    /// Adds a node with a new key, and returns its index.
    pub(super) fn add_node(&mut self, node: Node) -> Result<usize, Reason> {
        let (line, index) = (node.line, self.nodes.len());
        if index == FABRIC_NODES_MAX {
            let text = format!("the file has more than {FABRIC_NODES_MAX} nodes, the limit");
            return Err(Reason::new(line, text));
        }
        if node.name.len() > FABRIC_NAME_BYTES_MAX {
            let text =
                format!("the node's name has more than {FABRIC_NAME_BYTES_MAX} bytes, the limit");
            return Err(Reason::new(line, text));
        }
        if let Some(other) = self.by_key.insert(node.key, index) {
            let first = &self.nodes[other];
            let text =
                format!("{} occurs a second time, after line {}", describe(&node), first.line);
            return Err(Reason::new(line, text));
        }
        if node.kind != NodeKind::Adapter {
            self.add_guid(node.guid, line)?;
        }
        self.nodes.push(node);
        Ok(index)
    }

    fn add_guid(&mut self, guid: u64, line: usize) -> Result<(), Reason> {
        let Some(first) = self.guids.insert(guid, line) else { return Ok(()) };
        Err(Reason::new(line, format!("GUID {guid:#x} occurs a second time, after line {first}")))
    }

    /// Adds an end with a new port.
    pub(super) fn add_end(&mut self, end: End) -> Result<(), Reason> {
        let index = self.ends.len();
        if index == FABRIC_PORTS_MAX {
            let text = format!("the file has more than {FABRIC_PORTS_MAX} ports, the limit");
            return Err(Reason::new(end.line, text));
        }
        let node = &self.nodes[end.node];
        if let Some(other) = self.by_port.insert((node.key, end.number), index) {
            let (number, first) = (end.number, self.ends[other].line);
            let node = describe(node);
            let text = format!("port {number} of {node} occurs a second time, after line {first}");
            return Err(Reason::new(end.line, text));
        }
        if node.kind == NodeKind::Adapter {
            self.add_guid(end.guid, end.line)?;
        }
        self.ends.push(end);
        Ok(())
    }

    /// The fabric, after a check that each link has both ends.
    pub(super) fn fabric(self) -> Result<Fabric, Reason> {
        let line = self.ends.last().map_or(1, |end| end.line);
        if self.ends.iter().all(|end| end.far.is_none()) {
            return Err(Reason::new(line, "the file has no link up to here: it is cut off"));
        }
        if self.nodes.iter().all(|node| node.kind != NodeKind::Adapter) {
            return Err(Reason::new(line, "the file has no adapter up to here: it is cut off"));
        }
        let mut fabric = Fabric::default();
        let switches = self.switches(&mut fabric)?;
        let hosts = self.hosts();
        for end in &self.ends {
            let node = &self.nodes[end.node];
            let far = end.far.map(|far| self.other(end, far)).transpose()?;
            match switches[end.node] {
                None if !is_aggregator(node) => {
                    let (host, device) = hosts.names(node, end.number);
                    fabric.ports.push(EndPort {
                        id: PortId::Guid(end.guid),
                        host: host.to_owned(),
                        device: device.to_owned(),
                        number: u8::try_from(end.number).unwrap_or(u8::MAX),
                        gbps: if far.is_some() { end.gbps } else { 0 },
                        attached: far.and_then(|far| Some((switches[far.node]?, far.number))),
                    });
                }
                None => (),
                Some(near) => {
                    let far = far.and_then(|far| Some((switches[far.node]?, far.number)));
                    let ends = far.map(|far| [(near, end.number), far]);
                    if let Some(ends) = ends.filter(|[near, far]| near < far) {
                        fabric.cables.push(Cable { ends, gbps: end.gbps });
                    }
                }
            }
        }
        Ok(fabric)
    }

    /// Adds all switches to `fabric`. Returns the index of each node among them.
    fn switches(&self, fabric: &mut Fabric) -> Result<Vec<Option<usize>>, Reason> {
        let mut has_link = vec![false; self.nodes.len()];
        for end in self.ends.iter().filter(|end| end.far.is_some()) {
            has_link[end.node] = true;
        }
        let mut switches = vec![None; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            if node.kind == NodeKind::Adapter {
                continue;
            }
            if !has_link[index] {
                let node_line = node.line;
                let text = format!("{} has no link: the file is cut off", describe(node));
                return Err(Reason::new(node_line, text));
            }
            switches[index] = Some(fabric.switches.len());
            fabric.switches.push(Switch {
                id: node.guid,
                name: node.name.clone(),
                is_router: node.kind == NodeKind::Router,
            });
        }
        Ok(switches)
    }

    /// The other end of a link.
    fn other(&self, end: &End, far: PortKey) -> Result<&End, Reason> {
        let near = (self.nodes[end.node].key, end.number);
        let Some(other) = self.by_port.get(&far).map(|other| &self.ends[*other]) else {
            let (key, number) = far;
            let node = self.node(key).map(|node| describe(&self.nodes[node]));
            let node = node.unwrap_or_else(|| format!("{key:#x}"));
            let text = format!(
                "the link leads to port {number} of {node}, which the file lacks: it is cut \
                 off, or lists only nodes of one kind; write the whole file again"
            );
            return Err(Reason::new(end.line, text));
        };
        if other.far != Some(near) || far == near {
            let (node, number) = (describe(&self.nodes[other.node]), other.number);
            let text = format!(
                "the link leads to port {number} of {node}, and line {} contradicts it: write \
                 the file again",
                other.line
            );
            return Err(Reason::new(end.line, text));
        }
        Ok(other)
    }

    fn hosts(&self) -> Hosts<'_> {
        let mut seen = HashMap::new();
        for end in &self.ends {
            let node = &self.nodes[end.node];
            if node.kind == NodeKind::Adapter && node.name.contains(' ') {
                *seen.entry((node.name.as_str(), end.number)).or_insert(0) += 1;
            }
        }
        Hosts(seen)
    }
}

/// Finds hosts in node descriptions. Counts the ports that share a description and a number.
struct Hosts<'a>(HashMap<(&'a str, u16), usize>);

impl<'a> Hosts<'a> {
    /// Host and device. Empty where the description does not contain them.
    fn names(&self, node: &'a Node, number: u16) -> (&'a str, &'a str) {
        let name = node.name.as_str();
        // The factory's description, or that of a host without a name.
        let is_shared = self.0.get(&(name, number)).is_some_and(|ports| *ports > 1);
        let mut words = name.split(' ').filter(|word| !word.is_empty());
        match (words.next(), words.next(), words.next()) {
            _ if is_shared => ("", ""),
            (Some("localhost" | "localhost.localdomain"), device, None) => {
                ("", device.unwrap_or_default())
            }
            (Some(host), Some(device), None) => (host, device),
            _ => (name, ""),
        }
    }
}

/// SHARP aggregation nodes are adapters within switches, not hosts.
fn is_aggregator(node: &Node) -> bool {
    node.name.ends_with("Aggregation Node")
}

fn describe(node: &Node) -> String {
    let kind = match node.kind {
        NodeKind::Switch => "switch",
        NodeKind::Router => "router",
        NodeKind::Adapter => "adapter",
    };
    format!("{kind} {:?} ({:#x})", node.name, node.guid)
}
