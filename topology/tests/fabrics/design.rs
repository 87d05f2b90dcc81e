//! Draws a design (shape, sizes, hosts, NICs) and builds it without damage.

use crate::shapes::{Network, Shape, Site};
use crate::wiring::{HostPlan, Naming, Outlet, Role, Seat, Wiring};
use ringfold_harness::Random;

/// Rows of the table. Each seed belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    Single,
    RailOptimized,
    RailOptimizedCores,
    RailOnly,
    FatTree2,
    FatTree3,
    TwoSubnets,
    DragonflyPlus,
    Torus,
    HyperX,
    Unknown,
}

pub(crate) const ROWS: [Row; 11] = [
    Row::Single,
    Row::RailOptimized,
    Row::RailOptimizedCores,
    Row::RailOnly,
    Row::FatTree2,
    Row::FatTree3,
    Row::TwoSubnets,
    Row::DragonflyPlus,
    Row::Torus,
    Row::HyperX,
    Row::Unknown,
];

#[derive(Clone, Debug)]
pub(crate) struct Design {
    pub(crate) shape: Shape,
    pub(crate) hosts: usize,
    /// NICs of a host, without storage NICs.
    pub(crate) nics: usize,
    /// Ports of a NIC. Port p is in plane p.
    pub(crate) planes: usize,
    /// 2 if the hosts are in two networks of this shape.
    pub(crate) subnets: usize,
    pub(crate) routers: usize,
    pub(crate) storage_nics: usize,
    /// Cables between two switches that are connected.
    pub(crate) times: usize,
    pub(crate) gbps: u32,
    pub(crate) trunk_gbps: u32,
}

const HOSTS_MAX: usize = 512;

/// A number from `low` to `high` whose magnitudes are equally likely.
fn magnitude(random: &mut Random, low: usize, high: usize) -> usize {
    let bits = |n: usize| n.max(1).ilog2();
    let top = 1usize << random.between(bits(low) as usize, bits(high) as usize);
    random.between(top, 2 * top - 1).clamp(low, high.max(low))
}

/// Draws a shape for at most this many groups of hosts.
fn shape(row: Row, random: &mut Random) -> Shape {
    let spines = random.between(1, 8);
    match row {
        Row::Single => Shape::Single,
        Row::RailOptimized => {
            Shape::RailOptimized { units: magnitude(random, 1, 16), spines, cores: 0 }
        }
        Row::RailOptimizedCores => Shape::RailOptimized {
            units: random.between(2, 16),
            spines: random.between(1, 4),
            cores: random.between(1, 8),
        },
        Row::RailOnly => {
            let units = random.between(1, 8);
            Shape::RailOnly { units, spines: if units == 1 { 0 } else { spines } }
        }
        Row::FatTree2 => Shape::FatTree {
            down: vec![magnitude(random, 2, 32)],
            up: vec![spines],
            is_spread: random.chance(20),
        },
        Row::FatTree3 => {
            let arity = random.between(2, 5);
            let (down, up) = if random.chance(33) {
                (vec![arity; 2], vec![arity; 2])
            } else {
                let down = vec![random.between(2, 6), random.between(2, 6)];
                (down, vec![random.between(1, 4), random.between(1, 4)])
            };
            Shape::FatTree { down, up, is_spread: random.chance(10) }
        }
        Row::TwoSubnets => shape(random.pick(&[Row::RailOptimized, Row::FatTree2]), random),
        Row::DragonflyPlus => {
            let (groups, spines) = (random.between(3, 9), random.between(2, 6));
            let leaves = random.between(2, 6);
            // Every spine has as many cables to other groups as the next, as the paper requires.
            let fair = (1..=spines).find(|links| links * (groups - 1) % spines == 0);
            let links = fair.unwrap_or(spines) * random.between(1, 2);
            Shape::DragonflyPlus { groups, leaves, spines, links }
        }
        Row::Torus => {
            let dims = random.between(2, 4);
            let longest = [8, 6, 4][dims - 2];
            Shape::Torus((0..dims).map(|_| random.between(3, longest)).collect())
        }
        Row::HyperX if random.chance(33) => Shape::HyperX(vec![2; random.between(3, 7)]),
        Row::HyperX => {
            let dims = random.between(1, 4);
            let longest = [16, 8, 5, 4][dims - 1];
            let shortest = if dims == 1 { 3 } else { 2 };
            Shape::HyperX((0..dims).map(|_| random.between(shortest, longest)).collect())
        }
        Row::Unknown if random.chance(33) => {
            Shape::Dragonfly { routers: random.between(3, 5), links: random.between(1, 2) }
        }
        Row::Unknown => {
            let degree = random.between(3, 6);
            Shape::Regular { switches: 2 * random.between(degree + 2, 24), degree }
        }
    }
}

impl Design {
    pub(crate) fn draw(row: Row, random: &mut Random) -> Self {
        let shape = shape(row, random);
        let subnets = if row == Row::TwoSubnets { 2 } else { 1 };
        // Three hosts in each unit: if one of two is renamed, no majority shows the right name.
        let a_group = if shape.has_rails() && shape.groups() * subnets > 1 { 3 } else { 1 };
        let fewest = (shape.groups() * subnets * a_group).max(2);
        let fewest = if is_spread(&shape) { fewest.max(16) } else { fewest };
        let gbps = random.pick(&[100, 200, 400, 800]);
        let nics = match row {
            _ if shape.has_rails() => magnitude(random, 2, 16),
            Row::Single | Row::FatTree2 => magnitude(random, 1, 16),
            _ if is_spread(&shape) => random.between(2, 4),
            _ => magnitude(random, 1, 4),
        };
        let storage = [Row::RailOptimized, Row::RailOnly].contains(&row) && nics <= 14;
        Self {
            hosts: magnitude(random, fewest, HOSTS_MAX),
            nics,
            planes: if random.chance(25) { random.between(2, 4) } else { 1 },
            subnets,
            routers: if subnets == 2 && random.chance(50) { random.between(1, 4) } else { 0 },
            storage_nics: if storage && random.chance(20) { random.between(1, 2) } else { 0 },
            times: if random.chance(30) { 2 } else { 1 },
            gbps,
            trunk_gbps: gbps * if random.chance(30) { 2 } else { 1 },
            shape,
        }
    }

    /// Builds the design: every port attached, every cable in place.
    pub(crate) fn build(&self, random: &mut Random) -> Wiring {
        let mut wiring = Wiring { hosts: self.host_plans(random), ..Wiring::default() };
        for plane in 0..self.planes {
            let networks: Vec<Network> = (0..self.subnets)
                .map(|subnet| {
                    let site = Site {
                        rails: self.nics,
                        plane,
                        first_group: subnet * self.shape.groups(),
                        times: self.times,
                    };
                    // Planes are alike, even those of random graphs.
                    self.shape.build(&mut wiring, site, &mut Random::new(subnet as u64))
                })
                .collect();
            self.attach(&mut wiring, plane, &networks, random);
            for _ in 0..self.routers {
                let router = wiring.switch(Seat::Router);
                for network in &networks {
                    wiring.join_all(&network.top, &[router], 1);
                }
            }
        }
        self.attach_storage(&mut wiring, random);
        for trunk in &mut wiring.trunks {
            trunk.gbps = self.trunk_gbps;
        }
        wiring
    }

    fn host_plans(&self, random: &mut Random) -> Vec<HostPlan> {
        // Half of the sites number hosts by their position.
        let mut numbers: Vec<usize> = (0..self.hosts).collect();
        if random.chance(50) {
            random.shuffle(&mut numbers);
        }
        let name = |number: &usize| format!("node{number:03}");
        numbers.iter().map(|n| HostPlan { name: name(n), names: Naming::Slots }).collect()
    }

    /// The group of a host. The numbers of hosts in groups differ by at most one.
    pub(crate) fn group_of(&self, host: usize) -> usize {
        host * self.shape.groups() * self.subnets / self.hosts
    }

    fn attach(&self, wiring: &mut Wiring, plane: usize, networks: &[Network], random: &mut Random) {
        for host in 0..self.hosts {
            let group = self.group_of(host);
            let network = &networks[group / self.shape.groups()];
            for nic in 0..self.nics {
                let group = if is_spread(&self.shape) {
                    random.below(self.shape.groups())
                } else {
                    group % self.shape.groups()
                };
                let leaves = &network.leaves[group];
                let leaf = leaves[nic % leaves.len()];
                let gbps = self.gbps;
                let (designed, at) = (leaf, Some(leaf));
                let role = Role::Compute;
                wiring.outlets.push(Outlet { host, role, nic, plane, gbps, designed, at });
            }
        }
    }

    /// A separate storage network at half the rate, with servers that have no other port.
    fn attach_storage(&self, wiring: &mut Wiring, random: &mut Random) {
        if self.storage_nics == 0 {
            return;
        }
        let switches: Vec<usize> =
            (0..random.between(1, 2)).map(|_| wiring.switch(Seat::Storage)).collect();
        if let [a, b] = switches[..] {
            wiring.join(a, b, 2);
        }
        for server in 0..random.between(1, 4) {
            let name = format!("storage{server}");
            wiring.hosts.push(HostPlan { name, names: Naming::Slots });
        }
        for host in 0..wiring.hosts.len() {
            for nic in 0..self.storage_nics {
                let designed = switches[(host + nic) % switches.len()];
                wiring.outlets.push(Outlet {
                    host,
                    role: Role::Storage,
                    nic,
                    plane: 0,
                    gbps: self.gbps / 2,
                    designed,
                    at: Some(designed),
                });
            }
        }
    }
}

pub(crate) fn is_spread(shape: &Shape) -> bool {
    matches!(shape, Shape::FatTree { is_spread: true, .. })
}
