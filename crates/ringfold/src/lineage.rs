//! The descent of a communicator from the first one.

use std::sync::Arc;

use ringfold_bootstrap::Doorkeeper;
use ringfold_types::Rank;

/// The origin of a communicator's ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    /// How often the ranks have shrunk.
    pub(crate) epoch: u64,
    /// The rank in the communicator that was shrunk, and that in the first communicator, of each
    /// rank. `None` if these are the same.
    pub(crate) former: Option<Arc<[(Rank, Rank)]>>,
    /// Answers ranks that come too late to the communicator that was shrunk.
    #[expect(dead_code, reason = "it keeps a port open")]
    pub(crate) doorkeeper: Option<Doorkeeper>,
}
