//! Proofs of schedules for ranks whose place in a fabric is known, in many fabrics.

use rayon::prelude::*;
use ringfold_collectives::crossing::{Crossing, measured};
use ringfold_collectives::select::{Constraints, Measurements, select};
use ringfold_collectives::{Algorithm, Stated};
use ringfold_topology::fabric::Place;
use ringfold_topology::{Layout, Path, RankReach, Reach};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::world::{self, Pipeline, schedules};
use ringfold_harness::Random;

fn rails(rails: impl IntoIterator<Item = usize>) -> Reach {
    let rail = |rail| Reach::of(Place { rail: u16::try_from(rail).unwrap(), plane: 0 });
    rails.into_iter().filter_map(rail).collect()
}

/// The rails that the ranks of a host reach.
#[derive(Clone, Copy, Debug)]
enum Nics {
    /// Unknown.
    Unknown,
    /// The rank at place i of its host reaches rail i alone. The number is that of rails.
    OneEach(usize),
    /// Every rank reaches all rails and prefers the rail of its place. The number is that of rails.
    All(usize),
    /// Ranks reach any of this number of rails.
    Any(usize),
}

/// Ranks on hosts of a fabric, in leaf groups of `group` and pods of `pod` hosts. Hosts are dealt
/// to groups at random. `names` are the hosts of the ranks.
fn fabric(random: &mut Random, names: &[usize], group: usize, pod: usize, nics: Nics) -> Layout {
    let layout = Layout::from_host_names(names);
    let number = |number: usize| u32::try_from(number).unwrap();
    let mut orders: Vec<usize> = (0..layout.hosts()).collect();
    random.shuffle(&mut orders);
    let path = |at: &usize| Path {
        order: number(*at),
        pod: number(at / pod),
        group: number(at / group),
        machine: number(*at),
    };
    let layout = layout.with_paths(&orders.iter().map(path).collect::<Vec<_>>());
    let mut reach = |rank: usize| {
        let rank = Rank::at(rank);
        let host = layout.ranks_on(layout.host(rank));
        let place = host.iter().position(|it| *it == rank).unwrap();
        match nics {
            Nics::Unknown => RankReach::default(),
            Nics::OneEach(count) => {
                let rail = rails([place % count]);
                RankReach { reaches: rail, prefers: rail }
            }
            Nics::All(count) => {
                RankReach { reaches: rails(0..count), prefers: rails([place % count]) }
            }
            Nics::Any(count) => {
                let (one, two) = (random.below(count), random.below(count));
                RankReach { reaches: rails([one, two]), prefers: rails([one]) }
            }
        }
    };
    if matches!(nics, Nics::Unknown) {
        return layout;
    }
    let reach: Vec<RankReach> = (0..layout.size()).map(&mut reach).collect();
    layout.with_reach(&reach)
}

/// Hosts with different numbers of ranks, in groups and pods of any size.
fn any_fabric(random: &mut Random) -> Layout {
    let hosts = 1 + random.below(9);
    let mut names: Vec<usize> =
        (0..hosts).flat_map(|host| vec![host; 1 + random.below(5)]).collect();
    random.shuffle(&mut names);
    let (group, count) = (1 + random.below(4), 1 + random.below(4));
    let nics = [Nics::Unknown, Nics::OneEach(count), Nics::All(count), Nics::Any(count)];
    let nics = nics[random.below(nics.len())];
    let pod = group * (1 + random.below(3));
    let layout = fabric(random, &names, group, pod, nics);
    layout.with_channels(1 + random.below(3))
}

fn prove(algorithm: &Algorithm, call: Call, layout: &Layout, pipeline: Pipeline) -> Stated {
    let schedules = schedules(algorithm, call, layout, pipeline);
    let what = format!("{algorithm}, {layout:?}");
    world::prove(&what, &schedules, pipeline.window_bytes, true)
}

fn collectives() -> impl Iterator<Item = &'static Algorithm> {
    let all = Collective::ALL.into_iter().flat_map(Algorithm::of);
    all.filter(|algorithm| algorithm.works_anywhere())
}

/// A call with any root, in a type that may grow on the wire.
fn any_call(random: &mut Random, algorithm: &Algorithm, size: usize, count: usize) -> Call {
    let collective = algorithm.collective;
    let reduces = collective.reduces();
    let data_type =
        if reduces { [DataType::F32, DataType::Bf16][random.below(2)] } else { DataType::F32 };
    let root = if collective.has_root() { Rank::at(random.below(size)) } else { Rank(0) };
    let count = if collective == Collective::Barrier { 0 } else { count };
    Call { collective, count, data_type, op: ReduceOp::Sum, root, wire: Wire::default() }
}

#[test]
fn every_algorithm_is_right_in_any_fabric() {
    let mut random = Random::seeded();
    let mut proofs = Vec::new();
    for at in 0..16 {
        let layout = any_fabric(&mut random);
        for algorithm in collectives() {
            let count = [0, 1, 5, 131, 300][random.below(5)];
            let call = any_call(&mut random, algorithm, layout.size(), count);
            // Links accept less than a chunk, or several chunks.
            let chunk = 8 + random.below(1 + count / 5);
            let pipeline = Pipeline { chunk, window_bytes: [16, 8 * chunk][random.below(2)] };
            proofs.push((algorithm, call, layout.clone(), pipeline, false));
            if at % 4 == 0 {
                let layout = layout.clone().with_channels(1);
                let count = even_count(algorithm, &layout);
                let call = any_call(&mut random, algorithm, layout.size(), count);
                let chunk = count * layout.size();
                // Links accept all that a host has for another, as the stated steps assume.
                let pipeline = Pipeline { chunk, window_bytes: 8 * chunk * layout.size() };
                proofs.push((algorithm, call, layout, pipeline, true));
            }
        }
    }
    proofs.into_par_iter().for_each(|(algorithm, call, layout, pipeline, is_even)| {
        let measured = prove(algorithm, call, &layout, pipeline);
        if is_even {
            assert_costs(algorithm, &call, &layout, measured);
        }
    });
}

/// Checks that the cost is as stated, or at most that where hosts or groups differ in size.
fn assert_costs(algorithm: &Algorithm, call: &Call, layout: &Layout, measured: Stated) {
    let stated = (algorithm.stated)(call, layout);
    let fits = measured.steps <= stated.steps && measured.sent <= stated.sent;
    let is_right = if algorithm.is_hierarchical() { fits } else { measured == stated };
    assert!(is_right, "{algorithm}, {call}, {layout:?}: {measured:?}, stated {stated:?}");
}

/// Calls with several shards and, in some fabrics, leaf groups as a level.
#[test]
fn hierarchical_is_right_in_any_fabric() {
    let mut random = Random::seeded();
    let hierarchical = Algorithm::named(Collective::AllReduce, "hierarchical").unwrap();
    let mut proofs = Vec::new();
    for _ in 0..60 {
        let layout = any_fabric(&mut random);
        let most = 1024 << random.below(6);
        let count = random.below(most);
        let call = any_call(&mut random, hierarchical, layout.size(), count);
        let chunk = 1 + count / (1 + random.below(30));
        let window_bytes = 16 + random.below(2 * chunk) + count / 100;
        proofs.push((call, layout, Pipeline { chunk, window_bytes }));
    }
    proofs.into_par_iter().for_each(|(call, layout, pipeline)| {
        prove(hierarchical, call, &layout, pipeline);
    });
}

/// A count that divides evenly into shards, parts, blocks and halves of blocks of `layout`.
fn even_count(algorithm: &Algorithm, layout: &Layout) -> usize {
    let (size, hosts) = (layout.size(), layout.hosts());
    let mut count = match algorithm.collective {
        Collective::AllGather | Collective::ReduceScatter => 32,
        _ => 32 * size * size.next_power_of_two(),
    };
    if algorithm.is_hierarchical() {
        let groups = layout.leaf_groups();
        let parts = groups.iter().map(Vec::len).min().unwrap_or(1);
        let units = hosts * hosts.next_power_of_two() * groups.len().max(1).next_power_of_two();
        count = 1024 * layout.carriers().len() * parts * units * groups.len().max(1);
    }
    count
}

/// A flat algorithm states exactly whether its messages stay on their rails, and a hierarchical one
/// never claims it falsely.
#[test]
fn messages_stay_on_their_rails_as_stated() {
    let mut random = Random::seeded();
    for _ in 0..60 {
        let layout = any_fabric(&mut random).with_channels(1);
        for algorithm in collectives() {
            let count = even_count(algorithm, &layout);
            let call = any_call(&mut random, algorithm, layout.size(), count);
            let chunk = count * layout.size();
            let pipeline = Pipeline { chunk, window_bytes: 8 * chunk };
            let schedules = schedules(algorithm, call, &layout, pipeline);
            let stays = measured(&schedules, &layout).off_rail.messages == 0;
            let stated = (algorithm.stays_on_rail)(&call, &layout);
            let is_right = stated == stays || algorithm.is_hierarchical() && stays;
            assert!(is_right, "{algorithm}, {call}, {layout:?}: {stays}, stated {stated}");
        }
    }
}

/// 64 hosts of 8 ranks in four leaf groups, hosts in random order.
fn four_groups(random: &mut Random, nics: Nics) -> Layout {
    let names: Vec<usize> = (0..512).map(|rank| rank / 8).collect();
    fabric(random, &names, 16, 64, nics)
}

/// The same ranks, of which only the hosts are known.
fn unknown(layout: &Layout) -> Layout {
    let hosts: Vec<u32> = (0..layout.size()).map(|rank| layout.host(Rank::at(rank))).collect();
    Layout::from_host_names(&hosts)
}

/// The crossings of schedules whose ranks do not know their places, and of schedules whose ranks
/// do, both counted at the true places.
fn in_figures(algorithm: &Algorithm, call: Call, layout: &Layout) -> [Crossing; 2] {
    let pipeline = Pipeline { chunk: call.count, window_bytes: 8 * call.count * layout.size() };
    [&unknown(layout), layout]
        .map(|known| measured(schedules(algorithm, call, known, pipeline), layout))
}

#[test]
fn nothing_leaves_its_rail_and_less_crosses_spines() {
    let mut random = Random::seeded();
    for nics in [Nics::All(8), Nics::OneEach(8)] {
        let layout = four_groups(&mut random, nics);
        for algorithm in Algorithm::of(Collective::AllReduce) {
            let keeps = [
                "ring",
                "tree",
                "double_tree",
                "hierarchical",
                "halving_doubling",
                "recursive_doubling",
            ]
            .contains(&algorithm.name);
            if !keeps {
                continue;
            }
            let count = 512 * 1024;
            let call = any_call(&mut random, algorithm, layout.size(), count);
            let call = Call { data_type: DataType::F32, ..call };
            let [before, after] = in_figures(algorithm, call, &layout);
            assert_eq!(after.off_rail.messages, 0, "{algorithm}, {nics:?}");
            assert_eq!(after.off_preferred.messages, 0, "{algorithm}, {nics:?}");
            // Each of the four groups sends the next one as much as a rank of a ring sends.
            let around = |units: usize| (4 * 2 * (units - 1) * (count / units) * 4) as u64;
            let spines = after.across_spines().bytes;
            match algorithm.name {
                "ring" => assert_eq!(spines, around(512), "{nics:?}"),
                // Twice the buffer, or that without a fourth of it.
                "hierarchical" => {
                    let buffer = 4 * count as u64;
                    assert!((6 * buffer..=8 * buffer).contains(&spines), "{spines}, {nics:?}");
                }
                _ => {}
            }
            let spines = [before, after].map(|it| it.across_spines().bytes);
            assert!(spines[1] < spines[0], "{algorithm}, {nics:?}: {spines:?}");
            // In rank order, the last rank of a host sends to the first rank of the next host.
            let leaves = before.off_rail.messages > 0;
            assert!(leaves || algorithm.name != "ring" || matches!(nics, Nics::All(_)));
        }
    }
}

/// Calls of every collective, from short to long.
fn calls() -> Vec<Call> {
    let (data_type, op, root) = (DataType::F32, ReduceOp::Sum, Rank(0));
    let call =
        |collective, count| Call { collective, count, data_type, op, root, wire: Wire::default() };
    let counts = [1, 100, 10_000, 1 << 20, 1 << 26];
    let each = |collective: Collective| counts.map(|count| call(collective, count));
    let sized = Collective::ALL.into_iter().filter(|it| *it != Collective::Barrier);
    let barrier = call(Collective::Barrier, 0);
    sized.flat_map(each).chain([barrier]).collect()
}

/// Where ports on other rails are out of reach, a call leaves its rail only if every algorithm
/// does.
#[test]
fn nothing_chosen_leaves_its_rail_where_rails_are_apart() {
    let mut random = Random::seeded();
    let mut spared = 0;
    for (hosts, ranks) in [(4, 2), (16, 8), (6, 4)] {
        let names: Vec<usize> = (0..hosts * ranks).map(|rank| rank / ranks).collect();
        let layout = fabric(&mut random, &names, hosts / 2, hosts, Nics::OneEach(ranks));
        assert!(layout.keeps_rails_apart());
        assert!(!layout.clone().with_crossing_rails(true).keeps_rails_apart());
        for call in calls() {
            let chosen = |layout: &Layout| {
                select(&call, layout, &Constraints::default(), &Measurements::default())
            };
            let leaves = |it: &Algorithm| !(it.stays_on_rail)(&call, &layout);
            let mut all = collectives().filter(|it| it.collective == call.collective);
            let can_stay = all.any(|it| !leaves(it));
            let layout_across = layout.clone().with_crossing_rails(true);
            assert_eq!(leaves(chosen(&layout)), !can_stay, "{call}, {layout:?}");
            spared += usize::from(leaves(chosen(&layout_across)) && can_stay);
        }
    }
    assert!(spared > 0, "rails change nothing that is chosen");
}
