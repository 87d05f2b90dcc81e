//! The settings of ranks with an RDMA network.

use ringfold_types::limits::{RDMA_BYTES, RDMA_QUEUE_PAIRS};

use super::filter::Filter;
use super::partition::Partition;

/// The settings. The defaults suit most networks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The devices and ports that may be used. Default: all.
    pub devices: Filter,
    /// The index of the GID to use on every port except those of iWARP. Default: a choice by kind,
    /// family and subnet.
    pub gid_index: Option<u8>,
    /// The traffic class of packets that have one (RoCE, and InfiniBand across routers). Default 0.
    pub traffic_class: u8,
    /// The service level, 0 to 15, on InfiniBand and RoCE. Default 0.
    pub service_level: u8,
    /// The partition key of every port. Ports without it are not used, and iWARP has none. Default:
    /// the first in the port's table that makes it a full member.
    pub partition: Option<Partition>,
    /// Whether long payloads go by writes that the network may route packet by packet. Default: on
    /// InfiniBand, whose switches can do so where the fabric is set up for it.
    pub adaptive_routing: Option<bool>,
    /// The time that a device waits for an answer: 4.096 us times two to the power of this, 1 to
    /// 31. Default 18, about a second. Over iWARP this library waits, for as long as all tries
    /// together.
    pub timeout: u8,
    /// The number of retries before the peer counts as lost, 0 to 7. Soft-RoCE takes 7 as no limit.
    /// Default 6.
    pub retries: u8,
    /// Whether devices may put arriving bytes in place in any order, where they can (relaxed
    /// ordering of PCI Express). Never over iWARP. Default: yes.
    pub relaxed_ordering: bool,
    /// Queue pairs between two ranks on each pair of rails, over which messages are spread, 1 to 4.
    /// There are at least as many as a bond has ports, up to 4. The lesser number of the two ranks
    /// counts. Default 1.
    pub queue_pairs: u8,
    /// Queue pairs of the process with all peers of all endpoints, at least 1. A peer for which
    /// none are left gets its data by TCP. Default `limits::RDMA_QUEUE_PAIRS`.
    pub queue_pairs_max: usize,
    /// Bytes of memory that the process registers for all peers of all endpoints, counted once for
    /// each rail. Default `limits::RDMA_BYTES`.
    pub bytes_max: usize,
    /// Keeps the endpoint apart from the others of the process, because its peers belong to another
    /// job: it has protection domains of its own, and registers at most so many bytes. Default: no.
    pub apart: Option<usize>,
    /// The name of this host in peers' logs. Default: empty.
    pub host: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: Filter::default(),
            gid_index: None,
            traffic_class: 0,
            service_level: 0,
            partition: None,
            adaptive_routing: None,
            timeout: 18,
            retries: 6,
            relaxed_ordering: true,
            queue_pairs: 1,
            queue_pairs_max: RDMA_QUEUE_PAIRS,
            bytes_max: RDMA_BYTES,
            apart: None,
            host: String::new(),
        }
    }
}
