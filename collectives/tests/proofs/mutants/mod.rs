//! Every algorithm's schedules with one fault each: `check` refuses each one that can fail.
//!
//! A *mutant* is the schedules of all ranks with one random change to one step of one rank. If
//! `check` accepts a mutant, it must be right after all. So the test executes it on real numbers
//! again and again, in random orders of events (`execute`). It executes a refused mutant too, and
//! counts the cases in which execution alone would have found the fault.
//!
//! `RINGFOLD_MUTANTS_SEED=7` repeats the run with this seed. `RINGFOLD_MUTANTS=24` makes 24 mutants
//! of each kind in each world.

mod execute;
mod mutate;

use std::collections::{BTreeMap, BTreeSet};

use execute::{Numbers, execute};
use mutate::{Kind, Parts};
use rayon::prelude::*;
use ringfold_collectives::check::{Conditions, Flaw, check};
use ringfold_collectives::{Algorithm, Schedule, ScheduleParams};
use ringfold_topology::Layout;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::world::{Pipeline, schedules};
use ringfold_harness::Random;

/// Mutants of each kind in each world.
const MUTANTS: usize = 2;

/// Executions under each condition, of an accepted mutant and of a refused one.
const RUNS: usize = 16;
const RUNS_REFUSED: usize = 4;

/// Elements that pipelines pass on at a time, and bytes that a link accepts. Both are small, so
/// that messages take turns.
const CHUNK: usize = 4;
const WINDOW: usize = 16;

/// Ranks that perform a call by an algorithm.
struct World {
    algorithm: &'static Algorithm,
    call: Call,
    layout: Layout,
}

impl World {
    fn plan(&self, rank: usize) -> ScheduleParams<'_> {
        let Self { call, layout, .. } = self;
        ScheduleParams {
            call: *call,
            layout,
            rank: Rank::at(rank),
            chunk: CHUNK,
            window_bytes: WINDOW,
        }
    }

    fn schedules(&self) -> Vec<Schedule> {
        let pipeline = Pipeline { chunk: CHUNK, window_bytes: WINDOW };
        schedules(self.algorithm, self.call, &self.layout, pipeline)
    }
}

/// Every algorithm, with one lane and with several, on few ranks.
fn worlds() -> Vec<World> {
    let mut worlds = Vec::new();
    for algorithm in Collective::ALL.into_iter().flat_map(Algorithm::of) {
        let collective = algorithm.collective;
        let call = |data_type, count, root| Call {
            collective,
            count: if collective == Collective::Barrier { 0 } else { count },
            data_type,
            op: ReduceOp::Sum,
            root: Rank(if collective.has_root() { root } else { 0 }),
            wire: Wire::default(),
        };
        let mut add_of = |data_type, layout, count, root| {
            worlds.push(World { algorithm, call: call(data_type, count, root), layout });
        };
        if collective.reduces() && algorithm.works_anywhere() {
            // Partial results are rounded between hosts.
            add_of(DataType::Bf16, Layout::apart(4), 17, 1);
            add_of(DataType::Bf16, Layout::from_host_names(&[0, 1, 1, 2, 0]), 23, 2);
        }
        let mut add = |layout, count, root| add_of(DataType::F32, layout, count, root);
        for (size, count) in [(2, 9), (3, 13), (4, 17), (5, 11)] {
            add(Layout::one_host(size), count, 1);
        }
        add(Layout::one_host(3).with_channels(2), 61, 2);
        if algorithm.is_hierarchical() {
            add(Layout::from_host_names(&[0, 0, 1, 1]), 21, 0);
            add(Layout::from_host_names(&[0, 1, 1, 2, 0]), 2100, 0);
        }
    }
    worlds
}

/// All conditions under which the schedules may run.
fn conditions(schedules: &[Schedule]) -> Vec<Conditions> {
    let shares_memory = |it: &Schedule| it.needs_windows() || it.needs_staging();
    let offers: &[bool] =
        if schedules.iter().any(shares_memory) { &[false] } else { &[false, true] };
    let both = |offers: &bool| {
        [false, true].map(|in_place| Conditions { in_place, window_bytes: WINDOW, offers: *offers })
    };
    offers.iter().flat_map(both).collect()
}

fn refusal(schedules: &[Schedule]) -> Option<Flaw> {
    conditions(schedules).into_iter().find_map(|conditions| check(schedules, conditions).err())
}

/// The first failure in `runs` executions under each condition, if one fails.
fn failure(schedules: &[Schedule], runs: usize, random: &mut Random) -> Option<String> {
    for conditions in conditions(schedules) {
        for numbers in [Numbers::Exact, Numbers::Rounded] {
            let mut first = None;
            for _ in 0..runs / 2 {
                match execute(schedules, conditions, numbers, random.fork()) {
                    Err(error) => return Some(format!("{conditions:?}: {error}")),
                    Ok(bits) if first.get_or_insert_with(|| bits.clone()) != &bits => {
                        return Some(format!("{conditions:?}: bits differ from run to run"));
                    }
                    Ok(_) => {}
                }
            }
        }
    }
    None
}

#[expect(clippy::disallowed_methods, reason = "asks which run is to be repeated")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn algorithms_are_right_in_every_order() {
    worlds().par_iter().enumerate().for_each(|(index, world)| {
        let schedules = world.schedules();
        let failure = failure(&schedules, RUNS, &mut Random::new(index as u64));
        assert_eq!(failure, None, "{}, {}", world.algorithm, world.call);
        for (rank, schedule) in schedules.iter().enumerate() {
            // Taking a schedule apart and building it again, as for mutants, changes nothing.
            let again = Parts::of(schedule).build(&world.plan(rank), schedule);
            assert!(again.lanes().iter().zip(schedule.lanes()).all(|(a, b)| a.len() == b.len()));
            assert!(Parts::of(&again) == Parts::of(schedule), "{schedule}{again}");
        }
    });
}

/// The results for the mutants of a kind.
#[derive(Clone, Copy, Default)]
struct Tally {
    refused: usize,
    /// The refused mutants that failed when they were executed too.
    failed: usize,
    accepted: usize,
}

#[test]
fn accepted_mutants_never_fail() {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = number("RINGFOLD_MUTANTS_SEED").unwrap_or_else(|| now.into());
    let each = number("RINGFOLD_MUTANTS").map_or(MUTANTS, |each| usize::try_from(each).unwrap());
    println!("RINGFOLD_MUTANTS_SEED={seed}");
    let mut random = Random::new(seed);
    let worlds: Vec<(World, Random)> =
        worlds().into_iter().map(|world| (world, random.fork())).collect();
    let tallies: Vec<_> = worlds
        .into_par_iter()
        .map(|(world, mut random)| (world.algorithm, tally(&world, each, &mut random)))
        .collect();
    let mut by_kind: BTreeMap<Kind, Tally> = BTreeMap::new();
    let mut never_refused: BTreeSet<String> = BTreeSet::new();
    for (algorithm, tallies) in &tallies {
        never_refused.insert(algorithm.to_string());
        for (kind, tally) in tallies {
            let sum = by_kind.entry(*kind).or_default();
            sum.refused += tally.refused;
            sum.failed += tally.failed;
            sum.accepted += tally.accepted;
        }
    }
    for (algorithm, tallies) in &tallies {
        if tallies.values().any(|tally| tally.refused > 0) {
            never_refused.remove(&algorithm.to_string());
        }
    }
    println!("kind      mutants  refused  of these failed  accepted, never failed");
    for (kind, Tally { refused, failed, accepted }) in &by_kind {
        let all = refused + accepted;
        println!("{:8}  {all:7}  {refused:7}  {failed:15}  {accepted:8}", kind.to_string());
        assert!(*refused > 0, "no mutant of this kind was ever refused: {kind}");
    }
    assert!(never_refused.is_empty(), "nothing was refused of {never_refused:?}");
}

/// Makes `each` mutants of every kind of a world's schedules, and checks and executes them.
fn tally(world: &World, each: usize, random: &mut Random) -> BTreeMap<Kind, Tally> {
    let (schedules, size) = (world.schedules(), world.layout.size());
    let mut tallies: BTreeMap<Kind, Tally> = BTreeMap::new();
    for kind in Kind::ALL {
        for _ in 0..each {
            let rank = random.below(size);
            let mut parts = Parts::of(&schedules[rank]);
            let Some(what) = parts.change(kind, size, random) else { continue };
            let mut mutants = schedules.clone();
            mutants[rank] = parts.build(&world.plan(rank), &schedules[rank]);
            let tally = tallies.entry(kind).or_default();
            match refusal(&mutants) {
                Some(_) => {
                    tally.refused += 1;
                    tally.failed += usize::from(failure(&mutants, RUNS_REFUSED, random).is_some());
                }
                None => {
                    tally.accepted += 1;
                    let failure = failure(&mutants, RUNS, random);
                    assert_eq!(
                        failure, None,
                        "accepted though it fails: {}, {}, {size} ranks, {kind}: {what} of\n{}\
                         is\n{}",
                        world.algorithm, world.call, schedules[rank], mutants[rank]
                    );
                }
            }
        }
    }
    tallies
}
