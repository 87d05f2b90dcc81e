//! The descent of a communicator from the first one.

use std::sync::Arc;

use ringfold_bootstrap::Doorkeeper;
use ringfold_types::Rank;

/// The origin of a communicator's ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    /// How often the ranks have shrunk or grown.
    pub(crate) epoch: u64,
    /// The rank in the communicator that shrank or grew, and the lasting identity, of each rank.
    /// `None` if these are the same.
    pub(crate) former: Option<Arc<[(Rank, Rank)]>>,
    /// The lasting identity of the next newcomer. `None` if there was none: it is the size.
    pub(crate) next: Option<u32>,
    /// Answers ranks that come too late to the communicator that was shrunk.
    pub(crate) doorkeeper: Option<Doorkeeper>,
}
