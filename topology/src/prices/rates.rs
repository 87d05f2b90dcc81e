//! The statements of each rank that scale default prices: the rates of its NICs, and the place of
//! its cores.

use super::class::LinkClass;

/// The rates of a rank's NICs; 0 where they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Rates {
    /// Mbit/s of the interfaces for TCP, all together.
    pub tcp_mbps: u32,
    /// Gbit/s of the slowest RDMA port.
    pub rdma_gbps: u32,
}

/// Mbit/s that default prices assume for TCP.
const TCP_MBPS: u32 = 20_000;

impl Rates {
    /// The rates that every rank has at least. A rank of unknown TCP rate counts as one of the
    /// default's rate, and a rank of unknown RDMA rate makes that rate unknown.
    #[must_use]
    pub fn of_all(all: &[Self]) -> Self {
        let rdma_gbps = all.iter().map(|it| it.rdma_gbps).min().unwrap_or(0);
        let slowest = |all: &mut dyn Iterator<Item = u32>| all.min().unwrap_or(0);
        let known = slowest(&mut all.iter().map(|it| it.tcp_mbps).filter(|mbps| *mbps > 0));
        let is_whole = all.iter().all(|it| it.tcp_mbps > 0);
        // Where the default is the slowest, nothing is known of the slowest NIC.
        let tcp_mbps = if is_whole || known < TCP_MBPS { known } else { 0 };
        Self { tcp_mbps, rdma_gbps }
    }
}

/// The socket and the last-level cache of all cores of a rank; `None` where there are several, or
/// they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Locality {
    /// The number of the socket.
    pub socket: Option<u16>,
    /// The number of the cache.
    pub cache: Option<u16>,
}

impl Locality {
    /// The narrowest class that holds for the links between all ranks with these on one host.
    #[must_use]
    pub fn class(all: &[Self]) -> LinkClass {
        let is_one = |of: fn(&Self) -> Option<u16>| {
            let first = all.first().and_then(of);
            first.is_some() && all.iter().all(|locality| of(locality) == first)
        };
        if is_one(|locality| locality.cache) {
            LinkClass::Cache
        } else if is_one(|locality| locality.socket) {
            LinkClass::Socket
        } else {
            LinkClass::Sockets
        }
    }
}
