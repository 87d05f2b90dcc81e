//! The rates of the connections to each peer, of which one may be slow.
//!
//! A rate is a number of bytes by the time for which they were under way, as the kernel counts both
//! (`sys::delivery`). Only connections that carry the same long call are compared. Other calls send
//! other lengths, and a short message takes a round trip at any rate.

use std::time::Instant;

use crate::shares::{Shares, Slow, WINDOW};
use crate::sys::Delivery;

/// The least bytes of a send that make its call a long one.
const LONG: usize = 64 * 1024;

/// The connections to one peer, by lane.
#[derive(Debug, Default)]
pub(in crate::tcp) struct Rates {
    /// The tag of the call that the lanes of `marks` carry.
    tag: u32,
    /// The lanes that carry that call, and their progress at the last look.
    marks: Vec<(usize, Delivery)>,
    /// The time of the last look.
    looked: Option<Instant>,
    shares: Shares,
}

impl Rates {
    /// Whether a send of so many bytes belongs to a long call, or follows one.
    pub(in crate::tcp) const fn concerns(&self, tag: u32, bytes: usize) -> bool {
        bytes >= LONG || tag != self.tag && !self.marks.is_empty()
    }

    /// Notes that so many bytes of a call that `concerns` this are about to be sent on a lane.
    /// `read` returns what the connection of a lane has delivered. Returns a lane that has become
    /// slow, if there is one.
    pub(in crate::tcp) fn note(
        &mut self,
        (lane, tag, bytes): (usize, u32, usize),
        now: Instant,
        read: impl Fn(usize) -> Option<Delivery>,
    ) -> Option<Slow> {
        let is_other = tag != self.tag;
        let is_over = self.looked.is_none_or(|then| now.duration_since(then) >= WINDOW);
        let slow = if is_other || is_over { self.look(now, &read) } else { None };
        if is_other {
            self.marks.clear();
            self.tag = tag;
        }
        if bytes >= LONG && self.marks.iter().all(|(marked, _)| *marked != lane) {
            self.marks.extend(read(lane).map(|delivery| (lane, delivery)));
        }
        slow
    }

    /// Compares what the lanes have delivered since the last look, if there are several.
    fn look(&mut self, now: Instant, read: impl Fn(usize) -> Option<Delivery>) -> Option<Slow> {
        self.looked = Some(now);
        if self.marks.len() < 2 {
            return None;
        }
        for (lane, before) in &mut self.marks {
            if let Some(after) = read(*lane) {
                let bytes = after.bytes.saturating_sub(before.bytes);
                self.shares.carried(*lane, bytes, after.busy.saturating_sub(before.busy));
                *before = after;
            }
        }
        self.shares.close(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Lets lanes send calls again and again, every 10 ms for 6 s. A call is a lane, the bytes of a
    /// send, and the milliseconds until they are delivered. Calls of different lanes are one, up to
    /// the next one of the same lane. Returns the lanes that became slow.
    fn slow(calls: &[(usize, usize, u64)]) -> Vec<usize> {
        let (mut rates, mut now, mut slow) = (Rates::default(), Instant::now(), Vec::new());
        let mut delivered = [Delivery { bytes: 0, busy: Duration::ZERO }; 2];
        let mut tag = 0;
        for _ in 0..600 {
            now += Duration::from_millis(10);
            let mut used = Vec::new();
            for (lane, bytes, millis) in calls.iter().copied() {
                if used.is_empty() || used.contains(&lane) {
                    (tag, used) = (tag + 1, Vec::new());
                }
                used.push(lane);
                if rates.concerns(tag, bytes) {
                    let found = rates.note((lane, tag, bytes), now, |lane| Some(delivered[lane]));
                    slow.extend(found.map(|it| it.path));
                }
                delivered[lane].bytes += bytes as u64;
                delivered[lane].busy += Duration::from_millis(millis);
            }
        }
        slow
    }

    #[test]
    fn a_slow_lane_is_named_once() {
        assert_eq!(slow(&[(0, 1 << 20, 4), (1, 1 << 20, 9)]), [1]);
        assert_eq!(slow(&[(0, 1 << 20, 9), (1, 1 << 20, 9)]), [0; 0]);
        assert_eq!(slow(&[(0, 1 << 20, 5), (1, 1 << 20, 9)]), [0; 0], "more than half");
    }

    #[test]
    fn calls_of_one_lane_tell_nothing() {
        // Short messages take a round trip each.
        assert_eq!(slow(&[(0, 1 << 20, 3), (1, 1 << 20, 3), (0, 8, 4)]), [0; 0]);
        assert_eq!(slow(&[(0, 1 << 20, 3), (1, 1 << 20, 3), (0, LONG, 4)]), [0; 0]);
    }
}
