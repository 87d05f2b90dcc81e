//! The collectives, as methods of [`Communicator`].
//!
//! Each collective has a variant in place (`all_reduce`) and one out of place (`all_reduce_into`).
//! In place, all-gather takes this rank's contribution from block `rank` of the buffer, and
//! reduce-scatter leaves this rank's result there.
//!
//! Buffers are slices and not a trait of their own: deref coercion accepts more types than a sealed
//! trait would, and a slice in a variable is reborrowed rather than moved.

mod blocks;
mod scan;
mod uneven;
mod windows;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_reduce::{Element, data_type_of};
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use crate::arguments::argument;
use crate::buffers::Buffers;
use crate::communicator::Communicator;
use crate::error::Error;

pub use self::windows::Windows;

/// The collectives. All ranks must call the same one, with the same lengths, types, operations and
/// roots. Each blocks until this rank's part is done: its buffers are then its own again, and its
/// result is complete. Other ranks may still be in the call.
impl Communicator {
    /// Replaces `buffer` on every rank by the reduction of all ranks' buffers.
    ///
    /// Every rank passes a buffer of the same length. Every rank gets the same bits, in every run
    /// with the same ranks and settings.
    ///
    /// # Errors
    /// [`Error::Argument`] if `op` does not fit the type; [`Error::Failed`] if the job has failed;
    /// [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut gradient = vec![1.0_f32; 1000];
    /// comm.all_reduce(&mut gradient, ReduceOp::Sum)?;
    /// assert_eq!(gradient[0], comm.size() as f32);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    #[inline]
    pub fn all_reduce<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::AllReduce, buffer.len(), op, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Writes the reduction of all ranks' `input` to every rank's `output`, as
    /// [`all_reduce`](Self::all_reduce) does in place. Both buffers have the same length.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths differ or `op` does not fit the type; [`Error::Failed`]
    /// if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let (input, mut output) = ([3_i32, 4], [0; 2]);
    /// comm.all_reduce_into(&input, &mut output, ReduceOp::Max)?;
    /// assert_eq!(output, [3, 4]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    #[inline]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::AllReduce, input.len(), op, Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Gives every rank the blocks of all ranks. `buffer` has one block of equal length for each
    /// rank, in rank order. Before the call this rank has filled in block `rank`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the length is not a multiple of the number of ranks;
    /// [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::Communicator;
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut all = vec![0; comm.size()];
    /// all[comm.rank().index()] = comm.rank().0 * 10;
    /// comm.all_gather(&mut all)?;
    /// assert_eq!(all[0], 0);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_gather<T: Pod>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let count = self.block_len(Collective::AllGather, buffer.len())?;
        let call = movement::<T>(Collective::AllGather, count, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Writes every rank's `input` to every rank's `output`, one after the other in rank order. The
    /// inputs have equal lengths, and `output` has as many times that length as there are ranks.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths do not fit; [`Error::Failed`] if the job has failed;
    /// [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::Communicator;
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut ranks = vec![0; comm.size()];
    /// comm.all_gather_into(&[comm.rank().0], &mut ranks)?;
    /// assert!((0..).zip(&ranks).all(|(rank, got)| rank == *got));
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn all_gather_into<T: Pod>(&mut self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let call = movement::<T>(Collective::AllGather, input.len(), Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Reduces all ranks' buffers and leaves block `rank` of the result in this rank's buffer.
    ///
    /// `buffer` has one block of equal length for each rank, in rank order. The result replaces
    /// block `rank`; the other blocks stay as they were.
    ///
    /// # Errors
    /// [`Error::Argument`] if the length is not a multiple of the number of ranks, or `op` does not
    /// fit the type; [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut blocks = vec![1.0_f64; 4 * comm.size()];
    /// comm.reduce_scatter(&mut blocks, ReduceOp::Sum)?;
    /// assert_eq!(blocks[4 * comm.rank().index()], comm.size() as f64);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn reduce_scatter<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let count = self.block_len(Collective::ReduceScatter, buffer.len())?;
        let call = reduction::<T>(self.wire(), Collective::ReduceScatter, count, op, Rank(0));
        self.perform(&call, in_place(buffer))
    }

    /// Reduces all ranks' `input` and writes block `rank` of the result to this rank's `output`.
    /// `input` has as many times the length of `output` as there are ranks.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths do not fit, or `op` does not fit the type;
    /// [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let (input, mut output) = (vec![1_u32; 4 * comm.size()], [0; 4]);
    /// comm.reduce_scatter_into(&input, &mut output, ReduceOp::Sum)?;
    /// assert_eq!(output[0] as usize, comm.size());
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn reduce_scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call =
            reduction::<T>(self.wire(), Collective::ReduceScatter, output.len(), op, Rank(0));
        self.perform(&call, apart(input, output))
    }

    /// Replaces `buffer` on every rank by the buffer of `root`.
    ///
    /// # Errors
    /// [`Error::Argument`] if `root` is not a rank; [`Error::Failed`] if the job has failed;
    /// [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, Rank};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut seed = [comm.rank().0 + 7];
    /// comm.broadcast(&mut seed, Rank(0))?;
    /// assert_eq!(seed, [7]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn broadcast<T: Pod>(&mut self, buffer: &mut [T], root: Rank) -> Result<(), Error> {
        let call = movement::<T>(Collective::Broadcast, buffer.len(), root);
        self.perform(&call, in_place(buffer))
    }

    /// Writes the `input` of `root` to every rank's `output`. The call does not read the other
    /// ranks' `input`, which may be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] if `root` is not a rank, or the lengths differ; [`Error::Failed`] if the
    /// job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, Rank};
    ///
    /// let mut comm = Communicator::init()?;
    /// let (input, mut output) = ([1_u8, 2, 3], [0; 3]);
    /// let is_root = comm.rank() == Rank(0);
    /// comm.broadcast_into(if is_root { &input } else { &[] }, &mut output, Rank(0))?;
    /// assert_eq!(output, input);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn broadcast_into<T: Pod>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: Rank,
    ) -> Result<(), Error> {
        let call = movement::<T>(Collective::Broadcast, output.len(), root);
        self.perform(&call, apart(input, output))
    }

    /// Replaces the buffer of `root` by the reduction of all ranks' buffers. The other ranks'
    /// buffers stay as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] if `root` is not a rank, or `op` does not fit the type;
    /// [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, Rank, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut count = [1_u64];
    /// comm.reduce(&mut count, ReduceOp::Sum, Rank(0))?;
    /// if comm.rank() == Rank(0) {
    ///     assert_eq!(count[0] as usize, comm.size());
    /// }
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn reduce<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
        root: Rank,
    ) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::Reduce, buffer.len(), op, root);
        self.perform(&call, in_place(buffer))
    }

    /// Writes the reduction of all ranks' `input` to the `output` of `root`. The call does not
    /// write the other ranks' `output`, which may be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] if `root` is not a rank, the lengths differ, or `op` does not fit the
    /// type; [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, Rank, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut sum = vec![0.0_f64; if comm.rank() == Rank(0) { 1 } else { 0 }];
    /// comm.reduce_into(&[0.5], &mut sum, ReduceOp::Sum, Rank(0))?;
    /// if comm.rank() == Rank(0) {
    ///     assert_eq!(sum[0], 0.5 * comm.size() as f64);
    /// }
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        root: Rank,
    ) -> Result<(), Error> {
        let call = reduction::<T>(self.wire(), Collective::Reduce, input.len(), op, root);
        self.perform(&call, apart(input, output))
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::Communicator;
    ///
    /// let mut comm = Communicator::init()?;
    /// comm.barrier()?;
    /// # Ok::<(), ringfold::Error>(())
    /// ```
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

/// A call that combines elements of type `T`. Partial results of short floats have the form `wire`.
#[inline]
pub(crate) const fn reduction<T: Element>(
    wire: Wire,
    collective: Collective,
    count: usize,
    op: ReduceOp,
    root: Rank,
) -> Call {
    let wire = if T::DATA_TYPE.is_short_float() { wire } else { Wire::Element };
    Call { collective, count, data_type: T::DATA_TYPE, op, root, wire }
}

/// A call that moves `count` values of type `T`.
#[inline]
pub(crate) fn movement<T: Pod>(collective: Collective, count: usize, root: Rank) -> Call {
    let (op, wire) = (ReduceOp::Sum, Wire::Element);
    let (data_type, each) = moved_as::<T>();
    Call { collective, count: count * each, data_type, op, root, wire }
}

/// The data type by which values of type `T` move, and how many of it each has. Values that are no
/// elements move as bytes.
#[inline]
fn moved_as<T: Pod>() -> (DataType, usize) {
    data_type_of::<T>().map_or((DataType::U8, size_of::<T>()), |data_type| (data_type, 1))
}

pub(crate) fn apart<'a, T: Pod>(input: &'a [T], output: &'a mut [T]) -> Buffers<'a> {
    Buffers::Apart { input: cast_slice(input), output: cast_slice_mut(output) }
}

pub(crate) fn in_place<T: Pod>(buffer: &mut [T]) -> Buffers<'_> {
    Buffers::InPlace(cast_slice_mut(buffer))
}
