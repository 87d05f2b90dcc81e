//! Errors of settings.

use ringfold_collectives::select::InvalidConstraints;
use ringfold_transport::rdma::InvalidFilter;

/// A setting that is invalid.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The variable does not take this value.
    #[error("{variable}={value:?} is invalid: give {wanted}")]
    Value {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values that the variable takes.
        wanted: &'static str,
    },
    /// A number is out of its range.
    #[error("{variable}={value:?} is invalid: give a number from {least} to {most}")]
    Range {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The least number that the variable takes.
        least: u16,
        /// The greatest number that the variable takes.
        most: u16,
    },
    /// `RINGFOLD_IB_HCA` is not a list of RDMA devices.
    #[error("RINGFOLD_IB_HCA={value:?} is not a list of RDMA devices")]
    Devices {
        /// The value of the variable.
        value: String,
        /// The invalid part of the list.
        source: InvalidFilter,
    },
    /// The tuning file cannot be used.
    #[error("RINGFOLD_PLAN={path:?} cannot be used: {why}; `ringfold tune` writes such files")]
    Plan {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The profile of prices cannot be used.
    #[error(
        "RINGFOLD_PRICES={path:?} cannot be used: {why}; `ringfold tune --machine` writes such \
         files"
    )]
    Prices {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The file for metrics cannot be written.
    #[error(
        "RINGFOLD_METRICS={path:?} cannot be written: {why}; name a file in a folder that this \
         user may write, or a port"
    )]
    Metrics {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The file for the trace cannot be written.
    #[error(
        "RINGFOLD_TRACE={path:?} cannot be written: {why}; name a file in a folder that this user \
         may write, on a disk with room"
    )]
    Trace {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// `RINGFOLD_ALGO` is not a choice of algorithms.
    #[error("RINGFOLD_ALGO is not a choice of algorithms")]
    Algorithms(#[from] InvalidConstraints),
}
