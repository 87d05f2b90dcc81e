//! The collectives, as the user calls them.
//!
//! Each comes in place (`all_reduce`) and out of place (`all_reduce_into`). In place, the rank's
//! own part of the one buffer is where the algorithm would have left it: allgather finds this
//! rank's contribution in block `rank` of the buffer, reduce-scatter leaves the result there.

mod windows;

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_reduce::Element;
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use crate::arguments::argument;
use crate::buffers::Buffers;
use crate::communicator::Communicator;
use crate::error::Error;

pub use self::windows::Windows;

impl Communicator {
    /// Replaces `buffer` on every rank by the reduction of all ranks' buffers.
    ///
    /// Every rank gets the same bits, in every run with the same ranks and settings.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    #[inline]
    pub fn all_reduce<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = reduction::<T>(Collective::AllReduce, buffer.len(), op, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Puts the reduction of all ranks' `input` into every rank's `output`, of the same length.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    #[inline]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(Collective::AllReduce, input.len(), op, Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Gives every rank all blocks of `buffer`, which has one of equal length per rank and in which
    /// this rank has filled in its own: block `rank`.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn all_gather<T: Element>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let count = self.block_len(Collective::AllGather, buffer.len())?;
        let call = movement::<T>(Collective::AllGather, count, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Puts every rank's `input`, all of the same length, one after the other into every rank's
    /// `output`.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn all_gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Error> {
        let call = movement::<T>(Collective::AllGather, input.len(), Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Reduces all ranks' buffers and leaves block `rank` of the result, of as many equal blocks as
    /// there are ranks, in that place of `buffer`. The rest of `buffer` stays as it was.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn reduce_scatter<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let count = self.block_len(Collective::ReduceScatter, buffer.len())?;
        let call = reduction::<T>(Collective::ReduceScatter, count, op, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Reduces all ranks' `input` and puts block `rank` of the result into `output`.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn reduce_scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(Collective::ReduceScatter, output.len(), op, Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Replaces `buffer` on every rank by the root's.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: Rank) -> Result<(), Error> {
        let call = movement::<T>(Collective::Broadcast, buffer.len(), root);
        self.perform(&call, in_place(buffer))
    }

    /// Puts the root's `input` into every rank's `output`. The others' `input` is not read and may
    /// be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn broadcast_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: Rank,
    ) -> Result<(), Error> {
        let call = movement::<T>(Collective::Broadcast, output.len(), root);
        self.perform(&call, apart(input, output))
    }

    /// Replaces the root's `buffer` by the reduction of all ranks' buffers; the others' stay as
    /// they are.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn reduce<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
        root: Rank,
    ) -> Result<(), Error> {
        let call = reduction::<T>(Collective::Reduce, buffer.len(), op, root);
        self.perform(&call, in_place(buffer))
    }

    /// Puts the reduction of all ranks' `input` into the root's `output`. The others' `output` is
    /// not written and may be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        root: Rank,
    ) -> Result<(), Error> {
        let call = reduction::<T>(Collective::Reduce, input.len(), op, root);
        self.perform(&call, apart(input, output))
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        let call = movement::<u8>(Collective::Barrier, 0, Rank(0));
        self.perform(&call, apart::<u8>(&[], &mut []))
    }

    fn block_len(&self, collective: Collective, len: usize) -> Result<usize, Error> {
        let size = self.size();
        if len.is_multiple_of(size) {
            return Ok(len / size);
        }
        let what = format!("{len} elements cannot be cut into {size} equal blocks, one per rank");
        Err(argument(self.rank(), collective, what))
    }
}

const fn movement<T: Element>(collective: Collective, count: usize, root: Rank) -> Call {
    reduction::<T>(collective, count, ReduceOp::Sum, root)
}

const fn reduction<T: Element>(
    collective: Collective,
    count: usize,
    op: ReduceOp,
    root: Rank,
) -> Call {
    Call { collective, count, data_type: T::DATA_TYPE, op, root }
}

fn apart<'a, T: Element>(input: &'a [T], output: &'a mut [T]) -> Buffers<'a> {
    Buffers::Apart { input: cast_slice(input), output: cast_slice_mut(output) }
}

fn in_place<T: Element>(buffer: &mut [T]) -> Buffers<'_> {
    Buffers::InPlace(cast_slice_mut(buffer))
}
