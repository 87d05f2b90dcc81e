//! Ranks that have an RDMA network between them: InfiniBand, RoCE or iWARP, through verbs.
//!
//! Every link has a ring in the receiver's registered memory. The sender keeps an image of it,
//! writes fragments into the image and lets the device write them to the peer, at the same place,
//! by RDMA WRITE with an immediate number that says lane, order and length. The receiver lends them
//! where they lie, and returns credit by the same kind of number. So all that happens to a rank is
//! in its completion queues: one place to look, however many peers there are, and one descriptor to
//! park on; and nothing is ever exposed but rings, mailboxes and registered memory into which
//! a peer was once invited to write, each to its one peer. Over iWARP, whose writes have no
//! numbers, a message of four bytes after the write brings it.
//!
//! Queue pairs and rings come to be when a link is first used. Both ends find each other by a TCP
//! connection (`crate::tcp`), proven as all are; on it they pair their rails, exchange what they
//! must know of queue pairs and memory (`message`), and notice each other's end. Peers that have no
//! rail in common, or none that works any more, use it for data too.
//!
//! * `sys`: libibverbs and librdmacm, found at run time;
//! * `filter`, `gid`, `rail`: which ports this host has, and which may be used;
//! * `ports`: the opened ports as evidence of the fabric, and their labels;
//! * `pairing`: which of them reach which of a peer's; `address`: how packets get there;
//! * `geometry`, `outbound`, `inbound`: the ring; `path`: a queue pair; `peer`, `talk`: all of
//!   one peer;
//! * `registry`: memory of callers that devices read and write where it lies; `invitation`: where
//!   a peer's may write;
//! * `budget`: how much of devices and memory peers may take;
//! * `endpoint`: all peers, and waiting; `words`: what devices report, for people; `outages`: what
//!   the log says of it, so that one cable is one line;
//! * `examine`: whether all is there that it takes.

mod address;
mod budget;
#[doc(hidden)]
pub mod decode;
mod endpoint;
mod examine;
mod filter;
mod geometry;
mod gid;
mod inbound;
mod invitation;
#[cfg(test)]
mod invitation_tests;
mod message;
mod nameplate;
mod outages;
#[cfg(test)]
mod outages_tests;
mod outbound;
mod pairing;
mod path;
mod peer;
mod ports;
mod rail;
mod registry;
mod restraint;
#[cfg(test)]
mod ring_tests;
mod sys;
mod talk;
#[cfg(test)]
mod tests;
mod words;

pub use endpoint::{Config, Rdma};
pub use examine::{Examined, Finding, Port, State, examine};
pub use filter::{Filter, InvalidFilter};
pub use ports::OpenPort;
pub use rail::{Rails, Unusable};

use ringfold_types::limits::{RDMA_BYTES, RDMA_QUEUE_PAIRS};

/// What can be set. `Default` is what suits most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Devices and ports that may be used. Default: all.
    pub devices: Filter,
    /// The index of the GID to use on every port but those of iWARP. Default: by kind, family and
    /// subnet.
    pub gid_index: Option<u8>,
    /// The traffic class of packets that have one (RoCE, and InfiniBand across routers). Default 0.
    pub traffic_class: u8,
    /// The service level, 0 to 15, on InfiniBand and RoCE. Default 0.
    pub service_level: u8,
    /// The index in the table of partition keys of every port; ports without such an entry are not
    /// used, and iWARP has none. Default 0.
    pub partition_key_index: u16,
    /// Whether long payloads go by writes that the network may route packet by packet. Default: on
    /// InfiniBand, whose switches can do so where the fabric is set up for it.
    pub adaptive_routing: Option<bool>,
    /// How long a device waits for an answer: 4.096 us times two to the power of this, 1 to 31.
    /// Default 18, about a second. Over iWARP we wait, as long as others do with all their tries.
    pub timeout: u8,
    /// How often it tries again before the peer counts as lost, 0 to 7, which soft-RoCE takes to be
    /// for ever. Default 6.
    pub retries: u8,
    /// Whether devices may put arriving bytes in place in any order, where they can (relaxed
    /// ordering of PCI Express); never over iWARP. Default: they may.
    pub relaxed_ordering: bool,
    /// Queue pairs between two ranks on each pair of rails, over which messages are spread, 1 to 4.
    /// The lesser of what the two ranks say counts. Default 1.
    pub queue_pairs: u8,
    /// Queue pairs with all peers together, at least 1. A peer for which there are none gets its
    /// data by TCP. Default `limits::RDMA_QUEUE_PAIRS`.
    pub queue_pairs_max: usize,
    /// Bytes of memory registered for all peers together, counted once for each rail. Default
    /// `limits::RDMA_BYTES`.
    pub bytes_max: usize,
    /// What people call this host: peers' logs name it. Default: nothing.
    pub host: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: Filter::default(),
            gid_index: None,
            traffic_class: 0,
            service_level: 0,
            partition_key_index: 0,
            adaptive_routing: None,
            timeout: 18,
            retries: 6,
            relaxed_ordering: true,
            queue_pairs: 1,
            queue_pairs_max: RDMA_QUEUE_PAIRS,
            bytes_max: RDMA_BYTES,
            host: String::new(),
        }
    }
}
