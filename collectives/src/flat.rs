//! An all-reduce that some of the ranks can do among each other, as one level of several.

use alloc::boxed::Box;

use ringfold_types::{Rank, Slice};

use crate::algorithm::Algorithm;
use crate::crossing::Messages;
use crate::schedule::{Builder, Form};

/// The facts that such an algorithm states beside its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flat {
    pub(crate) algorithm: &'static Algorithm,
    /// Elements that `size` ranks reduce together, where pipelines pass on `chunk`.
    pub(crate) section: fn(size: usize, chunk: usize) -> usize,
    /// States the messages of `size` ranks that have `count` elements in `own` form.
    pub(crate) messages: fn(&mut Messages<'_>, size: usize, count: usize, own: Form),
    /// Whether ranks send from memory that results overwrite before its receiver must have taken
    /// it, if they reduce in place.
    pub(crate) overwrites: bool,
    /// Prepares one rank.
    pub(crate) prepare: fn(&mut Builder, &Seat) -> Box<dyn Reducer>,
}

/// One of the ranks, and the memory that it has for pieces.
pub(crate) struct Seat {
    /// Its place among them.
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// Elements that pipelines pass on at a time.
    pub(crate) chunk: usize,
    /// Elements of the longest piece.
    pub(crate) longest: usize,
    /// The scratch that pieces lie in; empty if they lie in the input.
    pub(crate) sums: Slice,
}

/// One rank's part in the reduction of pieces that follow each other.
pub(crate) trait Reducer {
    /// Reduces `own` of all ranks to `result` of all.
    fn piece(&self, steps: &mut Builder, own: Slice, result: Slice);
}
