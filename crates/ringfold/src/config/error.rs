//! Settings that make no sense.

use ringfold_collectives::select::InvalidConstraints;
use ringfold_transport::rdma::InvalidFilter;

/// A setting that makes no sense.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is not what the variable takes.
    #[error("{variable}={value:?}: {wanted}")]
    Value {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values that the variable takes.
        wanted: &'static str,
    },
    /// A number is out of its range.
    #[error("{variable}={value:?}: a number from {least} to {most}")]
    Range {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The least number that it takes.
        least: u16,
        /// The greatest number that it takes.
        most: u16,
    },
    /// The list of RDMA devices cannot be read.
    #[error("RINGFOLD_IB_HCA={value:?}: {why}")]
    Devices {
        /// Its value.
        value: String,
        /// The reason.
        why: InvalidFilter,
    },
    /// The file of measurements cannot be used.
    #[error("RINGFOLD_PLAN={path:?}: {why}; `ringfold tune` writes such files")]
    Plan {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The choice of algorithms makes no sense.
    #[error("RINGFOLD_ALGO: {0}")]
    Algorithms(#[from] InvalidConstraints),
}
