//! The addresses at which ranks reach each other, judged one by one when the addresses of all ranks
//! are known.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ringfold_types::Rank;

use super::error::InitError;
use super::peer_info::{PeerInfo, TcpAddress};

/// The addresses of all ranks, each with the network namespace that has it; `None` if several have
/// it, as with the bridges of containers and the ports of management controllers.
#[derive(Debug)]
pub(super) struct Claims<'a>(BTreeMap<IpAddr, Option<&'a str>>);

impl<'a> Claims<'a> {
    pub(super) fn of(infos: &'a [PeerInfo]) -> Self {
        let mut claims: BTreeMap<IpAddr, Option<&str>> = BTreeMap::new();
        for (info, TcpAddress { at, .. }) in
            infos.iter().flat_map(|info| info.tcp.iter().map(move |address| (info, address)))
        {
            let network = Some(info.network());
            let claim = claims.entry(at.ip()).or_insert(network);
            if *claim != network {
                *claim = None;
            }
        }
        Self(claims)
    }

    /// The addresses of `peer` that `own` may use, in the order of the peer.
    pub(super) fn usable(&self, own: &PeerInfo, peer: &PeerInfo) -> Vec<SocketAddr> {
        let usable = peer.tcp.iter().filter(|it| self.objection(own, peer, it).is_none());
        usable.map(|it| it.at).collect()
    }

    /// The reason why `own` cannot use this address of `peer`, if there is one.
    fn objection(
        &self,
        own: &PeerInfo,
        peer: &PeerInfo,
        TcpAddress { at, .. }: &TcpAddress,
    ) -> Option<&'static str> {
        if own.network() == peer.network() {
            return None;
        }
        let has_family =
            own.tcp.iter().any(|it| it.at.is_ipv4() == at.is_ipv4() && !it.at.ip().is_loopback());
        match self.0.get(&at.ip()) {
            _ if at.ip().is_loopback() => Some("leads to no other host"),
            Some(None) => Some("is an address of several hosts"),
            _ if !has_family => Some("has a family that the other host lacks"),
            _ => None,
        }
    }

    /// The error of two ranks that cannot use any address of the other one.
    pub(super) fn apart(
        &self,
        (rank, own): (Rank, &PeerInfo),
        (peer, info): (Rank, &PeerInfo),
    ) -> InitError {
        let (own_text, theirs) = (self.describe(info, own), self.describe(own, info));
        InitError::NoAddress {
            rank,
            host: own.host.clone(),
            own: own_text,
            peer,
            peer_host: info.host.clone(),
            theirs,
        }
    }

    /// The addresses of a rank, each with the objection of another one.
    fn describe(&self, of: &PeerInfo, has: &PeerInfo) -> String {
        let address = |it: &TcpAddress| {
            let objection = self.objection(of, has, it);
            let objection = objection.map_or_else(String::new, |why| format!(" ({why})"));
            format!("{} on {}{objection}", it.at.ip(), it.interface)
        };
        has.tcp.iter().map(address).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(network: &str, addresses: &[&str]) -> PeerInfo {
        let address = |it: &&str| {
            let (ip, interface) = it.split_once('%').unwrap();
            let at = SocketAddr::new(ip.parse().unwrap(), 7);
            TcpAddress { at, interface: interface.to_owned() }
        };
        PeerInfo {
            host_id: format!("boot/{network}"),
            host: format!("host-{network}"),
            tcp: addresses.iter().map(address).collect(),
            ..PeerInfo::default()
        }
    }

    fn usable(infos: &[PeerInfo]) -> Vec<String> {
        let usable = Claims::of(infos).usable(&infos[0], &infos[1]);
        usable.iter().map(|at| at.ip().to_string()).collect()
    }

    #[test]
    fn an_address_of_several_hosts_or_of_one_alone_is_passed_over() {
        let host = |net: &str, own: &str| {
            info(net, &["169.254.3.1%usb0", &format!("{own}%eth0"), "127.0.0.1%lo"])
        };
        let [a, b] = [host("a", "10.0.0.1"), host("b", "10.0.0.2")];
        assert_eq!(usable(&[a.clone(), b]), ["10.0.0.2"]);
        assert_eq!(usable(&[a.clone(), a]), ["169.254.3.1", "10.0.0.1", "127.0.0.1"], "one host");
        let mixed = [
            info("a", &["10.0.0.1%eth0", "2001:db8::1%eth0"]),
            info("b", &["2001:db8::2%eth0", "169.254.0.9%usb0"]),
            info("c", &["169.254.0.9%usb0"]),
        ];
        assert_eq!(usable(&mixed), ["2001:db8::2"]);
    }

    #[test]
    fn ranks_without_common_addresses_name_hosts_interfaces_and_addresses() {
        let infos = [
            info("a", &["10.0.0.1%eth0", "169.254.3.1%usb0"]),
            info("b", &["2001:db8::2%ib0", "169.254.3.1%usb0", "::1%lo"]),
        ];
        let claims = Claims::of(&infos);
        assert!(usable(&infos).is_empty());
        let error = claims.apart((Rank(0), &infos[0]), (Rank(1), &infos[1])).to_string();
        for words in [
            "rank 0 (host host-a) and rank 1 (host host-b) have no addresses",
            "rank 0 has 10.0.0.1 on eth0",
            "169.254.3.1 on usb0 (is an address of several hosts)",
            "rank 1 has 2001:db8::2 on ib0",
            "::1 on lo (leads to no other host)",
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
