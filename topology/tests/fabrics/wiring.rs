//! A fabric while it is built and damaged. Every part has its purpose in the design.

/// A label that ports share. Designs without rails have no rail in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Label {
    pub(crate) rail: Option<usize>,
    pub(crate) plane: usize,
}

/// The purpose of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// Hosts of `group` are attached to it.
    Leaf { label: Label, group: usize },
    /// It connects other switches: those of a label, or, without one, all.
    Upper { label: Option<Label> },
    /// It connects subnets.
    Router,
    /// Storage servers and the storage NICs of hosts are attached to it.
    Storage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Compute,
    Storage,
    /// The only port of a host that runs no ranks.
    Management,
}

/// A port of a host.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(crate) host: usize,
    pub(crate) role: Role,
    /// The NIC's index among those with its role, on a host that lacks none.
    pub(crate) nic: usize,
    pub(crate) plane: usize,
    pub(crate) gbps: u32,
    /// The switch of the design.
    pub(crate) designed: usize,
    /// The switch at the end of the cable.
    pub(crate) at: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Trunk {
    pub(crate) ends: [usize; 2],
    pub(crate) gbps: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) name: String,
    /// The number in the name of each of its NICs, storage NICs included, by `Outlet` device.
    pub(crate) names: Naming,
}

/// The order of a host's device names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Device i has number i, and a missing NIC leaves a gap.
    Slots,
    /// Present devices are numbered from 0, as the kernel does.
    Packed,
    /// Device i has another number.
    Permuted(Vec<usize>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Wiring {
    pub(crate) seats: Vec<Seat>,
    pub(crate) trunks: Vec<Trunk>,
    pub(crate) outlets: Vec<Outlet>,
    pub(crate) hosts: Vec<HostPlan>,
}

impl Wiring {
    pub(crate) fn switch(&mut self, seat: Seat) -> usize {
        self.seats.push(seat);
        self.seats.len() - 1
    }

    pub(crate) fn leaf(&mut self, rail: Option<usize>, plane: usize, group: usize) -> usize {
        self.switch(Seat::Leaf { label: Label { rail, plane }, group })
    }

    pub(crate) fn uppers(&mut self, count: usize, label: Option<Label>) -> Vec<usize> {
        (0..count).map(|_| self.switch(Seat::Upper { label })).collect()
    }

    pub(crate) fn join(&mut self, a: usize, b: usize, times: usize) {
        for _ in 0..times {
            self.trunks.push(Trunk { ends: [a, b], gbps: 0 });
        }
    }

    pub(crate) fn join_all(&mut self, lower: &[usize], upper: &[usize], times: usize) {
        for a in lower {
            for b in upper {
                self.join(*a, *b, times);
            }
        }
    }

    /// For each switch the number of its part: the switches that cables connect, with or without
    /// routers.
    pub(crate) fn parts(&self, through_routers: bool) -> Vec<usize> {
        let mut part: Vec<usize> = (0..self.seats.len()).collect();
        for trunk in &self.trunks {
            let is_router = |end: &usize| self.seats[*end] == Seat::Router;
            if through_routers || !trunk.ends.iter().any(is_router) {
                unite(&mut part, trunk.ends[0], trunk.ends[1]);
            }
        }
        (0..part.len()).map(|switch| root(&part, switch)).collect()
    }
}

pub(crate) fn root(part: &[usize], mut of: usize) -> usize {
    while part[of] != of {
        of = part[of];
    }
    of
}

pub(crate) fn unite(part: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(part, a), root(part, b));
    part[a.max(b)] = a.min(b);
}
