//! The sockets of the control plane: how they listen, and how they notice a vanished peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

/// Connections that the kernel queues while the acceptor serves others.
pub(crate) const BACKLOG: i32 = 4096;
/// A vanished host is noticed after about 20 s, unless a call is overdue earlier.
const UNACKNOWLEDGED: Duration = Duration::from_millis(UNACKNOWLEDGED_MS);
pub(crate) const UNACKNOWLEDGED_MS: u64 = 20_000;
const QUIET: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_secs(2);
const PROBES: u32 = 5;

/// Listens on the first free port of `ports`, at the first of the addresses `ips` that this host
/// has, or on every address if there are none.
///
/// # Errors
/// No port is free. The error is that of the last port.
pub(crate) fn listen(ips: &[IpAddr], ports: &[u16]) -> io::Result<TcpListener> {
    // One socket serves both families, where the system has both.
    const ALL: [IpAddr; 2] = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let ips = if ips.is_empty() { &ALL } else { ips };
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    for port in ports {
        for ip in ips {
            match bind((*ip, *port).into()) {
                Ok(listener) => return Ok(listener),
                Err(e) => last = e,
            }
            // Other ranks would reach the process that has this port on the first address.
            if last.kind() == io::ErrorKind::AddrInUse {
                break;
            }
        }
    }
    Err(last)
}

fn bind(place: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(place)?;
    socket.set_reuse_address(true)?;
    socket.bind(&place.into())?;
    listen_on(socket)
}

fn socket(place: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(place), Type::STREAM, None)?;
    if place.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Listens on a free port of that address, with room for the connections of many ranks.
/// `Rendezvous::Listening` takes the socket, which does not block. The callback of
/// `show_connections` gets it.
///
/// # Errors
/// No port is free, or the address is not this host's.
pub fn listen_at(ip: IpAddr) -> io::Result<std::net::TcpListener> {
    let (socket, _) = reserve(ip)?;
    socket.listen(BACKLOG)?;
    show(socket.as_fd());
    Ok(socket.into())
}

/// Binds a port of that address without listening on it yet.
///
/// # Errors
/// No port is free, or the address is not this host's.
pub(crate) fn reserve(ip: IpAddr) -> io::Result<(Socket, u16)> {
    let place = SocketAddr::new(ip, 0);
    let socket = socket(place)?;
    socket.bind(&place.into())?;
    let bound = socket.local_addr()?.as_socket();
    let bound = bound.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    Ok((socket, bound.port()))
}

/// Listens on the port of a bound socket.
///
/// # Errors
/// The system refuses.
pub(crate) fn listen_on(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    serve(socket.into())
}

/// Takes over a socket that listens already. It must not block.
///
/// # Errors
/// The system refuses.
pub(crate) fn serve(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    show(listener.as_fd());
    TcpListener::from_std(listener)
}

/// Sends small messages immediately, and detects a peer whose host has vanished.
///
/// # Errors
/// The system refuses an option.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    show(stream.as_fd());
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(QUIET).with_interval(PROBE);
    socket.set_tcp_keepalive(&keepalive.with_retries(PROBES))?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))
}

/// The callback that gets every connected or listening socket.
static CONNECTIONS: OnceLock<fn(BorrowedFd<'_>)> = OnceLock::new();

/// Passes every control connection and every listening socket that this process makes from now on
/// to `see`. The callback can keep children made by `fork` from holding them open. Only the first
/// call has an effect.
pub fn show_connections(see: fn(BorrowedFd<'_>)) {
    CONNECTIONS.get_or_init(|| see);
}

fn show(socket: BorrowedFd<'_>) {
    if let Some(see) = CONNECTIONS.get() {
        see(socket);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, RawFd};
    use std::sync::Mutex;

    use super::*;
    use crate::discover::address::{default_source, loopback};

    static SEEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

    #[test]
    fn children_are_shown_the_sockets_that_listen() {
        show_connections(|socket| SEEN.lock().unwrap().push(socket.as_raw_fd()));
        let (socket, port) = reserve(Ipv4Addr::LOCALHOST.into()).unwrap();
        let descriptor = socket.as_raw_fd();
        assert_ne!(port, 0);
        // A tokio listener needs a reactor.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(async { listen_on(socket) }).unwrap();
        assert!(SEEN.lock().unwrap().contains(&descriptor), "{listener:?}");
    }

    #[test]
    fn this_host_has_a_source_and_a_loopback_address() {
        assert!(loopback().is_loopback());
        for ip in [default_source(), loopback()] {
            assert!(listen_at(ip).is_ok(), "{ip} is an address of this host");
        }
    }
}
