//! The shares of the paths to a peer: by the rates of their ports, or by their own rates where they
//! carry much less. Paths are those of RDMA, or connections of TCP.

use std::time::{Duration, Instant};

/// The least time over which the rates of paths are compared.
pub(crate) const WINDOW: Duration = Duration::from_millis(500);
/// The time after which a path is slow that carries less than half of its share.
const PATIENCE: Duration = Duration::from_secs(2);
/// The windows in a row that this takes at least.
const WINDOWS: u32 = 2;
/// The least bytes of a path in a window that tell its rate. A window lasts until some path has
/// carried as many. Where calls wait for a slow path, that takes long.
const BYTES_MIN: u64 = 64 * 1024;
/// The factor that keeps the speeds of slow paths exact.
const SPEED_UNIT: u128 = 1 << 40;
/// A path must have been busy for this part of a window to count as slow: a quarter.
const BUSY_PART: u32 = 4;

/// The shares of all paths.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    all: Vec<Share>,
    /// The time when the present window began.
    since: Option<Instant>,
}

/// The share of a path.
#[derive(Debug, Default)]
struct Share {
    /// The rates of the ports at both ends in Gbit/s, ours first; 0 if unknown.
    gigabits: [u32; 2],
    /// The weight of the path by that rate.
    by_port: u64,
    /// The weight of the path by its own rate, if it is slow.
    by_rate: Option<u64>,
    /// The bytes that have arrived in this window.
    bytes: u64,
    /// The time in this window for which bytes were under way, up to `busy_since`.
    busy: Duration,
    /// The time since which bytes are under way.
    busy_since: Option<Instant>,
    /// The windows in a row in which the path carried less than half of its share, and their time.
    late: (u32, Duration),
}

/// A path that has become slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    pub(crate) path: usize,
    /// The part of its share that the path carries.
    pub(crate) percent: u64,
}

impl Shares {
    /// Adds a path whose ports have unknown rates.
    pub(crate) fn add(&mut self) {
        self.all.push(Share::default());
        self.set(self.all.len() - 1, [0, 0]);
    }

    /// Sets the rate of our port of a path.
    pub(crate) fn set_own(&mut self, path: usize, gigabits: u32) {
        self.set(path, [gigabits, self.all[path].gigabits[1]]);
    }

    /// Sets the rates of a path's ports in Gbit/s. The slower one counts. An unknown rate counts as
    /// the highest of all.
    pub(crate) fn set(&mut self, path: usize, gigabits: [u32; 2]) {
        self.all[path] = Share { gigabits, ..Share::default() };
        let best = self.all.iter().filter_map(Share::known_rate).max().unwrap_or(1);
        for share in &mut self.all {
            let gigabits = share.known_rate().unwrap_or(best);
            // The factor leaves room for the weights of slow paths.
            share.by_port = u64::from(gigabits) << 10;
        }
    }

    /// The weight of a path among all.
    pub(crate) fn weight(&self, path: usize) -> u64 {
        let share = &self.all[path];
        share.by_rate.unwrap_or(share.by_port)
    }

    /// Notes that bytes are under way by a path that was idle.
    pub(crate) fn begin(&mut self, path: usize, now: Instant) {
        self.all[path].busy_since = Some(now);
    }

    /// Notes that a path has ended.
    pub(crate) fn end(&mut self, path: usize) {
        self.all[path].busy_since = None;
    }

    /// Notes that bytes have arrived by a path, and whether it is idle after that. Returns a path
    /// that has become slow by this, if there is one.
    pub(crate) fn arrived(
        &mut self,
        path: usize,
        (bytes, is_idle): (u32, bool),
        now: Instant,
    ) -> Option<Slow> {
        let share = &mut self.all[path];
        share.bytes += u64::from(bytes);
        share.rest(now, !is_idle);
        self.close(now)
    }

    /// Adds bytes that a path has carried, and the time for which it was busy with them.
    pub(crate) fn carried(&mut self, path: usize, bytes: u64, busy: Duration) {
        while self.all.len() <= path {
            self.add();
        }
        self.all[path].bytes += bytes;
        self.all[path].busy += busy;
    }

    /// Compares the paths if the present window is over. Returns a path that has become slow by
    /// this, if there is one.
    pub(crate) fn close(&mut self, now: Instant) -> Option<Slow> {
        let time = now.duration_since(*self.since.get_or_insert(now));
        if time < WINDOW || self.all.iter().all(|share| share.bytes < BYTES_MIN) {
            return None;
        }
        self.since = Some(now);
        self.compare(now, time)
    }

    /// Compares the rates of all paths in the window that is over, which took so long.
    fn compare(&mut self, now: Instant, time: Duration) -> Option<Slow> {
        for share in &mut self.all {
            let is_busy = share.busy_since.is_some();
            share.rest(now, is_busy);
        }
        let best = self.all.iter().filter_map(Share::speed).max().unwrap_or(0);
        let mut slow = None;
        for (path, share) in self.all.iter_mut().enumerate() {
            let speed = share.speed_of_any();
            let busy = std::mem::take(&mut share.busy);
            share.bytes = 0;
            let is_new = share.by_rate.is_none();
            if best == 0 || is_new && busy < time / BUSY_PART {
                continue;
            }
            let (windows, late) = share.late;
            let is_late = 2 * speed < best;
            share.late = if is_late { (windows + 1, late + time) } else { (0, Duration::ZERO) };
            if is_new && (share.late.0 < WINDOWS || share.late.1 < PATIENCE) {
                continue;
            }
            let measured = u64::try_from(u128::from(share.by_port) * speed / best);
            let weight = match share.by_rate {
                // It carried nothing, and is tried again with a little more each time.
                Some(weight) if busy.is_zero() => weight + weight / 4 + 1,
                _ => measured.unwrap_or(share.by_port).max(share.by_port >> 10),
            };
            share.by_rate = (4 * weight < 3 * share.by_port).then_some(weight);
            if is_new {
                slow = Some(Slow { path, percent: 100 * weight / share.by_port });
            }
        }
        slow
    }
}

impl Share {
    /// The rate of the slower port, as far as it is known.
    fn known_rate(&self) -> Option<u32> {
        self.gigabits.into_iter().filter(|rate| *rate > 0).min()
    }

    /// Counts the busy time up to now.
    fn rest(&mut self, now: Instant, is_busy: bool) {
        if let Some(since) = self.busy_since {
            self.busy += now.duration_since(since);
        }
        self.busy_since = is_busy.then_some(now);
    }

    /// The bytes in a time of busyness for each unit of the port's weight, if enough have arrived.
    fn speed(&self) -> Option<u128> {
        (self.bytes >= BYTES_MIN).then(|| self.speed_of_any())
    }

    /// The same, however few have arrived.
    fn speed_of_any(&self) -> u128 {
        let unit = self.busy.as_micros().max(1) * u128::from(self.by_port);
        u128::from(self.bytes) * SPEED_UNIT / unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets two paths be busy for so many windows. They carry so many MiB in each.
    fn pass(shares: &mut Shares, now: &mut Instant, windows: u32, mib: [u32; 2]) -> Vec<Slow> {
        let mut slow = Vec::new();
        for _ in 0..10 * windows {
            for (path, mib) in mib.into_iter().enumerate() {
                slow.extend(shares.arrived(path, ((mib << 20) / 10, false), *now));
            }
            *now += WINDOW / 10;
        }
        slow
    }

    fn two(gigabits: [u32; 2]) -> (Shares, Instant) {
        let (mut shares, now) = (Shares::default(), Instant::now());
        for (path, gigabits) in gigabits.into_iter().enumerate() {
            shares.add();
            shares.set(path, [400, gigabits]);
            shares.begin(path, now);
        }
        (shares, now)
    }

    fn ratio(shares: &Shares) -> f64 {
        shares.weight(0) as f64 / shares.weight(1) as f64
    }

    #[test]
    fn an_unknown_rate_counts_as_the_highest() {
        assert_eq!(ratio(&two([400, 100]).0), 4.0);
        assert_eq!(ratio(&two([400, 0]).0), 1.0);
        assert_eq!(ratio(&two([0, 0]).0), 1.0);
        let (mut shares, _) = two([400, 400]);
        shares.set_own(1, 25);
        assert_eq!(ratio(&shares), 16.0, "it trained down");
        shares.set(1, [0, 50]);
        assert_eq!(ratio(&shares), 8.0, "the peer's port is known");
    }

    #[test]
    fn a_path_that_carries_less_than_half_for_long_is_slow_once() {
        let (mut shares, mut now) = two([200, 200]);
        assert_eq!(pass(&mut shares, &mut now, 20, [80, 50]), [], "more than half");
        assert_eq!(ratio(&shares), 1.0);
        assert_eq!(pass(&mut shares, &mut now, 3, [80, 5]), [], "not yet for two seconds");
        assert_eq!(ratio(&shares), 1.0);
        let slow = pass(&mut shares, &mut now, 20, [80, 5]);
        let [Slow { path: 1, .. }] = slow[..] else { panic!("{slow:?}") };
        assert!((15.0..17.0).contains(&ratio(&shares)), "{}", ratio(&shares));
        assert_eq!(pass(&mut shares, &mut now, 3, [80, 80]), []);
        assert_eq!(ratio(&shares), 1.0, "it carries its share again");
    }

    #[test]
    fn rates_of_ports_are_no_fault_of_a_path() {
        let (mut shares, mut now) = two([400, 100]);
        assert_eq!(pass(&mut shares, &mut now, 20, [80, 20]), []);
        assert_eq!(ratio(&shares), 4.0);
        assert_eq!(pass(&mut shares, &mut now, 20, [80, 5]).len(), 1);
        assert!((15.0..17.0).contains(&ratio(&shares)), "{}", ratio(&shares));
    }

    /// The other path then carries little, and waits for the next call.
    #[test]
    fn a_slow_path_that_every_call_waits_for_is_found() {
        let (mut shares, mut now) = two([200, 200]);
        let (bytes, mut slow) = (128 << 10, Vec::new());
        for _ in 0..8 {
            (0..2).for_each(|path| shares.begin(path, now));
            for (path, millis) in [(0, 1), (1, 3000)] {
                now += Duration::from_millis(millis);
                slow.extend(shares.arrived(path, (bytes, true), now));
            }
        }
        let [Slow { path: 1, .. }] = slow[..] else { panic!("{slow:?}") };
    }

    #[test]
    fn a_path_that_is_mostly_idle_tells_nothing() {
        let (mut shares, mut now) = two([200, 200]);
        for _ in 0..1000 {
            shares.begin(1, now);
            now += WINDOW / 100;
            assert_eq!(shares.arrived(1, (1000, true), now), None);
            now += WINDOW / 10;
            assert_eq!(shares.arrived(0, (1 << 20, false), now), None);
        }
        assert_eq!(ratio(&shares), 1.0);
    }
}
