//! Chooses addresses of the host's network interfaces for the ranks, with a reason.
//!
//! `interfaces` asks the kernel for its interfaces. `candidates` judges each address by its
//! arguments alone, so that tests and messages can reproduce the choice. Other hosts reach a
//! routable address on any interface, also on the loopback interface. They reach a link-local
//! address only on the same cable, and a loopback address never.

mod netlink;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

pub use netlink::{Address, Interface, interfaces};

/// The address family to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Both, IPv4 first.
    #[default]
    Any,
    /// Both, IPv6 first.
    PreferV6,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// A filter of interface names, in the grammar of `NCCL_SOCKET_IFNAME`. It is a comma-separated
/// list of prefixes, as in `eth,ens`. With `=` before it, the list holds whole names, as in
/// `=eth0,eth1`. With `^` before that, the list excludes interfaces, as in `^docker,lo` or
/// `^=eth3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    excludes: bool,
    exact: bool,
    names: Vec<String>,
}

/// A chosen interface, its address, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The interface's name.
    pub interface: String,
    /// The address to listen on and to advertise.
    pub address: IpAddr,
    /// Bits of its network, of 32 or 128.
    pub prefix: u8,
    /// Why this interface was chosen.
    pub reason: Reason,
}

/// Why an interface was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// All ranks are on this host.
    AllLocal,
    /// The filter names it.
    Named,
    /// It leads to other hosts, as far as its name shows.
    FirstReal,
    /// It is a routable address on the loopback interface, as in fabrics that route to each host.
    OnLoopback,
    /// Its name belongs to containers of this host, but there is no better one.
    OnlyVirtual,
    /// There is no address but link-local ones.
    OnlyLinkLocal,
    /// There is no address but that of this host.
    OnlyLoopback,
}

/// Why no interface can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// The filter allows no interface.
    #[error("no interface matches `{filter}`; this host has {have}")]
    NoMatch {
        /// The filter.
        filter: Filter,
        /// The interfaces' names.
        have: String,
    },
    /// The allowed interfaces are down, or have no address of the family.
    #[error("none of the interfaces {tried} is up and has an address of {family}")]
    NoAddress {
        /// The interfaces' names.
        tried: String,
        /// The family.
        family: Family,
    },
}

/// A text that names no `Family`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address family: use AF_INET or AF_INET6")]
pub struct UnknownFamily(String);

/// The name prefixes of interfaces that lead to containers or virtual machines inside this host.
const VIRTUAL: [&str; 14] = [
    "docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "cilium", "kube", "podman", "lxc",
    "lxd", "vmnet", "vboxnet",
];

/// How far an address leads. The order is that of their worth for a job of several hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Routed,
    Cable,
    Host,
}

impl Scope {
    fn of(ip: IpAddr) -> Self {
        let is_link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        match is_link_local {
            _ if ip.is_loopback() || ip.is_unspecified() => Self::Host,
            true => Self::Cable,
            false => Self::Routed,
        }
    }
}

/// Whether routers pass packets to this address on, as far as it shows.
pub(crate) fn is_routed(ip: IpAddr) -> bool {
    Scope::of(ip) == Scope::Routed
}

/// All addresses of `family` on interfaces that are up and that `filter` allows, the best first.
/// Without a filter, or with one that excludes, addresses that lead to other hosts come before
/// those of this host, unless `all_local`.
///
/// # Errors
/// There is no such address. The error lists the interfaces of this host.
pub fn candidates(
    interfaces: &[Interface],
    filter: Option<&Filter>,
    family: Family,
    all_local: bool,
) -> Result<Vec<Choice>, ChooseError> {
    let allowed: Vec<&Interface> = interfaces
        .iter()
        .filter(|it| filter.is_none_or(|filter| filter.allows(&it.name)))
        .collect();
    if let Some(filter) = filter.filter(|_| allowed.is_empty()) {
        return Err(ChooseError::NoMatch { filter: filter.clone(), have: names(interfaces) });
    }
    let named = filter.is_some_and(|filter| !filter.excludes);
    let reason = |it: &Interface, ip| match Scope::of(ip) {
        _ if named => Reason::Named,
        Scope::Host if all_local => Reason::AllLocal,
        Scope::Host => Reason::OnlyLoopback,
        Scope::Cable => Reason::OnlyLinkLocal,
        Scope::Routed if it.loopback => Reason::OnLoopback,
        Scope::Routed if is_virtual(&it.name) => Reason::OnlyVirtual,
        Scope::Routed => Reason::FirstReal,
    };
    let of = |it: &&Interface| -> Vec<Choice> {
        let choice = |Address { ip, prefix }| Choice {
            interface: it.name.clone(),
            address: ip,
            prefix,
            reason: reason(it, ip),
        };
        family.pick(&it.addresses).into_iter().map(choice).collect()
    };
    let mut all: Vec<Choice> = allowed.iter().filter(|it| it.up).flat_map(of).collect();
    // Interfaces of the same rank stay in the kernel's order.
    all.sort_by_key(Choice::rank);
    if all.is_empty() {
        return Err(ChooseError::NoAddress { tried: names(allowed.iter().copied()), family });
    }
    Ok(all)
}

/// The first of the [`candidates`].
///
/// # Errors
/// There is none. The error lists the interfaces of this host.
pub fn choose(
    interfaces: &[Interface],
    filter: Option<&Filter>,
    family: Family,
    all_local: bool,
) -> Result<Choice, ChooseError> {
    candidates(interfaces, filter, family, all_local).map(|mut all| all.swap_remove(0))
}

/// The first of the `candidates`, and those of other interfaces that are as good, one for each
/// interface.
#[must_use]
pub fn alike(candidates: &[Choice]) -> Vec<Choice> {
    let mut choices: Vec<Choice> = Vec::new();
    for candidate in candidates {
        let is_new = choices.iter().all(|it| it.interface != candidate.interface);
        if is_new && candidate.rank() == candidates[0].rank() {
            choices.push(candidate.clone());
        }
    }
    choices
}

fn is_virtual(name: &str) -> bool {
    VIRTUAL.iter().any(|prefix| name.starts_with(prefix))
}

fn names<'a>(interfaces: impl IntoIterator<Item = &'a Interface>) -> String {
    let names: Vec<&str> = interfaces.into_iter().map(|it| it.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Choice {
    /// The order of choices.
    fn rank(&self) -> (u8, Scope) {
        let preference = match self.reason {
            Reason::AllLocal | Reason::Named => 0,
            Reason::FirstReal => 1,
            Reason::OnLoopback => 2,
            Reason::OnlyVirtual => 3,
            Reason::OnlyLinkLocal => 4,
            Reason::OnlyLoopback => 5,
        };
        (preference, Scope::of(self.address))
    }
}

impl Filter {
    /// The positions of `interfaces` in the filter's list. `None` unless the list has several
    /// names, and each stands for one of these interfaces.
    #[must_use]
    pub fn numbers(&self, interfaces: &[&str]) -> Option<Vec<usize>> {
        if self.excludes || self.names.len() < 2 || self.names.len() != interfaces.len() {
            return None;
        }
        let number = |of: &&str| self.names.iter().position(|name| self.is_match(name, of));
        let numbers: Vec<usize> = interfaces.iter().map(number).collect::<Option<_>>()?;
        (0..self.names.len()).all(|name| numbers.contains(&name)).then_some(numbers)
    }

    fn is_match(&self, wanted: &str, name: &str) -> bool {
        if self.exact { name == wanted } else { name.starts_with(wanted) }
    }

    fn allows(&self, name: &str) -> bool {
        self.names.iter().any(|wanted| self.is_match(wanted, name)) != self.excludes
    }
}

impl From<&str> for Filter {
    fn from(text: &str) -> Self {
        let (excludes, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (exact, text) = text.strip_prefix('=').map_or((false, text), |rest| (true, rest));
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self { excludes, exact, names: names.map(str::to_owned).collect() }
    }
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        match text {
            "" => Ok(Self::Any),
            "AF_INET" => Ok(Self::V4),
            "AF_INET6" => Ok(Self::V6),
            _ => Err(UnknownFamily(text.to_owned())),
        }
    }
}

impl Family {
    /// The addresses of the family, in the order of preference.
    fn pick(self, addresses: &[Address]) -> Vec<Address> {
        let (v4, v6): (Vec<Address>, Vec<Address>) =
            addresses.iter().copied().partition(|it| it.ip.is_ipv4());
        match self {
            Self::Any => [v4, v6].concat(),
            Self::PreferV6 => [v6, v4].concat(),
            Self::V4 => v4,
            Self::V6 => v6,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.interface, self.address, self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllLocal => "all ranks are on this host",
            Self::Named => "first interface that is up among those asked for",
            Self::FirstReal => "first interface that is up and not virtual",
            Self::OnLoopback => "a routable address, and no other interface has one",
            Self::OnlyVirtual => "no interface is up but virtual ones",
            Self::OnlyLinkLocal => "no interface has an address but link-local ones",
            Self::OnlyLoopback => "no other interface is up with an address",
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.excludes { "^" } else { "" })?;
        f.write_str(if self.exact { "=" } else { "" })?;
        f.write_str(&self.names.join(","))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any | Self::PreferV6 => "any family",
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        let interface = |name: &str, up, addresses: &[&str]| Interface {
            name: name.to_owned(),
            up,
            loopback: name == "lo",
            addresses: addresses
                .iter()
                .map(|it| Address { ip: it.parse().unwrap(), prefix: 24 })
                .collect(),
        };
        vec![
            interface("lo", true, &["127.0.0.1", "::1"]),
            interface("docker0", true, &["172.17.0.1"]),
            interface("eth0", false, &["10.0.0.9"]),
            interface("eth1", true, &["10.0.0.3", "2001:db8::3"]),
            interface("eth10", true, &["10.0.1.3"]),
        ]
    }

    fn chosen(filter: &str, family: Family, all_local: bool) -> String {
        let filter = Filter::from(filter);
        let filter = (!filter.names.is_empty()).then_some(&filter);
        match choose(&host(), filter, family, all_local) {
            Ok(choice) => choice.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn without_a_filter_the_first_that_leads_out() {
        let expected = "eth1 (10.0.0.3): first interface that is up and not virtual";
        assert_eq!(chosen("", Family::Any, false), expected);
        let expected = "eth1 (2001:db8::3): first interface that is up and not virtual";
        assert_eq!(chosen("", Family::V6, false), expected);
        assert_eq!(chosen("", Family::Any, true), "lo (127.0.0.1): all ranks are on this host");
    }

    /// The addresses of interfaces that are up, the best first.
    fn ordered(interfaces: &[(&str, &[&str])], family: Family, all_local: bool) -> String {
        let address = |it: &&str| Address { ip: it.parse().unwrap(), prefix: 24 };
        let interface = |(name, addresses): &(&str, &[&str])| Interface {
            name: (*name).to_owned(),
            up: true,
            loopback: *name == "lo",
            addresses: addresses.iter().map(address).collect(),
        };
        let all: Vec<Interface> = interfaces.iter().map(interface).collect();
        let all = candidates(&all, None, family, all_local).unwrap();
        all.iter().map(|it| it.address.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_address_is_judged_by_itself() {
        let lo = ("lo", &["127.0.0.1", "10.77.0.1", "::1"][..]);
        let bmc = ("usb0", &["169.254.3.1"][..]);
        let both = ("eth0", &["10.0.0.3", "2001:db8::3"][..]);
        let any = |interfaces: &[_]| ordered(interfaces, Family::Any, false);
        assert_eq!(any(&[lo, ("eth0", &[])]), "10.77.0.1 127.0.0.1 ::1", "routed to the host");
        assert_eq!(any(&[bmc, ("eth0", &["2001:db8::3"])]), "2001:db8::3 169.254.3.1");
        assert_eq!(
            any(&[bmc, lo, both]),
            "10.0.0.3 2001:db8::3 10.77.0.1 169.254.3.1 127.0.0.1 ::1"
        );
        let preferred = ordered(&[("lo", &["127.0.0.1", "::1"]), both], Family::PreferV6, true);
        assert_eq!(preferred, "::1 127.0.0.1 2001:db8::3 10.0.0.3");
        let docker = ("docker0", &["172.17.0.1"][..]);
        assert_eq!(any(&[docker, lo]), "10.77.0.1 172.17.0.1 127.0.0.1 ::1");
        assert_eq!(any(&[("lo", &["::1"])]), "::1");
        let named = |text: &str| {
            let filter = Filter::from(text);
            choose(&host_with(lo), Some(&filter), Family::Any, false).unwrap().to_string()
        };
        assert!(named("lo").starts_with("lo (10.77.0.1): "), "{}", named("lo"));
    }

    fn host_with((name, addresses): (&str, &[&str])) -> Vec<Interface> {
        let address = |it: &&str| Address { ip: it.parse().unwrap(), prefix: 32 };
        let addresses = addresses.iter().map(address).collect();
        vec![Interface { name: name.to_owned(), up: true, loopback: name == "lo", addresses }]
    }

    #[test]
    fn filters_are_prefixes_names_or_exclusions() {
        let address = |filter| chosen(filter, Family::V4, false);
        assert!(address("eth").starts_with("eth1 (10.0.0.3): first interface that is up among"));
        assert!(address("docker,eth").starts_with("docker0 "));
        assert!(address("=eth10").starts_with("eth10 "));
        assert!(address("^eth1").starts_with("docker0 (172.17.0.1): no interface is up but"));
        assert!(address("^=eth1").starts_with("eth10 "));
        assert!(address("^eth,docker").ends_with("no other interface is up with an address"));
        assert!(address("lo").starts_with("lo "));
    }

    #[test]
    fn all_that_suit_as_well_are_told() {
        let names = |filter: &str| {
            let filter = Filter::from(filter);
            let filter = (!filter.names.is_empty()).then_some(&filter);
            let all = candidates(&host(), filter, Family::V4, false).unwrap();
            alike(&all).into_iter().map(|it| it.interface).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(""), "eth1 eth10");
        assert_eq!(names("eth10,docker"), "docker0 eth10");
        let numbers = |filter: &str, of: &[&str]| Filter::from(filter).numbers(of);
        assert_eq!(numbers("eth10,docker", &["docker0", "eth10"]), Some(vec![1, 0]));
        for (filter, of) in [
            ("eth", &["eth0"][..]),
            ("eth,ens", &["eth0"]),
            ("eth,ens", &["eth0", "eth1"]),
            ("^eth,docker", &["ens1", "ens2"]),
        ] {
            assert_eq!(numbers(filter, of), None, "{filter}");
        }
    }

    #[test]
    fn failures_say_what_there_is() {
        let have = "no interface matches `=eth`; this host has lo, docker0, eth0, eth1, eth10";
        assert_eq!(chosen("=eth", Family::Any, false), have);
        let down = "none of the interfaces eth0 is up and has an address of any family";
        assert_eq!(chosen("=eth0", Family::Any, false), down);
    }

    #[test]
    fn this_host_has_a_loopback_interface() {
        let interfaces = interfaces().unwrap();
        let lo = interfaces.iter().find(|it| it.loopback).expect("lo is everywhere");
        assert!(
            lo.up && lo.addresses.iter().any(|it| it.ip.is_loopback() && it.prefix >= 8),
            "{lo:?}"
        );
    }
}
