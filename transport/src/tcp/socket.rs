//! System calls on sockets, and the options of all our sockets.

use std::io::{IoSlice, IoSliceMut};
use std::iter::once;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, readv, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, accept_with,
    bind, connect, getpeername, getsockname, ipproto, listen, recv, send, sendmsg, socket_with,
    sockopt,
};
use socket2::SockRef;

use super::route::Route;
use crate::sys::choose_port_late;

/// Connections that the kernel queues before this rank accepts them; the kernel lowers this to its
/// own limit.
const BACKLOG: i32 = 4096;

/// Unanswered keepalive probes after which a connection counts as broken.
const KEEPALIVE_PROBES: u32 = 3;

/// Parts with up to this many bytes in all are written in one piece.
const JOINED_BYTES_MAX: usize = 512;

/// The most parts of one write.
pub(super) const PARTS_MAX: usize = 32;

const WITHOUT_BLOCKING: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// The events of a link's connection, edge-triggered.
pub(super) const EVENTS_OF_LINKS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// When a silent connection counts as broken. A slow peer is not silent: its kernel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Time after which an idle connection is broken if the other end does not answer probes.
    /// Rounded to seconds, at least 4 s. `None` to wait forever. Default 30 s.
    pub idle: Option<Duration>,
    /// Time after which bytes that the peer's kernel did not accept break the connection. The
    /// kernel cannot tell a cut cable from a peer that reads nothing while its window is full. So
    /// this must exceed the time that a rank may be late. `None` for the kernel's own timeout,
    /// about 15 minutes, which tolerates late peers. Default `None`.
    pub unanswered: Option<Duration>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { idle: Some(Duration::from_secs(30)), unanswered: None }
    }
}

/// Makes a listening socket, and returns it with its address. Its connections take `interface`, if
/// that names one.
pub(super) fn listener(
    address: SocketAddr,
    interface: Option<&str>,
) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = open(address, interface)?;
    // A restarted job can reuse a port of its range while old connections linger.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // The unspecified address covers both families.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// The address of a connection's other end, unless it has ended.
pub(super) fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    getpeername(socket).ok().and_then(|peer| SocketAddr::try_from(peer?).ok())
}

/// The addresses of both ends of a connection, unless it has ended.
pub(super) fn route(socket: &OwnedFd) -> Option<Route> {
    let own = getsockname(socket).ok().and_then(|own| SocketAddr::try_from(own).ok())?;
    Some(Route { from: Some(own.ip()), to: peer(socket)? })
}

/// Makes a socket that is connecting, through `interface` if that names one.
pub(super) fn connecting(
    route: Route,
    interface: Option<&str>,
    liveness: Liveness,
) -> Result<OwnedFd, Errno> {
    let Route { from, to } = route;
    let socket = open(to, interface)?;
    tune(&socket, liveness)?;
    if let Some(from) = from {
        come_from(&socket, from)?;
    }
    match retry_on_intr(|| connect(&socket, &to)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Sets the local address of a connection. The kernel chooses the port when the socket connects, so
/// connections to different peers can share a port.
fn come_from(socket: &OwnedFd, from: IpAddr) -> Result<(), Errno> {
    // A kernel without the option chooses the port now, which works for fewer connections.
    choose_port_late(socket).ok();
    bind(socket, &SocketAddr::new(from, 0))
}

/// Accepts the next waiting connection, if there is one.
pub(super) fn accepted(listener: &OwnedFd, liveness: Liveness) -> Result<OwnedFd, Errno> {
    let socket =
        retry_on_intr(|| accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC))?;
    tune(&socket, liveness)?;
    Ok(socket)
}

/// Writes as much of `bytes` as possible without blocking. Returns 0 if nothing can be written now.
pub(super) fn write(socket: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    let socket = socket.as_fd();
    now_or_not(retry_on_intr(|| send(socket, bytes, WITHOUT_BLOCKING)))
}

/// Writes `first` and then `parts`, as `write` does.
///
/// # Panics
/// If there are more than `PARTS_MAX`.
pub(super) fn write_parts(
    socket: impl AsFd,
    first: &[u8],
    parts: &[&[u8]],
) -> Result<usize, Errno> {
    // One short piece costs the kernel less than several, even with the copy here.
    let mut joined = [0; JOINED_BYTES_MAX];
    let len = parts.iter().fold(first.len(), |sum, part| sum + part.len());
    if let Some(joined) = joined.get_mut(..len) {
        let mut rest = &mut joined[..];
        for part in once(&first).chain(parts) {
            let (this, after) = rest.split_at_mut(part.len());
            this.copy_from_slice(part);
            rest = after;
        }
        return write(socket, joined);
    }
    let socket = socket.as_fd();
    let mut slices = [IoSlice::new(first); 1 + PARTS_MAX];
    let slices = &mut slices[..=parts.len()];
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    let mut control = SendAncillaryBuffer::default();
    now_or_not(retry_on_intr(|| sendmsg(socket, slices, &mut control, WITHOUT_BLOCKING)))
}

fn now_or_not(result: Result<usize, Errno>) -> Result<usize, Errno> {
    match result {
        Err(Errno::AGAIN) => Ok(0),
        result => result,
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Nothing has arrived.
    NotYet,
    /// The peer will send no more.
    End,
}

/// Whether the peer has closed the connection, or it has broken.
pub(super) fn has_ended(socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    retry_on_intr(|| poll(&mut set, Some(&Timespec::default()))).is_ok()
        && set[0].revents().intersects(ends)
}

/// Reads into `bytes`, which is not empty, without blocking.
pub(super) fn read(socket: impl AsFd, bytes: &mut [u8]) -> Result<Read, Errno> {
    let socket = socket.as_fd();
    outcome(retry_on_intr(|| {
        recv(socket, &mut *bytes, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
    }))
}

/// Reads into `first` and then `second`, not both empty, without blocking.
pub(super) fn read_both(
    socket: impl AsFd,
    first: &mut [u8],
    second: &mut [u8],
) -> Result<Read, Errno> {
    let socket = socket.as_fd();
    let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
    outcome(retry_on_intr(|| readv(socket, &mut parts)))
}

fn outcome(result: Result<usize, Errno>) -> Result<Read, Errno> {
    match result {
        Ok(0) => Ok(Read::End),
        Ok(bytes) => Ok(Read::Bytes(bytes)),
        Err(Errno::AGAIN) => Ok(Read::NotYet),
        Err(errno) => Err(errno),
    }
}

fn open(address: SocketAddr, interface: Option<&str>) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if let Some(interface) = interface {
        let bound = SockRef::from(&socket).bind_device(Some(interface.as_bytes()));
        bound.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    }
    Ok(socket)
}

/// Sets the options of a connection: small messages leave at once, and a silent peer is detected.
/// The kernel adapts buffer sizes to the path, and would stop that if they were set.
fn tune(socket: &OwnedFd, liveness: Liveness) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    if let Some(idle) = liveness.idle {
        let part = (idle / (KEEPALIVE_PROBES + 1)).max(Duration::from_secs(1));
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, part)?;
        sockopt::set_tcp_keepintvl(socket, part)?;
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    }
    if let Some(unanswered) = liveness.unanswered {
        let millis = u32::try_from(unanswered.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, millis)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_port_is_chosen_only_when_the_peer_is_known() {
        for from in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let socket = open(SocketAddr::new(from, 0), None).unwrap();
            // Some machines have no IPv6.
            if come_from(&socket, from) == Err(Errno::ADDRNOTAVAIL) && from.is_ipv6() {
                continue;
            }
            let bound = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
            assert_eq!(bound, SocketAddr::new(from, 0));
        }
    }

    #[test]
    fn a_socket_of_an_interface_names_it() {
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let (listening, _) = listener(at, Some("lo")).unwrap();
        assert_eq!(SockRef::from(&listening).device().unwrap().unwrap(), b"lo");
        assert_eq!(listener(at, Some("no such")).unwrap_err(), Errno::NODEV);
    }
}
