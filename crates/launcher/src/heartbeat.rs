//! Heartbeats on a connection that can break without notice, such as ssh's: when to send one, and
//! when to stop waiting for one.

use std::time::Duration;

use ringfold_types::limits::HOST_SILENCE_MS;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// The longest time between two signs of life of a host.
const BEAT_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(HOST_SILENCE_MS as u128 >= 4 * BEAT_MAX.as_millis());

/// The least number of heartbeats before silence counts as a loss.
const BEATS: u32 = 4;

/// A clock that ticks several times within the longest allowed silence.
#[derive(Debug)]
pub(crate) struct Heartbeat(Option<Interval>);

impl Heartbeat {
    /// Makes the clock for a connection that counts as lost after `silence`. It never ticks for
    /// `None`.
    pub(crate) fn within(silence: Option<Duration>) -> Self {
        Self(silence.map(|silence| {
            let period = period(silence);
            let mut interval = interval_at(Instant::now() + period, period);
            // A process that was stopped for long has no heartbeats to make up for.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        }))
    }

    /// Waits for the next heartbeat, or for ever if there is none. May be cancelled.
    pub(crate) async fn next(&mut self) {
        match &mut self.0 {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}

/// Measures the silence of the other end in heartbeats of this process. So the time in which this
/// process itself was stopped does not count.
#[derive(Debug)]
pub(crate) struct SilenceTimer {
    heartbeat: Heartbeat,
    missed: u32,
    missed_max: u32,
}

impl SilenceTimer {
    /// Makes a timer that expires after `limit` of silence, and at most one heartbeat later. It
    /// never expires for `None`.
    pub(crate) fn at_most(limit: Option<Duration>) -> Self {
        let beats = limit.map_or(0, |limit| limit.as_nanos().div_ceil(period(limit).as_nanos()));
        // The first heartbeat may directly follow a message.
        let missed_max = u32::try_from(beats).unwrap_or(u32::MAX).saturating_add(1);
        Self { heartbeat: Heartbeat::within(limit), missed: 0, missed_max }
    }

    /// Restarts the timer: the other end has sent something.
    pub(crate) fn reset(&mut self) {
        self.missed = 0;
    }

    /// Waits until the other end has been silent for too long. May be cancelled.
    pub(crate) async fn expired(&mut self) {
        while self.missed < self.missed_max || self.heartbeat.0.is_none() {
            self.heartbeat.next().await;
            self.missed += 1;
        }
    }
}

/// The time between two heartbeats.
fn period(silence: Duration) -> Duration {
    let period = (silence / BEATS).min(BEAT_MAX);
    period.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Heartbeat, SilenceTimer, period};

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn beats_are_frequent_enough() {
        assert_eq!(period(Duration::from_secs(2)), Duration::from_millis(500));
        assert_eq!(period(Duration::from_secs(3600)), Duration::from_secs(5));
        assert_eq!(period(Duration::ZERO), Duration::from_millis(1));
    }

    #[test]
    fn silence_expires_and_messages_restart_it() {
        block_on(async {
            let limit = Duration::from_millis(80);
            let (begin, mut silence) = (Instant::now(), SilenceTimer::at_most(Some(limit)));
            let mut heartbeat = Heartbeat::within(Some(limit));
            for _ in 0..8 {
                tokio::select! {
                    biased;
                    () = heartbeat.next() => silence.reset(),
                    () = silence.expired() => panic!("the timer expired despite heartbeats"),
                }
            }
            silence.expired().await;
            assert!(begin.elapsed() >= 5 * limit / 2);
        });
    }

    #[test]
    fn the_time_in_which_this_process_was_stopped_does_not_count() {
        block_on(async {
            let mut silence = SilenceTimer::at_most(Some(Duration::from_millis(100)));
            for _ in 0..3 {
                // Nothing in this process runs for longer than the allowed silence.
                std::thread::sleep(Duration::from_millis(150));
                let wait = tokio::time::timeout(Duration::from_millis(1), silence.expired());
                assert!(wait.await.is_err(), "at most one heartbeat was missed");
            }
            silence.expired().await;
        });
    }

    #[test]
    fn no_limit_is_never_reached() {
        block_on(async {
            let mut silence = SilenceTimer::at_most(None);
            let wait = tokio::time::timeout(Duration::from_millis(50), silence.expired());
            assert!(wait.await.is_err());
        });
    }
}
