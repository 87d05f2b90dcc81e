//! Connections that are slower than others to the same peer.

use std::time::Instant;

use ringfold_types::limits::MESSAGE_LANE;
use ringfold_types::{Rank, Way};

use super::Tcp;
use crate::contract::Link;
use crate::shares::Slow;
use crate::sys::delivery;
use crate::tcp::connection::Connection;

impl Tcp {
    /// Notes that so many bytes with this tag are about to be sent on a link. Logs a connection to
    /// the peer that has become slow.
    #[inline]
    pub(super) fn note_rate(&mut self, link: Link, tag: u32, bytes: usize) {
        let rates = &mut self.rates[link.peer.index()];
        if link.lane.0 == MESSAGE_LANE || !rates.concerns(tag, bytes) {
            return;
        }
        let links = &self.links[link.peer.index() * self.me.lanes..];
        let read = |lane: usize| delivery(links[lane].as_deref()?.socket()?);
        let slow = rates.note((link.lane.index(), tag, bytes), Instant::now(), read);
        if let Some(slow) = slow {
            self.name_slow(link.peer, slow);
        }
    }

    #[cold]
    fn name_slow(&mut self, peer: Rank, Slow { path: lane, percent }: Slow) {
        let rail = Way::by_tcp(lane, self.routes[peer.index()].rails.len()).rail();
        let connection = self.links[peer.index() * self.me.lanes + lane].as_deref();
        let route = connection.and_then(Connection::route).map(|it| format!(" {it}"));
        let what = format!(
            "tcp: lane {lane} to rank {peer}{} carries {percent} % of the rate of the lanes beside \
             it for at least 2 s; check the ports, cables and switches on its way",
            route.unwrap_or_default()
        );
        match (self.slow_rails.insert(rail), rail) {
            (false, _) => tracing::info!("{what}"),
            (true, None) => tracing::warn!("{what}; the same of others is logged at INFO"),
            (true, Some(rail)) => {
                tracing::warn!("{what}; the same of others on rail {rail} is logged at INFO");
            }
        }
    }
}
