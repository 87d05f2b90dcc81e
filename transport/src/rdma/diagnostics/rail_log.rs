//! The log of rails that fail and come back. Each outage is one warning, however many peers and
//! queue pairs it concerns. Everything else about it is logged at INFO.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::RAILS_MAX;
use tracing::Level;

/// The time for which failures of a rail belong to the outage that was logged. If the rail carries
/// data again before, a later failure is a new outage, because another cable may be the cause.
pub(in crate::rdma) const OUTAGE: Duration = Duration::from_secs(60);

/// An event between this rank and a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum RailEvent {
    /// A path by that rail is lost, or cannot be made.
    Lost { rail: usize, what: String },
    /// A path by that rail carries data. `again` means that it was lost before.
    Carries { rail: usize, what: String, again: bool },
    /// No path is left, or there never was one, and data goes by TCP.
    ByTcp { what: String, was_there: bool },
    /// There is a path again.
    ByRail { what: String },
    /// A path by that rail carries much less than its share.
    Slow { rail: usize, what: String },
}

/// The outages that were logged, of each rail and of all rails together.
#[derive(Debug, Default)]
pub(in crate::rdma) struct RailLog {
    rails: [Option<Outage>; RAILS_MAX],
    /// The rails that were named because they are slow.
    slow: [bool; RAILS_MAX],
    tcp: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    told: Instant,
    paths: usize,
    peers: BTreeSet<Rank>,
}

impl Outage {
    fn new(now: Instant) -> Self {
        Self { since: now, told: now, paths: 0, peers: BTreeSet::new() }
    }

    /// Returns the outage, which may begin now, and whether a warning is due.
    fn at(place: &mut Option<Self>, now: Instant) -> (&mut Self, bool) {
        let is_new = place.is_none();
        let outage = place.get_or_insert_with(|| Self::new(now));
        let is_due = is_new || now.duration_since(outage.told) >= OUTAGE;
        if is_due {
            outage.told = now;
        }
        (outage, is_due)
    }
}

impl RailLog {
    /// Returns the log line for an event, and its level. `name` returns the name of a rail.
    pub(in crate::rdma) fn line(
        &mut self,
        peer: Rank,
        event: RailEvent,
        name: impl Fn(usize) -> String,
        now: Instant,
    ) -> (Level, String) {
        match event {
            RailEvent::Lost { rail, what } => {
                let (outage, is_due) = Outage::at(&mut self.rails[rail], now);
                outage.paths += 1;
                outage.peers.insert(peer);
                if !is_due {
                    return (Level::INFO, what);
                }
                let rest = format!("further losses of {} are logged at INFO", name(rail));
                (Level::WARN, format!("{what}; {rest}"))
            }
            RailEvent::Carries { rail, what, again } => match self.rails[rail].take_if(|_| again) {
                None => (Level::INFO, what),
                Some(Outage { since, paths, peers, .. }) => {
                    let time = now.duration_since(since).as_secs_f64();
                    let (name, lost) = (name(rail), many(paths, peers.len()));
                    (Level::WARN, format!("{what} again: {name} had lost {lost}, {time:.1} s ago"))
                }
            },
            RailEvent::ByTcp { what, was_there } => {
                let (outage, is_due) = Outage::at(&mut self.tcp, now);
                if was_there {
                    outage.peers.insert(peer);
                }
                if !is_due {
                    return (Level::INFO, what);
                }
                (Level::WARN, format!("{what}; the same of other ranks is logged at INFO"))
            }
            RailEvent::Slow { rail, what } => {
                if std::mem::replace(&mut self.slow[rail], true) {
                    return (Level::INFO, what);
                }
                (Level::WARN, format!("{what}; the same of {} is logged at INFO", name(rail)))
            }
            RailEvent::ByRail { what } => {
                let is_last = self
                    .tcp
                    .as_mut()
                    .is_some_and(|outage| outage.peers.remove(&peer) && outage.peers.is_empty());
                if !is_last {
                    return (Level::INFO, what);
                }
                self.tcp = None;
                (Level::WARN, format!("{what}, and so to all ranks that had one before"))
            }
        }
    }

    /// Returns the log line for a rail that is down as a whole, and its level. So many paths to so
    /// many peers end with it, and each of them is logged at INFO.
    pub(in crate::rdma) fn down(
        &mut self,
        rail: usize,
        what: &str,
        (paths, peers): (usize, usize),
        now: Instant,
    ) -> (Level, String) {
        if paths == 0 {
            // Ranks that lose a path by it log that.
            return (Level::INFO, what.to_owned());
        }
        // A peer may have noticed the outage first.
        let (_, is_due) = Outage::at(&mut self.rails[rail], now);
        let level = if is_due { Level::WARN } else { Level::INFO };
        (level, format!("{what}; with it go {}", many(paths, peers)))
    }
}

/// Counts paths and peers in words.
fn many(paths: usize, peers: usize) -> String {
    let s = |count| if count == 1 { "" } else { "s" };
    format!("{paths} path{} to {peers} rank{}", s(paths), s(peers))
}

/// Writes a line to the log.
pub(in crate::rdma) fn log((level, line): (Level, String)) {
    if level == Level::WARN {
        tracing::warn!("rdma: {line}");
    } else {
        tracing::info!("rdma: {line}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ringfold_types::Rank;
    use tracing::Level;

    use super::*;

    const PEERS: usize = 15;

    struct Log {
        rail_log: RailLog,
        now: Instant,
        warned: Vec<String>,
    }

    impl Log {
        fn new() -> Self {
            Self { rail_log: RailLog::default(), now: Instant::now(), warned: Vec::new() }
        }

        fn keep(&mut self, (level, line): (Level, String)) {
            if level == Level::WARN {
                self.warned.push(line);
            } else {
                assert_eq!(level, Level::INFO);
            }
        }

        fn tell(&mut self, peer: usize, event: RailEvent) {
            let line = self.rail_log.line(Rank::at(peer), event, |it| format!("nic{it}"), self.now);
            self.keep(line);
        }

        /// Fails four queue pairs to each of the peers, one after the other.
        fn lose_all(&mut self, rail: usize) {
            for peer in (0..PEERS).flat_map(|peer| [peer; 4]) {
                let what = format!("path to rank {peer} is lost");
                self.tell(peer, RailEvent::Lost { rail, what });
                self.now += Duration::from_millis(10);
            }
        }

        fn carry_all(&mut self, rail: usize, again: bool) {
            for peer in (0..PEERS).flat_map(|peer| [peer; 4]) {
                let what = format!("path to rank {peer} carries data");
                self.tell(peer, RailEvent::Carries { rail, what, again });
            }
        }

        fn warned(&mut self) -> Vec<String> {
            std::mem::take(&mut self.warned)
        }
    }

    #[test]
    fn an_outage_is_one_warning_for_each_rail() {
        let mut log = Log::new();
        log.carry_all(0, false);
        assert!(log.warned().is_empty(), "there was none");
        log.lose_all(0);
        let lost = "path to rank 0 is lost; further losses of nic0 are logged at INFO";
        assert_eq!(log.warned(), [lost]);
        log.lose_all(1);
        assert_eq!(log.warned().len(), 1, "another rail is another outage");
        // The first path of another peer does not show that the rail works again.
        log.carry_all(0, false);
        assert!(log.warned().is_empty());
        log.carry_all(0, true);
        let back =
            "path to rank 0 carries data again: nic0 had lost 60 paths to 15 ranks, 1.2 s ago";
        assert_eq!(log.warned(), [back]);
        log.lose_all(0);
        assert_eq!(log.warned(), [lost], "it was well in between");
        log.now += OUTAGE;
        log.lose_all(0);
        assert_eq!(log.warned(), [lost], "that may be another cable");
    }

    #[test]
    fn a_slow_rail_is_named_once() {
        let mut log = Log::new();
        for (rail, peer) in [(0, 1), (0, 2), (1, 1), (0, 1)] {
            log.tell(peer, RailEvent::Slow { rail, what: format!("path {rail} is slow") });
        }
        let rest = |rail| format!("path {rail} is slow; the same of nic{rail} is logged at INFO");
        assert_eq!(log.warned(), [rest(0), rest(1)]);
    }

    #[test]
    fn a_port_that_is_down_is_logged_with_all_its_paths() {
        let mut log = Log::new();
        let idle = log.rail_log.down(0, "nic0 went down", (0, 0), log.now);
        log.keep(idle);
        assert!(log.warned().is_empty(), "nobody misses it");
        let used = log.rail_log.down(0, "nic0 went down", (4 * PEERS, PEERS), log.now);
        log.keep(used);
        log.lose_all(0);
        assert_eq!(log.warned(), ["nic0 went down; with it go 60 paths to 15 ranks"]);
        log.carry_all(0, true);
        assert_eq!(log.warned().len(), 1);
        let one = log.rail_log.down(0, "nic0 went down", (1, 1), log.now);
        assert_eq!(one.1, "nic0 went down; with it go 1 path to 1 rank");
    }

    #[test]
    fn tcp_in_place_of_rails_is_one_warning_and_so_is_its_end() {
        let mut log = Log::new();
        for peer in 0..PEERS {
            let what = format!("no path to rank {peer} is left");
            log.tell(peer, RailEvent::ByTcp { what, was_there: peer > 0 });
        }
        let rest = "no path to rank 0 is left; the same of other ranks is logged at INFO";
        assert_eq!(log.warned(), [rest]);
        for peer in 1..PEERS {
            assert!(log.warned().is_empty(), "{peer}");
            log.tell(peer, RailEvent::ByRail { what: format!("a path to rank {peer}") });
        }
        assert_eq!(log.warned(), ["a path to rank 14, and so to all ranks that had one before"]);
    }
}
