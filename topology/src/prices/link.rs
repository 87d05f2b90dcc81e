//! The price of one class of links.

use super::class::LinkClass;

/// The price of one class of links. All times are in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPrice {
    /// Time from one rank's send of a short message to the other's receipt.
    pub latency_ps: u64,
    /// The time for which one more message keeps its sender busy.
    pub message_ps: u64,
    /// The time of one more byte. Between hosts, all ranks of a host share the rate.
    pub byte_ps: u64,
    /// The CPU time of both ends together, for one more message and for one more byte.
    pub work_ps: [u64; 2],
}

/// Links between ranks of one host: a cache line changes owners twice, and both ranks copy the
/// data.
const WITHIN_HOSTS: LinkPrice =
    LinkPrice { latency_ps: 500_000, message_ps: 100_000, byte_ps: 100, work_ps: [90_000, 100] };

/// Links between hosts: TCP over a switch, 20 Gbit/s for all ranks of a host together.
const BETWEEN_HOSTS: LinkPrice = LinkPrice {
    latency_ps: 20_000_000,
    message_ps: 2_000_000,
    byte_ps: 400,
    work_ps: [6_000_000, 300],
};

/// Links between containers of one machine: TCP through its kernel, which passes on segments of
/// 64 KiB without a wire.
const BETWEEN_CONTAINERS: LinkPrice = LinkPrice {
    latency_ps: 12_000_000,
    message_ps: 11_000_000,
    byte_ps: 350,
    work_ps: [17_000_000, 430],
};

/// Rails of RDMA devices with a known rate. Not measured: there the price is that of data sheets.
const RAIL: LinkPrice = LinkPrice {
    latency_ps: 3_000_000,
    message_ps: 500_000,
    byte_ps: 80,
    work_ps: [1_000_000, 100],
};

impl LinkPrice {
    /// The default price of a class.
    #[must_use]
    pub const fn of(class: LinkClass) -> Self {
        match class {
            LinkClass::Cache | LinkClass::Socket | LinkClass::Sockets => WITHIN_HOSTS,
            LinkClass::Container => BETWEEN_CONTAINERS,
            LinkClass::Tcp | LinkClass::Rdma(0) => BETWEEN_HOSTS,
            LinkClass::Rdma(gbps) => RAIL.at_rate(gbps.saturating_mul(1000)),
        }
    }

    /// This price, with bytes at `mbps` Mbit/s. The rate must not be 0.
    #[must_use]
    pub(super) const fn at_rate(self, mbps: u32) -> Self {
        Self { byte_ps: 8_000_000_u64.div_ceil(mbps as u64), ..self }
    }
}
