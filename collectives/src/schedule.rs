//! A collective as data: what one rank does in one call.
//!
//! Steps of a lane happen in order, except that a send is only *posted*: the lane goes on while the
//! bytes leave, and stalls when a later step would overwrite what has not left yet. Lanes are
//! independent of each other.
//!
//! Where the buffers of all ranks are *windows*, memory that every rank has mapped, a step may also
//! reach into another rank's: read it in place (`Source::Peer`) or store into it (`Step::Put`).
//! Such steps wait for nobody. What orders them is messages: a rank that has received what another
//! sent sees all that the other did before. So two ranks send tokens (elements of scratch) around
//! what must not meet, more tell each other at once (`Step::Tell`), and `check` proves that nothing
//! does.
//!
//! Calls on ordinary buffers can do the same by way of the *stage*, memory that the communicator
//! keeps and every rank has mapped: a rank copies there what others need, and they read it
//! (`Source::Peer`, `Step::Get`). It is the same from call to call, so a schedule leaves one half
//! of it quiet, and says if that is the other one: see `limits::STAGE_HALF_BYTES`. Two ranks may
//! trade stages instead (`Step::Trade`).
//!
//! An element on the wire has one of two forms: that of the call's data type (sent from `Input` or
//! `Output`) or that of its accumulator (sent from `Scratch`). Collectives that do not reduce have
//! no accumulator; their scratch holds elements.

use alloc::vec::Vec;
use core::ops::Range;

use ringfold_topology::Order;
use ringfold_types::limits::{LANES_MAX, SOURCES_MAX, STEPS_MAX};
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, Slice};

use crate::algorithm::Plan;

/// How an element is represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// In the call's data type.
    Element,
    /// In the data type's accumulator.
    Accumulator,
}

impl Form {
    /// The form of the elements of `buffer`.
    #[must_use]
    pub const fn of(buffer: Buffer) -> Self {
        match buffer {
            Buffer::Input | Buffer::Output | Buffer::Stage => Self::Element,
            Buffer::Scratch => Self::Accumulator,
        }
    }

    /// The type that elements of this form have in `call`.
    #[must_use]
    pub const fn data_type(self, call: &Call) -> DataType {
        match self {
            Self::Accumulator if call.collective.reduces() => call.data_type.accumulator(),
            _ => call.data_type,
        }
    }
}

/// Where a reduction takes elements from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// This rank's memory. Either exactly the destination, or disjoint from it.
    Local(Slice),
    /// The next elements to arrive from a rank, which sends them in this form.
    Wire(Rank, Form),
    /// The input or output of another rank in windows, or its stage, read where it lies.
    Peer(Rank, Slice),
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Post `src` to be sent.
    Send {
        /// The receiving rank.
        to: Rank,
        /// What is sent; unchanged until it has left.
        src: Slice,
    },
    /// Wait for elements and put them into `dst`, in whose form they were sent.
    Recv {
        /// The sending rank.
        from: Rank,
        /// Where they go.
        dst: Slice,
    },
    /// Copy elements of the same form.
    Copy {
        /// From here,
        src: Slice,
        /// to here, of the same length.
        dst: Slice,
    },
    /// Combine elements of all sources, in their order, into `dst`. Results are finished (average
    /// divided, accumulator rounded) if `dst` is not in `Scratch`. One source is a change of form.
    Reduce {
        /// Where the results go.
        dst: Slice,
        /// Indices for `Schedule::sources`; 1 to `limits::SOURCES_MAX` of them.
        sources: Range<u32>,
    },
    /// Store elements of this rank's output into another rank's. Only in windows.
    Put {
        /// Whose output.
        to: Rank,
        /// What is stored, at the same place there.
        src: Slice,
    },
    /// Copy elements of another rank's stage.
    Get {
        /// Whose stage.
        from: Rank,
        /// From here,
        src: Slice,
        /// to here, of the same length and form.
        dst: Slice,
    },
    /// Tell all other ranks at once that this one has come so far: what it did before, who hears
    /// this knows of. Each of them hears each tell once.
    Tell,
    /// Wait until a rank has told once more than this one has heard of it.
    Hear {
        /// Whose tell.
        from: Rank,
    },
    /// Of two ranks: from here on take the other's stage for this rank's own, and its own for the
    /// other's. Waits for nobody: the other does so in its own time.
    Trade,
}

/// Everything one rank does in one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    call: Call,
    rank: Rank,
    size: usize,
    algorithm: &'static str,
    lanes: Vec<Vec<Step>>,
    sources: Vec<Source>,
    scratch_len: usize,
    needs_windows: bool,
    needs_stage: bool,
    turns_stage: bool,
    trades_stages: bool,
}

impl Schedule {
    /// The call it performs.
    #[must_use]
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The rank whose part it is.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
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

    /// The programs, one per lane.
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

    /// Where `Output` begins in `Input`, in elements, when it is performed in place.
    #[must_use]
    pub fn overlay(&self) -> isize {
        let own = (self.rank.index() * self.call.count).cast_signed();
        match self.call.collective {
            Collective::AllGather => -own,
            Collective::ReduceScatter => own,
            _ => 0,
        }
    }

    /// The ranks to which it sends or from which it receives, in rank order: those that this rank
    /// needs a connection to.
    #[must_use]
    pub fn peers(&self) -> Vec<Rank> {
        let mut peers: Vec<Rank> = Vec::new();
        for step in self.lanes.iter().flatten() {
            match step {
                Step::Send { to, .. } => peers.push(*to),
                Step::Recv { from, .. } | Step::Hear { from } => peers.push(*from),
                Step::Reduce { sources, .. } => {
                    peers.extend(self.sources(sources).iter().filter_map(|source| match source {
                        Source::Wire(from, _) => Some(*from),
                        Source::Local(_) | Source::Peer(..) => None,
                    }));
                }
                Step::Copy { .. }
                | Step::Put { .. }
                | Step::Get { .. }
                | Step::Trade
                | Step::Tell => {}
            }
        }
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Whether a step reaches into another rank's buffers.
    #[must_use]
    pub const fn needs_windows(&self) -> bool {
        self.needs_windows
    }

    /// Whether a step reaches into another rank's stage.
    #[must_use]
    pub const fn needs_stage(&self) -> bool {
        self.needs_stage
    }

    /// Whether the halves of the stage change places after it.
    #[must_use]
    pub const fn turns_stage(&self) -> bool {
        self.turns_stage
    }

    /// Whether ranks trade stages, so that who has read of one writes there next.
    #[must_use]
    pub const fn trades_stages(&self) -> bool {
        self.trades_stages
    }

    /// Elements of scratch that the steps use.
    #[must_use]
    pub const fn scratch_len(&self) -> usize {
        self.scratch_len
    }
}

/// Writes a schedule step by step. Steps over nothing are left out, so algorithms need not treat
/// counts below the number of ranks specially.
#[derive(Debug)]
pub struct Builder {
    schedule: Schedule,
    lane: usize,
    /// Per lane, what its reductions of many sources combine in: one after the other, so in the
    /// same place.
    partials: Vec<Slice>,
    /// The ranks that are called by their place here; all by their own numbers if it is empty.
    group: Vec<Rank>,
}

impl Builder {
    /// An empty schedule of `lanes` lanes, written to lane 0 first.
    ///
    /// # Panics
    /// If `lanes` is 0 or beyond `limits::LANES_MAX`.
    #[must_use]
    pub fn new(plan: &Plan<'_>, algorithm: &'static str, lanes: usize) -> Self {
        assert!((1..=LANES_MAX).contains(&lanes), "1 to {LANES_MAX} lanes");
        let schedule = Schedule {
            call: plan.call,
            rank: plan.rank,
            size: plan.size(),
            algorithm,
            lanes: alloc::vec![Vec::new(); lanes],
            sources: Vec::new(),
            scratch_len: 0,
            needs_windows: false,
            needs_stage: false,
            turns_stage: false,
            trades_stages: false,
        };
        let nothing = Slice::new(Buffer::Scratch, 0, 0);
        Self { schedule, lane: 0, partials: alloc::vec![nothing; lanes], group: Vec::new() }
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

    /// Calls all ranks by their places in `order` from now on.
    #[must_use]
    pub fn in_order(self, order: &Order) -> Self {
        Self { group: order.ranks().to_vec(), ..self }
    }

    /// Lets `write` call the ranks of `group` by their place there, as an algorithm does that is
    /// for all ranks.
    pub fn among(&mut self, group: &[Rank], write: impl FnOnce(&mut Self)) {
        let outer = core::mem::replace(&mut self.group, group.to_vec());
        write(self);
        self.group = outer;
    }

    /// The number of the rank that is called `rank` now.
    fn number(&self, rank: Rank) -> Rank {
        if self.group.is_empty() { rank } else { self.group[rank.index()] }
    }

    /// Reserves `len` elements of scratch.
    pub fn scratch(&mut self, len: usize) -> Slice {
        let slice = Slice::new(Buffer::Scratch, self.schedule.scratch_len, len);
        self.schedule.scratch_len += len;
        slice
    }

    /// Posts `src` to `to`.
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

    /// Stores `src` into the output of `to`, at the same place.
    pub fn put(&mut self, to: Rank, src: Slice) {
        if src.len > 0 {
            self.schedule.needs_windows = true;
            let to = self.number(to);
            self.push(Step::Put { to, src });
        }
    }

    /// Copies `src` of the stage of `from` to `dst`.
    pub fn get(&mut self, from: Rank, src: Slice, dst: Slice) {
        debug_assert_eq!(src.len, dst.len, "a copy keeps its length");
        if dst.len > 0 {
            self.schedule.needs_stage = true;
            let from = self.number(from);
            self.push(Step::Get { from, src, dst });
        }
    }

    /// Lets the halves of the stage change places after the call. All ranks do, or none.
    pub fn turn_stage(&mut self) {
        self.schedule.turns_stage = true;
    }

    /// Lets two ranks trade their stages.
    pub fn trade_stages(&mut self) {
        (self.schedule.needs_stage, self.schedule.trades_stages) = (true, true);
        self.push(Step::Trade);
    }

    /// Tells all other ranks.
    pub fn tell(&mut self) {
        self.push(Step::Tell);
    }

    /// Waits for the next tell of `from`.
    pub fn hear(&mut self, from: Rank) {
        self.push(Step::Hear { from });
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
                let is_staged = slice.buffer == Buffer::Stage;
                self.schedule.needs_stage |= is_staged;
                self.schedule.needs_windows |= !is_staged;
            }
        }
        let index = |at| u32::try_from(at).unwrap_or(u32::MAX);
        self.push(Step::Reduce { dst, sources: index(start)..index(end) });
    }

    /// A message right after another, between the same ranks and with nothing between them, is
    /// part of it: where nobody waits for a chunk, there need be none.
    fn push(&mut self, step: Step) {
        let lane = &mut self.schedule.lanes[self.lane];
        match (lane.last_mut(), &step) {
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
