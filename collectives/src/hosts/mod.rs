//! Hosts as levels of a call: the teams within hosts, the carriers between them, and the ways to
//! spread a call over both.
//!
//! A call is cut into shards. On each host a shard has a carrier, which is the only rank that sends
//! it to other hosts. All carriers of a shard reach one rail (`Layout::carriers`).

pub(crate) mod price;
pub(crate) mod rooted;
pub(crate) mod strands;

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Call, Rank, Slice};

use crate::algorithm::{Algorithm, ScheduleParams, Stated};
use crate::cost::{self, bill::Bill};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};

/// Bytes of the chunks for which ways to spread a call are compared. All ranks compare them
/// alike, even if a call has other chunks.
const CHUNK_BYTES: usize = 64 * 1024;

/// The pattern in which carriers of a shard pass it from host to host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rail {
    /// Carriers exchange with partners, whose distance doubles or halves from step to step.
    Exchange,
    /// Blocks go around a ring.
    Ring,
    /// Chunks follow each other along a binomial tree.
    Tree,
    /// Chunks follow each other along a chain.
    Chain,
    /// Each carrier sends to those of all other hosts.
    Direct,
    /// Each pair of hosts has one shard, whose carriers exchange all that the hosts have for each
    /// other.
    Pairs,
}

/// The way in which a call is spread over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    /// Number of shards, and so of carriers on each host.
    pub(crate) shards: usize,
    pub(crate) rail: Rail,
}

/// A hierarchical algorithm: its ways to spread a call, and the facts of each way.
pub(crate) struct Hierarchy {
    /// The ways to spread a call. There is at least one, and the first of equally cheap ones is
    /// used.
    pub(crate) ways: fn(&Layout) -> Vec<Spread>,
    /// The bill of a way, if pipelines pass on `chunk` elements at a time.
    pub(crate) bill: fn(&Call, &Layout, &Spread, chunk: usize) -> Bill,
    pub(crate) stated: fn(&Call, &Layout, &Spread) -> Stated,
    pub(crate) schedule: fn(&ScheduleParams<'_>, &Spread) -> Schedule,
    /// The flat algorithm that performs a call in the same way on one host, where there are no
    /// levels.
    pub(crate) on_one_host: &'static Algorithm,
}

impl Hierarchy {
    /// The cheapest way to spread `call`.
    pub(crate) fn cheapest(&self, call: &Call, layout: &Layout) -> Spread {
        let chunk = (CHUNK_BYTES / call.data_type.bytes()).max(1);
        let price = |spread: &Spread| (self.bill)(call, layout, spread, chunk).total(layout);
        let cheapest = (self.ways)(layout).into_iter().min_by_key(price);
        cheapest.unwrap_or(Spread { shards: 1, rail: Rail::Ring })
    }

    /// The price of a call in picoseconds, if pipelines pass on `chunk` elements at a time.
    pub(crate) fn price(&self, call: &Call, layout: &Layout, chunk: usize) -> u128 {
        match layout.hosts() {
            0..=1 => cost::price(self.on_one_host, call, layout, chunk).as_nanos() * 1000,
            _ => (self.bill)(call, layout, &self.cheapest(call, layout), chunk).total(layout),
        }
    }

    pub(crate) fn stated(&self, call: &Call, layout: &Layout) -> Stated {
        (self.stated)(call, layout, &self.cheapest(call, layout))
    }

    /// Whether the messages of a call stay on their rails: those between carriers of one shard.
    pub(crate) fn stays_on_rail(&self, call: &Call, layout: &Layout) -> bool {
        let Spread { shards, .. } = self.cheapest(call, layout);
        let hosts = match call.collective.has_root() {
            true => Hosts::from_root(layout, shards, call.root),
            false => Hosts::new(layout, shards),
        };
        let carriers = |shard| hosts.rail(shard).iter().copied();
        (0..shards).all(|shard| rails::among(layout, carriers(shard)))
    }

    pub(crate) fn schedule(&self, plan: &ScheduleParams<'_>) -> Schedule {
        (self.schedule)(plan, &self.cheapest(&plan.call, plan.layout))
    }
}

/// Some ranks, and the place of one among them.
#[derive(Default)]
pub(crate) struct Team {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) place: usize,
}

impl Team {
    pub(crate) fn new(ranks: Vec<Rank>, rank: Rank) -> Self {
        let place = ranks.iter().position(|it| *it == rank).unwrap_or(0);
        Self { ranks, place }
    }

    pub(crate) fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The rank's number within the team.
    pub(crate) fn me(&self) -> Rank {
        Rank::at(self.place)
    }
}

/// The hosts in an order, with their carriers.
pub(crate) struct Hosts<'a> {
    layout: &'a Layout,
    /// The numbers of the hosts, by place.
    numbers: Vec<u32>,
    /// By shard, the carriers by place of their host.
    rails: Cow<'a, [Arc<[Rank]>]>,
    pub(crate) shards: usize,
}

impl<'a> Hosts<'a> {
    /// The hosts in fabric order.
    pub(crate) fn new(layout: &'a Layout, shards: usize) -> Self {
        Self { layout, numbers: layout.hosts_in_order(), rails: layout.carriers(), shards }
    }

    /// The hosts in fabric order, rotated to begin with that of `root`. It is the only carrier
    /// there if there is one shard, and the carriers of its shard lead the other hosts then.
    pub(crate) fn from_root(layout: &'a Layout, shards: usize, root: Rank) -> Self {
        let fabric = Self::new(layout, shards);
        let numbers = layout.hosts_from(root);
        let place = |host: &u32| fabric.numbers.iter().position(|it| it == host).unwrap_or(0);
        let places: Vec<usize> = numbers.iter().map(place).collect();
        let rotated = |rail: &[Rank]| places.iter().map(|place| rail[*place]).collect();
        let mut rails: Vec<Vec<Rank>> = fabric.rails.iter().map(|rail| rotated(rail)).collect();
        if shards == 1 {
            let own = rails.iter().position(|rail| rail[0] == root).unwrap_or(0);
            rails.swap(0, own);
            rails[0][0] = root;
        }
        Self { numbers, rails: rails.into_iter().map(Arc::from).collect(), ..fabric }
    }

    /// Number of hosts.
    pub(crate) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The carriers of a shard, by place of their host.
    pub(crate) fn rail(&self, shard: usize) -> &[Rank] {
        &self.rails[shard]
    }

    /// The same, to keep.
    pub(crate) fn kept_rail(&self, shard: usize) -> Arc<[Rank]> {
        Arc::clone(&self.rails[shard])
    }

    /// The place of the host of `rank`.
    pub(crate) fn place(&self, rank: Rank) -> usize {
        let host = self.layout.host(rank);
        self.numbers.iter().position(|it| *it == host).unwrap_or(0)
    }

    /// The ranks of the host at `place`: first its carriers by shard, then the others.
    pub(crate) fn team(&self, place: usize) -> Vec<Rank> {
        let carriers = self.rails[..self.shards].iter().map(|rail| rail[place]);
        let mut team: Vec<Rank> = carriers.collect();
        let all = self.layout.ranks_on(self.numbers[place]).iter();
        let others: Vec<Rank> = all.filter(|it| !team.contains(it)).copied().collect();
        team.extend(others);
        team
    }
}

/// Sends that a rank posts before it receives as many.
pub(crate) const TOGETHER: usize = POSTED_MAX - 2;

/// Carriers of a host, at most, where a rank posts a send to each of them before it receives.
pub(crate) const CARRIERS_MAX: usize = TOGETHER;

/// Whether a rank may post its sends to all carriers one turn ahead.
pub(crate) const fn is_ahead(carriers: usize) -> bool {
    2 * carriers <= TOGETHER
}

/// Runs of a strand that a rank sends together, to the next host and to all others of a host with
/// `most` ranks. At least 1.
pub(crate) const fn runs_together(most: usize) -> usize {
    let runs = TOGETHER / most;
    if runs > 1 { runs } else { 1 }
}

/// Number of messages that wait for each other when each carrier of a host with `ranks` ranks sends
/// to all others there.
pub(crate) const fn hand_out_steps(ranks: usize) -> usize {
    ranks.saturating_sub(1).div_ceil(TOGETHER)
}

/// Each of the first `carriers` ranks of a team sends all others its parts, of which it has one or
/// few (`runs_together`).
///
/// A rank first sends to the nearest others, and then receives from the nearest on the other side.
/// Before the slowest rank posts the next sends, all others have received its earlier ones. So no
/// ranks wait in a circle.
pub(crate) fn hand_out<Parts: Iterator<Item = Slice>>(
    steps: &mut Builder,
    team: &Team,
    carriers: usize,
    parts: impl Fn(usize) -> Parts,
) {
    hand_out_but(steps, team, carriers, None, parts);
}

/// Like `hand_out`, but the rank `has_all` receives nothing.
pub(crate) fn hand_out_but<Parts: Iterator<Item = Slice>>(
    steps: &mut Builder,
    team: &Team,
    carriers: usize,
    has_all: Option<Rank>,
    parts: impl Fn(usize) -> Parts,
) {
    let (me, size) = (team.me(), team.size());
    let receives = |at: Rank| Some(team.ranks[at.index()]) != has_all;
    steps.among(&team.ranks, |steps| {
        for nearest in (1..size).step_by(TOGETHER) {
            let distances = || nearest..size.min(nearest + TOGETHER);
            for distance in distances().filter(|_| me.index() < carriers) {
                let to = ring::after(me, distance, size);
                if receives(to) {
                    parts(me.index()).for_each(|part| steps.send(to, part));
                }
            }
            for distance in distances().filter(|_| receives(me)) {
                let from = ring::before(me, distance, size);
                if from.index() < carriers {
                    parts(from.index()).for_each(|part| steps.recv(from, part));
                }
            }
        }
    });
}
