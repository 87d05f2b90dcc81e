//! Bringing the ranks together: who they are, where they are, and how they reach each other.

use std::io;

/// Why the ranks could not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The system has no file descriptors left.
    #[error("no file descriptor left ({0}); raise the limit with `ulimit -n`")]
    Descriptors(io::Error),
}
