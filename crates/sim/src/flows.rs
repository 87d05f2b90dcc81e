//! The share of each link that each message gets: max-min fair.
//!
//! Shares change only where a message begins or ends, and only among the messages that meet it on
//! links which could be full, directly or through others. A link whose messages together ask for no
//! more than it has is never full.

use std::collections::BTreeSet;

use crate::due::Due;
use crate::network::Link;
use crate::whole::whole;

/// Picoseconds of a second.
const SECOND_PS: f64 = 1e12;

/// A part of a rate by which shares that should be equal may differ.
const ROUNDING: f64 = 1e-9;

/// The time of a message has this many binary digits: it is at most 0.05 % too long.
const PRECISION: u32 = 11;

/// The end of the clock: 53 days.
pub(crate) const NEVER: u64 = u64::MAX / 4;

/// The place of a link or a flow that no list has.
const NOWHERE: usize = usize::MAX;

/// The share of a flow that has not stopped.
const GROWING: f64 = -1.0;

/// A link that could be full: its rate that is left, and the flows on it that still grow.
struct Room {
    link: usize,
    left: f64,
    growing: usize,
    /// Those that stop now.
    stopped: usize,
}

impl Room {
    /// The share of each flow that grows, if the link is to be full.
    fn fair(&self) -> f64 {
        if self.growing == 0 { f64::INFINITY } else { self.left.max(0.0) / self.growing as f64 }
    }
}

/// The links and the flows of a `settle`.
#[derive(Default)]
struct Settled {
    links: Vec<usize>,
    flows: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Flows {
    links: Vec<Shared>,
    flows: Vec<Flow>,
    /// The flows that send.
    due: Due,
    /// The links on which a message has begun or ended since the last `settle`.
    changed: BTreeSet<usize>,
    /// By link: whether it could be full, since the flows on it can use more than it has.
    could_fill: Vec<bool>,
    /// By link: whether the present `settle` has met it.
    met: Vec<bool>,
    /// By link and by flow: its place in the lists of the present `settle`.
    room: Vec<usize>,
    place: Vec<usize>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes per second.
    rate: u64,
    flows: Vec<usize>,
    /// The number of messages on it: a flow may stand for several.
    load: usize,
    /// The sum of the most that these flows can use.
    asked: u64,
    /// The sum of their shares, in bytes per second, and whether that is all.
    given: f64,
    is_full: bool,
    since: u64,
    bytes: f64,
    full_ps: u64,
}

#[derive(Debug, Default)]
struct Flow {
    /// The links, and the messages on each for which the flow stands.
    way: Vec<(usize, usize)>,
    /// The most bytes per second that it can use: by itself, and on its way.
    own_most: u64,
    most: u64,
    /// Its share.
    rate: f64,
    /// Its bytes, and those of them that have not left at `since`.
    bytes: f64,
    left: f64,
    since: u64,
}

/// The use of a link up to now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Used {
    pub(crate) bytes: f64,
    /// Time for which it was full.
    pub(crate) full_ps: u64,
}

impl Flows {
    pub(crate) fn new(links: &[Link]) -> Self {
        let shared = |link: &Link| Shared { rate: link.rate, ..Shared::default() };
        Self {
            links: links.iter().map(shared).collect(),
            flows: Vec::new(),
            due: Due::default(),
            changed: BTreeSet::new(),
            could_fill: vec![false; links.len()],
            met: vec![false; links.len()],
            room: vec![NOWHERE; links.len()],
            place: Vec::new(),
        }
    }

    /// Adds a link of this many bytes per second.
    pub(crate) fn link(&mut self, rate: u64) -> usize {
        self.links.push(Shared { rate, ..Shared::default() });
        self.could_fill.push(false);
        self.met.push(false);
        self.room.push(NOWHERE);
        self.links.len() - 1
    }

    /// Adds a flow, which sends nothing yet. It can use at most this many bytes per second.
    pub(crate) fn flow(&mut self, most: u64) -> usize {
        self.flows.push(Flow { own_most: most, ..Flow::default() });
        self.place.push(NOWHERE);
        self.flows.len() - 1
    }

    /// Number of messages on a link.
    pub(crate) fn load(&self, link: usize) -> usize {
        self.links[link].load
    }

    /// Bytes per second of a link.
    pub(crate) fn rate(&self, link: usize) -> u64 {
        self.links[link].rate
    }

    /// Number of links.
    pub(crate) const fn links(&self) -> usize {
        self.links.len()
    }

    /// Begins a message, which goes this way. On each link it stands for a number of messages.
    pub(crate) fn begin(&mut self, now: u64, flow: usize, way: &[(usize, usize)], bytes: f64) {
        let narrowest = way.iter().map(|(link, _)| self.links[*link].rate).min();
        let it = &mut self.flows[flow];
        let most = narrowest.map_or(it.own_most, |rate| rate.min(it.own_most));
        way.clone_into(&mut it.way);
        (it.most, it.bytes, it.left, it.since, it.rate) = (most, bytes, bytes, now, 0.0);
        for (link, times) in way {
            let shared = &mut self.links[*link];
            shared.flows.push(flow);
            shared.load += times;
            shared.asked += most * *times as u64;
            self.could_fill[*link] = shared.asked > shared.rate;
            self.changed.insert(*link);
        }
    }

    /// Has the same flow send more bytes after those that have all left.
    pub(crate) fn go_on(&mut self, now: u64, flow: usize, bytes: f64) {
        self.carried(flow);
        let it = &mut self.flows[flow];
        it.bytes = bytes;
        (it.left, it.since) = (bytes, now);
        self.due.set(flow, it.due());
    }

    /// Ends a flow whose bytes have all left.
    pub(crate) fn end(&mut self, now: u64, flow: usize) {
        self.carried(flow);
        let it = &mut self.flows[flow];
        for (link, times) in &it.way {
            let shared = &mut self.links[*link];
            shared.flows.retain(|other| *other != flow);
            shared.load -= times;
            shared.asked -= it.most * *times as u64;
            self.could_fill[*link] = shared.asked > shared.rate;
            shared.give(now, -it.rate * *times as f64);
            self.changed.insert(*link);
        }
    }

    /// Counts the bytes of a flow, which have all left.
    fn carried(&mut self, flow: usize) {
        let Flow { ref way, bytes, .. } = self.flows[flow];
        way.iter().for_each(|(link, times)| self.links[*link].bytes += bytes * *times as f64);
    }

    /// The time at which the bytes of a flow will have left next.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| at)
    }

    /// The next flow whose bytes have left.
    pub(crate) fn left(&mut self) -> Option<usize> {
        self.due.pop().map(|(_, flow)| flow)
    }

    /// Shares the links anew.
    pub(crate) fn settle(&mut self, now: u64) {
        let mut settled = Settled::default();
        for first in std::mem::take(&mut self.changed) {
            if !self.met[first] {
                self.settle_from(now, first, &mut settled);
            }
        }
        settled.flows.into_iter().for_each(|flow| self.place[flow] = NOWHERE);
        settled.links.into_iter().for_each(|link| self.met[link] = false);
    }

    /// Shares the links that `first` reaches through flows and links which could be full.
    /// Flows keep their places until all are settled: those that another link reaches have their
    /// shares.
    fn settle_from(&mut self, now: u64, first: usize, settled: &mut Settled) {
        let (mut links, mut flows, mut at) = (vec![first], Vec::new(), 0);
        self.met[first] = true;
        while let Some(link) = links.get(at).copied() {
            at += 1;
            for flow in &self.links[link].flows {
                if self.place[*flow] != NOWHERE {
                    continue;
                }
                self.place[*flow] = flows.len();
                flows.push(*flow);
                for (other, _) in &self.flows[*flow].way {
                    if self.could_fill[*other] && !self.met[*other] {
                        self.met[*other] = true;
                        links.push(*other);
                    }
                }
            }
        }
        let shares = self.shares(&links, &flows);
        settled.flows.extend(&flows);
        settled.links.extend(&links);
        for (flow, rate) in flows.iter().zip(shares) {
            let it = &mut self.flows[*flow];
            if (it.rate - rate).abs() <= ROUNDING * rate {
                continue;
            }
            let passed = it.rate * (now - it.since) as f64 / SECOND_PS;
            it.left = (it.left - passed).max(0.0);
            it.since = now;
            let more = rate - std::mem::replace(&mut it.rate, rate);
            self.due.set(*flow, it.due());
            for (link, times) in &self.flows[*flow].way {
                self.links[*link].give(now, more * *times as f64);
            }
        }
        for link in links {
            let shared = &mut self.links[link];
            // An idle link has none of the errors of earlier sums.
            if shared.flows.is_empty() {
                shared.give(now, -shared.given);
            }
        }
    }

    /// Max-min fair shares by progressive filling: all flows grow alike, until a link is full or a
    /// flow has the most that it can use; those stop, and the others grow on.
    fn shares(&mut self, links: &[usize], flows: &[usize]) -> Vec<f64> {
        let mut rooms = Vec::new();
        for link in links {
            let Shared { rate, load, .. } = self.links[*link];
            if self.could_fill[*link] {
                self.room[*link] = rooms.len();
                let left = rate as f64;
                rooms.push(Room { link: *link, left, growing: load, stopped: 0 });
            }
        }
        let most = |at: &usize| self.flows[flows[*at]].most as f64;
        let mut by_most: Vec<usize> = (0..flows.len()).collect();
        by_most.sort_by(|a, b| most(b).total_cmp(&most(a)));
        let mut shares = vec![GROWING; flows.len()];
        while let Some(smallest) = {
            while by_most.pop_if(|at| shares[*at] != GROWING).is_some() {}
            by_most.last().map(most)
        } {
            let narrowest = rooms.iter().map(Room::fair).fold(smallest, f64::min);
            let limit = narrowest * (1.0 + ROUNDING);
            let mut stopped = Vec::new();
            while let Some(at) = by_most.pop_if(|at| most(at) <= limit) {
                if shares[at] == GROWING {
                    shares[at] = narrowest;
                    stopped.push(at);
                }
            }
            for room in rooms.iter().filter(|room| room.fair() <= limit) {
                for flow in &self.links[room.link].flows {
                    let at = self.place[*flow];
                    if shares[at] == GROWING {
                        shares[at] = narrowest;
                        stopped.push(at);
                    }
                }
            }
            for at in stopped {
                for (link, times) in &self.flows[flows[at]].way {
                    if let Some(room) = rooms.get_mut(self.room[*link]) {
                        room.stopped += times;
                    }
                }
            }
            // In whatever order they stop, the same is left.
            for room in &mut rooms {
                let stopped = std::mem::take(&mut room.stopped);
                room.left -= narrowest * stopped as f64;
                room.growing -= stopped;
            }
        }
        rooms.iter().for_each(|room| self.room[room.link] = NOWHERE);
        shares
    }

    /// The use of a link until `now`.
    pub(crate) fn used(&mut self, now: u64, link: usize) -> Used {
        let shared = &mut self.links[link];
        shared.count(now);
        Used { bytes: shared.bytes, full_ps: shared.full_ps }
    }
}

impl Flow {
    /// The time at which its bytes will have left.
    fn due(&self) -> u64 {
        let takes = whole((self.left / self.rate * SECOND_PS).ceil()).clamp(1, NEVER);
        // Messages that end at almost the same time end together, so that links are shared anew
        // once for all.
        let grid = 1_u64 << takes.ilog2().saturating_sub(PRECISION);
        (self.since + takes).next_multiple_of(grid).min(NEVER)
    }
}

impl Shared {
    fn give(&mut self, now: u64, more: f64) {
        self.count(now);
        self.given += more;
        self.is_full = self.given >= self.rate as f64 * (1.0 - 2.0 * ROUNDING);
    }

    fn count(&mut self, now: u64) {
        let passed = now - self.since;
        self.full_ps += if self.is_full { passed } else { 0 };
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: u64 = 1 << 60;

    fn flows(rates: &[u64]) -> Flows {
        let link = |rate: &u64| Link { name: String::new(), rate: *rate };
        Flows::new(&rates.iter().map(link).collect::<Vec<_>>())
    }

    fn once(way: &[usize]) -> Vec<(usize, usize)> {
        way.iter().map(|link| (*link, 1)).collect()
    }

    fn rates(flows: &mut Flows, ways: &[&[usize]]) -> Vec<f64> {
        for way in ways {
            let flow = flows.flow(FAST);
            flows.begin(0, flow, &once(way), 1e9);
        }
        flows.settle(0);
        flows.flows.iter().map(|flow| flow.rate.round()).collect()
    }

    #[test]
    fn a_link_is_shared_alike() {
        let mut flows = flows(&[900]);
        assert_eq!(rates(&mut flows, &[&[0], &[0], &[0]]), [300.0; 3]);
        flows.end(10, 1);
        flows.settle(10);
        assert_eq!([flows.flows[0].rate, flows.flows[2].rate], [450.0; 2]);
    }

    #[test]
    fn a_link_behind_others_is_shared() {
        let mut flows = flows(&[100, 100, 100]);
        assert_eq!(rates(&mut flows, &[&[0, 1], &[2, 1]]), [50.0; 2]);
        flows.end(5, 1);
        flows.settle(5);
        assert_eq!(flows.flows[0].rate, 100.0);
        flows.begin(7, 1, &once(&[2, 1]), 1e9);
        flows.settle(7);
        assert_eq!([flows.flows[0].rate, flows.flows[1].rate], [50.0; 2]);
    }

    /// The example of Bertsekas and Gallager: a flow that is held up leaves its part to others.
    #[test]
    fn what_one_cannot_use_is_for_the_others() {
        let mut flows = flows(&[100, 1000, 300]);
        let found = rates(&mut flows, &[&[0, 1], &[1], &[1, 2], &[2]]);
        assert_eq!(found, [100.0, 750.0, 150.0, 150.0]);
    }

    #[test]
    fn links_that_cannot_be_full_join_nothing() {
        let mut flows = flows(&[100, 1 << 40, 100]);
        rates(&mut flows, &[&[0, 1], &[1, 2]]);
        let flow = flows.flow(FAST);
        flows.begin(5, flow, &once(&[0]), 1e9);
        flows.settle(5);
        assert_eq!(flows.flows.iter().map(|flow| flow.since).collect::<Vec<_>>(), [5, 0, 5]);
    }

    #[test]
    fn a_link_is_full_while_all_of_it_is_used() {
        let mut flows = flows(&[100]);
        for _ in 0..2 {
            let flow = flows.flow(50);
            flows.begin(0, flow, &once(&[0]), 1e9);
        }
        flows.settle(0);
        flows.end(10, 1);
        flows.settle(10);
        assert_eq!(flows.used(30, 0).full_ps, 10);
    }

    #[test]
    fn a_message_leaves_when_all_its_bytes_have() {
        let mut flows = flows(&[1_000_000_000]);
        let flow = flows.flow(FAST);
        flows.begin(0, flow, &once(&[0]), 1000.0);
        flows.settle(0);
        assert_eq!(flows.due.first(), Some((1_000_192, flow)));
        let other = flows.flow(FAST);
        flows.begin(500_000, other, &once(&[0]), 1000.0);
        flows.settle(500_000);
        let ends: Vec<_> = std::iter::from_fn(|| flows.due.pop()).collect();
        assert_eq!(ends, [(1_500_160, flow), (2_500_096, other)]);
        let Used { bytes, full_ps } = flows.used(500_000, 0);
        assert_eq!((bytes, full_ps), (0.0, 500_000));
        flows.end(1_500_000, flow);
        assert_eq!(flows.used(1_500_000, 0).bytes, 1000.0);
    }
}
