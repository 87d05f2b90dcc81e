//! The links between an aggregator and its children: a stream of bytes in each direction.
//!
//! The aggregator is rank 0 of an endpoint of its own for each group, and child c is rank c + 1. A
//! child dials the endpoint. Both ends prove by the group's key that they belong to the group, as
//! ranks do.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

use ringfold_types::{Lane, Rank, limits};

use super::devices::{ENDS, LANES, RdmaDevices};
use ringfold_transport::tcp::{Config, LINK_BYTES, Liveness, Tcp};
use ringfold_transport::{Link, LinkError, LinkFault, Transport};

/// The rank of the aggregator.
pub const AGGREGATOR: Rank = Rank(0);
/// The tag of all bytes. The stream's own headers say what they are.
const TAG: u32 = 0;

/// The endpoints of a group at an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The endpoint of children that use TCP.
    pub tcp: SocketAddr,
    /// The port of children that use RDMA; 0 if the aggregator has no devices.
    pub rdma_port: u16,
}

/// The links of one end: those of an aggregator to all its children, or that of a child.
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

/// Returns the bytes that the links to this many children take at an aggregator by TCP.
#[must_use]
pub const fn tcp_bytes(children: usize) -> usize {
    children * LINK_BYTES + limits::HANDSHAKES_MAX * HANDSHAKE_BYTES
}

/// Bytes of a connection that has not proven itself.
const HANDSHAKE_BYTES: usize = 512;

impl Links {
    /// Makes the aggregator's end for this many children, and returns the port that they dial. `at`
    /// is the address at which it listens, and `key` the group's key. With devices it may block for
    /// some tenths of a second.
    ///
    /// # Errors
    /// The address has no free port, or the devices cannot be used now.
    pub fn listen(
        devices: Option<&RdmaDevices>,
        at: IpAddr,
        key: [u8; 32],
        children: usize,
    ) -> io::Result<(Self, u16)> {
        Self::make(devices, key, (AGGREGATOR, children), at, None)
    }

    /// Makes the end of a child that dials `to`. With devices it may block for some tenths of a
    /// second.
    ///
    /// # Errors
    /// There is no route, or the devices cannot be used now.
    pub fn dial(
        devices: Option<&RdmaDevices>,
        number: u8,
        to: SocketAddr,
        key: [u8; 32],
    ) -> io::Result<Self> {
        // Nobody connects to a child, which listens all the same.
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let route = UdpSocket::bind((any, 0))?;
        route.connect(to)?;
        let own = route.local_addr()?.ip();
        Ok(Self::make(devices, key, (child_rank(number), 1), own, Some(to))?.0)
    }

    fn make(
        devices: Option<&RdmaDevices>,
        key: [u8; 32],
        (rank, links): (Rank, usize),
        at: IpAddr,
        aggregator: Option<SocketAddr>,
    ) -> io::Result<(Self, u16)> {
        let (bind, liveness) = (vec![at], Liveness::default());
        let config = Config { key, rank, size: ENDS, lanes: LANES, bind, ports: None, liveness };
        let listening = Tcp::listen(config).map_err(io::Error::other)?;
        let port = listening.addresses().first().map_or(0, SocketAddr::port);
        let peers = aggregator.map(|at| (AGGREGATOR, vec![at]));
        let tcp = listening.connect(peers).map_err(io::Error::other)?;
        let transport: Box<dyn Transport> = match devices {
            Some(devices) => Box::new(devices.open(tcp, key, (rank, links))?),
            None => Box::new(tcp),
        };
        Ok((Self { transport, rest: vec![0; ENDS] }, port))
    }

    /// Moves bytes that have arrived from `peer` to the front of `dst`, and returns their number.
    pub(super) fn read(&mut self, peer: Rank, dst: &mut [u8]) -> Result<usize, LinkFault> {
        let link = Link { peer, lane: Lane(0) };
        match self.transport.recv(link, TAG, dst).map_err(fault)? {
            Some(received) if received.tag != TAG => Err(LinkFault::Protocol("another tag")),
            received => Ok(received.map_or(0, |received| received.bytes)),
        }
    }

    /// Writes to `peer`, and returns the number of bytes from the front that its link accepted. The
    /// next call must pass the others first. Bytes that `go_on` travel with those of the next call,
    /// which must follow if all of them are accepted.
    pub(super) fn write(
        &mut self,
        peer: Rank,
        bytes: &[u8],
        go_on: bool,
    ) -> Result<usize, LinkFault> {
        // A link wants the rest of a message before it takes another one.
        let rest = &mut self.rest[peer.index()];
        let message = if *rest > 0 { (*rest).min(bytes.len()) } else { bytes.len() };
        let (link, bytes) = (Link { peer, lane: Lane(0) }, &bytes[..message]);
        let accepted = match go_on {
            true => self.transport.send_ahead(link, TAG, bytes),
            false => self.transport.send(link, TAG, bytes),
        };
        let accepted = accepted.map_err(fault)?;
        *rest = message - accepted;
        Ok(accepted)
    }

    /// Does the work that belongs to no single link. Returns whether anything happened.
    ///
    /// # Errors
    /// The devices are gone, or written bytes are lost.
    pub fn poll(&mut self) -> Result<bool, LinkFault> {
        self.transport.poll().map_err(fault)
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

/// The fault of an error, without the ranks of the link.
fn fault(error: LinkError) -> LinkFault {
    error.fault
}
