//! The checks of a host's RDMA, with advice about every fault; and the properties of its ports by
//! which other hosts pair theirs with them.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ringfold_topology::discover::machine;
use ringfold_topology::fabric::Place;
use ringfold_topology::machine::slow;
use rustix::process::{Resource, getrlimit};

use super::MEMLOCK;
use crate::rdma::card::{Label, RailCard, digest};
use crate::rdma::gid::ELSEWHERE;
use crate::rdma::pairing::choose;
use crate::rdma::partition::Key;
use crate::rdma::rail::{Rail, Refusal};
use crate::rdma::settings::Settings;
use crate::rdma::sys::{DEVICES, GidKind, LinkLayer, devices};
use crate::rdma::table::Device;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject, in a word.
    pub about: &'static str,
    /// The state of the subject.
    pub state: State,
    /// The finding, and the advice about it.
    pub what: String,
}

impl Finding {
    const fn new(about: &'static str, state: State, what: String) -> Self {
        Self { about, state, what }
    }
}

/// The state of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The subject is as it should be.
    Good,
    /// The subject works, but could be better.
    Fair,
    /// The subject does not work.
    Bad,
}

/// The lockable memory below which a job of some size runs out.
const LOCKED_BYTES: u64 = 256 << 20;
/// The way to longer packets.
const ETHERNET_MTU: &str = "an interface of 4200 bytes or more has 4096 (`ip link set ... mtu \
                            9000`, and on the switch)";
/// Bytes of an RDMA packet from which on the network's headers cost little.
const MTU_BYTES: u32 = 4096;

/// The results of all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// The findings.
    pub findings: Vec<Finding>,
    /// The ports that can be used.
    pub ports: Vec<Port>,
}

/// A port that can be used, as other hosts must know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Device and port, as `RINGFOLD_IB_HCA` takes them.
    pub name: String,
    /// The port's network: 0 is InfiniBand, 1 and 2 RoCE of that version, 3 iWARP.
    pub kind: u8,
    /// Gigabits per second, as far as they are known.
    pub gigabits: u32,
    /// Bytes of payload of a packet; 0 over iWARP, where TCP chooses it.
    pub mtu: u32,
    /// The GID that is used. On RoCE v2 and iWARP it is an IP address.
    pub gid: [u8; 16],
    /// Bits of the GID's IP network, of 128; 0 if unknown.
    pub prefix: u8,
    /// The rail and plane that the user declared.
    pub place: Option<(u16, u8)>,
    /// The partition key, if it is not that of full members of the default partition.
    pub partition: Option<u16>,
}

impl Port {
    fn of(rail: &Rail) -> Self {
        Self {
            name: rail.name(),
            kind: rail.gid.kind as u8,
            gigabits: rail.port.gigabits,
            mtu: if rail.is_iwarp() { 0 } else { rail.mtu_bytes() },
            gid: rail.gid.bytes,
            prefix: rail.wire.prefix.unwrap_or(0),
            place: rail.wire.declared.map(|place| (place.rail, place.plane)),
            partition: Some(rail.partition.key).filter(|key| Key(*key) != Key::default()),
        }
    }

    /// Returns the name of the port's network.
    #[must_use]
    pub const fn network(&self) -> &'static str {
        super::network(self.gid_kind())
    }

    /// Explains why no port of one host pairs with a port of the other, and what to do about it.
    /// The text follows the names of the ports.
    #[must_use]
    pub fn apart(some: &[&Self], others: &[&Self]) -> String {
        let cards = |ports: &[&Self]| ports.iter().map(|it| it.card()).collect::<Vec<_>>();
        super::unpaired(&cards(some), &cards(others))
    }

    /// Returns the pairs of ports by which a lower and a higher rank would communicate. No port is
    /// in two pairs.
    #[must_use]
    pub fn pairs(lower: &[Self], higher: &[Self]) -> Vec<(usize, usize)> {
        let cards = |ports: &[Self]| ports.iter().map(Self::card).collect::<Vec<_>>();
        choose(&cards(lower), &cards(higher)).main
    }

    /// The port's card, as far as it matters for pairing.
    fn card(&self) -> RailCard {
        let (gid, kind, name) = (self.gid, self.gid_kind(), digest(&self.name));
        let place = self.place.map(|(rail, plane)| Place { rail, plane });
        let label = Label { place, ..Label::default() };
        let (partition, prefix) = (self.partition.map(Key).unwrap_or_default(), self.prefix);
        RailCard { gid, kind, name, prefix, label, partition, ..RailCard::default() }
    }

    const fn gid_kind(&self) -> GidKind {
        match GidKind::of(self.kind) {
            Some(kind) => kind,
            None => GidKind::Iwarp,
        }
    }
}

/// Checks the library, the devices that the settings allow, their ports and GIDs, and the memory
/// that may be locked. `near` is the address by which jobs connect here.
#[must_use]
pub fn examine(settings: &Settings, near: Option<IpAddr>) -> Examined {
    let mut examined = Examined::default();
    let Examined { findings, ports } = &mut examined;
    if !fs::read_dir(DEVICES).is_ok_and(|mut devices| devices.next().is_some()) {
        let what = format!(
            "none in {DEVICES}; if there is an RDMA NIC, load its driver (`lspci`, `dmesg`), and \
             in a container hand in /dev/infiniband"
        );
        findings.push(Finding::new("device", State::Fair, what));
        return examined;
    }
    let found = match devices() {
        Ok(found) => found,
        Err(why) => {
            findings.push(Finding::new("library", State::Bad, why));
            return examined;
        }
    };
    findings.push(Finding::new("library", State::Good, "libibverbs was found".to_owned()));
    if found.is_empty() {
        let what = "libibverbs sees none of the kernel's devices; install ibverbs-providers, and \
                    in a container hand in /dev/infiniband";
        findings.push(Finding::new("device", State::Bad, what.to_owned()));
    }
    let machine = machine(Path::new("/"));
    for (name, lack) in found {
        if let Some(lack) = lack {
            if settings.devices.allows(&name, 1) {
                let what = format!("{name} {lack}; tcp can use its interface");
                findings.push(Finding::new("device", State::Fair, what));
            }
            continue;
        }
        match Device::open(&name) {
            Ok(device) => {
                for number in 1..=device.limits.ports {
                    match Rail::open(&name, number, settings, near) {
                        Ok(mut rail) => {
                            rail.locate(&machine);
                            findings.extend(port(&rail));
                            ports.push(Port::of(&rail));
                        }
                        Err(Refusal::LeftOut) => {}
                        Err(Refusal::Unable(why) | Refusal::Unknown(why)) => {
                            let what = format!("{name}:{number} {why}");
                            findings.push(Finding::new("port", State::Bad, what));
                        }
                    }
                }
            }
            Err(why) => {
                let what = format!("{name} {why}");
                findings.push(Finding::new("device", State::Bad, what));
            }
        }
    }
    if !settings.devices.names_ports() {
        let all: Vec<_> =
            ports.iter().map(|port| (port.gid_kind().network(), port.gigabits)).collect();
        for at in slow(&all).into_iter().rev() {
            let what = format!("{} {}", ports.remove(at).name, super::slow(all[at], &all));
            findings.push(Finding::new("port", State::Fair, format!("not used: {what}")));
        }
    }
    if ports.is_empty() && findings.iter().all(|finding| finding.state == State::Good) {
        let what = "RINGFOLD_IB_HCA allows no port of any device".to_owned();
        findings.push(Finding::new("port", State::Fair, what));
    }
    findings.push(memory());
    examined
}

/// Checks one port.
fn port(rail: &Rail) -> Vec<Finding> {
    let name = rail.name();
    let about = if rail.partition.is_limited() {
        let advice = "a limited member reaches full members only; ask the administrator of the \
                      subnet manager, or name another key by RINGFOLD_IB_PKEY";
        Finding::new("port", State::Fair, format!("{rail}; {advice}"))
    } else {
        Finding::new("port", State::Good, rail.to_string())
    };
    if rail.is_iwarp() {
        let what = format!("{name}: {}: {}", rail.gid, rail.why);
        return vec![about, Finding::new("address", State::Good, what)];
    }
    let gid = format!("{name}: {} ({}): {}", rail.gid.index, rail.gid, rail.why);
    let gid = if rail.why == ELSEWHERE {
        let advice = "give this container the interface of the port, or the network of the host";
        Finding::new("gid", State::Fair, format!("{gid}; {advice}"))
    } else if rail.gid.kind != GidKind::InfiniBand && rail.gid.is_link_local() {
        let advice = "other hosts cannot route to it; give its interface an IP address";
        Finding::new("gid", State::Fair, format!("{gid}; {advice}"))
    } else {
        Finding::new("gid", State::Good, gid)
    };
    let bytes = rail.mtu_bytes();
    let mtu = format!("{name}: {bytes} bytes");
    let mtu = if bytes < MTU_BYTES {
        let advice = match rail.port.link_layer {
            LinkLayer::Ethernet => ETHERNET_MTU,
            LinkLayer::InfiniBand => "the subnet manager sets it",
        };
        Finding::new("mtu", State::Fair, format!("{mtu}; {advice}"))
    } else {
        Finding::new("mtu", State::Good, mtu)
    };
    vec![about, gid, mtu]
}

/// Checks the memory that may be locked.
fn memory() -> Finding {
    let about = "memlock";
    match getrlimit(Resource::Memlock).current {
        Some(bytes) if bytes < LOCKED_BYTES => {
            let what = format!(
                "{} KiB of memory may be locked; raise it ({}), unless the job runs as root",
                bytes / 1024,
                MEMLOCK
            );
            Finding::new(about, State::Fair, what)
        }
        Some(bytes) => {
            let what = format!("{} MiB of memory may be locked", bytes >> 20);
            Finding::new(about, State::Good, what)
        }
        None => {
            let what = "any amount of memory may be locked".to_owned();
            Finding::new(about, State::Good, what)
        }
    }
}
