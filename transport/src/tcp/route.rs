//! Routes to a peer: one per rail that both hosts have, or addresses in order of preference.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ringfold_topology::fabric::Place;
use ringfold_types::Lane;

/// A route to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local address of the connection; any if `None`.
    pub from: Option<IpAddr>,
    /// The address that the peer listens on.
    pub to: SocketAddr,
}

impl Route {
    /// Returns a route for every address of this rank that has a counterpart on the same rail and
    /// plane, ordered by rail and plane. Both ranks of a pair get their routes in the same order.
    #[must_use]
    pub fn by_rail(own: &[(Place, SocketAddr)], peer: &[(Place, SocketAddr)]) -> Vec<Self> {
        let mut own = own.to_vec();
        own.sort_by_key(|(place, _)| *place);
        own.dedup_by_key(|(place, _)| *place);
        let way = |(place, from): &(Place, SocketAddr)| {
            let (_, to) =
                peer.iter().find(|(there, to)| there == place && to.is_ipv4() == from.is_ipv4())?;
            Some(Self { from: Some(from.ip()), to: *to })
        };
        own.iter().filter_map(way).collect()
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(from) => write!(f, "from {from} to {}", self.to),
            None => write!(f, "to {}", self.to),
        }
    }
}

/// All routes to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerRoutes {
    /// Lane k begins with route k (modulo their number), and falls back to the others of these.
    pub rails: Vec<Route>,
    /// The routes that every lane tries, in this order, if none of `rails` works.
    pub others: Vec<Route>,
}

impl PeerRoutes {
    /// The routes that a lane tries, in order.
    pub(super) fn of(&self, lane: Lane) -> VecDeque<Route> {
        let mut routes = VecDeque::from(self.rails.clone());
        routes.rotate_left(lane.index().checked_rem(routes.len()).unwrap_or(0));
        routes.extend(&self.others);
        routes
    }

    /// Whether there is no route.
    pub(super) const fn is_empty(&self) -> bool {
        self.rails.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rail: u16, plane: u8, address: &str) -> (Place, SocketAddr) {
        (Place { rail, plane }, address.parse().unwrap())
    }

    #[test]
    fn both_ranks_get_the_common_rails_in_the_same_order() {
        let own = [at(2, 0, "10.2.0.1:7"), at(0, 0, "10.0.0.1:7"), at(1, 0, "10.1.0.1:7")];
        let peer = [at(1, 0, "10.1.0.2:9"), at(2, 0, "10.2.0.2:9"), at(2, 1, "10.3.0.2:9")];
        let way = |from: &str, to: &str| Route {
            from: Some(from.parse().unwrap()),
            to: to.parse().unwrap(),
        };
        let expected = [way("10.1.0.1", "10.1.0.2:9"), way("10.2.0.1", "10.2.0.2:9")];
        assert_eq!(Route::by_rail(&own, &peer), expected);
        let back = [way("10.1.0.2", "10.1.0.1:7"), way("10.2.0.2", "10.2.0.1:7")];
        assert_eq!(Route::by_rail(&peer, &own), back);
        assert_eq!(Route::by_rail(&own, &[at(0, 0, "[fd00::2]:9")]), [], "another family");
    }

    #[test]
    fn lanes_take_the_rails_in_turn_and_then_the_others() {
        let to = |last: u8| SocketAddr::from(([10, 0, 0, last], 7));
        let to_all = |last: &[u8]| {
            Vec::from_iter(last.iter().map(|last| Route { from: None, to: to(*last) }))
        };
        let order = |routes: &PeerRoutes, lane| {
            Vec::from_iter(routes.of(Lane(lane)).into_iter().map(|route| route.to))
        };
        let routes = PeerRoutes { rails: to_all(&[0, 1, 2]), others: to_all(&[8, 9]) };
        assert_eq!(order(&routes, 0), [0, 1, 2, 8, 9].map(to));
        assert_eq!(order(&routes, 5), [2, 0, 1, 8, 9].map(to));
        let routes = PeerRoutes { rails: Vec::new(), others: to_all(&[0, 1]) };
        assert_eq!(order(&routes, 1), [to(0), to(1)]);
        assert!(!routes.is_empty() && PeerRoutes::default().is_empty());
        assert!(order(&PeerRoutes::default(), 1).is_empty());
    }
}
