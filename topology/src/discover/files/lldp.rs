//! What `lldpctl -f json` (or `json0`) prints on one host: the switch and switch port behind each
//! interface.
//!
//! The file may go on with what `lldpcli -f json show interfaces` prints. That adds the MAC
//! addresses of the interfaces and the name of the host.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ringfold_types::limits::{FABRIC_NAME_BYTES_MAX, FABRIC_PORTS_MAX, LLDP_FILE_BYTES_MAX};
use serde_json::Value;

use super::error::{Error, Reason, syntax};
use super::scan::mac_address;
use crate::digest::Digest;
use crate::fabric::{EndPort, Fabric, PortId, Switch};

/// What one host hears by LLDP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lldp {
    /// The host's name: that of the local chassis if the file has it, else the file's name without
    /// folder and ending.
    pub host: String,
    /// One entry for each neighbour; an interface may have several.
    pub neighbours: Vec<Neighbour>,
}

/// A neighbour of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface of this host, as in `eth0`.
    pub interface: String,
    /// Its MAC address, if the file has the local ports too (`lldpcli -f json show interfaces`).
    pub mac: Option<u64>,
    /// The digest of the neighbour's chassis identifier, as `Attached::Switch` has it.
    pub switch: u64,
    /// The neighbour's name; empty if it sends none.
    pub name: String,
    /// The neighbour is a switch or router. Neighbours that do not say what they are count as such.
    pub is_switch: bool,
    /// It speaks LLDP itself, and not an older protocol of one vendor.
    pub is_lldp: bool,
    /// The neighbour's port, as it calls it.
    pub port: String,
}

impl Lldp {
    /// The switch behind an interface. Nothing if there is none, or several, since nothing says
    /// which one is at the cable's other end.
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

/// The fabric that the hosts' neighbours make. An interface without one known switch is attached to
/// nothing. Interfaces are known by MAC address, or by host and name where a file has none or where
/// several interfaces share one, as those of a bond do.
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

/// Joins hosts, each with the file that it comes from.
pub(super) fn join(files: Vec<(&str, Lldp)>) -> Result<Fabric, Error> {
    let mut first = HashMap::new();
    for (file, host) in &files {
        if let Some(other) = first.insert(host.host.as_str(), *file) {
            let text = format!("is of host {:?}, as {other} is: name files by host", host.host);
            return Err(Reason::new(1, text).of(file));
        }
    }
    let hosts: Vec<Lldp> = files.into_iter().map(|(_, host)| host).collect();
    Ok(fabric(&hosts))
}

/// Numbers for the names of a switch's ports: those that the names end in, or their places among
/// the names where two end in the same one.
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

/// Reads what one host hears. `file` names the host if nothing else does.
pub(super) fn parse(file: &str, text: &str) -> Result<Lldp, Reason> {
    if text.len() > LLDP_FILE_BYTES_MAX {
        let text = format!("has more than {LLDP_FILE_BYTES_MAX} bytes, which is the most of LLDP");
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
        return Err(Reason::new(1, "is JSON, and neither a site file nor what lldpctl prints"));
    }
    let Found { macs, host, mut neighbours, .. } = found;
    for neighbour in &mut neighbours {
        neighbour.mac = macs.get(neighbour.interface.as_str()).copied();
    }
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    Ok(Lldp { host: host.unwrap_or_else(|| stem.to_owned()), neighbours })
}

/// What the documents of a file have said so far.
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
            return Err(Reason::new(1, "has an interface that is no object"));
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
            // A port of this host: `show interfaces` has no neighbours.
            if let Some(("mac", mac)) = port_id {
                let mac = mac_address(mac).ok_or_else(|| self.wrong(name, "a MAC address"))?;
                self.macs.insert(name.to_owned(), mac);
            }
            self.host = chassis_name.map(str::to_owned).or_else(|| self.host.take());
            return Ok(());
        }
        let (kind, value) = id.ok_or_else(|| self.wrong(name, "an identifier of a chassis"))?;
        let port_name = match port_id {
            // A name says more than the address of a port.
            Some(("mac", mac)) => port.and_then(|port| plain(port.get("descr"))).or(Some(mac)),
            Some((_, name)) => Some(name),
            None => None,
        };
        let port_name = port_name.ok_or_else(|| self.wrong(name, "an identifier of a port"))?;
        let texts = [name, chassis_name.unwrap_or_default(), port_name];
        if texts.iter().any(|text| text.len() > FABRIC_NAME_BYTES_MAX) {
            let text = format!("a name of at most {FABRIC_NAME_BYTES_MAX} bytes");
            return Err(self.wrong(name, &text));
        }
        if self.neighbours.len() == FABRIC_PORTS_MAX {
            return Err(self.wrong(name, &format!("one of {FABRIC_PORTS_MAX} neighbours")));
        }
        self.neighbours.push(Neighbour {
            interface: name.to_owned(),
            mac: None,
            switch: Digest::new().bytes(kind.as_bytes()).bytes(value.as_bytes()).finish(),
            name: chassis_name.unwrap_or_default().to_owned(),
            is_switch: chassis.is_none_or(is_switch),
            is_lldp: interface.get("via").and_then(Value::as_str) == Some("LLDP"),
            port: port_name.to_owned(),
        });
        Ok(())
    }

    /// An error about an interface, on the line where its name stands first: the parser keeps no
    /// lines.
    fn wrong(&self, interface: &str, lacks: &str) -> Reason {
        let at = self.text.find(&format!("\"{interface}\"")).unwrap_or(0);
        let line = self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Reason::new(line, format!("has interface {interface:?} without {lacks}"))
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

/// Whether a neighbour says that it forwards, or says nothing of what it does.
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

/// The items of a list; anything else is an item by itself.
fn all(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.into_iter().flat_map(|value| match value {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    })
}
