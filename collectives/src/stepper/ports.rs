//! The ports of a stepper, which perform its operations.

use ringfold_types::{Rank, Slice};

use crate::program::Stores;
use crate::schedule::Source;

/// Performs the operations of one rank. No method waits: each does as much as is possible at once.
pub trait Ports {
    /// The reason why a call cannot go on.
    type Error;

    /// Sends `src` to a rank, and combines it with as many elements of that rank into `dst`.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn exchange(&mut self, with: Rank, src: Slice, dst: Slice) -> Result<Exchanged, Self::Error>;

    /// Passes `src` to the link of `lane` to a rank. Returns how many elements the link has
    /// accepted.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn send(
        &mut self,
        lane: usize,
        to: Rank,
        src: Slice,
        rendezvous: bool,
    ) -> Result<usize, Self::Error>;

    /// Announces that elements of a rank will be received into `dst`, after `skip` more bytes of
    /// its stream. Until then nothing else touches that place. Returns whether that need not be
    /// said again.
    fn expect(&mut self, lane: usize, from: Rank, skip: usize, dst: Slice) -> bool {
        let _ = (lane, from, skip, dst);
        true
    }

    /// Moves elements that have arrived from a rank to the front of `dst`. Returns how many.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn receive(
        &mut self,
        lane: usize,
        from: Rank,
        dst: Slice,
        stores: Stores,
    ) -> Result<usize, Self::Error>;

    /// Copies all of `src`.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn copy(
        &mut self,
        lane: usize,
        src: Slice,
        dst: Slice,
        stores: Stores,
    ) -> Result<(), Self::Error>;

    /// Combines as many elements as every source has. Returns how many.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn reduce(&mut self, lane: usize, reduction: Reduction<'_>) -> Result<usize, Self::Error>;

    /// Combines all elements of `sources`, which are inputs at the place of `dst`, into `dst` of
    /// every rank.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn reduce_to_all(
        &mut self,
        lane: usize,
        dst: Slice,
        sources: &[Source],
        stores: Stores,
    ) -> Result<(), Self::Error>;

    /// Stores all of `src` at the same place of a rank's output.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn put(&mut self, lane: usize, to: Rank, src: Slice) -> Result<(), Self::Error>;

    /// Copies all of `src`, which is in a rank's staging buffer, to `dst`.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn get(
        &mut self,
        lane: usize,
        from: Rank,
        src: Slice,
        dst: Slice,
        stores: Stores,
    ) -> Result<(), Self::Error>;

    /// Signals all other ranks.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn signal(&mut self, lane: usize) -> Result<(), Self::Error>;

    /// Takes the next signal of a rank. Returns whether there was one.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn wait(&mut self, lane: usize, from: Rank) -> Result<bool, Self::Error>;

    /// Swaps staging buffers with the other rank.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn swap(&mut self) -> Result<(), Self::Error>;

    /// Hands over `src` as the next chunk of the lane's group, whose result goes to `dst`. Returns
    /// whether there was room. Only a stepper that was started with a provider asks for it.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn post(&mut self, lane: usize, src: Slice, dst: Slice) -> Result<bool, Self::Error> {
        let _ = (lane, src, dst);
        Ok(false)
    }

    /// Stores the oldest result of the lane's group that was not taken in `dst`. Returns whether it
    /// was there.
    ///
    /// # Errors
    /// The reason why the call cannot go on.
    fn take_result(&mut self, lane: usize, dst: Slice) -> Result<bool, Self::Error> {
        let _ = (lane, dst);
        Ok(false)
    }
}

/// The progress of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// Nothing was sent.
    Nothing,
    /// This rank's elements have left.
    Sent,
    /// This rank's elements have left, and the sum is done.
    Both,
}

/// A reduction. Some of its elements may be done already.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'p> {
    /// The results that are still missing.
    pub dst: Slice,
    /// The sources of all results, finished ones included.
    pub sources: &'p [Source],
    /// Elements that are done.
    pub done: usize,
    /// Whether all sources fit cache lines, as in `Op::Reduce`.
    pub in_lines: bool,
}
