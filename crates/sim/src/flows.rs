//! The share of each link that each message gets: max-min fair.
//!
//! Shares change only where a message begins or ends, and from there on by links that are full: a
//! message that gets another share leaves more or less of its links to the others on them. A link
//! that has room before and after that passes nothing on. A link whose messages together ask for
//! no more than it has is never full.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

/// So many times a `settle` takes in those links alone that must change. Then it takes in all that
/// could.
const LOOKS_MAX: usize = 16;

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

    /// An entry of the heap of rooms, of which the least share is the greatest. Shares are not
    /// negative, and have the order of their bits.
    fn entry(&self, at: usize) -> Reverse<(u64, usize)> {
        Reverse((self.fair().to_bits(), at))
    }
}

#[derive(Debug)]
pub(crate) struct Flows {
    links: Vec<Shared>,
    flows: Vec<Flow>,
    /// The flows that send.
    due: Due,
    /// The flows that have begun since the last `settle`, and the full links that others left.
    begun: Vec<usize>,
    freed: Vec<usize>,
    /// By link: whether it could be full, since the flows on it can use more than it has.
    could_fill: Vec<bool>,
    /// By link: whether the present `settle` has met it.
    met: Vec<bool>,
    /// By link: the bytes per second that the present `settle` gives in addition.
    more: Vec<f64>,
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
    /// Whether it was full when a message ended that no `settle` has seen.
    is_freed: bool,
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
    /// Whether it has begun and no `settle` has seen it.
    is_new: bool,
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
            begun: Vec::new(),
            freed: Vec::new(),
            could_fill: vec![false; links.len()],
            met: vec![false; links.len()],
            more: vec![0.0; links.len()],
            room: vec![NOWHERE; links.len()],
            place: Vec::new(),
        }
    }

    /// Adds a link of this many bytes per second.
    pub(crate) fn link(&mut self, rate: u64) -> usize {
        self.links.push(Shared { rate, ..Shared::default() });
        self.could_fill.push(false);
        self.met.push(false);
        self.more.push(0.0);
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
        }
        self.flows[flow].is_new = true;
        self.begun.push(flow);
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
        it.is_new = false;
        for (link, times) in &it.way {
            let shared = &mut self.links[*link];
            shared.flows.retain(|other| *other != flow);
            shared.load -= times;
            shared.asked -= it.most * *times as u64;
            self.could_fill[*link] = shared.asked > shared.rate;
            if shared.is_full && !shared.is_freed {
                shared.is_freed = true;
                self.freed.push(*link);
            }
            shared.give(now, -it.rate * *times as f64);
            // An idle link has none of the errors of earlier sums.
            if shared.flows.is_empty() {
                shared.give(now, -shared.given);
            }
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
    ///
    /// A flow that has begun, and then those on a freed link, get shares while all others keep
    /// theirs. If that fills a link, or changes what a full one carries, all flows on it get
    /// shares too, until there is no such link. Then each flow has a full link on which none has
    /// more, or all that it can use.
    pub(crate) fn settle(&mut self, now: u64) {
        for flow in std::mem::take(&mut self.begun) {
            if self.flows[flow].is_new {
                self.settle_from(now, vec![flow], Vec::new());
            }
        }
        for link in std::mem::take(&mut self.freed) {
            if self.links[link].is_freed {
                self.settle_from(now, Vec::new(), vec![link]);
            }
        }
    }

    fn settle_from(&mut self, now: u64, mut flows: Vec<usize>, mut links: Vec<usize>) {
        for (place, flow) in (0..).zip(&flows) {
            (self.place[*flow], self.flows[*flow].is_new) = (place, false);
        }
        links.iter().for_each(|link| self.met[*link] = true);
        let (mut taken, mut looks) = (0, 0);
        let shares = loop {
            self.take_in(&mut links, &mut taken, &mut flows, looks >= LOOKS_MAX);
            let shares = self.shares(&links, &flows);
            self.reach(&mut links, &flows, &shares);
            if taken == links.len() {
                break shares;
            }
            looks += 1;
        };
        links.into_iter().for_each(|link| self.met[link] = false);
        for (flow, rate) in flows.into_iter().zip(shares) {
            self.place[flow] = NOWHERE;
            let it = &mut self.flows[flow];
            if !it.changes(rate) {
                continue;
            }
            let passed = it.rate * (now - it.since) as f64 / SECOND_PS;
            it.left = (it.left - passed).max(0.0);
            it.since = now;
            let more = rate - std::mem::replace(&mut it.rate, rate);
            self.due.set(flow, it.due());
            for (link, times) in &self.flows[flow].way {
                self.links[*link].give(now, more * *times as f64);
            }
        }
    }

    /// Takes in the flows on the links from number `taken` on; and, if `all`, each link that could
    /// be full and has such flows.
    fn take_in(
        &mut self,
        links: &mut Vec<usize>,
        taken: &mut usize,
        flows: &mut Vec<usize>,
        all: bool,
    ) {
        while let Some(link) = links.get(*taken).copied() {
            *taken += 1;
            self.links[link].is_freed = false;
            for flow in &self.links[link].flows {
                if self.place[*flow] != NOWHERE {
                    continue;
                }
                self.place[*flow] = flows.len();
                flows.push(*flow);
                let it = &mut self.flows[*flow];
                it.is_new = false;
                for (other, _) in &it.way {
                    if all && self.could_fill[*other] && !self.met[*other] {
                        self.met[*other] = true;
                        links.push(*other);
                    }
                }
            }
        }
    }

    /// Adds each link that these shares of the flows fill, or that was full and carries something
    /// else by them.
    fn reach(&mut self, links: &mut Vec<usize>, flows: &[usize], shares: &[f64]) {
        let mut reached = Vec::new();
        for (flow, share) in flows.iter().zip(shares) {
            let it = &self.flows[*flow];
            if !it.changes(*share) {
                continue;
            }
            for (link, times) in &it.way {
                if self.could_fill[*link] && !self.met[*link] {
                    self.more[*link] += (share - it.rate) * *times as f64;
                    reached.push(*link);
                }
            }
        }
        for link in reached {
            let more = std::mem::take(&mut self.more[link]);
            let shared = &self.links[link];
            if !self.met[link] && (shared.is_full || shared.fills(shared.given + more)) {
                self.met[link] = true;
                links.push(link);
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
        let mut narrow: BinaryHeap<_> = (0..).zip(&rooms).map(|(at, it)| it.entry(at)).collect();
        let most = |at: &usize| self.flows[flows[*at]].most as f64;
        let mut by_most: Vec<usize> = (0..flows.len()).collect();
        by_most.sort_by(|a, b| most(b).total_cmp(&most(a)));
        let mut shares = vec![GROWING; flows.len()];
        while let Some(smallest) = {
            while by_most.pop_if(|at| shares[*at] != GROWING).is_some() {}
            by_most.last().map(most)
        } {
            // Rooms grow wider only, so an old entry comes no later than the present one.
            let is_outdated = |it: &Reverse<(u64, usize)>| *it != rooms[it.0.1].entry(it.0.1);
            while narrow.peek().is_some_and(is_outdated) {
                narrow.pop();
            }
            let least = narrow.peek().map_or(f64::INFINITY, |it| f64::from_bits(it.0.0));
            let narrowest = smallest.min(least);
            let limit = narrowest * (1.0 + ROUNDING);
            let mut stopped = Vec::new();
            while let Some(at) = by_most.pop_if(|at| most(at) <= limit) {
                if shares[at] == GROWING {
                    shares[at] = narrowest;
                    stopped.push(at);
                }
            }
            while let Some(Reverse((_, at))) =
                narrow.peek().copied().filter(|it| f64::from_bits(it.0.0) <= limit)
            {
                narrow.pop();
                if rooms[at].fair() > limit {
                    continue;
                }
                for flow in &self.links[rooms[at].link].flows {
                    let at = self.place[*flow];
                    if shares[at] == GROWING {
                        shares[at] = narrowest;
                        stopped.push(at);
                    }
                }
            }
            let mut changed = Vec::new();
            for at in stopped {
                for (link, times) in &self.flows[flows[at]].way {
                    let number = self.room[*link];
                    if let Some(room) = rooms.get_mut(number) {
                        if room.stopped == 0 {
                            changed.push(number);
                        }
                        room.stopped += times;
                    }
                }
            }
            // In whatever order they stop, the same is left.
            for number in changed {
                let room = &mut rooms[number];
                let stopped = std::mem::take(&mut room.stopped);
                room.left -= narrowest * stopped as f64;
                room.growing -= stopped;
                narrow.push(room.entry(number));
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
    /// Whether a share is another one than it has.
    fn changes(&self, share: f64) -> bool {
        (self.rate - share).abs() > ROUNDING * share
    }

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
        self.is_full = self.fills(self.given);
    }

    /// Whether shares with this sum are all that it has.
    fn fills(&self, given: f64) -> bool {
        given >= self.rate as f64 * (1.0 - 2.0 * ROUNDING)
    }

    fn count(&mut self, now: u64) {
        let passed = now - self.since;
        self.full_ps += if self.is_full { passed } else { 0 };
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::mix;

    use super::*;

    const FAST: u64 = 1 << 60;

    fn flows(rates: &[u64]) -> Flows {
        let link = |rate: &u64| Link { name: String::new(), levels: [0; 2], rate: *rate };
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

    /// No link gives more than it has. Each flow has all that it can use, or a full link on which
    /// none has more.
    fn assert_fair(flows: &Flows, sending: &[usize], what: &str) {
        for (number, link) in flows.links.iter().enumerate() {
            let given: f64 = link.flows.iter().map(|flow| flows.flows[*flow].rate).sum();
            assert!(given <= link.rate as f64 * 1.000_001, "{what}: {given} of link {number}");
        }
        for flow in sending {
            let Flow { rate, most, ref way, .. } = flows.flows[*flow];
            let holds_up = |(number, _): &(usize, usize)| {
                let on_it = flows.links[*number].flows.iter().map(|it| flows.flows[*it].rate);
                let (given, greatest) = on_it
                    .fold((0.0, 0.0), |(sum, greatest), it| (sum + it, f64::max(greatest, it)));
                let full = flows.links[*number].rate as f64 * 0.999_999;
                given >= full && greatest <= rate * 1.000_001
            };
            let has_all = rate >= most as f64 * 0.999_999;
            assert!(has_all || way.iter().any(holds_up), "{what}: flow {flow} has {rate}");
        }
    }

    #[test]
    fn shares_stay_fair_whoever_comes_and_goes() {
        let number = |random: u64, below: u64| usize::try_from(random % below).unwrap();
        for seed in 0..40 {
            let rates: Vec<u64> = (0..12).map(|it| 100 + mix(seed << 8 ^ it) % 900).collect();
            let mut flows = flows(&rates);
            for it in 0..40 {
                flows.flow(if it % 2 == 0 { FAST } else { 10 + mix(seed ^ it) % 200 });
            }
            let mut sending: Vec<usize> = Vec::new();
            for step in 0..400 {
                let random = mix(seed << 32 ^ step << 8 ^ 1);
                let flow = number(random, 40);
                if let Some(at) = sending.iter().position(|it| *it == flow) {
                    sending.swap_remove(at);
                    flows.end(step, flow);
                } else {
                    let first = number(random >> 8, 12);
                    let way = [0, 5, 7].map(|next| (first + next) % 12);
                    flows.begin(step, flow, &once(&way[..=number(random >> 16, 3)]), 1e15);
                    sending.push(flow);
                }
                if random >> 40 & 3 > 0 {
                    flows.settle(step);
                    assert_fair(&flows, &sending, &format!("seed {seed}, step {step}"));
                }
            }
        }
    }

    /// A share that falls lets the next one rise, and so on to the end of a line of links.
    #[test]
    fn a_change_goes_as_far_as_it_must() {
        let links = 4 * LOOKS_MAX;
        let mut flows = flows(&(0..).map(|it| 1000 + 2000 * it).take(links).collect::<Vec<_>>());
        let ways: Vec<[usize; 2]> = (1..links).map(|link| [link - 1, link]).collect();
        let ways: Vec<&[usize]> = ways.iter().map(<[usize; 2]>::as_slice).collect();
        assert_eq!(rates(&mut flows, &ways).last(), Some(&63000.0));
        let flow = flows.flow(FAST);
        flows.begin(5, flow, &once(&[0]), 1e9);
        flows.settle(5);
        assert_fair(&flows, &(0..links).collect::<Vec<_>>(), "one more");
        assert_eq!(flows.flows[flow - 1].rate.round(), 62500.0);
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
