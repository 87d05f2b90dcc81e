//! Ranks whose programs and surroundings are equal: one of them stands for all.
//!
//! Ranks, links and connections get colours. At first a rank has that of its program, in which
//! peers and places in memory are named by their order, and a link that of its rate. Then each
//! takes up the colours around it: a connection those of its ranks and links, a rank those of its
//! connections, a link those of the connections on it. This goes on until no colour parts any more
//! (colour refinement). Ranks of one colour then do the same at all times, and so do links. A rank
//! of each colour is simulated, and its messages take the part of a link that all of their colour
//! take.
//!
//! Source: Cardon and Crochemore, "Partitioning a graph in O(|A| log2 |V|)", 1982.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ringfold_collectives::schedule::Source;
use ringfold_collectives::{Op, Program};
use ringfold_types::{Rank, Slice, mix};

use crate::aggregators::Aggregators;
use crate::fold::{Fold, Way};
use crate::job::Job;
use crate::network::Routing;
use crate::programs::Programs;
use crate::wires::Wires;

/// The most looks at what meets. Only a line of more than twice as many ranks needs more.
const LOOKS_MAX: usize = 1024;

/// Finds equal ranks. Adaptive routing depends on the order of messages, and keeps all apart.
pub(crate) fn fold(job: &Job, programs: &Programs, routing: Routing) -> Fold {
    let mut wires = Wires::new(job, programs, routing, None);
    let (size, links) = (job.layout.size() + wires.aggregators.count(), wires.links());
    let none = || Fold::none(size, links);
    if routing == Routing::Adaptive {
        return none();
    }
    let drawn = |at| Drawn::of(Rank::at(at), &programs.of_ranks[at], &wires.aggregators);
    let drawn = (0..job.layout.size()).map(drawn);
    let Some(mut drawn) = drawn.collect::<Option<Vec<Drawn>>>() else { return none() };
    drawn.extend(wires.aggregators.each().map(Drawn::of_aggregator));
    let Some(meetings) = Meeting::all(&drawn, &mut wires) else {
        return none();
    };
    // Links with messages of other jobs differ from all others.
    let link_colour = |link: usize| {
        let others = wires.flows.load(link) > 0;
        mix(wires.flows.rate(link) ^ if others { mix(!(link as u64)) } else { 0 })
    };
    let mut colours = Colours {
        ranks: drawn.iter().map(|it| it.colour).collect(),
        links: (0..links).map(link_colour).collect(),
    };
    let mut count = colours.count();
    for look in 0.. {
        colours = colours.next(&meetings);
        let before = std::mem::replace(&mut count, colours.count());
        if count[0] > size / 2 || look == LOOKS_MAX {
            return none();
        }
        if count == before {
            break;
        }
    }
    let (ranks, of_rank) = first_of(&colours.ranks);
    let (links, of_link) = first_of(&colours.links);
    // By sender, place, and the rank that stands for the receiver: the first such connection.
    let mut by_place: HashMap<(Rank, usize, usize), Way> = HashMap::new();
    for Meeting { way, place, .. } in &meetings {
        let first = by_place.entry((way.0, *place, ranks[way.1.index()])).or_insert(*way);
        *first = (*first).min(*way);
    }
    let (mut connections, mut met) = (HashMap::new(), HashSet::new());
    for Meeting { way, place, .. } in meetings {
        let (from, to, _) = way;
        if ranks[to.index()] == to.index() {
            let standing = by_place[&(Rank::at(ranks[from.index()]), place, to.index())];
            // One connection cannot stand for two of the same receiver. Aggregators wait for one
            // of equal children.
            if !met.insert((standing, to)) && !wires.aggregators.has(to) {
                return none();
            }
            connections.insert(way, standing);
        }
    }
    let ranks = ranks.into_iter().map(Rank::at).collect();
    Fold { ranks, of_rank, links, of_link, connections }
}

/// By place: the first place with the same colour, and the number of those with its colour if it is
/// the first.
fn first_of(colours: &[u64]) -> (Vec<usize>, Vec<usize>) {
    let mut first = HashMap::new();
    let of: Vec<usize> =
        colours.iter().enumerate().map(|(at, colour)| *first.entry(colour).or_insert(at)).collect();
    let mut counts = vec![0; of.len()];
    of.iter().for_each(|at| counts[*at] += 1);
    (of, counts)
}

/// A program without the numbers of ranks and the places of elements.
struct Drawn {
    colour: u64,
    /// By lane and receiver: its place in the order in which receivers are met.
    sends: HashMap<(usize, Rank), usize>,
    /// By lane and sender: a number for the operations that receive from it. The sources of one
    /// reduction have no order, because it waits for all.
    receives: HashMap<(usize, Rank), u64>,
}

impl Drawn {
    /// `None` if it has operations other than messages and memory of its own.
    fn of(rank: Rank, program: &Program, aggregators: &Aggregators) -> Option<Self> {
        let mut it = Self { colour: 0, sends: HashMap::new(), receives: HashMap::new() };
        let mut slices: HashMap<Slice, usize> = HashMap::new();
        for (lane, ops) in program.lanes().iter().enumerate() {
            it.add(u64::MAX);
            let above = aggregators.above(lane, rank);
            let (mut next, mut at) = (0, 0);
            while let Some(op) = ops.get(next) {
                (next, at) = (next + 1, at + 1);
                let mut receive = |from: Rank, form: u64| {
                    let number = it.receives.entry((lane, from)).or_insert(0);
                    *number = mix(*number ^ mix(at << 1 | form));
                };
                match op {
                    Op::Send { to, src, .. } => {
                        let place = place_of(&mut it.sends, (lane, *to));
                        it.all([1, place, place_of(&mut slices, *src), src.len]);
                    }
                    Op::Receive { from, dst, .. } => {
                        receive(*from, 0);
                        it.all([2, place_of(&mut slices, *dst), dst.len]);
                    }
                    Op::Copy { src, dst, .. } => {
                        let [from, to] = [src, dst].map(|it| place_of(&mut slices, *it));
                        it.all([3, from, to, dst.len]);
                    }
                    Op::Reduce { dst, sources, .. } => {
                        let mut locals = Vec::new();
                        for source in program.sources(sources) {
                            match *source {
                                Source::Local(src) => locals.push(place_of(&mut slices, src)),
                                Source::Wire(from, form) => receive(from, form as u64),
                                Source::Peer(..) => return None,
                            }
                        }
                        it.all([4, place_of(&mut slices, *dst), dst.len, sources.len()]);
                        locals.into_iter().for_each(|place| it.add(place as u64));
                    }
                    Op::Post { .. } | Op::Take { .. } if above.is_none() => {}
                    // An aggregator takes the place of the operations after these two.
                    Op::Post { src, dst, ops: skipped, .. } => {
                        it.sends.extend(above.map(|above| ((lane, above), usize::MAX)));
                        let [src, dst] = [src, dst].map(|it| (place_of(&mut slices, *it), it.len));
                        it.all([5, src.0, src.1, dst.0, dst.1]);
                        next += *skipped as usize;
                    }
                    Op::Take { dst, ops: skipped, .. } => {
                        above.into_iter().for_each(|above| receive(above, 0));
                        it.all([6, place_of(&mut slices, *dst), dst.len]);
                        next += *skipped as usize;
                    }
                    _ => return None,
                }
            }
        }
        it.add(overlaps(slices));
        let received = it.receives.values().fold(0_u64, |sum, it| sum.wrapping_add(mix(*it)));
        it.add(received);
        Some(it)
    }

    /// That of an aggregator: all its children have one place, and the one above has another.
    fn of_aggregator((lane, children, above): (usize, &[Rank], Option<Rank>)) -> Self {
        let both = || children.iter().map(|it| (*it, 0)).chain(above.map(|it| (it, 1)));
        Self {
            colour: mix(!(lane as u64)),
            sends: both().map(|(it, place)| ((lane, it), place)).collect(),
            receives: both().map(|(it, place)| ((lane, it), place as u64)).collect(),
        }
    }

    fn add(&mut self, word: u64) {
        self.colour = mix(self.colour ^ mix(word));
    }

    fn all<const N: usize>(&mut self, words: [usize; N]) {
        words.into_iter().for_each(|word| self.add(word as u64));
    }
}

/// A number for the slices that overlap, by place. A stepper asks nothing else of slices.
fn overlaps(slices: HashMap<Slice, usize>) -> u64 {
    let mut slices: Vec<(Slice, usize)> = slices.into_iter().collect();
    slices.sort_unstable_by_key(|(slice, place)| (slice.buffer as usize, slice.offset, *place));
    let mut sum = 0_u64;
    for (at, (slice, place)) in slices.iter().enumerate() {
        let overlap = |(other, _): &&(Slice, usize)| {
            other.buffer == slice.buffer && other.offset < slice.end()
        };
        let mut add = |other: usize| {
            let both = (place.min(&other) << 32 | place.max(&other)) as u64;
            sum = sum.wrapping_add(mix(both << 3 | slice.buffer as u64));
        };
        add(*place);
        slices[at + 1..].iter().take_while(overlap).for_each(|(_, other)| add(*other));
    }
    sum
}

/// The place of a key in the order in which keys were met.
fn place_of<K: Eq + Hash>(known: &mut HashMap<K, usize>, key: K) -> usize {
    let next = known.len();
    *known.entry(key).or_insert(next)
}

/// A connection.
struct Meeting {
    way: Way,
    /// Its place in the order of its sender.
    place: usize,
    /// Other facts of it.
    colour: u64,
    links: Vec<usize>,
}

impl Meeting {
    /// All connections. `None` if one has no receiver.
    fn all(drawn: &[Drawn], wires: &mut Wires<'_>) -> Option<Vec<Self>> {
        let mut all = Vec::new();
        for (from, it) in (0..).map(Rank::at).zip(drawn) {
            for ((lane, to), place) in &it.sends {
                let received = *drawn[to.index()].receives.get(&(*lane, from))?;
                let links = wires.way(from, *to);
                let level = wires.level(from, *to) as u64;
                let colour = mix(received ^ mix(level << 32 | *lane as u64));
                all.push(Self { way: (from, *to, *lane), place: *place, colour, links });
            }
        }
        Some(all)
    }
}

struct Colours {
    ranks: Vec<u64>,
    links: Vec<u64>,
}

impl Colours {
    fn count(&self) -> [usize; 2] {
        [&self.ranks, &self.links].map(|all| all.iter().collect::<HashSet<_>>().len())
    }

    /// The colours after one more look at what meets.
    fn next(&self, meetings: &[Meeting]) -> Self {
        let mut sums = Self { ranks: vec![0; self.ranks.len()], links: vec![0; self.links.len()] };
        let more = |sum: &mut u64, colour: u64| *sum = sum.wrapping_add(mix(colour));
        for Meeting { way: (from, to, _), place, colour, links } in meetings {
            let ranks = [*from, *to].map(|rank| self.ranks[rank.index()]);
            let links_of = links.iter().map(|link| self.links[*link]);
            let words = [*place as u64, *colour].into_iter().chain(ranks).chain(links_of);
            let colour = words.fold(0, |colour, word| mix(colour ^ mix(word)));
            more(&mut sums.ranks[from.index()], colour);
            more(&mut sums.ranks[to.index()], !colour);
            links.iter().for_each(|link| more(&mut sums.links[*link], colour));
        }
        let both = |old: &[u64], sums: Vec<u64>| -> Vec<u64> {
            old.iter().zip(sums).map(|(old, sum)| mix(mix(*old) ^ sum)).collect()
        };
        Self { ranks: both(&self.ranks, sums.ranks), links: both(&self.links, sums.links) }
    }
}

#[cfg(test)]
mod tests {
    use ringfold_collectives::Algorithm;
    use ringfold_types::{Buffer, Call, Collective, DataType, ReduceOp, Wire};

    use super::*;
    use crate::outcome::Outcome;
    use crate::programs::Limits;
    use crate::run::run;
    use crate::{Shape, simulate};

    /// The ranks that stand for all in a call, whose outcome is the same as without a fold. `hurt`
    /// changes the network.
    fn standing(shape: &str, hurt: fn(&mut Job), (collective, name, count): Asked) -> usize {
        let shape: Shape = shape.parse().unwrap();
        let mut job =
            Job::of(&shape.fabric(), None, shape.ports_per_host(), true, |it| it).unwrap();
        hurt(&mut job);
        if name == "in_network" {
            job = job.with_aggregators().unwrap();
        }
        let (data_type, op, root) = (DataType::F32, ReduceOp::Sum, Rank(0));
        let call = Call { collective, count, data_type, op, root, wire: Wire::default() };
        let known = Algorithm::of(collective).iter().find(|it| it.name == name).unwrap();
        let programs = Programs::of(&job, &call, known, 1 << 16, Limits::default()).unwrap();
        let routing = Routing::ByDestination;
        let wires = Wires::new(&job, &programs, routing, None);
        let places = job.layout.size() + wires.aggregators.count();
        let none = Fold::none(places, wires.links());
        let whole = run(&job, &programs, routing, none).unwrap();
        let folded = simulate(&job, &programs, routing).unwrap();
        let standing = folded.standing;
        assert_eq!(folded, Outcome { standing, ..whole }, "{shape} {name}");
        standing
    }

    type Asked = (Collective, &'static str, usize);

    const RING: Asked = (Collective::AllReduce, "ring", 1 << 18);
    const PAIRWISE: Asked = (Collective::AllToAll, "pairwise", 1 << 12);

    /// Folded jobs have the same outcome, to the last bit.
    #[test]
    fn a_fold_changes_nothing() {
        use Collective::{AllGather, AllReduce, AllToAll, Barrier};
        for shape in [
            "switch:32x1:100G",
            "fat:32x1:400G:radix=8",
            "fat:48x1:400G:radix=16:over=3",
            "rail:16x4:400G:radix=8",
            "rail-only:16x4:400G:radix=8",
            "dragonfly:32x1:400G:radix=8",
            "torus:8x4:100G",
        ] {
            for asked in [
                RING,
                PAIRWISE,
                (AllReduce, "one_shot", 256),
                (AllReduce, "double_tree", 1 << 16),
                (AllReduce, "recursive_doubling", 1 << 16),
                (AllReduce, "hierarchical", 1 << 16),
                (AllGather, "bruck", 1 << 12),
                (AllToAll, "linear", 1 << 6),
                (Barrier, "dissemination", 0),
                (AllReduce, "in_network", 1 << 18),
                (Barrier, "in_network", 0),
            ] {
                standing(shape, |_| (), asked);
            }
        }
    }

    #[test]
    fn ranks_with_equal_surroundings_fold() {
        for (shape, asked, wanted) in [
            ("switch:64x1:100G", RING, 1),
            ("torus:8x8:100G", RING, 1),
            // The ranks of a pod differ by their places in it.
            ("fat:64x1:400G:radix=8", RING, 16),
            ("fat:64x1:400G:radix=8", PAIRWISE, 1),
            ("rail:16x4:400G:radix=8", (Collective::AllReduce, "hierarchical", 1 << 16), 1),
            ("fat:64x1:400G:radix=8", (Collective::AllReduce, "in_network", 1 << 18), 1),
            // A tree has one root.
            ("switch:64x1:100G", (Collective::AllReduce, "double_tree", 1 << 16), 64),
        ] {
            assert_eq!(standing(shape, |_| (), asked), wanted, "{shape} {}", asked.1);
            // A cable that differs leaves no two ranks of a ring alike.
            if asked == RING {
                let slow = |job: &mut Job| job.network.slow("host5.0", 0.5).unwrap();
                assert_eq!(standing(shape, slow, asked), 64, "{shape}");
            }
        }
    }

    /// Only ranks beyond the links that other jobs use are alike.
    #[test]
    fn traffic_of_other_jobs_parts_ranks() {
        let traffic = |job: &mut Job| job.add_traffic(["host1.0", "host6.0"], 1.0).unwrap();
        let shape = "fat:64x1:400G:radix=8";
        for (name, wanted) in [("in_network", 2..32), ("recursive_doubling", 64..65)] {
            let found = standing(shape, traffic, (Collective::AllReduce, name, 1 << 18));
            assert!(wanted.contains(&found), "{name}: {found}");
        }
    }

    /// Slices as offsets and lengths, in the order in which a program names them.
    #[test]
    fn programs_whose_slices_overlap_otherwise_differ() {
        let of = |slices: [(usize, usize); 3]| {
            let named = |(at, len)| Slice::new(Buffer::Output, at, len);
            overlaps(slices.map(named).into_iter().zip(0..).collect())
        };
        let apart = of([(0, 4), (4, 4), (8, 4)]);
        assert_eq!(apart, of([(8, 4), (100, 4), (0, 4)]), "they lie elsewhere");
        let [first, last, both] =
            [[(0, 4), (2, 4), (8, 4)], [(0, 4), (6, 4), (8, 4)], [(0, 4), (2, 4), (5, 4)]].map(of);
        assert_eq!(first, of([(9, 4), (8, 4), (0, 4)]), "the same two meet elsewhere");
        let all = HashSet::from([apart, first, last, both, of([(0, 9), (2, 4), (5, 4)])]);
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn five_hundred_and_twelve_fold() {
        let halves = (Collective::AllReduce, "recursive_doubling", 1 << 16);
        for (shape, wanted) in [
            ("fat:512x1:400G", 1),
            ("rail:64x8:400G", 1),
            ("rail-only:64x8:400G", 1),
            ("torus:8x8x8:100G", 512),
        ] {
            assert_eq!(standing(shape, |_| (), halves), wanted, "{shape}");
        }
    }
}
