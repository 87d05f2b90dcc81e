//! Errors of a launcher's key-value space.

use std::io;

use ringfold_types::limits;

/// Why a session with a launcher's key-value space failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmiError {
    /// The socket failed, or no answer came in time.
    #[error("no answer to {command}")]
    Io {
        /// The request.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another message than the expected answer came.
    #[error("expected {expected}, got {got:?}")]
    Unexpected {
        /// The expected answer.
        expected: &'static str,
        /// The received line.
        got: String,
    },
    /// A line is too long.
    #[error("a line exceeds the limit of {} bytes", limits::PMI_LINE_BYTES_MAX)]
    LineTooLong,
    /// A value is too long for the space.
    #[error("a value of {bytes} bytes is too long: the launcher accepts at most {max}")]
    ValueTooLong {
        /// The length of the value.
        bytes: usize,
        /// The launcher's limit.
        max: usize,
    },
}
