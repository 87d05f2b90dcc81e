//! The addresses of this host: the one that other hosts use, and the loopback address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use super::interface;
use super::interface::Family;

/// Documentation addresses: the routes to them are the default routes. Nothing is sent to them.
const ELSEWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// Whether `host` names this host on every host, so that only processes of one host can meet there.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The source address that this host uses toward `place` (`host:port`). Sends nothing.
///
/// # Errors
/// `place` has no address, or there is no route to it.
pub fn source_toward(place: impl ToSocketAddrs) -> io::Result<IpAddr> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for target in place.to_socket_addrs()? {
        let any: IpAddr = match target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let route = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(target)?;
            socket.local_addr()
        });
        match route {
            Ok(source) => return Ok(source.ip()),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// The address by which other hosts most likely reach this one: the source address of the default
/// route, of IPv4 or else of IPv6. Without a default route, as on an isolated cluster network, it
/// is the best address of the interfaces. Without any network, it is the loopback address.
#[must_use]
pub fn default_source() -> IpAddr {
    let routed = ELSEWHERE.iter().filter_map(|place| source_toward(place).ok());
    let mut routed = routed.filter(|ip| interface::is_routed(*ip));
    routed.next().or_else(best_address).unwrap_or_else(loopback)
}

fn best_address() -> Option<IpAddr> {
    let all = interface::interfaces().ok()?;
    Some(interface::choose(&all, None, Family::Any, false).ok()?.address)
}

/// The loopback address of this host: that of IPv4, unless only that of IPv6 can be used.
#[must_use]
pub fn loopback() -> IpAddr {
    let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    both.into_iter().find(|ip| UdpSocket::bind((*ip, 0)).is_ok()).unwrap_or(both[0])
}

/// This host's name, as the kernel reports it.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The loopback addresses of these `hosts`, which are names or addresses of this host alone.
pub(crate) fn loopbacks(hosts: &[String]) -> Vec<IpAddr> {
    let found = hosts.iter().filter_map(|host| (host.as_str(), 0).to_socket_addrs().ok()).flatten();
    let mut found: Vec<IpAddr> = found.map(|at| at.ip()).filter(IpAddr::is_loopback).collect();
    found.dedup();
    if found.is_empty() { vec![loopback()] } else { found }
}
