//! The end of a rank's links.

use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::{HANDSHAKE_MS, RDMA_PARTING_MS};

use super::Rdma;
use crate::contract::Transport as _;
use crate::rdma::budget::Budget;
use crate::rdma::peer::Costs;

/// The pause between polls while leaving.
const PAUSE: Duration = Duration::from_micros(50);

impl Rdma {
    /// Returns whether no accepted bytes depend on this rank any more.
    fn is_drained(&self) -> bool {
        self.is_flushed() && self.contacts.known().all(|peer| self.is_done_with(peer))
    }

    /// Returns whether no accepted bytes to that peer depend on this rank any more.
    fn is_done_with(&self, peer: Rank) -> bool {
        self.contacts.get(peer).is_none_or(|it| !it.is_busy() && it.peer.is_drained())
    }

    /// Logs the cost of the links.
    fn log_costs(&self) {
        let (peers, Costs { paths, rights, bytes: own_bytes }) = self.contacts.costs();
        let lent = self.devices.registry().costs();
        let (read, written) = (lent.reads, lent.writes);
        let (rank, bytes) = (self.config.rank, own_bytes + lent.bytes);
        let (most, most_bytes) = self.devices.budget().most();
        let &Budget { curbed, refused, .. } = self.devices.budget();
        tracing::info!(
            "rdma: rank {rank} had {peers} peers, {paths} queue pairs of {most}, {rights} memory \
             regions and {read} of callers to send and {written} to receive with {bytes} bytes of \
             {most_bytes}; {curbed} peers got less than they could use, and {refused} nothing"
        );
    }
}

impl Drop for Rdma {
    /// Devices drop pending sends when their queue pairs are destroyed. So this blocks until the
    /// peers' devices have all sends, and then tells each peer how many fragments there were. A
    /// rank that has given up waits for a shorter time.
    fn drop(&mut self) {
        let patience =
            if self.control.tcp().has_given_up() { RDMA_PARTING_MS } else { HANDSHAKE_MS };
        let deadline = Instant::now() + Duration::from_millis(patience);
        let is_late = || std::thread::panicking() || Instant::now() > deadline;
        while !self.is_drained() && !is_late() {
            // Lost bytes are no longer waited for.
            self.work().ok();
            self.change_all(|peer, _| peer.ask());
            std::thread::sleep(PAUSE);
        }
        if self.is_drained() {
            self.change_all(|peer, _| peer.part());
        } else {
            // No peer is promised bytes that may not arrive.
            let late = self.contacts.known().filter(|peer| !self.is_done_with(*peer));
            let late: Vec<_> = late.map(Rank::index).collect();
            let by_tcp = !self.control.tcp().is_flushed();
            tracing::warn!(ranks = ?late, by_tcp, "accepted bytes did not reach their peers");
        }
        while !is_late() && !self.contacts.is_sent() && self.poll_connections().is_ok() {
            std::thread::sleep(PAUSE);
        }
        self.change_all(|peer, _| peer.abandon());
        self.log_costs();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use ringfold_types::{Lane, Rank};

    use super::*;
    use crate::contract::Link;
    use crate::rdma::message::Message;
    use crate::rdma::{Config, Rails, Settings};
    use crate::tcp::{Config as TcpConfig, Liveness, Tcp};

    const KEY: [u8; 32] = [3; 32];
    const RANKS: usize = 2;

    /// Two ranks without a rail.
    fn ends() -> [Rdma; RANKS] {
        let listen = |rank| {
            let (bind, liveness) = (vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], Liveness::default());
            let (key, rank, size, lanes) = (KEY, Rank::at(rank), RANKS, 1);
            let config = TcpConfig { key, rank, size, lanes, bind, ports: None, liveness };
            Tcp::listen(config).unwrap()
        };
        let doors = [0, 1].map(listen);
        let peers = (0..).map(Rank).zip(doors.iter().map(|door| door.addresses().to_vec()));
        let peers: Vec<_> = peers.collect();
        let ends = doors.map(|door| door.connect(peers.clone()).unwrap());
        let mut rank = 0..;
        ends.map(|tcp| {
            let (rank, settings) = (Rank::at(rank.next().unwrap()), Settings::default());
            let reaches = vec![true; RANKS];
            let (may_use_tcp, placement) = (true, None);
            let config =
                Config { key: KEY, rank, lanes: 1, settings, reaches, may_use_tcp, placement };
            Rdma::new(Rails::none(), tcp, config).unwrap()
        })
    }

    /// Messages to a peer that is gone do not delay the drop.
    #[test]
    fn nobody_waits_to_tell_a_peer_that_is_gone() {
        let [mut one, mut other] = ends();
        let link = Link { peer: Rank(1), lane: Lane(0) };
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut is_sent = false;
        while !(is_sent && one.is_flushed()) {
            assert!(Instant::now() < deadline, "never met");
            is_sent = is_sent || one.send(link, 1, &[7; 100]).unwrap() > 0;
            one.poll().unwrap();
            other.poll().unwrap();
        }
        drop(other);
        // The message is queued while the connection is known to be closed, and before this rank
        // has handled that.
        while one.control.tcp_mut().send(link, 1, &[7; 100]).is_ok() {
            assert!(Instant::now() < deadline, "never closed");
            one.control.tcp_mut().poll().unwrap();
        }
        let message = Message::Credit { lane: 0, total: 0 };
        one.change(Rank(1), |peer, _| peer.push(message));
        assert!(!one.is_drained());
        let began = Instant::now();
        drop(one);
        assert!(began.elapsed() < Duration::from_millis(HANDSHAKE_MS));
    }
}
