//! The share of each link that each message gets: max-min fair.
//!
//! Shares change only where a message begins or ends, and from there on by links that are full: a
//! message that gets another share leaves more or less of its links to the others on them. A link
//! that has room before and after that passes nothing on. A link whose messages together ask for
//! no more than it has is never full.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::Event;
use crate::network::Link;
use crate::queue::Queue;
use crate::whole::{short, whole};

/// Picoseconds of a second.
const SECOND_PS: f64 = 1e12;

/// A part of a rate by which shares that should be equal may differ.
const ROUNDING: f64 = 1e-9;

/// The time of a message has this many binary digits: it is at most 0.05 % too long.
const PRECISION: u32 = 11;

/// The end of the clock: 53 days.
pub(crate) const NEVER: u64 = u64::MAX / 4;

/// The place of a link or a flow that no list has.
const NOWHERE: u32 = u32::MAX;

/// The share of a flow that has not stopped.
const GROWING: f64 = -1.0;

/// So many times a `settle` takes in those links alone that must change. Then it takes in all that
/// could.
const LOOKS_MAX: usize = 16;

/// A link that could be full: its rate that is left, and the flows on it that still grow.
#[derive(Debug)]
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
    /// The ways of all flows: the links, and the messages on each for which a flow stands.
    ways: Vec<(u32, u32)>,
    /// The flows that have begun since the last `settle`, and the full links that others left.
    begun: Vec<usize>,
    freed: Vec<usize>,
    /// By link: whether it could be full, since the flows on it can use more than it has.
    could_fill: Vec<bool>,
    /// By link: whether the present `settle` has met it.
    met: Vec<bool>,
    /// By link: the bytes per second that the present `settle` gives in addition.
    more: Vec<f64>,
    /// By link: its place in the list of rooms of the present `settle`.
    room: Vec<u32>,
    lists: Lists,
}

/// The lists of a `settle`, which keep their memory for the next one.
#[derive(Debug, Default)]
struct Lists {
    /// Links and flows that it has met, and the shares of these flows.
    links: Vec<usize>,
    flows: Vec<usize>,
    shares: Vec<f64>,
    /// Links on which shares have changed.
    reached: Vec<usize>,
    rooms: Vec<Room>,
    narrow: BinaryHeap<Reverse<(u64, usize)>>,
    by_most: Vec<usize>,
    stopped: Vec<usize>,
    changed: Vec<usize>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes per second.
    rate: u64,
    flows: Vec<u32>,
    /// The number of those flows that never end.
    endless: u32,
    /// The number of messages on it: a flow may stand for several.
    load: u32,
    /// The sum of the most that these flows can use.
    asked: u64,
    /// The sum of their shares, in bytes per second, and whether that is all.
    given: f64,
    is_full: bool,
    /// Whether it was full when a message ended that no `settle` has seen.
    is_freed: bool,
    since: u64,
    full_ps: u64,
    /// The bytes that flows have carried on ways that they have no more.
    bytes: f64,
}

/// Each has a cache line, since most of the time of a long simulation goes to wait for memory.
#[derive(Debug)]
#[repr(align(64))]
struct Flow {
    /// Its place in the list of flows of the present `settle`.
    place: u32,
    /// The first link of its way, and the number of them.
    way: [u32; 2],
    /// Whether it has begun and no `settle` has seen it.
    is_new: bool,
    is_sending: bool,
    /// The most bytes per second that it can use.
    most: u64,
    /// Its share.
    rate: f64,
    /// The bytes that have not left at `since`.
    left: f64,
    since: u64,
    /// The time of its event.
    event: u64,
    /// The bytes of all its messages.
    bytes: f64,
}

/// The use of a link up to now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Used {
    pub(crate) bytes: f64,
    /// Time for which it was full, with messages of the call on it.
    pub(crate) full_ps: u64,
}

impl Flows {
    pub(crate) fn new(links: &[Link]) -> Self {
        let mut flows = Self {
            links: Vec::new(),
            flows: Vec::new(),
            ways: Vec::new(),
            begun: Vec::new(),
            freed: Vec::new(),
            could_fill: Vec::new(),
            met: Vec::new(),
            more: Vec::new(),
            room: Vec::new(),
            lists: Lists::default(),
        };
        links.iter().for_each(|link| {
            flows.link(link.rate);
        });
        flows
    }

    /// Adds a link of this many bytes per second.
    pub(crate) fn link(&mut self, rate: u64) -> usize {
        self.links.push(Shared { rate, flows: Vec::with_capacity(4), ..Shared::default() });
        self.could_fill.push(false);
        self.met.push(false);
        self.more.push(0.0);
        self.room.push(NOWHERE);
        self.links.len() - 1
    }

    /// Adds a flow, which sends nothing yet.
    pub(crate) fn flow(&mut self) -> usize {
        self.flows.push(Flow {
            place: NOWHERE,
            way: [0; 2],
            is_new: false,
            is_sending: false,
            most: 0,
            rate: 0.0,
            left: 0.0,
            since: 0,
            event: u64::MAX,
            bytes: 0.0,
        });
        self.flows.len() - 1
    }

    /// Sets the way of a flow that sends nothing, and the messages on each link for which it
    /// stands. It can use at most this many bytes per second.
    pub(crate) fn set_way(&mut self, flow: usize, way: &[(usize, usize)], most: u64) {
        let narrowest = way.iter().map(|(link, _)| self.links[*link].rate).min();
        self.carry(flow);
        let it = &mut self.flows[flow];
        it.most = narrowest.map_or(most, |rate| rate.min(most));
        let way = way.iter().map(|(link, times)| (short(*link), short(*times)));
        let [first, len] = it.way.map(|it| it as usize);
        if way.len() <= len {
            it.way[1] = short(way.len());
            self.ways.splice(first..first + way.len(), way);
        } else {
            it.way = [short(self.ways.len()), short(way.len())];
            self.ways.extend(way);
        }
    }

    /// Whether a flow has a way.
    pub(crate) fn has_way(&self, flow: usize) -> bool {
        self.flows[flow].way[1] > 0
    }

    /// Number of messages on a link.
    pub(crate) fn load(&self, link: usize) -> usize {
        self.links[link].load as usize
    }

    /// Bytes per second of a link.
    pub(crate) fn rate(&self, link: usize) -> u64 {
        self.links[link].rate
    }

    /// Number of links.
    pub(crate) const fn links(&self) -> usize {
        self.links.len()
    }

    /// Begins messages of another job on the way of a flow. They never end and are not counted.
    pub(crate) fn begin_endless(&mut self, flow: usize) {
        self.begin(0, flow, f64::INFINITY);
        let it = &mut self.flows[flow];
        it.bytes = 0.0;
        it.way(&self.ways).for_each(|(link, _)| self.links[link].endless += 1);
    }

    /// Begins a message on the way of a flow.
    pub(crate) fn begin(&mut self, now: u64, flow: usize, bytes: f64) {
        let it = &mut self.flows[flow];
        (it.left, it.since, it.rate) = (bytes, now, 0.0);
        it.bytes += bytes;
        (it.is_new, it.is_sending) = (true, true);
        for (link, times) in it.way(&self.ways) {
            let shared = &mut self.links[link];
            shared.count(now);
            shared.flows.push(short(flow));
            shared.load += times;
            shared.asked += it.most * u64::from(times);
            self.could_fill[link] = shared.asked > shared.rate;
        }
        self.begun.push(flow);
    }

    /// Has the same flow send more bytes after those that have all left.
    pub(crate) fn go_on(&mut self, now: u64, flow: usize, bytes: f64, queue: &mut Queue) {
        let it = &mut self.flows[flow];
        it.bytes += bytes;
        (it.left, it.since) = (bytes, now);
        it.set_event(flow, queue);
    }

    /// Ends a flow whose bytes have all left.
    pub(crate) fn end(&mut self, now: u64, flow: usize) {
        let it = &mut self.flows[flow];
        (it.is_new, it.is_sending) = (false, false);
        for (link, times) in it.way(&self.ways) {
            let shared = &mut self.links[link];
            shared.count(now);
            shared.flows.retain(|other| *other as usize != flow);
            shared.load -= times;
            shared.asked -= it.most * u64::from(times);
            self.could_fill[link] = shared.asked > shared.rate;
            if shared.is_full && !shared.is_freed {
                shared.is_freed = true;
                self.freed.push(link);
            }
            shared.give(now, -it.rate * f64::from(times));
            // An idle link has none of the errors of earlier sums.
            if shared.flows.is_empty() {
                shared.give(now, -shared.given);
            }
        }
    }

    /// Whether the bytes of a flow have left, which its event makes known. That may be too early.
    pub(crate) fn has_left(&mut self, now: u64, flow: usize, queue: &mut Queue) -> bool {
        let it = &mut self.flows[flow];
        if it.event != now {
            // Another event has taken the place of this one.
            return false;
        }
        it.event = u64::MAX;
        let is_due = it.is_sending && it.due() == now;
        if it.is_sending && !is_due {
            it.set_event(flow, queue);
        }
        is_due
    }

    /// Counts the bytes of a flow on the links of its way.
    fn carry(&mut self, flow: usize) {
        let it = &mut self.flows[flow];
        let bytes = std::mem::take(&mut it.bytes);
        for (link, times) in it.way(&self.ways) {
            self.links[link].bytes += bytes * f64::from(times);
        }
    }

    /// Shares the links anew.
    ///
    /// A flow that has begun, and then those on a freed link, get shares while all others keep
    /// theirs. If that fills a link, or changes what a full one carries, all flows on it get
    /// shares too, until there is no such link. Then each flow has a full link on which none has
    /// more, or all that it can use.
    pub(crate) fn settle(&mut self, now: u64, queue: &mut Queue) {
        let mut lists = std::mem::take(&mut self.lists);
        let mut begun = std::mem::take(&mut self.begun);
        for flow in begun.drain(..) {
            let it = &mut self.flows[flow];
            if it.is_new {
                (it.is_new, it.place) = (false, 0);
                lists.flows.push(flow);
                self.settle_from(now, &mut lists, queue);
            }
        }
        let mut freed = std::mem::take(&mut self.freed);
        for link in freed.drain(..) {
            if self.links[link].is_freed {
                self.met[link] = true;
                lists.links.push(link);
                self.settle_from(now, &mut lists, queue);
            }
        }
        (self.lists, self.begun, self.freed) = (lists, begun, freed);
    }

    fn settle_from(&mut self, now: u64, lists: &mut Lists, queue: &mut Queue) {
        let (mut taken, mut looks) = (0, 0);
        loop {
            self.take_in(lists, &mut taken, looks >= LOOKS_MAX);
            self.share(lists);
            self.reach(lists);
            if taken == lists.links.len() {
                break;
            }
            looks += 1;
        }
        lists.links.drain(..).for_each(|link| self.met[link] = false);
        for (flow, rate) in lists.flows.drain(..).zip(&lists.shares) {
            let it = &mut self.flows[flow];
            it.place = NOWHERE;
            if !it.changes(*rate) {
                continue;
            }
            let passed = it.rate * (now - it.since) as f64 / SECOND_PS;
            it.left = (it.left - passed).max(0.0);
            it.since = now;
            let more = rate - std::mem::replace(&mut it.rate, *rate);
            it.set_event(flow, queue);
            for (link, times) in it.way(&self.ways) {
                self.links[link].give(now, more * f64::from(times));
            }
        }
    }

    /// Takes in the flows on the links from number `taken` on; and, if `all`, each link that could
    /// be full and has such flows.
    fn take_in(&mut self, lists: &mut Lists, taken: &mut usize, all: bool) {
        while let Some(link) = lists.links.get(*taken).copied() {
            *taken += 1;
            self.links[link].is_freed = false;
            for flow in &self.links[link].flows {
                let it = &mut self.flows[*flow as usize];
                if it.place != NOWHERE {
                    continue;
                }
                it.place = short(lists.flows.len());
                lists.flows.push(*flow as usize);
                it.is_new = false;
                if !all {
                    continue;
                }
                for (other, _) in it.way(&self.ways) {
                    if self.could_fill[other] && !self.met[other] {
                        self.met[other] = true;
                        lists.links.push(other);
                    }
                }
            }
        }
    }

    /// Adds each link that the shares of the flows fill, or that was full and carries something
    /// else by them.
    fn reach(&mut self, lists: &mut Lists) {
        for (flow, share) in lists.flows.iter().zip(&lists.shares) {
            let it = &self.flows[*flow];
            if !it.changes(*share) {
                continue;
            }
            for (link, times) in it.way(&self.ways) {
                if self.could_fill[link] && !self.met[link] {
                    self.more[link] += (share - it.rate) * f64::from(times);
                    lists.reached.push(link);
                }
            }
        }
        for link in lists.reached.drain(..) {
            let more = std::mem::take(&mut self.more[link]);
            let shared = &self.links[link];
            if !self.met[link] && (shared.is_full || shared.fills(shared.given + more)) {
                self.met[link] = true;
                lists.links.push(link);
            }
        }
    }

    /// Max-min fair shares by progressive filling: all flows grow alike, until a link is full or a
    /// flow has the most that it can use; those stop, and the others grow on.
    fn share(&mut self, lists: &mut Lists) {
        let Lists { links, flows, shares, rooms, narrow, by_most, stopped, changed, .. } = lists;
        for link in links.iter() {
            let Shared { rate, load, .. } = self.links[*link];
            if self.could_fill[*link] {
                self.room[*link] = short(rooms.len());
                let (left, growing) = (rate as f64, load as usize);
                rooms.push(Room { link: *link, left, growing, stopped: 0 });
            }
        }
        narrow.extend((0..).zip(rooms.iter()).map(|(at, it)| it.entry(at)));
        let most = |at: &usize| self.flows[flows[*at]].most as f64;
        by_most.extend(0..flows.len());
        by_most.sort_unstable_by(|a, b| most(b).total_cmp(&most(a)));
        shares.clear();
        shares.resize(flows.len(), GROWING);
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
                    let at = self.flows[*flow as usize].place as usize;
                    if shares[at] == GROWING {
                        shares[at] = narrowest;
                        stopped.push(at);
                    }
                }
            }
            for at in stopped.drain(..) {
                for (link, times) in self.flows[flows[at]].way(&self.ways) {
                    let number = self.room[link] as usize;
                    if let Some(room) = rooms.get_mut(number) {
                        if room.stopped == 0 {
                            changed.push(number);
                        }
                        room.stopped += times as usize;
                    }
                }
            }
            // In whatever order they stop, the same is left.
            for number in changed.drain(..) {
                let room = &mut rooms[number];
                let stopped = std::mem::take(&mut room.stopped);
                room.left -= narrowest * stopped as f64;
                room.growing -= stopped;
                narrow.push(room.entry(number));
            }
        }
        narrow.clear();
        rooms.drain(..).for_each(|room| self.room[room.link] = NOWHERE);
    }

    /// The use of each link until `now`.
    pub(crate) fn used(&mut self, now: u64) -> Vec<Used> {
        (0..self.flows.len()).for_each(|flow| self.carry(flow));
        let used = |link: &mut Shared| {
            link.count(now);
            Used { bytes: link.bytes, full_ps: link.full_ps }
        };
        self.links.iter_mut().map(used).collect()
    }
}

impl Flow {
    /// The links of its way, and the messages on each for which it stands.
    fn way(&self, ways: &[(u32, u32)]) -> impl Iterator<Item = (usize, u32)> {
        let [first, len] = self.way.map(|it| it as usize);
        ways[first..first + len].iter().map(|(link, times)| (*link as usize, *times))
    }

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

    /// Has an event when its bytes will have left, unless there is one before, or it never ends.
    fn set_event(&mut self, number: usize, queue: &mut Queue) {
        let due = self.due();
        if due < self.event && self.left.is_finite() {
            self.event = due;
            queue.push(due, Event::Left(short(number)));
        }
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
        let holds_up = self.is_full && self.flows.len() > self.endless as usize;
        self.full_ps += if holds_up { passed } else { 0 };
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

    /// Begins a message of a flow that can use at most so much.
    fn begin(flows: &mut Flows, now: u64, flow: usize, (way, most): (&[usize], u64), bytes: f64) {
        let once: Vec<(usize, usize)> = way.iter().map(|link| (*link, 1)).collect();
        flows.set_way(flow, &once, most);
        flows.begin(now, flow, bytes);
    }

    fn rates(flows: &mut Flows, ways: &[&[usize]]) -> Vec<f64> {
        for way in ways {
            let flow = flows.flow();
            begin(flows, 0, flow, (way, FAST), 1e9);
        }
        flows.settle(0, &mut Queue::default());
        flows.flows.iter().map(|flow| flow.rate.round()).collect()
    }

    #[test]
    fn a_link_is_shared_alike() {
        let mut flows = flows(&[900]);
        assert_eq!(rates(&mut flows, &[&[0], &[0], &[0]]), [300.0; 3]);
        flows.end(10, 1);
        flows.settle(10, &mut Queue::default());
        assert_eq!([flows.flows[0].rate, flows.flows[2].rate], [450.0; 2]);
    }

    #[test]
    fn a_link_behind_others_is_shared() {
        let mut flows = flows(&[100, 100, 100]);
        assert_eq!(rates(&mut flows, &[&[0, 1], &[2, 1]]), [50.0; 2]);
        flows.end(5, 1);
        flows.settle(5, &mut Queue::default());
        assert_eq!(flows.flows[0].rate, 100.0);
        begin(&mut flows, 7, 1, (&[2, 1], FAST), 1e9);
        flows.settle(7, &mut Queue::default());
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
            let given: f64 = link.flows.iter().map(|flow| flows.flows[*flow as usize].rate).sum();
            assert!(given <= link.rate as f64 * 1.000_001, "{what}: {given} of link {number}");
        }
        for flow in sending {
            let it = &flows.flows[*flow];
            let Flow { rate, most, .. } = *it;
            let holds_up = |(number, _): (usize, u32)| {
                let rate_of = |other: &u32| flows.flows[*other as usize].rate;
                let on_it = flows.links[number].flows.iter().map(rate_of);
                let (given, greatest) = on_it
                    .fold((0.0, 0.0), |(sum, greatest), it| (sum + it, f64::max(greatest, it)));
                let full = flows.links[number].rate as f64 * 0.999_999;
                given >= full && greatest <= rate * 1.000_001
            };
            let has_all = rate >= most as f64 * 0.999_999;
            assert!(has_all || it.way(&flows.ways).any(holds_up), "{what}: flow {flow} has {rate}");
        }
    }

    #[test]
    fn shares_stay_fair_whoever_comes_and_goes() {
        let number = |random: u64, below: u64| usize::try_from(random % below).unwrap();
        for seed in 0..40 {
            let rates: Vec<u64> = (0..12).map(|it| 100 + mix(seed << 8 ^ it) % 900).collect();
            let mut flows = flows(&rates);
            let most =
                |it: u64| if it.is_multiple_of(2) { FAST } else { 10 + mix(seed ^ it) % 200 };
            (0..40).for_each(|_| {
                flows.flow();
            });
            let mut queue = Queue::default();
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
                    let way = (&way[..=number(random >> 16, 3)], most(flow as u64));
                    begin(&mut flows, step, flow, way, 1e15);
                    sending.push(flow);
                }
                if random >> 40 & 3 > 0 {
                    flows.settle(step, &mut queue);
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
        let flow = flows.flow();
        begin(&mut flows, 5, flow, (&[0], FAST), 1e9);
        flows.settle(5, &mut Queue::default());
        assert_fair(&flows, &(0..links).collect::<Vec<_>>(), "one more");
        assert_eq!(flows.flows[flow - 1].rate.round(), 62500.0);
    }

    #[test]
    fn links_that_cannot_be_full_join_nothing() {
        let mut flows = flows(&[100, 1 << 40, 100]);
        rates(&mut flows, &[&[0, 1], &[1, 2]]);
        let flow = flows.flow();
        begin(&mut flows, 5, flow, (&[0], FAST), 1e9);
        flows.settle(5, &mut Queue::default());
        assert_eq!(flows.flows.iter().map(|flow| flow.since).collect::<Vec<_>>(), [5, 0, 5]);
    }

    #[test]
    fn a_link_is_full_while_all_of_it_is_used() {
        let mut flows = flows(&[100]);
        for _ in 0..2 {
            let flow = flows.flow();
            begin(&mut flows, 0, flow, (&[0], 50), 1e9);
        }
        flows.settle(0, &mut Queue::default());
        flows.end(10, 1);
        flows.settle(10, &mut Queue::default());
        assert_eq!(flows.used(30)[0].full_ps, 10);
    }

    /// The times at which flows leave.
    fn ends(flows: &mut Flows, queue: &mut Queue) -> Vec<(u64, usize)> {
        let (mut ends, mut events) = (Vec::new(), Vec::new());
        while let Some(now) = queue.take(&mut events) {
            for event in events.drain(..) {
                if let Event::Left(flow) = event
                    && flows.has_left(now, flow as usize, queue)
                {
                    ends.push((now, flow as usize));
                }
            }
        }
        ends
    }

    #[test]
    fn a_message_leaves_when_all_its_bytes_have() {
        let (mut flows, mut queue) = (flows(&[1_000_000_000]), Queue::default());
        let [flow, other, last] = [0; 3].map(|_| flows.flow());
        begin(&mut flows, 0, flow, (&[0], FAST), 1000.0);
        flows.settle(0, &mut queue);
        begin(&mut flows, 500_000, other, (&[0], FAST), 1000.0);
        flows.settle(500_000, &mut queue);
        let Used { bytes, full_ps } = flows.used(500_000)[0];
        assert_eq!((bytes, full_ps), (2000.0, 500_000));
        // The event from before it shared the link comes too early.
        assert_eq!(ends(&mut flows, &mut queue), [(1_500_160, flow), (2_500_096, other)]);
        flows.end(2_500_096, flow);
        flows.end(2_500_096, other);
        let mut queue = Queue::default();
        begin(&mut flows, 3_000_000, flow, (&[0], FAST), 1000.0);
        begin(&mut flows, 3_000_000, last, (&[0], FAST), 500.0);
        flows.settle(3_000_000, &mut queue);
        flows.end(3_100_000, last);
        flows.settle(3_100_000, &mut queue);
        // The event from before it had the link alone is of no account.
        assert_eq!(ends(&mut flows, &mut queue), [(4_050_176, flow)]);
    }
}
