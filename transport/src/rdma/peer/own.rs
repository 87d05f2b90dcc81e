//! The resources of this rank that all peers share.

use ringfold_types::Rank;

use crate::rdma::budget::Budget;
use crate::rdma::rail::Rails;
use crate::rdma::registry::Registry;
use crate::rdma::settings::Settings;

/// The resources of this rank that all peers share.
pub(in crate::rdma) struct Own<'a> {
    pub(in crate::rdma) rank: Rank,
    pub(in crate::rdma) lanes: usize,
    pub(in crate::rdma) settings: &'a Settings,
    pub(in crate::rdma) rails: &'a mut Rails,
    pub(in crate::rdma) budget: &'a mut Budget,
    pub(in crate::rdma) registry: &'a mut Registry,
}
