//! Reads the output of `lldpctl -f json` (or `json0`) of one host: the switch and switch port
//! behind each interface.
//!
//! The output of `lldpcli -f json show interfaces` may follow in the same file. It adds the MAC
//! addresses of the interfaces and the name of the host.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ringfold_types::Digest;
use ringfold_types::limits::{FABRIC_NAME_BYTES_MAX, FABRIC_PORTS_MAX, LLDP_FILE_BYTES_MAX};
use serde_json::Value;

use super::error::{Error, Reason, syntax};
use super::scan::mac_address;
use crate::fabric::{EndPort, Fabric, PortId, Switch};

/// The LLDP neighbours of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lldp {
    /// The host's name. It is that of the local chassis if the file has it, and otherwise the
    /// file's name without folder and extension.
    pub host: String,
    /// One entry for each neighbour. An interface may have several.
    pub neighbours: Vec<Neighbour>,
}

/// A neighbour of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface of this host, such as `eth0`.
    pub interface: String,
    /// Its MAC address, if the file has the local ports too (`lldpcli -f json show interfaces`).
    pub mac: Option<u64>,
    /// The digest of the neighbour's chassis identifier, as in `Attached::Switch`.
    pub switch: u64,
    /// The neighbour's name; empty if it sends none.
    pub name: String,
    /// Whether the neighbour is a switch or router. A neighbour without capabilities counts as one.
    pub is_switch: bool,
    /// Whether it speaks LLDP itself, and not an older protocol of one vendor.
    pub is_lldp: bool,
    /// The neighbour's own name for its port.
    pub port: String,
}

impl Lldp {
    /// The switch behind an interface. `None` if there is none, or if several are: then it is
    /// unknown which of them is at the cable's other end.
    #[must_use]
    pub fn switch(&self, interface: &str) -> Option<&Neighbour> {
        let here = |neighbour: &&Neighbour| neighbour.interface == interface;
        let is_lldp = self.neighbours.iter().filter(here).any(|neighbour| neighbour.is_lldp);
        let mut switches = self
            .neighbours
            .iter()
            .filter(here)
            .filter(|neighbour| neighbour.is_switch && neighbour.is_lldp == is_lldp);
        let first = switches.next()?;
        let is_same =
            |other: &Neighbour| (other.switch, &other.port) == (first.switch, &first.port);
        switches.all(is_same).then_some(first)
    }
}

/// The fabric that the hosts' neighbours form. An interface without one known switch is attached to
/// none. Interfaces are identified by MAC address. If a file has none, or several interfaces share
/// one, as in a bond, they are identified by host and name.
#[must_use]
pub fn fabric(hosts: &[Lldp]) -> Fabric {
    let mut macs = HashMap::new();
    let mut names: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for host in hosts {
        for neighbour in &host.neighbours {
            if let Some(mac) = neighbour.mac {
                let of: &mut BTreeSet<(&str, &str)> = macs.entry(mac).or_default();
                of.insert((&host.host, &neighbour.interface));
            }
            if neighbour.is_switch {
                names.entry(neighbour.switch).or_default().insert(&neighbour.port);
            }
        }
    }
    let numbers: HashMap<u64, HashMap<&str, u16>> =
        names.iter().map(|(switch, names)| (*switch, numbers(names))).collect();
    let mut fabric = Fabric { is_partial: true, ..Fabric::default() };
    let mut switches = HashMap::new();
    for host in hosts {
        let mut seen = BTreeSet::new();
        for Neighbour { interface, mac, .. } in &host.neighbours {
            if !seen.insert(interface) {
                continue;
            }
            let attached = host.switch(interface).map(|neighbour| {
                let index = *switches.entry(neighbour.switch).or_insert_with(|| {
                    let (id, name) = (neighbour.switch, neighbour.name.clone());
                    fabric.switches.push(Switch { id, name, is_router: false });
                    fabric.switches.len() - 1
                });
                (index, numbers[&neighbour.switch][neighbour.port.as_str()])
            });
            let mac = mac.filter(|mac| macs[mac].len() == 1);
            fabric.ports.push(EndPort {
                id: mac.map_or_else(|| PortId::named(&host.host, interface), PortId::Mac),
                host: host.host.clone(),
                device: interface.clone(),
                number: 1,
                gbps: 0,
                attached,
            });
        }
    }
    fabric
}

/// Joins the neighbours of several hosts, each with the name of its file.
pub(super) fn join(files: Vec<(&str, Lldp)>) -> Result<Fabric, Error> {
    let mut first = HashMap::new();
    for (file, host) in &files {
        if let Some(other) = first.insert(host.host.as_str(), *file) {
            let text = format!(
                "the file is for host {:?}, and so is {other}: name files by host",
                host.host
            );
            return Err(Reason::new(1, text).of(file));
        }
    }
    let hosts: Vec<Lldp> = files.into_iter().map(|(_, host)| host).collect();
    Ok(fabric(&hosts))
}

/// Numbers for the names of a switch's ports: the numbers at the ends of the names. If two of these
/// are equal, the positions of the names are used.
fn numbers<'a>(names: &BTreeSet<&'a str>) -> HashMap<&'a str, u16> {
    let ending = |name: &str| {
        let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        name[start..].parse().ok().filter(|number: &u16| *number > 0)
    };
    let endings: Option<BTreeSet<u16>> = names.iter().map(|name| ending(name)).collect();
    let are_apart = endings.is_some_and(|endings| endings.len() == names.len());
    let place = |index: usize| u16::try_from(index + 1).unwrap_or(u16::MAX);
    let number = |(index, name): (usize, &&'a str)| {
        let ending = ending(name).filter(|_| are_apart);
        (*name, ending.unwrap_or_else(|| place(index)))
    };
    names.iter().enumerate().map(number).collect()
}

/// Reads the neighbours of one host. The name of `file` is the host's name if the text has none.
pub(super) fn parse(file: &str, text: &str) -> Result<Lldp, Reason> {
    if text.len() > LLDP_FILE_BYTES_MAX {
        let text =
            format!("the file has more than {LLDP_FILE_BYTES_MAX} bytes, the limit for LLDP");
        return Err(Reason::new(1, text));
    }
    let mut found = Found { text, macs: HashMap::new(), host: None, neighbours: Vec::new() };
    let mut is_lldp = false;
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let document = document.map_err(|error| syntax(1, &error))?;
        for root in all(document.get("lldp")) {
            is_lldp = true;
            for interfaces in all(root.get("interface")) {
                found.interfaces(interfaces)?;
            }
        }
        for root in all(document.get("local-chassis")) {
            is_lldp = true;
            for chassis in all(root.get("chassis")) {
                found.host = chassis_of(chassis).1.map(str::to_owned).or(found.host);
            }
        }
    }
    if !is_lldp {
        return Err(Reason::new(
            1,
            "the file is JSON, but neither a site file nor the output of lldpctl",
        ));
    }
    let Found { macs, host, mut neighbours, .. } = found;
    for neighbour in &mut neighbours {
        neighbour.mac = macs.get(neighbour.interface.as_str()).copied();
    }
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    Ok(Lldp { host: host.unwrap_or_else(|| stem.to_owned()), neighbours })
}

/// The content of the documents of a file so far.
struct Found<'a> {
    text: &'a str,
    macs: HashMap<String, u64>,
    host: Option<String>,
    neighbours: Vec<Neighbour>,
}

impl Found<'_> {
    /// `{"eth0": {...}, "eth1": {...}}`, or in `json0` `{"name": "eth0", ...}`.
    fn interfaces(&mut self, interfaces: &Value) -> Result<(), Reason> {
        let Some(fields) = interfaces.as_object() else {
            return Err(Reason::new(1, "an interface is not a JSON object"));
        };
        if let Some(name) = fields.get("name").and_then(Value::as_str) {
            return self.interface(name, interfaces);
        }
        for (name, interface) in fields {
            for interface in all(Some(interface)) {
                self.interface(name, interface)?;
            }
        }
        Ok(())
    }

    fn interface(&mut self, name: &str, interface: &Value) -> Result<(), Reason> {
        let chassis = all(interface.get("chassis")).next();
        let (id, chassis_name) = chassis.map_or((None, None), chassis_of);
        let port = all(interface.get("port")).next();
        let port_id = port.and_then(|port| typed(port.get("id")));
        if interface.get("via").is_none() {
            // A port of this host: `show interfaces` lists no neighbours.
            if let Some(("mac", mac)) = port_id {
                let mac =
                    mac_address(mac).ok_or_else(|| self.wrong(name, "no valid MAC address"))?;
                self.macs.insert(name.to_owned(), mac);
            }
            self.host = chassis_name.map(str::to_owned).or_else(|| self.host.take());
            return Ok(());
        }
        let (kind, value) = id.ok_or_else(|| self.wrong(name, "no chassis identifier"))?;
        let port_name = match port_id {
            // A name is preferred to the address of a port.
            Some(("mac", mac)) => port.and_then(|port| plain(port.get("descr"))).or(Some(mac)),
            Some((_, name)) => Some(name),
            None => None,
        };
        let port_name = port_name.ok_or_else(|| self.wrong(name, "no port identifier"))?;
        let texts = [name, chassis_name.unwrap_or_default(), port_name];
        if texts.iter().any(|text| text.len() > FABRIC_NAME_BYTES_MAX) {
            let text = format!("a name of more than {FABRIC_NAME_BYTES_MAX} bytes, the limit");
            return Err(self.wrong(name, &text));
        }
        if self.neighbours.len() == FABRIC_PORTS_MAX {
            return Err(
                self.wrong(name, &format!("a neighbour beyond {FABRIC_PORTS_MAX}, the limit"))
            );
        }
        self.neighbours.push(Neighbour {
            interface: name.to_owned(),
            mac: None,
            switch: Digest::default().bytes(kind.as_bytes()).bytes(value.as_bytes()).finish(),
            name: chassis_name.unwrap_or_default().to_owned(),
            is_switch: chassis.is_none_or(is_switch),
            is_lldp: interface.get("via").and_then(Value::as_str) == Some("LLDP"),
            port: port_name.to_owned(),
        });
        Ok(())
    }

    /// An error about an interface, with the first line that has its name: the parser keeps no
    /// lines.
    fn wrong(&self, interface: &str, fault: &str) -> Reason {
        let at = self.text.find(&format!("\"{interface}\"")).unwrap_or(0);
        let line = self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Reason::new(line, format!("interface {interface:?} has {fault}"))
    }
}

/// A chassis: its identifier and its name. `{"leaf0": {"id": ...}}`, `{"id": ...}` for one that
/// sends no name, or in `json0` `{"id": ..., "name": ...}`.
fn chassis_of(chassis: &Value) -> (Option<(&str, &str)>, Option<&str>) {
    if let Some(id) = typed(chassis.get("id")) {
        return (Some(id), plain(chassis.get("name")));
    }
    let named = chassis.as_object().and_then(|fields| fields.iter().next());
    named.map_or((None, None), |(name, fields)| (typed(fields.get("id")), Some(name.as_str())))
}

/// Whether a neighbour has an active capability to forward, or no active capability at all.
fn is_switch(chassis: &Value) -> bool {
    let named = chassis.as_object().and_then(|fields| fields.values().next());
    let of = |chassis: &Value| -> Vec<(String, bool)> {
        let capability = |capability: &Value| {
            let kind = capability.get("type").and_then(Value::as_str)?;
            Some((kind.to_owned(), capability.get("enabled").and_then(Value::as_bool)?))
        };
        all(chassis.get("capability")).filter_map(capability).collect()
    };
    let mut capabilities = of(chassis);
    capabilities.extend(named.map(of).unwrap_or_default());
    let forwards =
        |(kind, is_on): &(String, bool)| *is_on && ["Bridge", "Router"].contains(&kind.as_str());
    !capabilities.iter().any(|(_, is_on)| *is_on) || capabilities.iter().any(forwards)
}

/// `{"type": "mac", "value": "..."}`, or in `json0` a list of it.
fn typed(value: Option<&Value>) -> Option<(&str, &str)> {
    let value = all(value).next()?;
    Some((value.get("type")?.as_str()?, value.get("value")?.as_str()?))
}

/// `"..."`, or in `json0` `[{"value": "..."}]`.
fn plain(value: Option<&Value>) -> Option<&str> {
    let value = all(value).next()?;
    value.as_str().or_else(|| value.get("value")?.as_str())
}

/// The items of a list. Another value is an item by itself.
fn all(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.into_iter().flat_map(|value| match value {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    })
}
