//! The answers as JSON, with a name for each value.

use ringfold_topology::certainty::{Certainty, Finding};
use ringfold_topology::fabric::{
    Cable, Classification, EndPort, Fabric, HostPlace, Kind, Oddity, Place, Switch,
};
use ringfold_topology::machine::{Machine, PciAddress};
use ringfold_topology::site::{Measured, Reach};
use serde_json::{Value, json};

use super::machine::network;
use super::picture::{host, identifier};
use super::source::Network;
use super::switches::levels;
use super::text;

/// Returns a fabric with its classification and measurements.
pub(super) fn described(network: &Network) -> Value {
    let mut value = fabric(&network.fabric, &network.found);
    let of = |it: &Measured| {
        let place = |place: &Place| json!({ "rail": place.rail, "plane": place.plane });
        let reach = match it.reach {
            Reach::All => "all",
            Reach::Some => "some",
            Reach::None => "none",
        };
        let between: Vec<Value> = it.between.iter().map(place).collect();
        json!({ "between": between, "reach": reach, "apart": it.are_apart })
    };
    let site = network.site.as_ref();
    let measured = site.map(|site| site.measured.iter().map(of).collect::<Vec<_>>());
    value["measured"] = measured.into();
    value
}

/// Returns a fabric with its classification.
pub(super) fn fabric(fabric: &Fabric, found: &Classification) -> Value {
    json!({
        "kind": kind(&found.kind),
        "rails": finding(&found.rails),
        "planes": finding(&found.planes),
        "subnets": finding(&found.subnets),
        "crosses": finding(&found.crosses),
        "shows_cables": !fabric.is_partial,
        "hosts": found.hosts.iter().map(place).collect::<Vec<_>>(),
        "ports": ports(fabric, found),
        "switches": switches(fabric),
        "cables": cables(fabric),
        "oddities": oddities(fabric, found),
    })
}

fn finding<T: Copy + Into<Value>>(found: &Finding<T>) -> Value {
    json!({
        "value": found.value.into(),
        "certainty": certainty(found.certainty),
        "because": found.because,
    })
}

fn certainty(certainty: Certainty) -> String {
    certainty.to_string()
}

fn kind(found: &Finding<Kind>) -> Value {
    let (name, more) = match &found.value {
        Kind::SingleSwitch => ("single_switch", json!({})),
        Kind::RailOptimized => ("rail_optimized", json!({})),
        Kind::RailOnly => ("rail_only", json!({})),
        Kind::FatTree { levels, oversubscription: of } => {
            ("fat_tree", json!({ "levels": levels, "oversubscription": [of.0, of.1] }))
        }
        Kind::DragonflyPlus => ("dragonfly_plus", json!({})),
        Kind::Torus { dims } => ("torus", json!({ "dims": dims })),
        Kind::HyperX { dims } => ("hyperx", json!({ "dims": dims })),
        Kind::Other { levels } => ("unknown", json!({ "levels": levels })),
    };
    let mut value = json!({
        "value": name,
        "in_words": text::kind(&found.value),
        "certainty": certainty(found.certainty),
        "because": found.because,
    });
    for (key, one) in more.as_object().into_iter().flatten() {
        value[key] = one.clone();
    }
    value
}

fn place(it: &HostPlace) -> Value {
    json!({ "name": it.host, "pod": it.pod, "group": it.group, "order": it.order })
}

fn ports(fabric: &Fabric, found: &Classification) -> Vec<Value> {
    let of = |(at, port): (usize, &EndPort)| {
        let (place, sure) = found.places.get(at).copied().unwrap_or_default();
        let switch = port.attached.map(|(switch, number)| json!({ "at": switch, "port": number }));
        json!({
            "id": identifier(port.id),
            "host": host(port),
            "device": port.device,
            "port": port.number,
            "gbps": port.gbps,
            "switch": switch,
            "rail": place.map(|place| place.rail),
            "plane": place.map(|place| place.plane),
            "certainty": certainty(sure),
            "subnet": found.subnet_of.get(at).copied().flatten(),
        })
    };
    fabric.ports.iter().enumerate().map(of).collect()
}

fn switches(fabric: &Fabric) -> Vec<Value> {
    let of = |(switch, level): (&Switch, u32)| {
        json!({
            "id": format!("0x{:016x}", switch.id),
            "name": switch.name,
            "level": level,
            "is_router": switch.is_router,
        })
    };
    fabric.switches.iter().zip(levels(fabric)).map(of).collect()
}

fn cables(fabric: &Fabric) -> Vec<Value> {
    let end = |(switch, port): (usize, u16)| json!({ "at": switch, "port": port });
    let of = |cable: &Cable| json!({ "ends": cable.ends.map(end), "gbps": cable.gbps });
    fabric.cables.iter().map(of).collect()
}

fn oddities(fabric: &Fabric, found: &Classification) -> Vec<Value> {
    let of = |oddity: &Oddity| {
        let port = oddity.port.and_then(|at| fabric.ports.get(at));
        json!({ "what": oddity.what, "port": port.map(|port| identifier(port.id)) })
    };
    found.oddities.iter().map(of).collect()
}

/// Returns a machine.
pub(super) fn machine(machine: &Machine) -> Value {
    json!({
        "name": machine.name,
        "remarks": machine.remarks,
        "cores": machine.cores.iter().map(|core| json!({
            "cpus": core.cpus, "node": core.node, "socket": core.socket, "cache": core.cache,
        })).collect::<Vec<_>>(),
        "gpus": machine.gpus.iter().map(|gpu| json!({
            "pci": pci(gpu.pci), "node": gpu.node, "domain": gpu.domain,
        })).collect::<Vec<_>>(),
        "nics": nics(machine),
        "interfaces": machine.interfaces.iter().map(|it| json!({
            "name": it.name, "is_up": it.is_up, "gbps": it.gbps, "mtu": it.mtu,
            "pci": it.pci.map(pci), "part_of": it.master,
            "addresses": it.addresses.iter()
                .map(|(bytes, bits)| super::machine::address(*bytes, *bits)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

/// Formats an address as `lspci -D` does.
fn pci(address: PciAddress) -> String {
    address.to_string()
}

fn nics(machine: &Machine) -> Vec<Value> {
    let mut values = Vec::new();
    for nic in &machine.nics {
        for port in &nic.ports {
            values.push(json!({
                "name": format!("{}:{}", nic.name, port.number),
                "pci": nic.pci.map(pci),
                "node": nic.node,
                "virtual_of": nic.virtual_of.map(pci),
                "network": network(port.network),
                "is_active": port.is_active,
                "gbps": port.gbps,
                "lid": port.lid,
                "guid": format!("0x{:016x}", port.guid),
                "interfaces": port.interfaces,
            }));
        }
    }
    values
}
