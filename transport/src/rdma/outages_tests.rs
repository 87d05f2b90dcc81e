//! Many peers, whose paths by a few rails fail and come back.

use std::time::{Duration, Instant};

use ringfold_types::Rank;
use tracing::Level;

use super::outages::{News, OUTAGE, Outages};

const PEERS: usize = 15;

struct Log {
    outages: Outages,
    now: Instant,
    warned: Vec<String>,
}

impl Log {
    fn new() -> Self {
        Self { outages: Outages::default(), now: Instant::now(), warned: Vec::new() }
    }

    fn keep(&mut self, (level, line): (Level, String)) {
        if level == Level::WARN {
            self.warned.push(line);
        } else {
            assert_eq!(level, Level::INFO);
        }
    }

    fn tell(&mut self, peer: usize, news: News) {
        let line = self.outages.line(Rank::at(peer), news, |it| format!("nic{it}"), self.now);
        self.keep(line);
    }

    /// Four queue pairs to each of the peers fail, one after the other.
    fn lose_all(&mut self, rail: usize) {
        for peer in (0..PEERS).flat_map(|peer| [peer; 4]) {
            let what = format!("path to rank {peer} is lost");
            self.tell(peer, News::Lost { rail, what });
            self.now += Duration::from_millis(10);
        }
    }

    fn carry_all(&mut self, rail: usize, again: bool) {
        for peer in (0..PEERS).flat_map(|peer| [peer; 4]) {
            let what = format!("path to rank {peer} carries data");
            self.tell(peer, News::Carries { rail, what, again });
        }
    }

    fn warned(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warned)
    }
}

#[test]
fn an_outage_is_told_once_for_each_rail() {
    let mut log = Log::new();
    log.carry_all(0, false);
    assert!(log.warned().is_empty(), "there was none");
    log.lose_all(0);
    let lost = "path to rank 0 is lost; what else nic0 loses now is told at INFO";
    assert_eq!(log.warned(), [lost]);
    log.lose_all(1);
    assert_eq!(log.warned().len(), 1, "another rail is another outage");
    // Another peer's first path is no sign that the rail is well.
    log.carry_all(0, false);
    assert!(log.warned().is_empty());
    log.carry_all(0, true);
    let back = "path to rank 0 carries data again: nic0 had lost 60 paths to 15 ranks, 1.2 s ago";
    assert_eq!(log.warned(), [back]);
    log.lose_all(0);
    assert_eq!(log.warned(), [lost], "it was well in between");
    log.now += OUTAGE;
    log.lose_all(0);
    assert_eq!(log.warned(), [lost], "that may be another cable");
}

#[test]
fn a_port_that_is_down_is_told_with_all_that_it_takes_away() {
    let mut log = Log::new();
    let idle = log.outages.down(0, "nic0 went down", (0, 0), log.now);
    log.keep(idle);
    assert!(log.warned().is_empty(), "nobody misses it");
    let used = log.outages.down(0, "nic0 went down", (4 * PEERS, PEERS), log.now);
    log.keep(used);
    log.lose_all(0);
    assert_eq!(log.warned(), ["nic0 went down; with it go 60 paths to 15 ranks"]);
    log.carry_all(0, true);
    assert_eq!(log.warned().len(), 1);
    let one = log.outages.down(0, "nic0 went down", (1, 1), log.now);
    assert_eq!(one.1, "nic0 went down; with it go 1 path to 1 rank");
}

#[test]
fn tcp_in_place_of_rails_is_told_once_and_so_is_its_end() {
    let mut log = Log::new();
    for peer in 0..PEERS {
        let what = format!("no path to rank {peer} is left");
        log.tell(peer, News::ByTcp { what, was_there: peer > 0 });
    }
    let rest = "no path to rank 0 is left; of other ranks that is told at INFO";
    assert_eq!(log.warned(), [rest]);
    for peer in 1..PEERS {
        assert!(log.warned().is_empty(), "{peer}");
        log.tell(peer, News::ByRail { what: format!("a path to rank {peer}") });
    }
    assert_eq!(log.warned(), ["a path to rank 14, as to all that had one before"]);
}
