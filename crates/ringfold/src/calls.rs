//! The collectives, as the user calls them.
//!
//! Each comes in place (`all_reduce`) and out of place (`all_reduce_into`). In place, the rank's
//! own part of the one buffer is where the algorithm would have left it: allgather finds this
//! rank's contribution in block `rank` of the buffer, reduce-scatter leaves the result there.

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_reduce::{Element, scale_fits};
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use crate::communicator::Communicator;
use crate::error::Error;
use crate::memory::{Shape, User};
use crate::pair::{Begun, Pair};

/// The memory of an untyped call: bytes of whole elements, of any alignment.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// Out of place.
    Apart {
        /// What this rank contributes: `Call::input_len` elements, or none where it contributes
        /// nothing (broadcast, on all but the root).
        input: &'a [u8],
        /// What this rank receives: `Call::output_len` elements, or none where it receives nothing
        /// (reduce, on all but the root).
        output: &'a mut [u8],
    },
    /// In place: the larger of both, with this rank's part of an allgather's input, or of a
    /// reduce-scatter's output, in block `rank`.
    InPlace(&'a mut [u8]),
}

impl Communicator {
    /// Performs any call, on elements whose type only the call knows: for bindings and tools.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    #[inline]
    pub fn perform(&mut self, call: &Call, mut buffers: Buffers<'_>) -> Result<(), Error> {
        let shape = match &buffers {
            Buffers::Apart { input, output } => {
                Shape { in_place: false, input: input.len(), output: output.len() }
            }
            Buffers::InPlace(buffer) => {
                Shape { in_place: true, input: buffer.len(), output: buffer.len() }
            }
        };
        self.check_process()?;
        self.guarded(call, |it| match it.begin_as_pair(call, shape, &mut buffers) {
            Some(Begun { steps: Pair::STEPS, .. }) if it.control().is_quiet() => {
                it.control().finished(it.seq);
                Ok(())
            }
            begun => it.perform_by_steps(call, shape, buffers, begun),
        })
    }

    /// Begins a call that repeats the latest and is of the shortest, and most often ends it, too.
    #[inline]
    fn begin_as_pair(
        &mut self,
        call: &Call,
        shape: Shape,
        buffers: &mut Buffers<'_>,
    ) -> Option<Begun> {
        let pair = self.plans.pair(call, shape)?;
        if tracing::level_enabled!(tracing::Level::TRACE) {
            // Only its schedule knows what there is to tell.
            return None;
        }
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        self.seq += 1;
        let tag = pair.mark.begin(control, self.seq, None);
        let steps = self.engine.exchange(pair, tag, buffers);
        Some(Begun { tag, steps })
    }

    fn perform_by_steps(
        &mut self,
        call: &Call,
        shape: Shape,
        buffers: Buffers<'_>,
        begun: Option<Begun>,
    ) -> Result<(), Error> {
        let user = match buffers {
            Buffers::Apart { input, output } => User::Apart { input, output },
            Buffers::InPlace(bytes) => {
                // Within the buffer, once the call and its shape are found to be good; before that
                // it may be beyond all bounds.
                let block = call.count.wrapping_mul(call.data_type.bytes());
                let own = || self.rank().index().wrapping_mul(block);
                let (input_at, output_at) = match call.collective {
                    Collective::AllGather => (own(), 0),
                    Collective::ReduceScatter => (0, own()),
                    _ => (0, 0),
                };
                User::Together { bytes, input_at, output_at }
            }
        };
        self.run(call, shape, user, begun)
    }

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

    /// The call with what has no meaning left out, if its parts and its buffers fit each other.
    pub(crate) fn valid(&self, call: Call, shape: Shape) -> Result<Call, Error> {
        let Call { collective, count, data_type, .. } = call;
        // What has no meaning must not make a difference.
        let op = if collective.reduces() { call.op } else { ReduceOp::Sum };
        let root = if collective.has_root() { call.root } else { Rank(0) };
        let call = Call { op, root, ..call };
        if root.index() >= self.size() {
            let what = format!("there is no root {root} among {} ranks", self.size());
            return Err(self.argument(collective, what));
        }
        let bytes = count.checked_mul(self.size()).and_then(|all| all.checked_mul(8));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(self.argument(collective, format!("{count} elements are too many")));
        }
        if let ReduceOp::PreMulSum(factor) = op
            && !scale_fits(data_type, factor.factor())
        {
            let what = format!("{} cannot be a factor of {data_type}", factor.factor());
            return Err(self.argument(collective, what));
        }
        let bytes = data_type.bytes();
        let (input, output) = (call.input_len(self.size()), call.output_len(self.size()));
        if shape.in_place {
            self.expect_len(&call, "buffer", shape.input, input.max(output) * bytes)?;
        } else {
            let is_root = self.rank() == call.root;
            if collective != Collective::Broadcast || is_root {
                self.expect_len(&call, "input", shape.input, input * bytes)?;
            }
            if collective != Collective::Reduce || is_root {
                self.expect_len(&call, "output", shape.output, output * bytes)?;
            }
        }
        Ok(call)
    }

    fn block_len(&self, collective: Collective, len: usize) -> Result<usize, Error> {
        let size = self.size();
        if len.is_multiple_of(size) {
            return Ok(len / size);
        }
        let what = format!("{len} elements cannot be cut into {size} equal blocks, one per rank");
        Err(self.argument(collective, what))
    }

    fn expect_len(&self, call: &Call, what: &str, len: usize, wanted: usize) -> Result<(), Error> {
        if len == wanted {
            return Ok(());
        }
        let what = format!("the {what} has {len} bytes, it needs {wanted}");
        Err(self.argument(call.collective, what))
    }

    pub(crate) const fn argument(&self, collective: Collective, what: String) -> Error {
        Error::Argument { rank: self.rank(), call: collective.name(), what }
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
