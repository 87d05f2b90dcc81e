//! The schedules of all ranks of a call, and their proof.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{LazyLock, Mutex};

use ringfold_collectives::check::{Conditions, check};
use ringfold_collectives::{Algorithm, Schedule, ScheduleParams, Stated, Step};
use ringfold_topology::Layout;
use ringfold_types::{Call, Rank};

/// Ranks up to which calls have many odd counts, and links have rendezvous sends too. Larger
/// numbers of ranks have one count each.
pub(crate) const SMALL: usize = 17;

/// Elements that pipelines pass on at a time, and bytes that a link accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pipeline {
    pub(crate) chunk: usize,
    pub(crate) window_bytes: usize,
}

pub(crate) fn schedules(
    algorithm: &Algorithm,
    call: Call,
    layout: &Layout,
    Pipeline { chunk, window_bytes }: Pipeline,
) -> Vec<Schedule> {
    let plan = |rank| ScheduleParams { call, layout, rank: Rank::at(rank), chunk, window_bytes };
    (0..layout.size()).map(|rank| (algorithm.schedule)(&plan(rank))).collect()
}

/// Proves schedules in place and out of place, and also with rendezvous sends if `offers` is set
/// and ranks do not share memory. Returns the cost out of place, with the steps of the cheaper of
/// the two.
pub(crate) fn prove(
    what: &dyn Display,
    schedules: &[Schedule],
    window_bytes: usize,
    offers: bool,
) -> Stated {
    let shares_memory = schedules.iter().any(|it| it.needs_windows() || it.needs_staging());
    let mut costs = Vec::new();
    for offers in [false, true].into_iter().take(if offers && !shares_memory { 2 } else { 1 }) {
        for in_place in [false, true] {
            costs.push(proven(what, schedules, Conditions { in_place, window_bytes, offers }));
        }
    }
    assert_eq!(costs[0].sent, costs[1].sent, "{what}");
    Stated { steps: costs[0].steps.min(costs[1].steps), ..costs[0] }
}

/// The costs of all proofs so far. Equal schedules of several algorithms are proven once.
static PROVEN: LazyLock<Mutex<HashMap<u64, Stated>>> = LazyLock::new(Mutex::default);

fn proven(what: &dyn Display, schedules: &[Schedule], conditions: Conditions) -> Stated {
    let in_place = conditions.in_place && schedules[0].call().collective.works_in_place();
    let conditions = Conditions { in_place, ..conditions };
    let digest = digest(schedules, conditions);
    if let Some(cost) = PROVEN.lock().unwrap().get(&digest) {
        return *cost;
    }
    let cost = check(schedules, conditions).unwrap_or_else(|flaw| {
        let call = schedules[0].call();
        let mut text = format!("{what}, {call}, {} ranks, {conditions:?}: {flaw}", schedules.len());
        for schedule in schedules.iter().take(9) {
            text += &format!("\n{schedule}");
        }
        panic!("{text}")
    });
    PROVEN.lock().unwrap().insert(digest, cost);
    cost
}

/// A digest of all that schedules without a provider have, but for the name of their algorithm.
fn digest(schedules: &[Schedule], conditions: Conditions) -> u64 {
    let mut digest = DefaultHasher::new();
    let Conditions { in_place, window_bytes, offers } = conditions;
    (in_place, window_bytes, offers, schedules.len()).hash(&mut digest);
    for it in schedules {
        assert!(!it.offloads(), "a provider's steps are not in the digest");
        (it.call(), it.blocks(), it.rank(), it.lanes()).hash(&mut digest);
        (it.scratch_len(), it.rounded_len()).hash(&mut digest);
        (it.flips_staging(), it.swaps_staging()).hash(&mut digest);
        for step in it.lanes().iter().flatten() {
            if let Step::Reduce { sources, .. } = step {
                it.sources(sources).hash(&mut digest);
            }
        }
    }
    digest.finish()
}
