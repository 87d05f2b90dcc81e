//! Why a launcher's key-value space does not serve.

use std::io;

use ringfold_types::limits;

/// Why the key-value space does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmiError {
    /// The socket failed, or nothing came in time.
    #[error("no answer to {command}: {source}")]
    Io {
        /// The request.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// Something else than the answer came.
    #[error("expected {expected}, got {got:?}")]
    Unexpected {
        /// The answer that should have come.
        expected: &'static str,
        /// The line that came.
        got: String,
    },
    /// A line without end.
    #[error("a line of more than {} bytes", limits::PMI_LINE_BYTES_MAX)]
    LineTooLong,
    /// The value does not fit the space.
    #[error("a value of {bytes} bytes; the launcher takes at most {max}")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// The launcher's limit.
        max: usize,
    },
}
