//! Signs of life on a connection that can be cut without a word, as ssh's: when to give one, and
//! when to stop waiting for one.

use std::time::Duration;

use ringfold_types::limits::HOST_BEAT_MS;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Beats until silence is a loss, at least.
const BEATS: u32 = 4;

/// A clock that ticks several times within the longest silence allowed.
#[derive(Debug)]
pub(crate) struct Beat(Option<Interval>);

impl Beat {
    /// A beat for a connection that counts as lost after `silence`; none for `None`.
    pub(crate) fn within(silence: Option<Duration>) -> Self {
        Self(silence.map(|silence| {
            let period = period(silence);
            let mut interval = interval_at(Instant::now() + period, period);
            // A process that was stopped for long has no beats to make up for.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        }))
    }

    /// Waits for the next beat; for ever if there is none. May be cancelled.
    pub(crate) async fn next(&mut self) {
        match &mut self.0 {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}

/// How long the other end has been silent, in beats of this process. So the time in which this
/// process itself was stopped does not count.
#[derive(Debug)]
pub(crate) struct Silence {
    beat: Beat,
    missed: u32,
    missed_max: u32,
}

impl Silence {
    /// Waits for `limit` without a word, and at most a beat more; for ever if it is `None`.
    pub(crate) fn at_most(limit: Option<Duration>) -> Self {
        let beats = limit.map_or(0, |limit| limit.as_nanos().div_ceil(period(limit).as_nanos()));
        // The first beat may follow a word at once.
        let missed_max = u32::try_from(beats).unwrap_or(u32::MAX).saturating_add(1);
        Self { beat: Beat::within(limit), missed: 0, missed_max }
    }

    /// The other end has said something.
    pub(crate) fn broken(&mut self) {
        self.missed = 0;
    }

    /// Waits until the other end has been silent for too long. May be cancelled.
    pub(crate) async fn too_long(&mut self) {
        while self.missed < self.missed_max || self.beat.0.is_none() {
            self.beat.next().await;
            self.missed += 1;
        }
    }
}

/// Time between two beats.
fn period(silence: Duration) -> Duration {
    let period = (silence / BEATS).min(Duration::from_millis(HOST_BEAT_MS));
    period.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Beat, Silence, period};

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
    fn silence_ends_and_words_prolong_it() {
        block_on(async {
            let limit = Duration::from_millis(80);
            let (begin, mut silence) = (Instant::now(), Silence::at_most(Some(limit)));
            let mut beat = Beat::within(Some(limit));
            for _ in 0..8 {
                tokio::select! {
                    biased;
                    () = beat.next() => silence.broken(),
                    () = silence.too_long() => panic!("words were heard"),
                }
            }
            silence.too_long().await;
            assert!(begin.elapsed() >= 5 * limit / 2);
        });
    }

    #[test]
    fn the_time_in_which_this_process_was_stopped_does_not_count() {
        block_on(async {
            let mut silence = Silence::at_most(Some(Duration::from_millis(100)));
            for _ in 0..3 {
                // Nothing of this process runs for longer than the silence allowed.
                std::thread::sleep(Duration::from_millis(150));
                let wait = tokio::time::timeout(Duration::from_millis(1), silence.too_long());
                assert!(wait.await.is_err(), "a beat at most has been missed");
            }
            silence.too_long().await;
        });
    }

    #[test]
    fn no_limit_is_never_reached() {
        block_on(async {
            let mut silence = Silence::at_most(None);
            let wait = tokio::time::timeout(Duration::from_millis(50), silence.too_long());
            assert!(wait.await.is_err());
        });
    }
}
