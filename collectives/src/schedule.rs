//! A collective as data: everything that one rank does in one call.
//!
//! The steps of a lane happen in order, except that a send is only *posted*: the lane goes on while
//! the bytes leave. It stalls if a later step would overwrite bytes that have not left yet. Lanes
//! are independent of each other.
//!
//! *Windows* are buffers that every rank has mapped. In windows a step may also use another rank's
//! memory: read it in place (`Source::Peer`) or store into it (`Step::Put`). Such steps do not
//! wait. Messages order them: a rank that has received a message sees all that its sender did
//! before. So two ranks exchange tokens (elements of scratch) between conflicting accesses, and
//! more ranks signal each other (`Step::Signal`). `check` proves that no conflict is left.
//!
//! Calls on ordinary buffers can do the same through *staging buffers*, memory that the
//! communicator keeps and every rank has mapped. A rank copies elements for others there, and they
//! read them (`Source::Peer`, `Step::Get`). The memory is the same from call to call. So a schedule
//! leaves one half of it quiet, and says if that is the other half than before: see
//! `limits::STAGING_HALF_BYTES`. Two ranks may swap staging buffers instead (`Step::Swap`).
//!
//! An element on the wire has one of two forms: that of the call's data type (sent from `Input`,
//! `Output` or `Rounded`) or that of its accumulator (sent from `Scratch`). Collectives that do not
//! reduce have no accumulator, and their scratch holds elements.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_topology::Order;
use ringfold_types::limits::{CHANNELS_MAX, SOURCES_MAX, STEPS_MAX};
use ringfold_types::{Buffer, Call, Rank, Slice};

use crate::blocks::Blocks;
use crate::group::Group;
use crate::plan::ScheduleParams;

pub use crate::form::Form;

/// The place from which a reduction takes elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// This rank's memory. The slice is either exactly the destination, or disjoint from it.
    Local(Slice),
    /// The next elements to arrive from a rank, which sends them in this form.
    Wire(Rank, Form),
    /// The input or output of another rank in windows, or its staging buffer, read in place.
    Peer(Rank, Slice),
}

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Posts `src` to be sent.
    Send {
        /// The receiving rank.
        to: Rank,
        /// The elements to send. They must not change until they have left.
        src: Slice,
    },
    /// Waits for elements and stores them in `dst`, in the form in which they were sent.
    Recv {
        /// The sending rank.
        from: Rank,
        /// The place for the elements.
        dst: Slice,
    },
    /// Copies elements of one form.
    Copy {
        /// The elements to copy.
        src: Slice,
        /// The place of the copy, of the same length.
        dst: Slice,
    },
    /// Combines elements of all sources, in their order, into `dst`. In `Scratch` the results stay
    /// accumulators. In `Rounded` they are rounded to the call's data type. Elsewhere they are
    /// finished: averages are divided, and then rounded. A single source only changes its form.
    Reduce {
        /// The place of the results.
        dst: Slice,
        /// Indices for `Schedule::sources`; 1 to `limits::SOURCES_MAX` of them.
        sources: Range<u32>,
    },
    /// Stores elements of this rank's output at the same place of another rank's output. Only in
    /// windows.
    Put {
        /// The other rank.
        to: Rank,
        /// The elements to store.
        src: Slice,
    },
    /// Copies elements of another rank's staging buffer.
    Get {
        /// The other rank.
        from: Rank,
        /// The elements in its staging buffer.
        src: Slice,
        /// The place of the copy, of the same length and form.
        dst: Slice,
    },
    /// Signals all other ranks at once. A rank that has seen the signal sees all that this rank did
    /// before. Each rank waits for each signal once (`Hear`).
    Signal,
    /// Waits for the next signal of a rank.
    Wait {
        /// The signalling rank.
        from: Rank,
    },
    /// Hands over `src` as the next chunk of the lane's group (`ringfold_innetwork::Group`), whose
    /// provider combines the chunks of all members. The lane goes on. It stalls where a later step
    /// uses `dst`, until the result is there, and where the group's window is full.
    Offload {
        /// This member's elements.
        src: Slice,
        /// The place of the result; empty at members that get none.
        dst: Slice,
    },
    /// Swaps the staging buffers of two ranks: from here on each uses the other's as its own. The
    /// step does not wait, because the other rank swaps at its own time.
    Swap,
}

/// The members' own steps for one chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Relayed {
    /// The steps where the chunk would be handed over.
    pub(crate) begun: Vec<Step>,
    /// The steps where its result would be taken.
    pub(crate) ended: Vec<Step>,
}

/// Everything that one rank does in one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    call: Call,
    /// The blocks of the ranks, if their lengths may differ.
    blocks: Option<Blocks>,
    rank: Rank,
    size: usize,
    algorithm: &'static str,
    lanes: Vec<Vec<Step>>,
    sources: Vec<Source>,
    scratch_len: usize,
    rounded_len: usize,
    needs_windows: bool,
    needs_staging: bool,
    flips_staging: bool,
    swaps_staging: bool,
    /// By lane, the group to which it hands over chunks.
    groups: Vec<Option<Group>>,
    /// By lane, the members' own steps for each chunk.
    relayed: Vec<Vec<Relayed>>,
}

impl Schedule {
    /// The call that the schedule performs.
    #[must_use]
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The blocks of the ranks, if their lengths may differ. Their places are those in this rank's
    /// buffers.
    #[must_use]
    pub const fn blocks(&self) -> Option<&Blocks> {
        self.blocks.as_ref()
    }

    /// The same schedule of a call on these blocks.
    pub(crate) fn in_blocks(self, blocks: &Blocks) -> Self {
        Self { blocks: Some(blocks.clone()), ..self }
    }

    /// The same schedule by the algorithm of this name.
    pub(crate) fn named(self, algorithm: &'static str) -> Self {
        Self { algorithm, ..self }
    }

    /// The rank that performs it.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Elements of this rank's input and output.
    pub(crate) fn lens(&self) -> [usize; 2] {
        let (call, rank) = (&self.call, self.rank);
        match &self.blocks {
            None => [call.input_of(rank, self.size), call.output_of(rank, self.size)],
            Some(blocks) if call.collective.reduces() => [blocks.end(), blocks.len(rank)],
            Some(blocks) => [blocks.len(rank), blocks.end()],
        }
    }

    /// The elements of the one buffer of a call in place at which this rank's input and output
    /// begin.
    pub(crate) fn in_place_at(&self) -> [usize; 2] {
        let Some(blocks) = &self.blocks else { return self.call.in_place_at(self.rank) };
        let own = blocks.slice(Buffer::Output, self.rank).offset;
        if self.call.collective.reduces() { [0, own] } else { [own, 0] }
    }

    /// Number of ranks.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The name of the algorithm, without the collective's.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The steps of each lane.
    #[must_use]
    #[inline]
    pub fn lanes(&self) -> &[Vec<Step>] {
        &self.lanes
    }

    /// The sources of a reduce step.
    ///
    /// # Panics
    /// If the range is not one of this schedule's steps'.
    #[must_use]
    #[inline]
    pub fn sources(&self, range: &Range<u32>) -> &[Source] {
        &self.sources[range.start as usize..range.end as usize]
    }

    /// The sources of all reduce steps, one after the other.
    pub(crate) fn all_sources(&self) -> &[Source] {
        &self.sources
    }

    /// The offset of `Output` in `Input`, in elements, when the call is in place.
    #[must_use]
    pub fn overlay(&self) -> isize {
        let [input, output] = self.in_place_at().map(usize::cast_signed);
        output - input
    }

    /// The ranks that it sends to, receives from or waits for, in rank order: this rank needs a
    /// connection to each of them.
    #[must_use]
    pub fn peers(&self) -> Vec<Rank> {
        let mut peers: Vec<Rank> = Vec::new();
        for step in self.lanes.iter().flatten() {
            match step {
                Step::Send { to, .. } => peers.push(*to),
                Step::Recv { from, .. } | Step::Wait { from } => peers.push(*from),
                Step::Reduce { sources, .. } => {
                    peers.extend(self.sources(sources).iter().filter_map(|source| match source {
                        Source::Wire(from, _) => Some(*from),
                        Source::Local(_) | Source::Peer(..) => None,
                    }));
                }
                Step::Copy { .. }
                | Step::Offload { .. }
                | Step::Put { .. }
                | Step::Get { .. }
                | Step::Swap
                | Step::Signal => {}
            }
        }
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Whether a step uses another rank's windows.
    #[must_use]
    pub const fn needs_windows(&self) -> bool {
        self.needs_windows
    }

    /// Whether a step uses another rank's staging buffer.
    #[must_use]
    pub const fn needs_staging(&self) -> bool {
        self.needs_staging
    }

    /// Whether the halves of the staging buffer swap places after the call.
    #[must_use]
    pub const fn flips_staging(&self) -> bool {
        self.flips_staging
    }

    /// Whether two ranks swap staging buffers, so that a rank next writes to the one that it has
    /// read.
    #[must_use]
    pub const fn swaps_staging(&self) -> bool {
        self.swaps_staging
    }

    /// The group to which a lane hands over chunks.
    #[must_use]
    pub fn group(&self, lane: usize) -> Option<&Group> {
        self.groups[lane].as_ref()
    }

    /// Whether a rank with this schedule may hand over chunks.
    #[must_use]
    pub fn offloads(&self) -> bool {
        self.groups.iter().any(Option::is_some)
    }

    /// The members' own steps that replace the lane's chunks, in the order of the chunks.
    pub(crate) fn relayed(&self, lane: usize) -> &[Relayed] {
        &self.relayed[lane]
    }

    /// Number of steps of all lanes, with those that replace the lanes' chunks.
    #[must_use]
    pub fn steps(&self) -> usize {
        let relayed = self.relayed.iter().flatten();
        let relayed = relayed.map(|chunk| chunk.begun.len() + chunk.ended.len());
        self.lanes.iter().map(Vec::len).chain(relayed).sum()
    }

    /// Elements of scratch that the steps use.
    #[must_use]
    pub const fn scratch_len(&self) -> usize {
        self.scratch_len
    }

    /// Elements of rounded partial results that the steps use.
    #[must_use]
    pub const fn rounded_len(&self) -> usize {
        self.rounded_len
    }
}

/// Writes a schedule step by step. Steps over empty slices are left out, so algorithms need no
/// special case for counts below the number of ranks.
#[derive(Debug)]
pub struct Builder {
    schedule: Schedule,
    lane: usize,
    /// By lane, the scratch for partial results of reductions with many sources. They run one after
    /// the other, so one place serves them all.
    partials: Vec<Slice>,
    /// The ranks that are named by their place here. If it is empty, all ranks have their own
    /// numbers.
    group: Vec<Rank>,
    /// Whether the next step begins a part: it is not merged with the step before.
    begins_part: bool,
}

impl Builder {
    /// An empty schedule of `lanes` lanes, written to lane 0 first.
    ///
    /// # Panics
    /// If `lanes` is 0 or beyond `limits::CHANNELS_MAX`.
    #[must_use]
    pub fn new(plan: &ScheduleParams<'_>, algorithm: &'static str, lanes: usize) -> Self {
        assert!((1..=CHANNELS_MAX.into()).contains(&lanes), "1 to {CHANNELS_MAX} lanes");
        let schedule = Schedule {
            call: plan.call,
            blocks: None,
            rank: plan.rank,
            size: plan.size(),
            algorithm,
            lanes: alloc::vec![Vec::new(); lanes],
            sources: Vec::new(),
            scratch_len: 0,
            rounded_len: 0,
            needs_windows: false,
            needs_staging: false,
            flips_staging: false,
            swaps_staging: false,
            groups: alloc::vec![None; lanes],
            relayed: alloc::vec![Vec::new(); lanes],
        };
        let nothing = Slice::new(Buffer::Scratch, 0, 0);
        let partials = alloc::vec![nothing; lanes];
        Self { schedule, lane: 0, partials, group: Vec::new(), begins_part: false }
    }

    /// Writes to `lane` from now on.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn lane(&mut self, lane: usize) -> &mut Self {
        assert!(lane < self.schedule.lanes.len(), "no such lane");
        self.lane = lane;
        self
    }

    /// Begins a part of the schedule. Messages of different parts are not merged, even between the
    /// same ranks.
    pub fn part(&mut self) {
        self.begins_part = true;
    }

    /// From now on, every rank is named by its place in `order`.
    #[must_use]
    pub fn in_order(self, order: &Order) -> Self {
        Self { group: order.ranks().to_vec(), ..self }
    }

    /// Within `write`, a rank of `group` is named by its place there. So an algorithm for all ranks
    /// can write steps for a group.
    pub fn among(&mut self, group: &[Rank], write: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.group, group.to_vec());
        write(self);
        self.group = outer;
    }

    /// The number of the rank that is named `rank` now.
    fn number(&self, rank: Rank) -> Rank {
        if self.group.is_empty() { rank } else { self.group[rank.index()] }
    }

    /// Reserves `len` elements of scratch.
    pub fn scratch(&mut self, len: usize) -> Slice {
        let slice = Slice::new(Buffer::Scratch, self.schedule.scratch_len, len);
        self.schedule.scratch_len += len;
        slice
    }

    /// Reserves `len` elements for partial results, which the rank then sends in `form`.
    pub fn sums(&mut self, len: usize, form: Form) -> Slice {
        if form == Form::Accumulator {
            return self.scratch(len);
        }
        self.elements(len)
    }

    /// Reserves `len` elements in the call's data type, which the rank sends as its input.
    pub fn elements(&mut self, len: usize) -> Slice {
        let slice = Slice::new(Buffer::Rounded, self.schedule.rounded_len, len);
        self.schedule.rounded_len += len;
        slice
    }

    /// Posts a send of `src` to `to`.
    pub fn send(&mut self, to: Rank, src: Slice) {
        if src.len > 0 {
            let to = self.number(to);
            self.push(Step::Send { to, src });
        }
    }

    /// Waits for elements from `from`.
    pub fn recv(&mut self, from: Rank, dst: Slice) {
        if dst.len > 0 {
            let from = self.number(from);
            self.push(Step::Recv { from, dst });
        }
    }

    /// Copies `src` to `dst`.
    pub fn copy(&mut self, src: Slice, dst: Slice) {
        debug_assert_eq!(src.len, dst.len, "a copy keeps its length");
        if dst.len > 0 {
            self.push(Step::Copy { src, dst });
        }
    }

    /// Copies slices of one buffer or several to `dst`, one after the other. Adjacent ones take
    /// one step. Returns the part of `dst` that they fill.
    pub(crate) fn pack(&mut self, slices: impl IntoIterator<Item = Slice>, dst: Slice) -> Slice {
        let mut end = 0;
        let mut run: Option<Slice> = None;
        let mut flush = |run: Option<Slice>| {
            if let Some(run) = run {
                self.copy(run, dst.skip(end).take(run.len));
                end += run.len;
            }
        };
        for slice in slices {
            match &mut run {
                Some(run) if run.buffer == slice.buffer && run.end() == slice.offset => {
                    run.len += slice.len;
                }
                _ => flush(run.replace(slice)),
            }
        }
        flush(run);
        dst.take(end)
    }

    /// Stores `src` into the output of `to`, at the same place.
    pub fn put(&mut self, to: Rank, src: Slice) {
        if src.len > 0 {
            self.schedule.needs_windows = true;
            let to = self.number(to);
            self.push(Step::Put { to, src });
        }
    }

    /// Copies `src` of the staging buffer of `from` to `dst`.
    pub fn get(&mut self, from: Rank, src: Slice, dst: Slice) {
        debug_assert_eq!(src.len, dst.len, "a copy keeps its length");
        if dst.len > 0 {
            self.schedule.needs_staging = true;
            let from = self.number(from);
            self.push(Step::Get { from, src, dst });
        }
    }

    /// Swaps the halves of the staging buffer after the call. All ranks must do so, or none.
    pub fn flip_staging(&mut self) {
        self.schedule.flips_staging = true;
    }

    /// Swaps the staging buffers of two ranks.
    pub fn swap_staging(&mut self) {
        (self.schedule.needs_staging, self.schedule.swaps_staging) = (true, true);
        self.push(Step::Swap);
    }

    /// Sets the groups to which the lanes hand over chunks: those of another schedule of this rank.
    pub fn groups_of(&mut self, other: &Schedule) {
        self.schedule.groups.clone_from(&other.groups);
    }

    /// Sets the group to which this lane hands over chunks.
    pub(crate) fn group(&mut self, group: Group) {
        self.schedule.groups[self.lane] = Some(group);
    }

    /// The group of this lane, and the number of its next chunk.
    pub(crate) fn next_chunk(&self) -> (Option<&Group>, usize) {
        let Schedule { groups, relayed, .. } = &self.schedule;
        (groups[self.lane].as_ref(), relayed[self.lane].len())
    }

    /// Hands over `src` as the next chunk of this lane's group, with its result in `dst`. Without a
    /// provider the members perform the steps `relayed`.
    pub(crate) fn hand_over(&mut self, src: Slice, dst: Slice, relayed: Relayed) {
        self.schedule.relayed[self.lane].push(relayed);
        self.push(Step::Offload { src, dst });
    }

    /// The steps that `write` adds to this lane. They name ranks by their numbers.
    pub(crate) fn apart(&mut self, write: impl FnOnce(&mut Self)) -> Vec<Step> {
        let lane = self.lane;
        let outer = core::mem::take(&mut self.schedule.lanes[lane]);
        let names = core::mem::take(&mut self.group);
        write(self);
        self.group = names;
        core::mem::replace(&mut self.schedule.lanes[lane], outer)
    }

    /// Signals all other ranks.
    pub fn signal(&mut self) {
        self.push(Step::Signal);
    }

    /// Waits for the next signal of `from`.
    pub fn wait(&mut self, from: Rank) {
        self.push(Step::Wait { from });
    }

    /// Combines `sources`, in order, into `dst`. More sources than one step takes are combined in
    /// several, by way of scratch.
    ///
    /// # Panics
    /// If there is no source.
    pub fn reduce(&mut self, dst: Slice, sources: &[Source]) {
        assert!(!sources.is_empty(), "a reduction needs a source");
        if dst.len == 0 {
            return;
        }
        let Some((first, rest)) =
            sources.split_at_checked(SOURCES_MAX).filter(|(_, r)| !r.is_empty())
        else {
            return self.push_reduce(dst, sources.iter().copied());
        };
        if self.partials[self.lane].len < dst.len {
            self.partials[self.lane] = self.scratch(dst.len);
        }
        let partial = self.partials[self.lane].take(dst.len);
        self.push_reduce(partial, first.iter().copied());
        let mut groups = rest.chunks(SOURCES_MAX - 1).peekable();
        while let Some(group) = groups.next() {
            let dst = if groups.peek().is_some() { partial } else { dst };
            let before = core::iter::once(Source::Local(partial));
            self.push_reduce(dst, before.chain(group.iter().copied()));
        }
    }

    /// The finished schedule.
    #[must_use]
    pub fn build(self) -> Schedule {
        self.schedule
    }

    fn push_reduce(&mut self, dst: Slice, sources: impl Iterator<Item = Source>) {
        let start = self.schedule.sources.len();
        for source in sources {
            self.schedule.sources.push(match source {
                Source::Wire(from, form) => Source::Wire(self.number(from), form),
                Source::Peer(of, slice) => Source::Peer(self.number(of), slice),
                Source::Local(slice) => Source::Local(slice),
            });
        }
        let end = self.schedule.sources.len();
        for source in &self.schedule.sources[start..] {
            if let Source::Peer(_, slice) = source {
                let is_staged = slice.buffer == Buffer::Staging;
                self.schedule.needs_staging |= is_staged;
                self.schedule.needs_windows |= !is_staged;
            }
        }
        let index = |at| u32::try_from(at).unwrap_or(u32::MAX);
        self.push(Step::Reduce { dst, sources: index(start)..index(end) });
    }

    /// Appends a step. A message right after another between the same ranks, with adjacent
    /// elements, is merged with it: no rank waits for the first part alone.
    fn push(&mut self, step: Step) {
        let lane = &mut self.schedule.lanes[self.lane];
        let last = if core::mem::take(&mut self.begins_part) { None } else { lane.last_mut() };
        match (last, &step) {
            (Some(Step::Send { to, src }), Step::Send { to: again, src: more })
            | (Some(Step::Recv { from: to, dst: src }), Step::Recv { from: again, dst: more })
                if to == again && src.buffer == more.buffer && src.end() == more.offset =>
            {
                src.len += more.len;
                return;
            }
            _ => {}
        }
        debug_assert!(lane.len() < STEPS_MAX, "chunks must grow with the count");
        lane.push(step);
    }
}
