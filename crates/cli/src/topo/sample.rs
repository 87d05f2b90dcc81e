//! Machines and fabrics for tests.

use ringfold_topology::certainty::{Certainty, Finding};
use ringfold_topology::fabric::{
    Cable, Classification, EndPort, Fabric, HostPlace, Kind, Oddity, Place, PortId, Switch,
};
use ringfold_topology::machine::{
    Core, Gpu, Interface, Machine, Network, Nic, NicPort, PciAddress, PciDevice,
};

fn sure<T>(value: T, because: &str) -> Finding<T> {
    Finding { value, certainty: Certainty::Certain, because: because.to_owned() }
}

/// Returns groups of hosts, with a leaf switch for each group and rail, and spines above them.
pub(super) fn rails(
    groups: usize,
    hosts: usize,
    rails: usize,
    spines: usize,
) -> (Fabric, Classification) {
    let mut fabric = Fabric::default();
    let mut places = Vec::new();
    let mut order = Vec::new();
    for group in 0..groups {
        for rail in 0..rails {
            let name = format!("leaf{group}-r{rail}");
            fabric.switches.push(switch(group * rails + rail, name));
        }
        for host in group * hosts..(group + 1) * hosts {
            for rail in 0..rails {
                let leaf = group * rails + rail;
                let down = u16::try_from(host % hosts + 1).unwrap();
                fabric.ports.push(port(host, rail, Some((leaf, down))));
                let rail = u16::try_from(rail).unwrap();
                places.push((Some(Place { rail, plane: 0 }), Certainty::Certain));
            }
            let [group, host] = [group, host].map(|it| u32::try_from(it).unwrap());
            let name = format!("host{host}");
            order.push(HostPlace { host: name, pod: 0, group, order: host });
        }
    }
    for spine in 0..spines {
        let at = fabric.switches.len();
        fabric.switches.push(switch(at, format!("spine{spine}")));
        for leaf in 0..groups * rails {
            let up = u16::try_from(100 + spine).unwrap();
            let ends = [(leaf, up), (at, u16::try_from(leaf + 1).unwrap())];
            fabric.cables.push(Cable { ends, gbps: 400 });
        }
    }
    let count = u16::try_from(rails).unwrap();
    let found = Classification {
        kind: sure(Kind::RailOptimized, "port i of every host is on leaf i of its group"),
        rails: sure(count, "every host has a port on each"),
        planes: sure(1, "all leaf switches share spines"),
        subnets: sure(1, "cables join all switches"),
        subnet_of: vec![Some(0); places.len()],
        places,
        hosts: order,
        crosses: sure(spines > 0, "spines join the rails"),
        oddities: Vec::new(),
    };
    (fabric, found)
}

fn switch(at: usize, name: String) -> Switch {
    Switch { id: 0x1000 + at as u64, name, is_router: false }
}

fn port(host: usize, device: usize, attached: Option<(usize, u16)>) -> EndPort {
    EndPort {
        id: PortId::Guid(0x10_0000 + (host * 16 + device) as u64),
        host: format!("host{host}"),
        device: format!("mlx5_{device}"),
        number: 1,
        gbps: 400,
        attached,
    }
}

/// Returns a torus of switches with two hosts on each. The numbers of odd rows run backwards.
pub(super) fn torus(rows: usize, columns: usize) -> (Fabric, Classification) {
    let (mut fabric, mut found) = rails(rows * columns, 2, 1, 0);
    let at = |row: usize, column: usize| {
        let column = column % columns;
        let row = row % rows;
        row * columns + if row.is_multiple_of(2) { column } else { columns - 1 - column }
    };
    for row in 0..rows {
        for column in 0..columns {
            for next in [at(row + 1, column), at(row, column + 1)] {
                fabric.cables.push(Cable { ends: [(at(row, column), 50), (next, 51)], gbps: 400 });
            }
        }
    }
    let dims = [rows, columns].map(|dim| u32::try_from(dim).unwrap()).to_vec();
    found.kind = sure(Kind::Torus { dims }, "every switch has four neighbours");
    found.rails = sure(0, "a host has one port");
    (fabric, found)
}

/// Returns two pods of two groups of two hosts, with two rails in each of two planes.
pub(super) fn pods() -> (Fabric, Classification) {
    let (mut fabric, mut found) = rails(4, 2, 4, 0);
    let cable = |low: usize, high: usize| Cable {
        ends: [(low, u16::try_from(high).unwrap()), (high, u16::try_from(low).unwrap())],
        gbps: 800,
    };
    for spine in 16..20 {
        fabric.switches.push(switch(spine, format!("spine{}", spine - 16)));
    }
    for leaf in 0..16 {
        let (pod, plane) = (leaf / 8, leaf % 4 / 2);
        fabric.cables.push(cable(leaf, 16 + 2 * pod + plane));
    }
    for plane in 0..2 {
        fabric.switches.push(switch(20 + plane, format!("core{plane}")));
        fabric.cables.extend([cable(16 + plane, 20 + plane), cable(18 + plane, 20 + plane)]);
    }
    for (place, _) in &mut found.places {
        let Place { rail, .. } = place.unwrap();
        *place = Some(Place { rail: rail % 2, plane: u8::try_from(rail / 2).unwrap() });
    }
    found.hosts.iter_mut().for_each(|host| host.pod = host.group / 2);
    (found.rails, found.planes) = (sure(2, "two in each plane"), sure(2, "two planes"));
    (fabric, found)
}

/// Returns a fabric of two rails with four faulty ports: unplugged, slow, on the wrong leaf, and
/// missing.
pub(super) fn faulty() -> (Fabric, Classification) {
    let (mut fabric, mut found) = rails(1, 4, 2, 1);
    let mut odd = |port: usize, what: &str| {
        found.oddities.push(Oddity { port: Some(port), what: what.to_owned() });
    };
    odd(1, "host0 mlx5_1:1 has no link");
    odd(2, "host1 mlx5_0:1 runs at 200 Gb/s where the others of its rail run at 400");
    odd(5, "host2 mlx5_1:1 is on leaf0-r0 and belongs on leaf0-r1");
    fabric.ports[1].attached = None;
    found.places[1] = (None, Certainty::Unknown);
    fabric.ports[2].gbps = 200;
    fabric.ports[5].attached = Some((0, 9));
    // The port reaches those of rail 0.
    found.places[5] = (Some(Place { rail: 0, plane: 0 }), Certainty::Certain);
    fabric.ports.pop();
    found.places.pop();
    found.subnet_of.pop();
    (fabric, found)
}

pub(super) fn address(bus: u8, device: u8) -> PciAddress {
    PciAddress { domain: 0, bus, device, function: 0 }
}

fn device(bus: u8, below: Option<u8>, class: u32, node: u16) -> PciDevice {
    PciDevice {
        address: address(bus, 0),
        parent: below.map(|bus| address(bus, 0)),
        class,
        node: Some(node),
        ..PciDevice::default()
    }
}

fn nic(number: usize, bus: u8, node: u16) -> Nic {
    let port = NicPort {
        number: 1,
        network: Network::InfiniBand,
        is_active: number != 1,
        gbps: 400,
        lid: u16::try_from(number).unwrap() + 1,
        interfaces: vec![format!("ib{number}")],
        ..NicPort::default()
    };
    let pci = Some(address(bus, 0));
    Nic {
        name: format!("mlx5_{number}"),
        pci,
        node: Some(node),
        ports: vec![port],
        ..Nic::default()
    }
}

/// Returns two sockets, each with a PCI switch above a GPU and a NIC; the first has a storage NIC.
pub(super) fn machine() -> Machine {
    let core = |node: u16, number: u16| Core {
        cpus: vec![number, number + 8],
        node: Some(node),
        socket: Some(node),
        cache: Some(node),
    };
    let (bridge, gpu, ib) = (0x06_0400, 0x03_0200, 0x02_0700);
    let interface = |number: usize, last: u8| Interface {
        name: format!("ib{number}"),
        is_up: number != 1,
        gbps: 400,
        mtu: 4092,
        addresses: vec![([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 1, 0, last], 120)],
        ..Interface::default()
    };
    let bond = Interface { name: "bond0".to_owned(), is_up: true, mtu: 1500, ..interface(9, 9) };
    let port = Interface {
        name: "eth0".to_owned(),
        master: Some("bond0".to_owned()),
        pci: Some(address(0xf0, 0)),
        ..interface(8, 8)
    };
    Machine {
        remarks: vec!["The kernel tells stories.".to_owned()],
        name: "node7".to_owned(),
        cores: (0..8).map(|number| core(number / 4, number)).collect(),
        devices: vec![
            // A root port, a switch's port up, and its two ports down.
            device(0x00, None, bridge, 0),
            device(0x10, Some(0x00), bridge, 0),
            device(0x11, Some(0x10), bridge, 0),
            device(0x12, Some(0x10), bridge, 0),
            device(0x13, Some(0x11), gpu, 0),
            device(0x14, Some(0x12), ib, 0),
            device(0x50, None, ib, 0),
            device(0x80, None, bridge, 1),
            device(0x90, Some(0x80), bridge, 1),
            device(0x91, Some(0x90), gpu, 1),
            device(0x92, Some(0x90), ib, 1),
            device(0xf0, None, 0x02_0000, 1),
        ],
        nics: vec![nic(0, 0x14, 0), nic(1, 0x92, 1), nic(2, 0x50, 0)],
        gpus: [(0x13, 0), (0x91, 1)]
            .map(|(bus, node)| Gpu { pci: address(bus, 0), node: Some(node), domain: Some(0) })
            .to_vec(),
        interfaces: vec![interface(0, 1), interface(1, 2), interface(2, 3), port, bond],
    }
}
