//! The configuration of an endpoint.

use ringfold_types::Rank;

use crate::rdma::settings::Settings;
use crate::rdma::sys::Placement;

/// The configuration of an endpoint.
#[derive(Debug)]
pub struct Config {
    /// The secret that the ranks of the job share.
    pub key: [u8; 32],
    /// This rank.
    pub rank: Rank,
    /// The number of parallel streams to each peer, from 1 to `limits::LANES_MAX`. All ranks use
    /// the same number, and so does the TCP endpoint.
    pub lanes: usize,
    /// Timeouts, traffic classes and other options.
    pub settings: Settings,
    /// For each rank, whether it may have a rail in common with this one. Both ranks of a pair must
    /// agree.
    pub reaches: Vec<bool>,
    /// Whether data may go by TCP where no path is left. Both ranks of a pair must agree.
    pub may_use_tcp: bool,
    /// Lets peers write long messages directly into `Pages`. Without it, `recv` copies every
    /// message.
    pub placement: Option<Placement>,
}
