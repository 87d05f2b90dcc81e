//! The network interfaces by which peers may reach this rank.

use std::collections::BTreeSet;

use std::net::UdpSocket;

use ringfold_bootstrap::interface::{Choice, Family, Filter, candidates, interfaces};
use ringfold_topology::machine::{Interface, Machine, PciAddress};
use ringfold_types::Rank;
use ringfold_types::limits::CHANNELS_MAX;

use crate::config::Config;
use crate::setup::error::InitError;

/// Addresses on which a rank listens beside those of its rails. Peers use them if they cannot use
/// the first.
const OTHER_ADDRESSES_MAX: usize = 3;

/// The addresses that suit the settings, the best first. Empty if neither TCP nor RDMA is allowed
/// and the user names no interfaces. `place` is where the ranks meet, if they are to meet.
pub(super) fn choose(
    config: &Config,
    rank: Rank,
    place: MeetingPlace,
) -> Result<Vec<Choice>, InitError> {
    let filter = filter(config);
    let may_listen = config.transports.tcp || config.transports.rdma;
    if !may_listen && filter.is_none() {
        return Ok(Vec::new());
    }
    let all = interfaces().map_err(InitError::Interfaces)?;
    let family = if place.is_v6 { Family::PreferV6 } else { Family::Any };
    let choices = candidates(&all, filter.as_ref(), family, place.is_local)?;
    choices.first().iter().for_each(|it| tracing::info!("rank {rank}: {it}"));
    Ok(choices)
}

/// The place where ranks meet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::setup) struct MeetingPlace {
    /// Whether no other host reaches it.
    pub(in crate::setup) is_local: bool,
    /// Whether its address is of IPv6.
    pub(in crate::setup) is_v6: bool,
}

/// The best of the `candidates` that are not `listed`, for peers that cannot use those.
pub(super) fn others(candidates: &[Choice], listed: &[Listed]) -> Vec<Choice> {
    let is_new = |it: &&Choice| listed.iter().all(|listed| listed.choice.address != it.address);
    let is_usable = |it: &&Choice| UdpSocket::bind((it.address, 0)).is_ok();
    let all = candidates.iter().filter(is_new).filter(is_usable);
    all.take(OTHER_ADDRESSES_MAX).cloned().collect()
}

/// The user's list of interfaces.
fn filter(config: &Config) -> Option<Filter> {
    config.socket_ifname.as_deref().map(Filter::from)
}

/// An interface on which this rank may listen for TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) choice: Choice,
    /// The rail, if the user lists one interface for each rail.
    pub(super) rail: Option<u16>,
}

/// The interfaces that may be rails for TCP, of the suitable `choices`, the best first.
///
/// They are those that the user lists one by one. Without such a list they are those as fast as the
/// first, but one for each wire; if speeds are unknown, or topology is off, the first alone.
pub(super) fn listed(
    config: &Config,
    choices: &[Choice],
    machine: Option<&Machine>,
) -> Vec<Listed> {
    let choices = &choices[..if config.topology { choices.len() } else { choices.len().min(1) }];
    let names: Vec<&str> = choices.iter().map(|choice| choice.interface.as_str()).collect();
    if let Some(numbers) = filter(config).and_then(|filter| filter.numbers(&names)) {
        let rails = numbers.into_iter().map(|number| u16::try_from(number).ok());
        let listed = choices.iter().cloned().zip(rails);
        let mut listed: Vec<_> = listed.map(|(choice, rail)| Listed { choice, rail }).collect();
        listed.sort_by_key(|it| it.rail);
        listed.truncate(CHANNELS_MAX.into());
        return listed;
    }
    let gbps = |choice: &Choice| device(choice, machine).map_or(0, |it| it.gbps);
    let Some(first) = choices.first() else { return Vec::new() };
    let is_like = |it: &&Choice| {
        let is_as_fast = gbps(it) > 0 && gbps(it) == gbps(first);
        is_as_fast && it.address.is_ipv4() == first.address.is_ipv4()
    };
    let mut taken = wires(&first.interface, machine);
    let is_apart = |it: &&Choice| {
        let wires = wires(&it.interface, machine);
        let is_apart = taken.is_disjoint(&wires);
        taken.extend(wires);
        is_apart
    };
    let alike = choices[1..].iter().filter(is_like).filter(is_apart);
    let all = [first].into_iter().chain(alike).take(CHANNELS_MAX.into()).cloned();
    all.map(|choice| Listed { choice, rail: None }).collect()
}

/// The carrier of an interface: a physical device, or an interface on no other one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wire {
    Device(PciAddress),
    Interface(String),
}

/// The wires below an interface. A bond has those of its parts.
fn wires(interface: &str, machine: Option<&Machine>) -> BTreeSet<Wire> {
    let mut names = vec![interface];
    let mut wires = BTreeSet::new();
    let mut at = 0;
    while let Some(name) = names.get(at).copied() {
        at += 1;
        let found = machine.and_then(|it| it.interfaces.iter().find(|it| it.name == name));
        let below = found.map(|it| it.below.as_slice()).unwrap_or_default();
        if below.is_empty() {
            let device = found.and_then(|it| it.pci).map(Wire::Device);
            wires.insert(device.unwrap_or_else(|| Wire::Interface(name.to_owned())));
        }
        for below in below {
            if !names.contains(&below.as_str()) {
                names.push(below);
            }
        }
    }
    wires
}

pub(super) fn device<'a>(choice: &Choice, machine: Option<&'a Machine>) -> Option<&'a Interface> {
    machine?.interfaces.iter().find(|it| it.name == choice.interface)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ringfold_bootstrap::interface::Reason;

    use super::*;

    fn choice(interface: &Interface) -> Choice {
        Choice {
            interface: interface.name.clone(),
            address: IpAddr::from([10, 0, 0, 1]),
            prefix: 24,
            reason: Reason::Named,
        }
    }

    /// The interfaces that `listed` picks. All of `interfaces` suit.
    fn listed_of(config: &Config, interfaces: Vec<Interface>) -> Vec<Listed> {
        let choices: Vec<Choice> = interfaces.iter().map(choice).collect();
        listed(config, &choices, Some(&Machine { interfaces, ..Machine::default() }))
    }

    /// The names of the chosen interfaces. Each of `all` has its PCI device and those below it.
    fn taken(all: &[(&str, Option<u8>, &[&str])]) -> Vec<String> {
        let interface = |(name, pci, below): &(&str, Option<u8>, &[&str])| Interface {
            name: (*name).to_owned(),
            gbps: 10,
            pci: pci.map(|bus| PciAddress { bus, ..PciAddress::default() }),
            below: below.iter().map(|it| (*it).to_owned()).collect(),
            ..Interface::default()
        };
        let listed = listed_of(&Config::default(), all.iter().map(interface).collect());
        listed.into_iter().map(|it| it.choice.interface).collect()
    }

    /// `eth0`, `eth1` and so on, with these rates.
    fn with_rates(rates: &[u32]) -> Vec<Interface> {
        let interface = |(at, gbps): (usize, &u32)| {
            let name = format!("eth{at}");
            Interface { name, gbps: *gbps, ..Interface::default() }
        };
        rates.iter().enumerate().map(interface).collect()
    }

    #[test]
    fn interfaces_that_the_user_lists_are_rails_in_that_order() {
        let rails = |names: &str, topology: bool| {
            let socket_ifname = Some(names.to_owned());
            let config = Config { socket_ifname, topology, ..Config::default() };
            let listed = listed_of(&config, with_rates(&[10, 0, 25]));
            listed.into_iter().map(|it| (it.choice.interface, it.rail)).collect::<Vec<_>>()
        };
        let rail = |name: &str, rail| (name.to_owned(), Some(rail));
        let in_order = [rail("eth2", 0), rail("eth0", 1), rail("eth1", 2)];
        assert_eq!(rails("eth2,eth0,eth1", true), in_order, "whatever their rates");
        assert_eq!(rails("eth", true), [("eth0".to_owned(), None)], "one name for all");
        assert_eq!(rails("^lo,docker", true), [("eth0".to_owned(), None)], "names of others");
        assert_eq!(rails("eth2,eth0,eth1", false), [("eth0".to_owned(), None)], "no topology");
    }

    #[test]
    fn interfaces_as_fast_as_the_best_are_listed() {
        let names = |rates: &[u32]| {
            let listed = listed_of(&Config::default(), with_rates(rates));
            listed.into_iter().map(|it| it.choice.interface).collect::<Vec<_>>()
        };
        assert_eq!(names(&[25, 10, 25, 100]), ["eth0", "eth2"]);
        assert_eq!(names(&[0, 0, 10]), ["eth0"], "the rate of the first is unknown");
        assert_eq!(names(&[10; CHANNELS_MAX as usize + 3]).len(), usize::from(CHANNELS_MAX));
        assert!(names(&[]).is_empty());
    }

    #[test]
    fn interfaces_on_one_wire_are_one_rail() {
        let two: [(&str, Option<u8>, &[&str]); 2] =
            [("eth0", Some(1), &[]), ("eth1", Some(2), &[])];
        assert_eq!(taken(&two), ["eth0", "eth1"]);
        assert_eq!(taken(&[two[0], ("eth0.100", None, &["eth0"]), two[1]]), ["eth0", "eth1"]);
        assert_eq!(taken(&[("eth0.100", None, &["eth0"]), two[0], two[1]]), ["eth0.100", "eth1"]);
        let vlan = |name| (name, None, &["bond0"][..]);
        let bond = ("bond0", None, &["eth0", "eth1"][..]);
        assert_eq!(taken(&[vlan("bond0.10"), vlan("bond0.20"), bond]), ["bond0.10"]);
        assert_eq!(taken(&[("one", Some(1), &[]), ("other", Some(1), &[])]), ["one"]);
        let circle = [("a", None, &["b"][..]), ("b", None, &["a"])];
        assert_eq!(taken(&circle).len(), 2, "nonsense ends too");
        assert_eq!(taken(&[("veth0", None, &[]), ("veth1", None, &[])]), ["veth0", "veth1"]);
    }
}
