//! The engine of a communicator: it performs the calls and keeps the failure.

use std::sync::Arc;

use crate::core::Core;
use crate::health::Health;

/// Everything that changes while calls run.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) core: Core,
    pub(crate) health: Health,
    /// The name of the group; `None` for a group that no other group has made.
    pub(crate) group: Option<Arc<str>>,
}
