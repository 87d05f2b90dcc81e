//! The opened ports as evidence of the fabric, and the labels that the ranks agreed on.

use ringfold_topology::fabric::{Place, PortId};
use ringfold_topology::machine::{Machine, Network};

use super::rail::{Rail, Rails};
use super::wire::Wire;

/// One port that `Rails` has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPort {
    /// Device and port, as in `mlx5_0:1`.
    pub name: String,
    /// The port's network.
    pub network: Network,
    /// The GID that peers use. On RoCE v2 and iWARP it is an IP address.
    pub gid: [u8; 16],
    /// Bits of the GID's IP network, of 128; `None` if the GID is no IP address of the interface.
    pub prefix: Option<u8>,
    /// The port's GUID, or its interface's MAC address, or else its IP address.
    pub id: PortId,
    /// Gigabits per second; 0 if unknown.
    pub gbps: u32,
    /// The network interface of the GID; empty if there is none.
    pub interface: String,
    /// The rail and plane that the user declared in `RINGFOLD_IB_HCA`.
    pub declared: Option<Place>,
}

impl Rails {
    /// Returns the opened ports, in the order of the labels that `label` takes.
    #[must_use]
    pub fn ports(&self) -> Vec<OpenPort> {
        self.0.iter().map(OpenPort::of).collect()
    }

    /// Takes interfaces, prefix lengths, MAC addresses and rates of the ports from `machine`.
    /// Without this call `ports` leaves them out. Ports of IP networks without labels then pair by
    /// the leading bits of their addresses.
    pub fn locate(&mut self, machine: &Machine) {
        self.0.iter_mut().for_each(|rail| rail.locate(machine));
    }

    /// Sets the rail and plane of each port, in the order of `ports`. Ports with equal labels pair.
    /// A port without a label pairs by its subnet, then its name, then its order.
    pub fn label(&mut self, labels: &[Option<Place>]) {
        for (rail, label) in self.0.iter_mut().zip(labels) {
            rail.label.place = *label;
        }
    }

    /// Sets the ports that this rank prefers, in the order of `ports`. Two ranks use the pairs that
    /// both prefer, else those that one prefers, else all. One more pair is a spare, which carries
    /// data while no other does. A rank without a preferred port prefers all.
    pub fn prefer(&mut self, preferred: &[bool]) {
        for (rail, is_preferred) in self.0.iter_mut().zip(preferred) {
            rail.label.is_preferred = *is_preferred;
        }
    }

    /// Sets the place of this rank among those of its host. So the ranks of a host divide the
    /// completion vectors of its devices among them, and CPUs their interrupts. Default: 0.
    pub fn set_local_rank(&mut self, local_rank: usize) {
        self.0.iter_mut().for_each(|rail| rail.local_rank = local_rank);
    }

    /// Sets whether ports on different rails of a plane reach each other. Two ranks without a
    /// common label pair such ports if both ranks set it. Default: no.
    pub fn crosses(&mut self, crosses: bool) {
        self.0.iter_mut().for_each(|rail| rail.label.crosses = crosses);
    }
}

impl Rails {
    /// The queue pairs that each pair of rails should have, so flows reach all ports of a bond.
    pub(super) fn flows(&self) -> u8 {
        self.0.iter().map(|rail| rail.wire.flows).max().unwrap_or(1)
    }
}

impl Rail {
    /// Takes the kernel's description of the port.
    pub(super) fn locate(&mut self, machine: &Machine) {
        self.wire.locate(machine, (self.device.context.name(), self.port.number), &self.gid);
    }
}

impl OpenPort {
    fn of(rail: &Rail) -> Self {
        let Wire { interface, prefix, id, gbps, declared, .. } = rail.wire.clone();
        Self {
            name: rail.name(),
            network: rail.gid.kind.network(),
            gid: rail.gid.bytes,
            prefix,
            id,
            gbps: if gbps > 0 { gbps } else { rail.port.gigabits },
            interface,
            declared,
        }
    }
}
