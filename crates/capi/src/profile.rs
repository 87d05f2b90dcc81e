//! Profiles: the parts of the time that calls take.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::time::Duration;

use ringfold::ProfiledCalls;

use crate::comm::with;
use crate::fault::reported;
use crate::memory;
use crate::types::{
    RINGFOLD_NAME_BYTES, ringfold_comm_t, ringfold_profiled_calls, ringfold_result,
};

/// Begins a profile of this rank's blocking collectives, in place of one that has begun before.
/// Waits for a call of another thread, and for the collectives that were started. Ranks may do so
/// independently of each other. Calls take a few clock readings longer while there is a profile.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_comm_begin_profile(comm: ringfold_comm_t) -> ringfold_result {
    reported(|| with(comm, |comm| Ok(comm.begin_profile()?)))
}

/// Ends the profile, and writes the times of each kind of calls to `kinds`, which has room for
/// `room` of them, in the order of the first call of each kind. Further kinds are left out. Writes
/// the number of all kinds to `count`: none if no profile had begun. Waits as
/// ringfold_comm_begin_profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_comm_end_profile(
    comm: ringfold_comm_t,
    kinds: *mut ringfold_profiled_calls,
    room: usize,
    count: *mut usize,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let count = unsafe { memory::out(count, "count") }?;
        count.write(0);
        if room > 0 {
            // SAFETY: the caller points to memory of so many kinds.
            unsafe { memory::out(kinds, "kinds") }?;
        }
        let profile = with(comm, |comm| Ok(comm.end_profile()?))?;
        for (at, calls) in profile.kinds.iter().take(room).enumerate() {
            // SAFETY: the caller points to memory of `room` kinds.
            unsafe { memory::out(kinds.wrapping_add(at), "kinds") }?.write(calls.into());
        }
        count.write(profile.kinds.len());
        Ok(())
    })
}

impl From<&ProfiledCalls> for ringfold_profiled_calls {
    fn from(calls: &ProfiledCalls) -> Self {
        let ProfiledCalls { operation, algorithm, calls: number, bytes, .. } = *calls;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            operation: name(operation),
            algorithm: name(algorithm),
            calls: number,
            bytes,
            time_ns: nanos(calls.time),
            waiting_ns: nanos(calls.waiting),
            moving_ns: nanos(calls.moving()),
            combining_ns: nanos(calls.combining),
            expected_ns: calls.expected.map_or(-1, |it| i64::try_from(nanos(it)).unwrap_or(-1)),
        }
    }
}

/// The text with a zero at its end, as far as there is room.
fn name(text: &str) -> [c_char; RINGFOLD_NAME_BYTES] {
    let mut name = [0; RINGFOLD_NAME_BYTES];
    for (place, byte) in name[..RINGFOLD_NAME_BYTES - 1].iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
    name
}
