//! The IP addresses of this network namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use super::device::check;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Assigned {
    pub(in crate::rdma) address: IpAddr,
    /// The index of the interface.
    pub(in crate::rdma) interface: u32,
    /// The interface is a loopback.
    pub(in crate::rdma) is_loopback: bool,
}

/// Returns the addresses of all interfaces in this network namespace.
pub(in crate::rdma) fn addresses() -> io::Result<Vec<Assigned>> {
    let mut list = ptr::null_mut();
    // SAFETY: there is room for the list.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let (mut found, mut at) = (Vec::new(), list);
    // SAFETY: entries of the list live until it is freed, and so do their names and addresses. The
    // type of an address is that of its family, and it need not be aligned.
    unsafe {
        while let Some(entry) = at.as_ref() {
            at = entry.ifa_next;
            let family = entry.ifa_addr.as_ref().map(|address| i32::from(address.sa_family));
            let address = match family {
                Some(libc::AF_INET) => {
                    let it = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    IpAddr::V4(Ipv4Addr::from(u32::from_be(it.sin_addr.s_addr)))
                }
                Some(libc::AF_INET6) => {
                    let it = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    IpAddr::V6(Ipv6Addr::from(it.sin6_addr.s6_addr))
                }
                _ => continue,
            };
            let interface = libc::if_nametoindex(entry.ifa_name);
            let is_loopback = entry.ifa_flags & libc::IFF_LOOPBACK.cast_unsigned() != 0;
            found.push(Assigned { address, interface, is_loopback });
        }
        libc::freeifaddrs(list);
    }
    Ok(found)
}
