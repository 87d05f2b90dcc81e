//! Profiles: the parts of the time that calls take.

use pyo3::prelude::*;
use ringfold::{Profile as Measured, ProfiledCalls as Kind};

/// The times of a rank's blocking collectives between `begin_profile` and `end_profile`. Its text
/// is a table with a line for each kind of calls.
#[pyclass(frozen, module = "ringfold")]
pub(crate) struct Profile(Measured);

impl From<Measured> for Profile {
    fn from(measured: Measured) -> Self {
        Self(measured)
    }
}

#[pymethods]
impl Profile {
    /// The calls by operation, algorithm and size, in the order of the first of each kind. Sizes up
    /// to the same power of two are one kind.
    #[getter]
    fn kinds(&self) -> Vec<ProfiledCalls> {
        self.0.kinds.iter().map(ProfiledCalls::from).collect()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

/// Calls of one kind in a profile. All times are sums over the calls, in seconds.
#[pyclass(frozen, get_all, module = "ringfold")]
pub(crate) struct ProfiledCalls {
    /// The name of the operation, as in `allreduce` or `allgatherv`.
    operation: &'static str,
    /// The name of the algorithm, as in `ring`.
    algorithm: &'static str,
    /// The number of calls.
    calls: u64,
    /// The bytes of the larger of a rank's buffers, over all calls.
    nbytes: u64,
    /// The time from the beginning of a call to its end: that of waiting, moving and combining.
    time: f64,
    /// The time in which nothing moved: peers had sent nothing, or took nothing.
    waiting: f64,
    /// The time in which the rank moved bytes and managed the call.
    moving: f64,
    /// The time in which the rank combined elements.
    combining: f64,
    /// The time by the prices of links and of combining, in which no rank is late. None if they do
    /// not tell it.
    expected: Option<f64>,
}

impl From<&Kind> for ProfiledCalls {
    fn from(kind: &Kind) -> Self {
        let Kind { operation, algorithm, calls, bytes, time, waiting, combining, expected, .. } =
            *kind;
        Self {
            operation,
            algorithm,
            calls,
            nbytes: bytes,
            time: time.as_secs_f64(),
            waiting: waiting.as_secs_f64(),
            moving: kind.moving().as_secs_f64(),
            combining: combining.as_secs_f64(),
            expected: expected.map(|it| it.as_secs_f64()),
        }
    }
}

#[pymethods]
impl ProfiledCalls {
    fn __repr__(&self) -> String {
        let Self { operation, algorithm, calls, .. } = self;
        format!("<ringfold.ProfiledCalls: {calls} of {operation} by {algorithm}>")
    }
}
