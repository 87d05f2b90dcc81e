//! Makes a `Fabric` of a wiring, with parts in random order and meaningless identifiers.

use ringfold_topology::fabric::{Cable, EndPort, Fabric, PortId, Switch};

use crate::design::Design;
use crate::shapes::Shape;
use crate::wiring::{Naming, Outlet, Role, Seat, Wiring};
use ringfold_harness::Random;

/// The fabric, and the outlet of each of its ports by index.
pub(crate) fn emit(design: &Design, wiring: &Wiring, random: &mut Random) -> (Fabric, Vec<usize>) {
    let mut numbers = Numbers::new(wiring, random);
    let order = random.order(wiring.seats.len());
    let mut place_of = vec![0; order.len()];
    for (place, switch) in order.iter().enumerate() {
        place_of[*switch] = place;
    }
    let is_named = random.chance(30);
    let switches = order.iter().map(|switch| Switch {
        id: random.bits(),
        name: if is_named { "MF0;Quantum-2".to_owned() } else { String::new() },
        is_router: wiring.seats[*switch] == Seat::Router,
    });
    let switches = switches.collect();
    let mut devices = Devices::draw(design, random);
    let outlets = random.order(wiring.outlets.len());
    let ports = outlets
        .iter()
        .map(|index| {
            let outlet = &wiring.outlets[*index];
            EndPort {
                id: devices.id(random),
                host: wiring.hosts[outlet.host].name.clone(),
                device: devices.name(wiring, outlet),
                number: devices.number(outlet),
                gbps: outlet.gbps,
                attached: outlet.at.map(|at| (place_of[at], numbers.next(at))),
            }
        })
        .collect();
    let cables = random
        .order(wiring.trunks.len())
        .into_iter()
        .map(|index| {
            let trunk = wiring.trunks[index];
            let mut ends = trunk.ends.map(|end| (place_of[end], numbers.next(end)));
            if random.chance(50) {
                ends.reverse();
            }
            Cable { ends, gbps: trunk.gbps }
        })
        .collect();
    (Fabric { switches, ports, cables, is_partial: false }, outlets)
}

/// Hands out the port numbers of switches in random order.
struct Numbers(Vec<Vec<u16>>);

impl Numbers {
    fn new(wiring: &Wiring, random: &mut Random) -> Self {
        let mut used = vec![0; wiring.seats.len()];
        let ends = wiring.trunks.iter().flat_map(|trunk| trunk.ends);
        for end in ends.chain(wiring.outlets.iter().filter_map(|outlet| outlet.at)) {
            used[end] += 1;
        }
        let free = used.into_iter().map(|used| {
            let mut free: Vec<u16> = (1..=used).collect();
            random.shuffle(&mut free);
            free
        });
        Self(free.collect())
    }

    fn next(&mut self, switch: usize) -> u16 {
        self.0[switch].pop().unwrap()
    }
}

/// The names of a site's devices.
struct Devices {
    is_ethernet: bool,
    is_storage_first: bool,
    storage: usize,
    nics: usize,
    planes: usize,
    next: u64,
}

impl Devices {
    fn draw(design: &Design, random: &mut Random) -> Self {
        let has_rails = matches!(design.shape, Shape::RailOptimized { .. });
        Self {
            // The name of an Ethernet interface does not show the NIC of the port. So planes are
            // distinguishable from rails only if they have rails of their own.
            is_ethernet: (design.planes == 1 || has_rails) && random.chance(25),
            is_storage_first: random.chance(50),
            storage: design.storage_nics,
            nics: design.nics,
            planes: design.planes,
            next: random.bits() >> 16,
        }
    }

    fn id(&mut self, random: &mut Random) -> PortId {
        self.next += 1;
        // Unique by the lower bits, in random order by the upper ones.
        let bits = (random.bits() & 0xffff) << 32 | self.next & 0xffff_ffff;
        if self.is_ethernet { PortId::Mac(bits) } else { PortId::Guid(bits) }
    }

    /// The device's index on a host that lacks none. Each Ethernet port is a device.
    fn slot(&self, outlet: &Outlet) -> usize {
        let planes = if self.is_ethernet { self.planes } else { 1 };
        let (first, planes) = match outlet.role {
            Role::Storage if self.is_storage_first => (0, 1),
            Role::Storage => (self.nics * planes, 1),
            Role::Compute if self.is_storage_first => (self.storage, planes),
            Role::Compute | Role::Management => (0, planes),
        };
        first + outlet.nic * planes + if planes > 1 { outlet.plane } else { 0 }
    }

    fn name(&self, wiring: &Wiring, outlet: &Outlet) -> String {
        let slot = self.slot(outlet);
        let number = match &wiring.hosts[outlet.host].names {
            Naming::Slots => slot,
            Naming::Permuted(numbers) => numbers[slot],
            Naming::Packed => {
                let of_host = wiring.outlets.iter().filter(|other| other.host == outlet.host);
                let mut below: Vec<usize> =
                    of_host.map(|other| self.slot(other)).filter(|other| *other < slot).collect();
                below.sort_unstable();
                below.dedup();
                below.len()
            }
        };
        if self.is_ethernet { format!("eth{number}") } else { format!("mlx5_{number}") }
    }

    fn number(&self, outlet: &Outlet) -> u8 {
        if self.is_ethernet { 1 } else { u8::try_from(outlet.plane + 1).unwrap() }
    }
}
