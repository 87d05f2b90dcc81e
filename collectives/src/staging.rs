//! Staging buffers in schedules: their layout, and the signals that order the ranks' accesses.

use alloc::vec::Vec;

use ringfold_types::limits::STAGING_HALF_BYTES;
use ringfold_types::{Buffer, Call, Rank, Slice};

use crate::algorithm::ScheduleParams;
use crate::pattern::ring;
use crate::schedule::{Builder, Source};

/// Bytes of a cache line. Places in a staging buffer begin at one, so no line has two writers.
const LINE_BYTES: usize = 64;

/// Chunks of a piece: few enough to stay in cache, and enough to hide the cost of its signals.
pub(crate) const CHUNKS: usize = 8;

/// Bytes of a half that are for results.
const RESULT_BYTES: usize = STAGING_HALF_BYTES / 3;

/// Bytes of a half that are for inputs.
const INPUT_BYTES: usize = STAGING_HALF_BYTES - RESULT_BYTES;

/// Elements of `call` in a cache line.
pub(crate) const fn grain(call: &Call) -> usize {
    LINE_BYTES / call.data_type.bytes()
}

/// Elements of `call` that a half has room for as inputs.
pub(crate) const fn input_room(call: &Call) -> usize {
    INPUT_BYTES / call.data_type.bytes()
}

/// Elements of `call` that a half has room for as results, up to the end of a cache line.
pub(crate) const fn result_room(call: &Call) -> usize {
    RESULT_BYTES / call.data_type.bytes() - grain(call)
}

/// The next length of a piece that ends with a cache line.
pub(crate) fn whole_lines(call: &Call, len: usize) -> usize {
    len.max(1).next_multiple_of(grain(call))
}

/// Elements of each block that a half has room for as inputs, where the blocks of `size` ranks are
/// side by side and each begins at a cache line.
pub(crate) const fn block_room(call: &Call, size: usize) -> usize {
    input_room(call) / (size * grain(call)) * grain(call)
}

/// The number of a block among those of the writer `of`. It depends on the distance to its reader,
/// so for two ranks it is always the same.
pub(crate) const fn block_place(size: usize, of: Rank, reader: Rank) -> usize {
    (reader.index() + size - of.index()) % size - 1
}

/// One rank's use of the staging buffers in a schedule.
pub(crate) struct Staging {
    call: Call,
    rank: Rank,
    size: usize,
    signals: Signals,
    /// Finished pieces, where the ranks do not swap staging buffers after each.
    flips: usize,
}

impl Staging {
    pub(crate) fn new(plan: &ScheduleParams<'_>, steps: &mut Builder) -> Self {
        let signals = Signals::new(plan, steps);
        Self { call: plan.call, rank: plan.rank, size: plan.size(), signals, flips: 0 }
    }

    /// The place of `len` elements of this piece for other ranks, from element `offset` on.
    pub(crate) fn here(&self, offset: usize, len: usize) -> Slice {
        self.place(self.flips, offset, len)
    }

    /// Goes on to the next piece: this rank has read all that it reads of this one. Two ranks swap
    /// staging buffers. Each has just got the other's lines into its caches, so writing the next
    /// piece there costs nothing. More ranks use the halves in turn, because others may still read.
    pub(crate) fn next_piece(&mut self, steps: &mut Builder) {
        if self.size == 2 {
            steps.swap_staging();
        } else {
            self.flips += 1;
        }
    }

    /// Ends a schedule after `next_piece`.
    pub(crate) fn end_pieces(self, steps: &mut Builder) {
        let flips = self.flips;
        self.end(steps, flips);
    }

    /// The place of `len` elements of piece number `index` for other ranks, from element `offset`
    /// on. Pieces use the halves in turn.
    pub(crate) fn place(&self, index: usize, offset: usize, len: usize) -> Slice {
        let half = STAGING_HALF_BYTES / self.call.data_type.bytes();
        Slice::new(Buffer::Staging, index % 2 * half + offset, len)
    }

    /// The place of `len` results of piece number `index` for other ranks. It is in the half of the
    /// next piece, so the half of this piece is quiet once the ranks have signalled the results.
    pub(crate) fn result(&self, index: usize, len: usize) -> Slice {
        self.place(index + 1, input_room(&self.call), len)
    }

    /// Ends a schedule so that the half of piece number `index` is quiet. The next call begins with
    /// that half.
    pub(crate) fn end(self, steps: &mut Builder, index: usize) {
        if !index.is_multiple_of(2) {
            steps.flip_staging();
        }
    }

    /// Combines `own`, of this rank, with the elements at `theirs` of each other staging buffer, in
    /// rank order, into `dst`.
    pub(crate) fn combine(
        &self,
        steps: &mut Builder,
        dst: Slice,
        own: Slice,
        theirs: impl Fn(Rank) -> Slice,
    ) {
        let source = |of| match of {
            _ if of == self.rank => Source::Local(own),
            _ => Source::Peer(of, theirs(of)),
        };
        let sources: Vec<Source> = (0..self.size).map(Rank::at).map(source).collect();
        steps.reduce(dst, &sources);
    }

    /// All other ranks, the one after this first.
    pub(crate) fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        others(self.rank, self.size)
    }

    /// Signals all other ranks.
    pub(crate) fn signal_all(&self, steps: &mut Builder) {
        self.signals.signal_all(steps);
    }

    /// Waits for the next signal of a rank.
    pub(crate) fn wait(&self, steps: &mut Builder, rank: Rank) {
        self.signals.wait(steps, rank);
    }

    /// Waits for the next signal of each other rank.
    pub(crate) fn wait_all(&self, steps: &mut Builder) {
        self.signals.wait_all(steps);
    }
}

/// Signals between ranks that share memory. Two ranks use messages of one element, which cost a
/// cache line each way, the least possible. More ranks signal all others at once.
pub(crate) struct Signals {
    rank: Rank,
    size: usize,
    /// The element to send and the place to receive one, for two ranks.
    token: Option<[Slice; 2]>,
}

impl Signals {
    pub(crate) fn new(plan: &ScheduleParams<'_>, steps: &mut Builder) -> Self {
        let size = plan.size();
        let token = (size == 2).then(|| [steps.scratch(1), steps.scratch(1)]);
        Self { rank: plan.rank, size, token }
    }

    pub(crate) fn signal_all(&self, steps: &mut Builder) {
        match self.token {
            Some([token, _]) => others(self.rank, self.size).for_each(|to| steps.send(to, token)),
            None if self.size > 1 => steps.signal(),
            None => {}
        }
    }

    pub(crate) fn wait(&self, steps: &mut Builder, rank: Rank) {
        match self.token {
            Some([_, heard]) => steps.recv(rank, heard),
            None => steps.wait(rank),
        }
    }

    pub(crate) fn wait_all(&self, steps: &mut Builder) {
        others(self.rank, self.size).for_each(|rank| self.wait(steps, rank));
    }
}

/// All ranks but `rank`, the one after it first.
fn others(rank: Rank, size: usize) -> impl Iterator<Item = Rank> {
    (1..size).map(move |distance| ring::after(rank, distance, size))
}
