//! An all-reduce that a subset of ranks can perform, as one of several levels.

use alloc::boxed::Box;

use ringfold_types::{Rank, Slice};

use crate::algorithm::Algorithm;
use crate::schedule::{Builder, Form};

/// The facts that such an algorithm states in addition to its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flat {
    pub(crate) algorithm: &'static Algorithm,
    /// Elements that `size` ranks reduce together, if pipelines pass on `chunk` elements at a time.
    pub(crate) section: fn(size: usize, chunk: usize) -> usize,
    /// Prepares one rank.
    pub(crate) prepare: fn(&mut Builder, &Participant) -> Box<dyn Reducer>,
}

/// One of the ranks, and the memory that it has for pieces.
pub(crate) struct Participant {
    /// Its place among them.
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// Elements that pipelines pass on at a time.
    pub(crate) chunk: usize,
    /// Elements of the longest piece.
    pub(crate) longest: usize,
    /// Elements of the call's data type that a link accepts before its receiver takes any.
    pub(crate) eager: usize,
    /// The memory of the pieces, if it is this rank's own. Empty if they are in the input.
    pub(crate) sums: Slice,
    /// The form in which partial sums travel between the ranks.
    pub(crate) form: Form,
}

/// One rank's part in the reduction of consecutive pieces.
pub(crate) trait Reducer {
    /// Reduces `own` of all ranks into `result` of all.
    fn piece(&self, steps: &mut Builder, own: Slice, result: Slice);
}
