//! Hierarchical: every host sums the inputs of its ranks, and sends only these sums to others.
//!
//! 1. The blocks of a host are divided among its carriers (`hosts::strands`). On each host the
//!    carrier of a shard combines the inputs of all ranks there, for the strands of all hosts.
//! 2. The carriers of a shard, one on each host, sum every strand on the way to its host. For long
//!    blocks they use a ring in fabric order, and the ranks of a host send their inputs for each
//!    strand one turn ahead. For short blocks they use recursive halving, and one carrier may sum
//!    all blocks.
//! 3. A carrier sends the results of ranks that carry nothing to these ranks.
//!
//! So every host sends as much as a single rank would, however many ranks it has. Each block is
//! summed in the order of its way. In a turn of the ring a rank waits only for messages of the same
//! or an earlier turn. It also waits for its sums of two turns ago to leave.
//!
//! The costs are those of h hosts of k ranks each, with s carriers. Steps: those of step 2 on h
//! ranks, 1 more for step 1, and 1 more for step 3 if s is less than k. Sent by a carrier: (h-1)k/s
//! blocks to other hosts and (s-1)hk/s blocks within its host. Pipelined in chunks.
//!
//! Source: the reduce-scatter of Cho, Finkler and Kung, "BlueConnect: Novel hierarchical all-reduce
//! on multi-tired network for deep learning", 2019.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, Rank, Slice};

use super::{direct, halving, ring};
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::chunk::{chunks, part};
use crate::cost::bill::Bill;
use crate::hosts::strands::{self, Strands, block_of, common, cut, lens, ways};
use crate::hosts::{CARRIERS_MAX, Hierarchy, Hosts, Rail, Spread, Team, is_ahead, runs_together};
use crate::pattern::halves::{halvings, longest_chain};
use crate::schedule::{Builder, Form, Schedule, Source};
use crate::wire::between_hosts;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    collective: Collective::ReduceScatter,
    name: "hierarchical",
    needs: Needs::Links,
    pattern: Pattern::Levels(|call, layout, chunk| HIERARCHY.price(call, layout, chunk)),
    schedule: |plan| HIERARCHY.schedule(plan),
    stated: |call, layout| HIERARCHY.stated(call, layout),
    moved: Moved::sums,
    stays_on_rail: |call, layout| HIERARCHY.stays_on_rail(call, layout),
};

pub(crate) const HIERARCHY: Hierarchy = Hierarchy {
    ways: |layout| ways(layout, CARRIERS_MAX),
    bill,
    stated: stated_by,
    schedule: schedule_by,
    on_one_host: &direct::ALGORITHM,
};

/// Chunks of a run that go around together.
const IN_FLIGHT: usize = 4;

/// The cost of the busiest rank on the fullest host. It is an upper bound where hosts differ in
/// size.
fn stated_by(call: &Call, layout: &Layout, &Spread { shards, rail }: &Spread) -> Stated {
    let (hosts, (_, most)) = (layout.hosts(), layout.ranks_per_host());
    let [strand, all] = lens(call.count, layout, shards);
    let within = usize::from(most > 1);
    let handed_back = if most > shards { 1 } else { 0 };
    let steps = match rail {
        Rail::Ring => {
            // Runs of a strand, at most.
            let batches = (1 + most - shards).div_ceil(together(layout, shards));
            (hosts * batches * within).max(hosts - 1)
        }
        // Ranks only send to the single carrier.
        _ if shards == 1 => within + longest_chain(hosts),
        _ => {
            let strands = Strands::new(&Hosts::new(layout, shards), Buffer::Input, call.count);
            let runs = (0..shards).map(|shard| strands.packed(shard).len()).max().unwrap_or(0);
            within * runs.div_ceil(runs_together(most)) + longest_chain(hosts)
        }
    };
    let results = (most - shards) * call.count.div_ceil(shards);
    let of_carrier = (shards - 1) * all + (hosts - 1) * strand + results;
    let of_other = if most > shards { shards * all } else { 0 };
    Stated { steps: steps + handed_back, sent: of_carrier.max(of_other) }
}

fn bill(call: &Call, layout: &Layout, spread: &Spread, chunk: usize) -> Bill {
    let (_, most) = layout.ranks_per_host();
    let within = [usize::from(most > 1) + usize::from(most > spread.shards), most];
    let between = [&halving::ALGORITHM, &ring::ALGORITHM];
    strands::bill(between, call, layout, spread, chunk, within)
}

/// Runs of a strand that a rank sends its carriers together.
fn together(layout: &Layout, shards: usize) -> usize {
    let (_, most) = layout.ranks_per_host();
    runs_together(if is_ahead(shards) { 2 * most } else { most })
}

/// The form of the first elements that a carrier sends around: its bare input if it is alone on
/// the host at `place`.
fn first_form(call: &Call, hosts: &Hosts<'_>, place: usize) -> Form {
    if hosts.team(place).len() == 1 { Form::Element } else { between_hosts(call) }
}

fn schedule_by(plan: &ScheduleParams<'_>, spread: &Spread) -> Schedule {
    let hosts = Hosts::new(plan.layout, spread.shards);
    let strands = Strands::new(&hosts, Buffer::Input, plan.call.count);
    let place = hosts.place(plan.rank);
    let team = Team::new(hosts.team(place), plan.rank);
    let member = Member { plan, hosts, strands, place, team };
    match spread.rail {
        Rail::Ring => member.around(),
        _ => member.exchange(),
    }
}

/// One rank, on the host at `place`.
struct Member<'a> {
    plan: &'a ScheduleParams<'a>,
    hosts: Hosts<'a>,
    strands: Strands,
    place: usize,
    team: Team,
}

/// Some runs of the strands of one host, in one turn of a round.
#[derive(Clone, Copy)]
struct Batch {
    lane: usize,
    round: usize,
    /// Turns until the strands end at this rank's host.
    turn: usize,
    /// The host of the strands.
    host: usize,
    first_run: usize,
}

impl Member<'_> {
    fn is_carrier(&self) -> bool {
        self.team.place < self.hosts.shards
    }

    /// Sends the carriers this rank's inputs for their parts.
    fn give<Parts: Iterator<Item = Slice>>(
        &self,
        steps: &mut Builder,
        parts: impl Fn(usize) -> Parts,
    ) {
        steps.part();
        // Each rank begins with a different receiver.
        let (shards, me) = (self.hosts.shards, self.team.place);
        for shard in (0..shards).map(|at| (me + 1 + at) % shards).filter(|shard| *shard != me) {
            parts(shard).for_each(|part| steps.send(self.team.ranks[shard], part));
        }
        steps.part();
    }

    /// The inputs of all ranks of this host, in the order of the team.
    fn inputs(&self, own: Slice) -> impl Iterator<Item = Source> {
        self.team.ranks.iter().map(move |rank| match *rank {
            rank if rank == self.plan.rank => Source::Local(own),
            rank => Source::Wire(rank, Form::Element),
        })
    }

    /// The parts of a run of this host's strand, with the place in the team of the rank that each
    /// belongs to.
    fn owned(&self, run: Slice) -> Vec<(usize, Slice)> {
        let (shards, count) = (self.hosts.shards, self.plan.call.count);
        let block = |at: usize| block_of(Buffer::Input, self.team.ranks[at], count);
        let of = |at: usize| (at, common(cut(block(at), shards, at, self.team.place), run));
        let mut parts: Vec<(usize, Slice)> = (0..self.team.size()).map(of).collect();
        parts.retain(|(_, part)| part.len > 0);
        parts.sort_unstable_by_key(|(_, part)| part.offset);
        parts
    }

    /// The place of the results for elements of this rank's block.
    fn output(&self, own: Slice) -> Slice {
        let start = self.plan.rank.index() * self.plan.call.count;
        Slice::new(Buffer::Output, own.offset - start, own.len)
    }

    /// Receives from the carriers the results of this rank, as far as they are in their parts.
    fn take_results<Parts: Iterator<Item = Slice>>(
        &self,
        steps: &mut Builder,
        parts: impl Fn(usize) -> Parts,
    ) {
        let (shards, count) = (self.hosts.shards, self.plan.call.count);
        let block = block_of(Buffer::Input, self.plan.rank, count);
        for shard in 0..shards {
            let own = cut(block, shards, self.team.place, shard);
            let source = Source::Wire(self.team.ranks[shard], Form::Accumulator);
            for part in parts(shard).map(|part| common(part, own)) {
                if part.len > 0 {
                    steps.reduce(self.output(part), &[source]);
                }
            }
        }
    }

    fn around(&self) -> Schedule {
        let Self { plan, hosts, strands, place, team } = self;
        let (size, shards) = (hosts.count(), hosts.shards);
        let round = strands.longest().clamp(1, IN_FLIGHT * plan.chunk);
        let rounds = strands.longest().div_ceil(round);
        let lanes = plan.lanes(rounds);
        let together = together(plan.layout, shards);
        let mut steps = Builder::new(plan, ALGORITHM.name, lanes);
        // One turn's partial sums leave while the next turn's arrive. Results of other ranks are
        // apart from them.
        let runs = (0..size).map(|host| strands.most_runs(host)).max().unwrap_or(0);
        let [partial, results] = [size > 1, team.size() > shards]
            .map(|is_used| if is_used && self.is_carrier() { runs * round } else { 0 });
        let form = between_hosts(&plan.call);
        let mut sums =
            || [steps.sums(partial, form), steps.sums(partial, form), steps.scratch(results)];
        let sums: Vec<[Slice; 3]> = (0..lanes).map(|_| sums()).collect();
        let mut batches = Vec::new();
        for index in 0..rounds {
            for turn in (1..size).chain([0]) {
                let host = (place + size - turn) % size;
                let lane = index % lanes;
                let batch = |first_run| Batch { lane, round: index, turn, host, first_run };
                batches.extend((0..strands.most_runs(host)).step_by(together).map(batch));
            }
        }
        let parts = |batch: Batch, shard: usize| {
            let runs = strands.runs(batch.host, shard).iter();
            let runs = runs.skip(batch.first_run).take(together);
            runs.map(move |run| part(*run, batch.round, round))
        };
        for lane in 0..lanes {
            let own: Vec<Batch> = batches.iter().filter(|it| it.lane == lane).copied().collect();
            let steps = steps.lane(lane);
            let ahead = usize::from(is_ahead(shards));
            let give = |steps: &mut Builder, batches: &[Batch]| {
                for batch in batches {
                    self.give(steps, |shard| parts(*batch, shard));
                }
            };
            give(steps, &own[..ahead.min(own.len())]);
            for (at, batch) in own.iter().enumerate() {
                give(steps, own.get(at + ahead..=at + ahead).unwrap_or_default());
                if self.is_carrier() {
                    let sums = sums[lane][if batch.turn == 0 { 2 } else { batch.turn % 2 }];
                    let runs = parts(*batch, team.place).enumerate();
                    for (run, own) in runs.filter(|(_, own)| own.len > 0) {
                        self.turn(steps, batch.turn, own, (batch.first_run + run) * round, sums);
                    }
                } else if batch.turn == 0 {
                    self.take_results(steps, |shard| parts(*batch, shard));
                }
            }
        }
        steps.build()
    }

    /// Adds the inputs of this host for a run to the sums of the previous host. The place of the
    /// run in `sums` is `at`.
    fn turn(&self, steps: &mut Builder, turn: usize, own: Slice, at: usize, sums: Slice) {
        let Self { plan, hosts, place, team, .. } = self;
        let (size, rail) = (hosts.count(), hosts.rail(team.place));
        let previous_place = (place + size - 1) % size;
        let (next, previous) = (rail[(place + 1) % size], rail[previous_place]);
        let coming = (turn != 1 && size > 1).then(|| {
            // Only the first sender may send its bare input.
            let is_first = turn == 2 || size == 2;
            let sums = between_hosts(&plan.call);
            let form = if is_first { first_form(&plan.call, hosts, previous_place) } else { sums };
            Source::Wire(previous, form)
        });
        if turn == 1 && team.size() == 1 {
            return chunks(own, plan.chunk).for_each(|own| steps.send(next, own));
        }
        if turn > 0 {
            let sum = sums.skip(at).take(own.len);
            for (own, sum) in chunks(own, plan.chunk).zip(chunks(sum, plan.chunk)) {
                steps.reduce(sum, &coming.into_iter().chain(self.inputs(own)).collect::<Vec<_>>());
                steps.send(next, sum);
            }
            return;
        }
        let results = if sums.len > 0 { sums.skip(at) } else { sums };
        self.finish(steps, own, results, |steps, own, result| {
            for (own, result) in chunks(own, plan.chunk).zip(chunks(result, plan.chunk)) {
                let sources = coming.into_iter().chain(self.inputs(own));
                steps.reduce(result, &sources.collect::<Vec<_>>());
            }
        });
    }

    /// Writes the results of a run of this host's strand by `reduce`, from elements to their place,
    /// and sends results of other ranks to these. They are at the front of `results` until then.
    fn finish(
        &self,
        steps: &mut Builder,
        run: Slice,
        results: Slice,
        reduce: impl Fn(&mut Builder, Slice, Slice),
    ) {
        for (at, part) in self.owned(run) {
            if at == self.team.place {
                reduce(steps, part, self.output(part));
            } else {
                let result = results.skip(part.offset - run.offset).take(part.len);
                reduce(steps, part, result);
                steps.send(self.team.ranks[at], result);
            }
        }
    }

    /// The carriers halve sums in scratch, where strands are in the order of their hosts.
    fn exchange(&self) -> Schedule {
        let Self { plan, hosts, strands, place, team } = self;
        let (size, shards, me) = (hosts.count(), hosts.shards, team.place);
        let together = runs_together(plan.layout.ranks_per_host().1);
        let packed: Vec<Vec<Slice>> = (0..shards).map(|shard| strands.packed(shard)).collect();
        let runs = packed.iter().map(Vec::len).max().unwrap_or(0);
        let mut steps = Builder::new(plan, ALGORITHM.name, 1);
        let form = between_hosts(&plan.call);
        let sums = steps.sums(if me < shards { strands.of_shard(me).1 } else { 0 }, form);
        let is_handed_back = me < shards && team.size() > shards;
        let mut results = steps.scratch(if is_handed_back { strands.len(*place, me) } else { 0 });
        let mut rest = sums;
        for first in (0..runs).step_by(together) {
            let parts = |shard: usize| packed[shard].iter().skip(first).take(together).copied();
            self.give(&mut steps, parts);
            for run in (me < shards).then(|| parts(me)).into_iter().flatten() {
                for own in chunks(run, plan.chunk) {
                    let sum = rest.take(own.len);
                    rest = rest.skip(own.len);
                    steps.reduce(sum, &self.inputs(own).collect::<Vec<_>>());
                }
            }
        }
        if me >= shards {
            self.take_results(&mut steps, |shard| strands.runs(*place, shard).iter().copied());
            return steps.build();
        }
        let lens: Vec<usize> = (0..size).map(|host| strands.len(host, me)).collect();
        let sums_of = |hosts: Range<usize>| {
            let start = lens[..hosts.start].iter().sum();
            sums.skip(start).take(lens[hosts].iter().sum())
        };
        let rail = hosts.rail(me);
        for halving in halvings(Rank::at(*place), size) {
            let taker = rail[halving.taker.index()];
            steps.send(taker, sums_of(halving.other.clone()));
            let givers = halving.givers().map(|giver| rail[giver.index()]);
            let wires: Vec<Source> = givers.map(|giver| Source::Wire(giver, form)).collect();
            let reduce = |steps: &mut Builder, sum: Slice, result: Slice| {
                let sources = core::iter::once(Source::Local(sum)).chain(wires.iter().copied());
                steps.reduce(result, &sources.collect::<Vec<_>>());
            };
            let mut own = sums_of(halving.own.clone());
            match halving.own.len() {
                _ if wires.is_empty() => {}
                1 => {
                    for run in strands.runs(*place, me) {
                        let sum = own.take(run.len);
                        own = own.skip(run.len);
                        self.finish(&mut steps, *run, results, |steps, part, result| {
                            let at = part.offset - run.offset;
                            reduce(steps, sum.skip(at).take(part.len), result);
                        });
                        results = results.skip(run.len.min(results.len));
                    }
                }
                _ => reduce(&mut steps, own, own),
            }
        }
        steps.build()
    }
}
