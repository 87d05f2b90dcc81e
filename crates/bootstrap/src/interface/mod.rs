//! Chooses the host's network interfaces for the ranks, with a reason.
//!
//! `interfaces` asks the kernel for its interfaces. `choose` decides from its arguments alone, so
//! that tests and messages can reproduce the choice.

mod netlink;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

pub use netlink::{Address, Interface, interfaces};

/// The address family to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4, or IPv6 if an interface has no IPv4 address.
    #[default]
    Any,
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
    /// Its name belongs to containers of this host, but there is no better one.
    OnlyVirtual,
    /// There is no other interface.
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

/// Picks the first of `interfaces` that `filter` allows, that is up, and that has an address of
/// `family`. Without a filter, or with one that excludes, interfaces to other hosts come before
/// local ones, unless `all_local`.
///
/// # Errors
/// There is no such interface. The error lists the interfaces of this host.
pub fn choose(
    interfaces: &[Interface],
    filter: Option<&Filter>,
    family: Family,
    all_local: bool,
) -> Result<Choice, ChooseError> {
    choose_all(interfaces, filter, family, all_local).map(|mut choices| choices.swap_remove(0))
}

/// Picks the interface of [`choose`] and all others of the same rank, in the kernel's order.
///
/// # Errors
/// There is no such interface. The error lists the interfaces of this host.
pub fn choose_all(
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
    let reason = |it: &Interface| match it.loopback {
        _ if named => Reason::Named,
        true if all_local => Reason::AllLocal,
        true => Reason::OnlyLoopback,
        false if is_virtual(&it.name) => Reason::OnlyVirtual,
        false => Reason::FirstReal,
    };
    let usable = allowed.iter().filter(|it| it.up).filter_map(|it| {
        let Address { ip, prefix } = family.pick(&it.addresses)?;
        Some(Choice { interface: it.name.clone(), address: ip, prefix, reason: reason(it) })
    });
    let mut choices: Vec<Choice> = usable.collect();
    // Interfaces of the same rank stay in the kernel's order.
    choices.sort_by_key(|choice| choice.reason.preference());
    let Some(best) = choices.first().map(|choice| choice.reason) else {
        let tried = names(allowed.iter().copied());
        return Err(ChooseError::NoAddress { tried, family });
    };
    choices.retain(|choice| choice.reason == best);
    Ok(choices)
}

fn is_virtual(name: &str) -> bool {
    VIRTUAL.iter().any(|prefix| name.starts_with(prefix))
}

fn names<'a>(interfaces: impl IntoIterator<Item = &'a Interface>) -> String {
    let names: Vec<&str> = interfaces.into_iter().map(|it| it.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Reason {
    const fn preference(self) -> u8 {
        match self {
            Self::AllLocal | Self::Named => 0,
            Self::FirstReal => 1,
            Self::OnlyVirtual => 2,
            Self::OnlyLoopback => 3,
        }
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

impl FromStr for Filter {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (excludes, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (exact, text) = text.strip_prefix('=').map_or((false, text), |rest| (true, rest));
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self { excludes, exact, names: names.map(str::to_owned).collect() })
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
    fn pick(self, addresses: &[Address]) -> Option<Address> {
        let v4 = || addresses.iter().find(|it| it.ip.is_ipv4()).copied();
        let v6 = || addresses.iter().find(|it| it.ip.is_ipv6()).copied();
        match self {
            Self::Any => v4().or_else(v6),
            Self::V4 => v4(),
            Self::V6 => v6(),
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
            Self::OnlyVirtual => "no interface is up but virtual ones",
            Self::OnlyLoopback => "no other interface is up",
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
            Self::Any => "any family",
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
        let filter: Filter = filter.parse().unwrap();
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

    #[test]
    fn filters_are_prefixes_names_or_exclusions() {
        let address = |filter| chosen(filter, Family::V4, false);
        assert!(address("eth").starts_with("eth1 (10.0.0.3): first interface that is up among"));
        assert!(address("docker,eth").starts_with("docker0 "));
        assert!(address("=eth10").starts_with("eth10 "));
        assert!(address("^eth1").starts_with("docker0 (172.17.0.1): no interface is up but"));
        assert!(address("^=eth1").starts_with("eth10 "));
        assert!(address("^eth,docker").ends_with("no other interface is up"));
        assert!(address("lo").starts_with("lo "));
    }

    #[test]
    fn all_that_suit_as_well_are_told() {
        let names = |filter: &str| {
            let filter: Filter = filter.parse().unwrap();
            let filter = (!filter.names.is_empty()).then_some(&filter);
            let all = choose_all(&host(), filter, Family::V4, false).unwrap();
            all.into_iter().map(|it| it.interface).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(""), "eth1 eth10");
        assert_eq!(names("eth10,docker"), "docker0 eth10");
        let numbers = |filter: &str, of: &[&str]| filter.parse::<Filter>().unwrap().numbers(of);
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
