//! The links of data connections that a `Carrier` carries: a stream of bytes in each direction
//! between a child and its aggregator.
//!
//! The aggregator is rank 0 of an endpoint of its own for each epoch of a group, and child c is
//! rank c + 1. A child dials the endpoint's port, which its aggregator's welcome names. Both ends
//! prove by the group's key that they belong to the group, as ranks do.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use ringfold_types::{Lane, Rank};

use super::carrier::{Carrier, ENDS, End, LANES};
use crate::contract::{Link, LinkError, Transport};
use crate::tcp::{Config, Liveness, Tcp};

/// The rank of the aggregator.
pub const AGGREGATOR: Rank = Rank(0);
/// The tag of all bytes. The stream's own headers say what they are.
const TAG: u32 = 0;

/// The links of one end: those of an aggregator to all its children in an epoch, or that of a
/// child.
///
/// Dropping it blocks for up to twice `limits::HANDSHAKE_MS` until written bytes have arrived, and
/// after `withdraw` for a second at most.
#[derive(Debug)]
pub struct Links {
    transport: Box<dyn Transport>,
    /// By rank: bytes of the message under way that its link has not accepted.
    rest: Vec<usize>,
}

/// Returns the rank of a child.
#[must_use]
pub fn child_rank(number: u8) -> Rank {
    Rank(u32::from(number) + 1)
}

impl Links {
    /// Makes the aggregator's end for this many children, and returns the port that they dial. `at`
    /// is the address at which it listens, and `key` the group's key. May block as
    /// `Carrier::make_transport`.
    ///
    /// # Errors
    /// The address has no free port, or those of `Carrier::make_transport`.
    pub fn listen(
        carrier: &dyn Carrier,
        at: IpAddr,
        key: [u8; 32],
        children: usize,
    ) -> io::Result<(Self, u16)> {
        Self::make(carrier, End { rank: AGGREGATOR, links: children, key }, at, None)
    }

    /// Makes the end of a child that dials `to`. The child listens at `at` itself, though nobody
    /// connects there. May block as `Carrier::make_transport`.
    ///
    /// # Errors
    /// As `listen`.
    pub fn dial(
        carrier: &dyn Carrier,
        number: u8,
        (at, to): (IpAddr, SocketAddr),
        key: [u8; 32],
    ) -> io::Result<Self> {
        let end = End { rank: child_rank(number), links: 1, key };
        Ok(Self::make(carrier, end, at, Some(to))?.0)
    }

    fn make(
        carrier: &dyn Carrier,
        end: End,
        at: IpAddr,
        aggregator: Option<SocketAddr>,
    ) -> io::Result<(Self, u16)> {
        let End { rank, key, .. } = end;
        let (bind, liveness) = (vec![at], Liveness::default());
        let config = Config { key, rank, size: ENDS, lanes: LANES, bind, ports: None, liveness };
        let listening = Tcp::listen(config).map_err(io::Error::other)?;
        let port = listening.addresses().first().map_or(0, SocketAddr::port);
        let peers = aggregator.map(|at| (AGGREGATOR, vec![at]));
        let tcp = listening.connect(peers).map_err(io::Error::other)?;
        let transport = carrier.make_transport(tcp, end)?;
        Ok((Self { transport, rest: vec![0; ENDS] }, port))
    }

    /// Moves bytes that have arrived from `peer` to the front of `dst`, and returns their number.
    ///
    /// # Errors
    /// The link has ended, and all bytes before its end were read.
    pub fn read(&mut self, peer: Rank, dst: &mut [u8]) -> Result<usize, LinkError> {
        let link = Link { peer, lane: Lane(0) };
        let Some(fragment) = self.transport.readable(link)? else { return Ok(0) };
        let bytes = fragment.bytes.len().min(dst.len());
        dst[..bytes].copy_from_slice(&fragment.bytes[..bytes]);
        self.transport.consume(link, bytes);
        Ok(bytes)
    }

    /// Writes to `peer`, and returns the number of bytes from the front that its link accepted. The
    /// next call must pass the others first.
    ///
    /// # Errors
    /// The link has ended.
    pub fn write(&mut self, peer: Rank, bytes: &[u8]) -> Result<usize, LinkError> {
        // A link wants the rest of a message before it takes another one.
        let rest = &mut self.rest[peer.index()];
        let message = if *rest > 0 { (*rest).min(bytes.len()) } else { bytes.len() };
        let link = Link { peer, lane: Lane(0) };
        let accepted = self.transport.send(link, TAG, &bytes[..message])?;
        *rest = message - accepted;
        Ok(accepted)
    }

    /// Does the work that belongs to no single link. Returns whether anything happened.
    ///
    /// # Errors
    /// The devices are gone, or written bytes are lost.
    pub fn poll(&mut self) -> Result<bool, LinkError> {
        self.transport.poll()
    }

    /// Returns the descriptor for `ppoll`, as `Transport::wake_fd` does.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.transport.wake_fd()
    }

    /// Makes `wake_fd` readable from now on when something happens, as `Transport::arm` does.
    pub fn arm(&mut self) {
        self.transport.arm();
    }

    /// Cancels `arm`.
    pub fn disarm(&mut self) {
        self.transport.disarm();
    }

    /// Whether all written bytes reach their peers without further calls.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.transport.is_flushed()
    }

    /// Gives up written bytes that have not arrived.
    pub fn withdraw(&mut self) {
        self.transport.withdraw();
    }
}
