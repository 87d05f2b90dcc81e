//! The layout of a fabric for people: hosts in rows under their leaf switches, a column for each
//! rail. Text and SVG are made from it.

use std::collections::{BTreeMap, BTreeSet};

use ringfold_topology::Natural;
use ringfold_topology::fabric::{Classification, EndPort, Fabric, Place, PortId};

use super::names::fold;

/// Pod and group; `None` for hosts without a place.
type Group = Option<(u32, u32)>;

/// A fabric in columns and blocks.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) columns: Vec<Column>,
    /// Groups of hosts that share leaf switches, in fabric order. Hosts without a place come last.
    pub(super) blocks: Vec<Block>,
}

/// A column of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// The title, as in `rail 3`.
    pub(super) title: String,
    /// The rail and plane; `None` for ports without a place.
    pub(super) place: Option<Place>,
}

/// A group of hosts that share leaf switches, or several groups that look the same.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) title: String,
    /// Pod and group of the first group; `None` for hosts without a place.
    pub(super) group: Group,
    /// The last of several groups that look the same.
    last: Group,
    /// Number of groups.
    pub(super) groups: usize,
    /// The switches above each column. A column has several only in a block of several groups. It
    /// has none if the cells name their switches.
    pub(super) heads: Vec<Vec<usize>>,
    pub(super) rows: Vec<Row>,
}

/// Hosts whose ports look the same.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) hosts: Vec<String>,
    pub(super) cells: Vec<Cell>,
}

/// The ports of a host in a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// Device names, made short; empty without a port.
    pub(super) device: String,
    pub(super) state: State,
    /// Switches of its ports, other than the switch above the column.
    pub(super) switches: Vec<usize>,
    /// Whether the classifier reported an oddity about it.
    pub(super) is_odd: bool,
}

/// The state of ports, compared with their column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// There is no port.
    #[default]
    Absent,
    /// Some ports have no link.
    Down {
        /// Number of ports without a link.
        down: usize,
        /// Number of ports.
        of: usize,
    },
    /// The ports are slower than most of the column: gigabits per second.
    Slow(u32),
    /// The ports work as most of the column do.
    Up,
}

impl Picture {
    /// Lays out the fabric. With `folds`, hosts that look alike become one row, and groups that
    /// look alike one block. The cables of a fabric without switches are unknown, so none of its
    /// ports counts as down.
    pub(super) fn of(fabric: &Fabric, found: &Classification, folds: bool) -> Self {
        let hosts = Hosts::of(fabric);
        let odd: BTreeSet<usize> = found.oddities.iter().filter_map(|it| it.port).collect();
        let (columns, column_of) = columns(fabric, found, &hosts, &odd);
        let sketch = Sketch {
            fabric,
            odd,
            rates: usual_rates(fabric, &column_of, columns.len()),
            column_of,
        };
        let mut groups: Vec<(Group, Vec<&str>)> = Vec::new();
        let mut add = |group, host| match groups.last_mut() {
            Some((last, hosts)) if *last == group => hosts.push(host),
            _ => groups.push((group, vec![host])),
        };
        let mut ordered: Vec<_> = found.hosts.iter().collect();
        ordered.sort_by_key(|place| (place.pod, place.group, place.order));
        let mut rest: BTreeSet<&str> = hosts.0.keys().map(String::as_str).collect();
        for place in ordered {
            rest.remove(place.host.as_str());
            add(Some((place.pod, place.group)), &place.host);
        }
        let mut rest: Vec<_> = rest.into_iter().collect();
        rest.sort_by_key(|host| Natural(*host));
        rest.into_iter().for_each(|host| add(None, host));
        let block = |(group, names)| sketch.block(group, names, &hosts, columns.len(), folds);
        let mut blocks: Vec<Block> = groups.into_iter().map(block).collect();
        if folds {
            blocks = fold_blocks(blocks);
        }
        let pods: BTreeSet<_> = found.hosts.iter().map(|host| host.pod).collect();
        blocks.iter_mut().for_each(|block| block.title = block.titled(pods.len() > 1));
        Self { columns, blocks }
    }
}

/// The ports of each host, in the order of devices.
struct Hosts(BTreeMap<String, Vec<usize>>);

impl Hosts {
    fn of(fabric: &Fabric) -> Self {
        let mut hosts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, port) in fabric.ports.iter().enumerate() {
            hosts.entry(host(port)).or_default().push(at);
        }
        for ports in hosts.values_mut() {
            ports.sort_by_key(|at| (Natural(&fabric.ports[*at].device), fabric.ports[*at].number));
        }
        Self(hosts)
    }
}

/// Returns the host's name, or the port's identifier if the name is unknown.
pub(super) fn host(port: &EndPort) -> String {
    if port.host.is_empty() { identifier(port.id) } else { port.host.clone() }
}

/// Formats a port's identifier in the usual notation.
pub(super) fn identifier(id: PortId) -> String {
    match id {
        PortId::Guid(guid) => format!("0x{guid:016x}"),
        PortId::Mac(mac) => {
            let byte = |at: u32| format!("{:02x}", mac >> (8 * at) & 0xff);
            (0..6).rev().map(byte).collect::<Vec<_>>().join(":")
        }
        PortId::Address(address) => std::net::Ipv6Addr::from(address).to_canonical().to_string(),
        PortId::Named(digest) => format!("named {digest:016x}"),
    }
}

/// Returns the columns, and the column of each port.
fn columns(
    fabric: &Fabric,
    found: &Classification,
    hosts: &Hosts,
    odd: &BTreeSet<usize>,
) -> (Vec<Column>, Vec<usize>) {
    let place_of = |at: usize| found.places.get(at).and_then(|(place, _)| *place);
    let places: BTreeSet<Place> = (0..fabric.ports.len()).filter_map(place_of).collect();
    let at_of: BTreeMap<Place, usize> = places.iter().copied().zip(0..).collect();
    let title = |place: &Place| match (found.rails.value > 0, found.planes.value > 1) {
        (true, true) => format!("rail {} plane {}", place.rail, place.plane),
        (true, false) => format!("rail {}", place.rail),
        (false, true) => format!("plane {}", place.plane),
        (false, false) => "ports".to_owned(),
    };
    let mut columns: Vec<_> =
        places.iter().map(|place| Column { title: title(place), place: Some(*place) }).collect();
    // A port that is down or on the wrong switch belongs in the column of the same device of other
    // hosts.
    let mut usual: BTreeMap<(&str, u8), BTreeMap<usize, usize>> = BTreeMap::new();
    for (at, port) in fabric.ports.iter().enumerate().filter(|(at, _)| !odd.contains(at)) {
        if let Some(place) = place_of(at) {
            let seen = usual.entry((&port.device, port.number)).or_default();
            *seen.entry(at_of[&place]).or_default() += 1;
        }
    }
    let most = |seen: &BTreeMap<usize, usize>| most_common(seen);
    let usual: BTreeMap<_, _> =
        usual.iter().filter_map(|(device, seen)| Some((*device, most(seen)?))).collect();
    let mut column_of = vec![usize::MAX; fabric.ports.len()];
    for ports in hosts.0.values() {
        let places = ports.iter().filter_map(|at| place_of(*at));
        let taken: BTreeSet<usize> = places.map(|place| at_of[&place]).collect();
        for at in ports {
            let port = &fabric.ports[*at];
            let placed = place_of(*at).map(|place| at_of[&place]);
            let as_others = usual.get(&(port.device.as_str(), port.number)).copied();
            let is_free = |column: &usize| !taken.contains(column);
            let home = as_others.filter(|column| odd.contains(at) && is_free(column));
            let is_down = port.attached.is_none();
            let column = home.or(placed).or_else(|| as_others.filter(|_| is_down));
            column_of[*at] = column.unwrap_or(usize::MAX);
        }
    }
    if column_of.contains(&usize::MAX) {
        let title = if columns.is_empty() { "ports" } else { "no rail" };
        columns.push(Column { title: title.to_owned(), place: None });
        let last = columns.len() - 1;
        column_of.iter_mut().filter(|at| **at == usize::MAX).for_each(|at| *at = last);
    }
    (columns, column_of)
}

/// Returns the key with the highest count, the first of several.
fn most_common<K: Copy + Ord>(counts: &BTreeMap<K, usize>) -> Option<K> {
    let most = counts.values().max()?;
    counts.iter().find(|(_, count)| *count == most).map(|(key, _)| *key)
}

/// Returns the most common rate of each column; 0 if it is unknown.
fn usual_rates(fabric: &Fabric, column_of: &[usize], columns: usize) -> Vec<u32> {
    let mut seen = vec![BTreeMap::new(); columns];
    for (port, column) in fabric.ports.iter().zip(column_of) {
        if port.attached.is_some() && port.gbps > 0 {
            *seen[*column].entry(port.gbps).or_default() += 1;
        }
    }
    seen.iter().map(|counts| most_common(counts).unwrap_or(0)).collect()
}

/// The inputs of cells.
struct Sketch<'a> {
    fabric: &'a Fabric,
    odd: BTreeSet<usize>,
    rates: Vec<u32>,
    column_of: Vec<usize>,
}

impl Sketch<'_> {
    fn block(
        &self,
        group: Group,
        names: Vec<&str>,
        hosts: &Hosts,
        columns: usize,
        folds: bool,
    ) -> Block {
        let ports = |name: &str| hosts.0.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut seen = vec![BTreeMap::new(); columns];
        // An odd port is no evidence of the group's switch.
        let usual = |at: &&usize| !self.odd.contains(at);
        for at in names.iter().flat_map(|name| ports(name)).filter(usual) {
            if let Some((switch, _)) = self.fabric.ports[*at].attached {
                *seen[self.column_of[*at]].entry(switch).or_insert(0) += 1;
            }
        }
        let heads: Vec<Option<usize>> = seen.iter().map(majority).collect();
        let mut rows: Vec<Row> = Vec::new();
        for name in names {
            let cells: Vec<_> =
                (0..columns).map(|column| self.cell(ports(name), column, heads[column])).collect();
            match rows.last_mut() {
                Some(row) if folds && row.cells == cells => row.hosts.push(name.to_owned()),
                _ => rows.push(Row { hosts: vec![name.to_owned()], cells }),
            }
        }
        let heads = heads.into_iter().map(|head| head.into_iter().collect()).collect();
        Block { title: String::new(), group, last: group, groups: 1, heads, rows }
    }

    fn cell(&self, ports: &[usize], column: usize, head: Option<usize>) -> Cell {
        let here: Vec<_> =
            ports.iter().copied().filter(|at| self.column_of[*at] == column).collect();
        let port = |at: &usize| &self.fabric.ports[*at];
        let Some(first) = here.first().map(port) else { return Cell::default() };
        let many: BTreeSet<_> = here.iter().map(|at| port(at).number).collect();
        let names: Vec<_> = here
            .iter()
            .map(|at| match (many.len(), port(at).number) {
                (1, 0 | 1) => port(at).device.clone(),
                (_, number) => format!("{}:{number}", port(at).device),
            })
            .collect();
        let is_up = |port: &&EndPort| port.attached.is_some() || self.fabric.switches.is_empty();
        let up: Vec<_> = here.iter().map(port).filter(is_up).collect();
        let slow = up.iter().map(|port| port.gbps).filter(|gbps| *gbps > 0).min();
        let state = match slow.filter(|gbps| *gbps < self.rates[column]) {
            _ if up.len() < here.len() => {
                State::Down { down: here.len() - up.len(), of: here.len() }
            }
            Some(gbps) => State::Slow(gbps),
            None => State::Up,
        };
        let switches = up.iter().filter_map(|port| port.attached.map(|(switch, _)| switch));
        let others: BTreeSet<_> = switches.filter(|switch| Some(*switch) != head).collect();
        let switches = others.into_iter().collect();
        let device = if first.device.is_empty() { "port".to_owned() } else { fold(&names) };
        let is_odd = here.iter().any(|at| self.odd.contains(at));
        Cell { device, state, switches, is_odd }
    }
}

/// Returns the switch of more than half of all ports.
fn majority(counts: &BTreeMap<usize, usize>) -> Option<usize> {
    let all: usize = counts.values().sum();
    most_common(counts).filter(|switch| counts[switch] * 2 > all)
}

/// Joins neighbouring blocks that differ in names only.
fn fold_blocks(blocks: Vec<Block>) -> Vec<Block> {
    let mut folded: Vec<Block> = Vec::new();
    for block in blocks {
        match folded.last_mut() {
            Some(last) if last.looks_like(&block) => last.join(block),
            _ => folded.push(block),
        }
    }
    folded
}

impl Block {
    fn looks_like(&self, other: &Self) -> bool {
        let ([one], [next]) = (&self.rows[..], &other.rows[..]) else { return false };
        let pod = |block: &Self| block.group.map(|(pod, _)| pod);
        let are_plain = one.cells.iter().all(|cell| cell.switches.is_empty() && !cell.is_odd);
        let has_head = |block: &Self| {
            block.heads.iter().map(|switches| !switches.is_empty()).collect::<Vec<_>>()
        };
        are_plain
            && one.cells == next.cells
            && pod(self) == pod(other)
            && one.hosts.len() == next.hosts.len() * self.groups
            && has_head(self) == has_head(other)
    }

    fn join(&mut self, other: Self) {
        self.groups += other.groups;
        self.last = other.last;
        for (mine, others) in self.heads.iter_mut().zip(other.heads) {
            mine.extend(others);
        }
        for (mine, others) in self.rows.iter_mut().zip(other.rows) {
            mine.hosts.extend(others.hosts);
        }
    }

    fn titled(&self, has_pods: bool) -> String {
        let Some(((pod, first), (_, last))) = self.group.zip(self.last) else {
            return "hosts without a place".to_owned();
        };
        let before = if has_pods { format!("pod {pod}, ") } else { String::new() };
        match self.groups {
            1 => format!("{before}group {first}"),
            _ => {
                let hosts: usize = self.rows.iter().map(|row| row.hosts.len()).sum();
                let each = hosts / self.groups;
                let plural = if each == 1 { "" } else { "s" };
                format!("{before}groups {first}-{last}, {each} host{plural} each")
            }
        }
    }
}
