//! The clocks of records.

use rustix::time::{ClockId, clock_gettime};

/// This moment as a stamp, in monotonic nanoseconds, and in nanoseconds since 1970.
pub(super) fn moment(clock: fn() -> u64) -> [u64; 3] {
    [clock(), nanoseconds(ClockId::Monotonic), nanoseconds(ClockId::Realtime)]
}

pub(super) fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}
