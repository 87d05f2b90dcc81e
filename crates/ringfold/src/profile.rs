//! Profiles: the parts of the time that calls take.

use std::fmt;
use std::time::Duration;

/// The times of a rank's collectives between [`begin_profile`] and
/// [`end_profile`]. Printed, it is a table with a line for each kind of calls.
///
/// It has blocking collectives. Messages, calls that the program starts, and collectives that
/// consist of messages, as an all-to-all with uneven parts, are not in it.
///
/// [`begin_profile`]: crate::Communicator::begin_profile
/// [`end_profile`]: crate::Communicator::end_profile
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// The calls by operation, algorithm and size, in the order of the first of each kind. Sizes
    /// up to the same power of two are one kind.
    pub kinds: Vec<ProfiledCalls>,
}

/// Calls of one kind in a [`Profile`]. All times are sums over the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfiledCalls {
    /// The name of the operation, as in `allreduce` or `allgatherv`.
    pub operation: &'static str,
    /// The name of the algorithm, as in `ring`.
    pub algorithm: &'static str,
    /// The number of calls.
    pub calls: u64,
    /// The bytes of the larger of a rank's buffers, over all calls.
    pub bytes: u64,
    /// The time from the beginning of a call to its end.
    pub time: Duration,
    /// The time in which nothing moved: peers had sent nothing, or took nothing.
    pub waiting: Duration,
    /// The time in which the rank combined elements, those of two ranks' shortest calls excepted,
    /// which exchange and combine one cache line at once.
    pub combining: Duration,
    /// The time by the prices of links and of combining, as `ringfold explain` prints it, without
    /// any wait for ranks that are late. `None` if they do not tell it.
    pub expected: Option<Duration>,
}

impl ProfiledCalls {
    /// The time in which the rank moved bytes and managed the call: all but waiting and combining.
    #[must_use]
    pub const fn moving(&self) -> Duration {
        self.time.saturating_sub(self.waiting).saturating_sub(self.combining)
    }

    /// Whether both are of one kind. The bytes are those of a single call of each.
    fn is_like(&self, other: &Self) -> bool {
        let class = |it: &Self| (it.bytes / it.calls.max(1)).next_power_of_two();
        (self.operation, self.algorithm) == (other.operation, other.algorithm)
            && class(self) == class(other)
    }
}

impl Profile {
    /// Adds calls.
    pub(crate) fn add(&mut self, calls: ProfiledCalls) {
        let Some(known) = self.kinds.iter_mut().find(|it| it.is_like(&calls)) else {
            return self.kinds.push(calls);
        };
        known.calls += calls.calls;
        known.bytes = known.bytes.saturating_add(calls.bytes);
        known.time += calls.time;
        known.waiting += calls.waiting;
        known.combining += calls.combining;
        known.expected = known.expected.zip(calls.expected).map(|(one, other)| one + other);
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8}  {:<15} {:<18} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "calls",
            "operation",
            "algorithm",
            "bytes",
            "time",
            "waiting",
            "moving",
            "combining",
            "expected"
        )?;
        writeln!(
            f,
            "{:>8}  {:<15} {:<18} {:>12}{}",
            "",
            "",
            "",
            "(mean)",
            "       (us)".repeat(5)
        )?;
        for it in &self.kinds {
            let calls = it.calls.max(1);
            let mean = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e6 / calls as f64);
            write!(
                f,
                "{:>8}  {:<15} {:<18} {:>12}",
                it.calls,
                it.operation,
                it.algorithm,
                it.bytes / calls
            )?;
            for time in [it.time, it.waiting, it.moving(), it.combining] {
                write!(f, " {:>10}", mean(time))?;
            }
            writeln!(f, " {:>10}", it.expected.map_or_else(|| "-".to_owned(), mean))?;
        }
        Ok(())
    }
}
