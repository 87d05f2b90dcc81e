//! The facts that an endpoint must know.

use ringfold_types::Rank;

use crate::rdma::settings::Settings;
use crate::rdma::sys::Placement;

/// The facts that an endpoint must know.
#[derive(Debug)]
pub struct Config {
    /// The secret that the ranks of the job share.
    pub key: [u8; 32],
    /// This rank.
    pub rank: Rank,
    /// Parallel streams to each peer, 1 to `limits::LANES_MAX`; all ranks say the same, and
    /// the TCP endpoint was made with as many.
    pub lanes: usize,
    /// Timeouts, traffic classes and such.
    pub settings: Settings,
    /// By rank: whether it may have a rail in common with this one. The same for both of a pair.
    pub reaches: Vec<bool>,
    /// Whether data may go by TCP where no path is left, which must be the same for both too.
    pub may_use_tcp: bool,
    /// Lets peers write long messages straight into `Pages`; without it `recv` copies.
    pub placement: Option<Placement>,
}
