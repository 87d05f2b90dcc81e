//! Stages as algorithms use them: their room and the places in it, and the words by which ranks
//! tell each other how far they are.

use alloc::vec::Vec;

use ringfold_types::limits::STAGE_HALF_BYTES;
use ringfold_types::{Buffer, Call, Rank, Slice};

use crate::algorithm::Plan;
use crate::pattern::ring;
use crate::schedule::{Builder, Source};

/// Bytes of a cache line: places in a stage begin at one, so that no line has two writers.
const LINE_BYTES: usize = 64;

/// Chunks of a piece: few enough to stay in cache, and enough to outweigh the words of a piece.
pub(crate) const CHUNKS: usize = 8;

/// Bytes of a half that are for results.
const RESULT_BYTES: usize = STAGE_HALF_BYTES / 3;

/// Bytes of a half that are for inputs.
const INPUT_BYTES: usize = STAGE_HALF_BYTES - RESULT_BYTES;

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

/// One rank's use of the stages in a schedule.
pub(crate) struct Stage {
    call: Call,
    rank: Rank,
    size: usize,
    word: Word,
    /// Pieces that are over, where the ranks have not traded stages after each.
    turns: usize,
}

impl Stage {
    pub(crate) fn new(plan: &Plan<'_>, steps: &mut Builder) -> Self {
        let word = Word::new(plan, steps);
        Self { call: plan.call, rank: plan.rank, size: plan.size(), word, turns: 0 }
    }

    /// Where `len` elements of this piece are for others, from element `offset` on.
    pub(crate) fn here(&self, offset: usize, len: usize) -> Slice {
        self.place(self.turns, offset, len)
    }

    /// This rank has read all that it reads of this piece. Of two ranks, each has thereby got the
    /// other's lines into its caches, and writes the next piece there, which costs nothing; more
    /// ranks use the halves in turn, as others may still read.
    pub(crate) fn turn(&mut self, steps: &mut Builder) {
        if self.size == 2 {
            steps.trade_stages();
        } else {
            self.turns += 1;
        }
    }

    /// Ends a schedule after a turn.
    pub(crate) fn end_turned(self, steps: &mut Builder) {
        let turns = self.turns;
        self.end(steps, turns);
    }

    /// Where `len` elements of piece number `index` are for others, from element `offset` on.
    /// Pieces use the halves in turn.
    pub(crate) fn place(&self, index: usize, offset: usize, len: usize) -> Slice {
        let half = STAGE_HALF_BYTES / self.call.data_type.bytes();
        Slice::new(Buffer::Stage, index % 2 * half + offset, len)
    }

    /// Where `len` results of piece number `index` are for others: in the half of the next, so that
    /// its own is quiet once they have been told of.
    pub(crate) fn result(&self, index: usize, len: usize) -> Slice {
        self.place(index + 1, input_room(&self.call), len)
    }

    /// Ends a schedule which leaves that half quiet that piece number `index` has, or would have:
    /// the next call begins with it.
    pub(crate) fn end(self, steps: &mut Builder, index: usize) {
        if !index.is_multiple_of(2) {
            steps.turn_stage();
        }
    }

    /// Combines `own`, of this rank, with what each other has at `theirs` of its stage, in rank
    /// order, into `dst`.
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

    /// Tells all others that this rank has come so far.
    pub(crate) fn tell_all(&self, steps: &mut Builder) {
        self.word.tell_all(steps);
    }

    /// Waits until a rank has come so far.
    pub(crate) fn hear(&self, steps: &mut Builder, rank: Rank) {
        self.word.hear(steps, rank);
    }

    /// Waits until all others have.
    pub(crate) fn hear_all(&self, steps: &mut Builder) {
        self.word.hear_all(steps);
    }
}

/// How ranks that share memory tell each other how far they are: two by messages of one element,
/// which cost them a cache line each way, as anything would; more all at once.
pub(crate) struct Word {
    rank: Rank,
    size: usize,
    /// What is sent, and where it is received.
    token: Option<[Slice; 2]>,
}

impl Word {
    pub(crate) fn new(plan: &Plan<'_>, steps: &mut Builder) -> Self {
        let size = plan.size();
        let token = (size == 2).then(|| [steps.scratch(1), steps.scratch(1)]);
        Self { rank: plan.rank, size, token }
    }

    pub(crate) fn tell_all(&self, steps: &mut Builder) {
        match self.token {
            Some([token, _]) => others(self.rank, self.size).for_each(|to| steps.send(to, token)),
            None if self.size > 1 => steps.tell(),
            None => {}
        }
    }

    pub(crate) fn hear(&self, steps: &mut Builder, rank: Rank) {
        match self.token {
            Some([_, heard]) => steps.recv(rank, heard),
            None => steps.hear(rank),
        }
    }

    pub(crate) fn hear_all(&self, steps: &mut Builder) {
        others(self.rank, self.size).for_each(|rank| self.hear(steps, rank));
    }
}

/// All ranks but `rank`, the one after it first.
fn others(rank: Rank, size: usize) -> impl Iterator<Item = Rank> {
    (1..size).map(move |distance| ring::after(rank, distance, size))
}
