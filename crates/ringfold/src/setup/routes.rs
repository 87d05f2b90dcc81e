//! Routes: the transport that leads to each peer.

use ringfold_topology::Layout;
use ringfold_transport::rdma::Rails;
use ringfold_transport::shm;
use ringfold_transport::tcp::{PeerRoutes, Route};
use ringfold_types::Rank;

use super::addresses::Claims;
use super::agree::Fabric;
use super::error::InitError;
use super::peer_info::PeerInfo;

/// The routes of a rank to its peers: each by the first transport that both ends have.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// Peers by shared memory, each with the address of its memory.
    pub(super) shm: Vec<(Rank, String)>,
    /// Peers by TCP or RDMA, which needs TCP too.
    pub(super) tcp: Vec<(Rank, PeerRoutes)>,
    /// Whether RDMA leads to each rank, in rank order.
    pub(super) has_rdma: Vec<bool>,
    /// Whether the data of all ranks may go by TCP.
    pub(super) may_use_tcp: bool,
}

impl Routes {
    /// Finds the routes of `rank` to the ranks with these `infos`. The log says why peers have no
    /// RDMA network in common with it.
    ///
    /// # Errors
    /// [`InitError::Unreachable`].
    pub(super) fn find(
        rank: Rank,
        infos: &[PeerInfo],
        layout: &Layout,
        fabric: &Fabric,
    ) -> Result<Self, InitError> {
        let own = &infos[rank.index()];
        let claims = Claims::of(infos);
        let mut routes = Self {
            has_rdma: vec![false; infos.len()],
            may_use_tcp: infos.iter().all(|info| info.may_use_tcp),
            ..Self::default()
        };
        let mut without_rdma = Vec::new();
        for (index, info) in infos.iter().enumerate() {
            let peer = Rank::at(index);
            if peer == rank {
                continue;
            }
            let both_listen = !own.tcp.is_empty() && !info.tcp.is_empty();
            let has_rdma = own.rdma.chars().any(|network| info.rdma.contains(network));
            if layout.same_host(rank, peer) && shm::same_host(&own.shm, &info.shm) {
                routes.shm.push((peer, info.shm.clone()));
            } else if both_listen && (has_rdma || own.may_use_tcp && info.may_use_tcp) {
                without_rdma.extend((!has_rdma).then(|| apart(rank, own, peer, info)).flatten());
                routes.has_rdma[index] = has_rdma;
                // The interface that suits best serves the lanes without a rail.
                let mut peer_routes = fabric.routes(rank, peer);
                let usable = claims.usable(own, info);
                if usable.is_empty() && peer_routes.rails.is_empty() {
                    return Err(claims.apart((rank, own), (peer, info)));
                }
                peer_routes.others.extend(usable.into_iter().map(|to| Route { from: None, to }));
                routes.tcp.push((peer, peer_routes));
            } else {
                let same_host = layout.same_host(rank, peer);
                let rdma = apart(rank, own, peer, info).unwrap_or_default();
                return Err(InitError::Unreachable { rank, peer, same_host, rdma });
            }
        }
        // One line is enough: all ranks of a host have the same reason.
        if let Some(first) = without_rdma.first() {
            let count = without_rdma.len();
            tracing::info!(
                "rank {rank} uses tcp to {count} ranks without a common RDMA network: {first}"
            );
        }
        Ok(routes)
    }

    /// The name of the transport that carries the data to each rank, in rank order.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let mut names = vec!["none"; self.has_rdma.len()];
        self.shm.iter().for_each(|(peer, _)| names[peer.index()] = "shm");
        for (peer, _) in &self.tcp {
            names[peer.index()] = if self.has_rdma[peer.index()] { "rdma" } else { "tcp" };
        }
        names
    }
}

/// The reason why two ranks have no RDMA network in common. `None` if neither has RDMA.
fn apart(rank: Rank, own: &PeerInfo, peer: Rank, info: &PeerInfo) -> Option<String> {
    let none = |rank| Some(format!("rank {rank} has no RDMA port to use; its log says why"));
    match (own.rdma.is_empty(), info.rdma.is_empty()) {
        (true, true) => None,
        (true, false) => none(rank),
        (false, true) => none(peer),
        (false, false) => {
            let what = Rails::apart(&own.rdma, &info.rdma);
            Some(format!("RDMA ports of ranks {rank} and {peer} {what}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::setup::peer_info::TcpAddress;

    fn find(infos: &[PeerInfo]) -> Result<Routes, InitError> {
        let hosts: Vec<&str> = infos.iter().map(|info| info.host_id.as_str()).collect();
        Routes::find(Rank(0), infos, &Layout::from_host_names(&hosts), &Fabric::default())
    }

    fn address(last: u8) -> TcpAddress {
        let at = SocketAddr::from(([10, 0, 0, last], 1));
        TcpAddress { at, interface: "eth0".to_owned() }
    }

    fn info(host: &str, shm: &str, rdma: &str, may_use_tcp: bool) -> PeerInfo {
        PeerInfo {
            host_id: host.to_owned(),
            shm: shm.to_owned(),
            rdma: rdma.to_owned(),
            may_use_tcp,
            tcp: vec![address(if host == "a" { 1 } else { 2 })],
            ..PeerInfo::default()
        }
    }

    #[test]
    fn a_peer_is_reached_by_the_first_transport_that_both_have() {
        let half = "0".repeat(32);
        let place = format!("{half}.{half}");
        let routes = find(&[
            info("a", &place, "ei", true),
            info("a", &place, "e", true),
            info("a", "", "i", true),
            info("b", &place, "w", true),
            info("b", "", "", true),
            info("b", "", "ei", false),
        ]);
        let routes = routes.unwrap();
        assert_eq!(routes.names(), ["none", "shm", "rdma", "tcp", "tcp", "rdma"]);
        assert!(!routes.may_use_tcp, "rank 5 does not");
        let places: Vec<&str> = routes.shm.iter().map(|(_, place)| place.as_str()).collect();
        assert_eq!(places, [place.as_str()]);
        assert!(
            routes
                .tcp
                .iter()
                .all(|(_, peer_routes)| peer_routes.rails.is_empty()
                    && peer_routes.others.len() == 1)
        );
    }

    #[test]
    fn ranks_that_may_not_use_tcp_need_rdma() {
        let [own, peer] = [info("a", "", "i", true), info("b", "", "", false)];
        let error = find(&[own.clone(), peer]).unwrap_err().to_string();
        assert!(
            error.contains("rank 0 cannot reach rank 1: they are on different hosts"),
            "{error}"
        );
        assert!(error.ends_with("; rank 1 has no RDMA port to use; its log says why"), "{error}");
        let deaf = PeerInfo { tcp: Vec::new(), ..info("b", "", "i", true) };
        assert!(find(&[own, deaf]).is_err(), "RDMA needs a TCP address too");
    }

    #[test]
    fn an_error_says_why_ranks_have_no_common_network() {
        let [here, there] = ["i", "e"]
            .map(|networks| PeerInfo { rdma: networks.to_owned(), ..info("a", "", "", false) });
        let there = PeerInfo { host_id: "b".to_owned(), ..there };
        let text = find(&[here.clone(), there]).unwrap_err().to_string();
        let why = "that both use; RDMA ports of ranks 0 and 1 are InfiniBand and RoCE, and one is";
        assert!(text.contains(why) && text.contains("LINK_TYPE_P1"), "{text}");
        let none = apart(Rank(0), &here, Rank(1), &PeerInfo::default());
        assert_eq!(none.as_deref(), Some("rank 1 has no RDMA port to use; its log says why"));
        assert_eq!(apart(Rank(0), &PeerInfo::default(), Rank(1), &PeerInfo::default()), None);
    }
}
