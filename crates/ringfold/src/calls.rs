//! The collectives, as the user calls them.
//!
//! Each comes in place (`all_reduce`) and out of place (`all_reduce_into`). In place, the rank's own
//! part of the one buffer is where the algorithm would have left it: allgather finds this rank's
//! contribution in block `rank` of the buffer, reduce-scatter leaves the result there.

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_reduce::{Element, scale_fits};
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use crate::communicator::Communicator;
use crate::error::Error;
use crate::memory::User;

impl Communicator {
    /// Replaces `buffer` on every rank by the reduction of all ranks' buffers.
    ///
    /// Every rank gets the same bits, in every run with the same ranks and settings.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn all_reduce<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = self.reduction::<T>(Collective::AllReduce, buffer.len(), op, Rank(0))?;
        self.run(call, together(buffer, 0, 0))
    }

    /// Puts the reduction of all ranks' `input` into every rank's `output`, of the same length.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = self.reduction::<T>(Collective::AllReduce, input.len(), op, Rank(0))?;
        self.expect_len(&call, "output", output.len(), input.len())?;
        self.run(call, apart(input, output))
    }

    /// Gives every rank all blocks of `buffer`, which has one of equal length per rank and in which
    /// this rank has filled in its own: block `rank`.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn all_gather<T: Element>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let count = self.block_len("allgather", buffer.len())?;
        let call = self.movement::<T>(Collective::AllGather, count, Rank(0))?;
        let own = self.rank().index() * count;
        self.run(call, together(buffer, own, 0))
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
        let call = self.movement::<T>(Collective::AllGather, input.len(), Rank(0))?;
        self.expect_len(&call, "output", output.len(), input.len() * self.size())?;
        self.run(call, apart(input, output))
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
        let count = self.block_len("reduce_scatter", buffer.len())?;
        let call = self.reduction::<T>(Collective::ReduceScatter, count, op, Rank(0))?;
        let own = self.rank().index() * count;
        self.run(call, together(buffer, 0, own))
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
        let call = self.reduction::<T>(Collective::ReduceScatter, output.len(), op, Rank(0))?;
        self.expect_len(&call, "input", input.len(), output.len() * self.size())?;
        self.run(call, apart(input, output))
    }

    /// Replaces `buffer` on every rank by the root's.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: Rank) -> Result<(), Error> {
        let call = self.movement::<T>(Collective::Broadcast, buffer.len(), root)?;
        self.run(call, together(buffer, 0, 0))
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
        let call = self.movement::<T>(Collective::Broadcast, output.len(), root)?;
        if self.rank() == root {
            self.expect_len(&call, "input", input.len(), output.len())?;
        }
        self.run(call, apart(input, output))
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
        let call = self.reduction::<T>(Collective::Reduce, buffer.len(), op, root)?;
        self.run(call, together(buffer, 0, 0))
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
        let call = self.reduction::<T>(Collective::Reduce, input.len(), op, root)?;
        if self.rank() == root {
            self.expect_len(&call, "output", output.len(), input.len())?;
        }
        self.run(call, apart(input, output))
    }

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        let call = self.movement::<u8>(Collective::Barrier, 0, Rank(0))?;
        self.run(call, apart::<u8>(&[], &mut []))
    }

    fn movement<T: Element>(
        &self,
        collective: Collective,
        count: usize,
        root: Rank,
    ) -> Result<Call, Error> {
        self.reduction::<T>(collective, count, ReduceOp::Sum, root)
    }

    fn reduction<T: Element>(
        &self,
        collective: Collective,
        count: usize,
        op: ReduceOp,
        root: Rank,
    ) -> Result<Call, Error> {
        let call = Call { collective, count, data_type: T::DATA_TYPE, op, root };
        if root.index() >= self.size() {
            let what = format!("there is no root {root} among {} ranks", self.size());
            return Err(self.argument(collective.name(), what));
        }
        if let ReduceOp::PreMulSum(factor) = op
            && !scale_fits(T::DATA_TYPE, factor.factor())
        {
            let what = format!("{} cannot be a factor of {}", factor.factor(), T::DATA_TYPE);
            return Err(self.argument(collective.name(), what));
        }
        Ok(call)
    }

    fn block_len(&self, call: &'static str, len: usize) -> Result<usize, Error> {
        let size = self.size();
        if len.is_multiple_of(size) {
            return Ok(len / size);
        }
        let what = format!("{len} elements cannot be cut into {size} equal blocks, one per rank");
        Err(self.argument(call, what))
    }

    fn expect_len(&self, call: &Call, what: &str, len: usize, wanted: usize) -> Result<(), Error> {
        if len == wanted {
            return Ok(());
        }
        let what = format!("the {what} has {len} elements, it needs {wanted}");
        Err(self.argument(call.collective.name(), what))
    }

    const fn argument(&self, call: &'static str, what: String) -> Error {
        Error::Argument { rank: self.rank(), call, what }
    }
}

fn apart<'a, T: Element>(input: &'a [T], output: &'a mut [T]) -> User<'a> {
    User::Apart { input: cast_slice(input), output: cast_slice_mut(output) }
}

/// `input_at` and `output_at` count elements.
fn together<T: Element>(buffer: &mut [T], input_at: usize, output_at: usize) -> User<'_> {
    let bytes = size_of::<T>();
    User::Together {
        bytes: cast_slice_mut(buffer),
        input_at: input_at * bytes,
        output_at: output_at * bytes,
    }
}
