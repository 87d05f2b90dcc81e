//! The methods of [`Communicator`] that start collectives.

use std::sync::Arc;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_lend::{Loan, Owner, lend};
use ringfold_reduce::Element;
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use super::job::{CallJob, Job, Memory};
use super::{Failed, Request, Started};
use crate::arguments::valid;
use crate::buffers::{Buffers, Place};
use crate::collective::{movement, reduction};
use crate::communicator::Communicator;
use crate::core::StartedCall;
use crate::error::Error;
use crate::ticket::Ticket;

/// Collectives that go on while the program computes. A start does not wait for other ranks.
///
/// A buffer is a vector, a boxed slice, or any other owner of a slice. All ranks must start the
/// same collectives in the same order, and a blocking call is the same collective as a started one.
/// Blocking collectives between them first wait for those that were started. Blocking messages do
/// not.
///
/// Each call has the time of [`Communicator::timeout`] from its beginning, which is at the end of
/// the call before it. Requests of several communicators progress independently.
impl Communicator {
    /// Starts [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// Those of the call on its arguments, and those that are known already, with the buffer.
    pub fn start_all_reduce<T: Element, B>(&mut self, mut buffer: B, op: ReduceOp) -> Started<B>
    where
        B: AsMut<[T]> + Send + 'static,
    {
        let len = buffer.as_mut().len();
        let call = reduction::<T>(self.wire(), Collective::AllReduce, len, op, Rank(0));
        self.start(&call, buffer, |it| (None, cast_slice_mut(B::as_mut(it))))
    }

    /// Starts [`all_reduce_into`](Self::all_reduce_into).
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    pub fn start_all_reduce_into<T: Element, I, O>(
        &mut self,
        input: I,
        output: O,
        op: ReduceOp,
    ) -> Started<(I, O)>
    where
        I: AsRef<[T]> + Send + 'static,
        O: AsMut<[T]> + Send + 'static,
    {
        let len = input.as_ref().len();
        let call = reduction::<T>(self.wire(), Collective::AllReduce, len, op, Rank(0));
        self.start_apart::<T, I, O>(&call, input, output)
    }

    /// Starts [`all_gather_into`](Self::all_gather_into).
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    pub fn start_all_gather_into<T: Pod, I, O>(&mut self, input: I, output: O) -> Started<(I, O)>
    where
        I: AsRef<[T]> + Send + 'static,
        O: AsMut<[T]> + Send + 'static,
    {
        let call = movement::<T>(Collective::AllGather, input.as_ref().len(), Rank(0));
        self.start_apart::<T, I, O>(&call, input, output)
    }

    /// Starts [`reduce_scatter_into`](Self::reduce_scatter_into).
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    pub fn start_reduce_scatter_into<T: Element, I, O>(
        &mut self,
        input: I,
        mut output: O,
        op: ReduceOp,
    ) -> Started<(I, O)>
    where
        I: AsRef<[T]> + Send + 'static,
        O: AsMut<[T]> + Send + 'static,
    {
        let len = output.as_mut().len();
        let call = reduction::<T>(self.wire(), Collective::ReduceScatter, len, op, Rank(0));
        self.start_apart::<T, I, O>(&call, input, output)
    }

    /// Starts [`broadcast`](Self::broadcast).
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    pub fn start_broadcast<T: Pod, B>(&mut self, mut buffer: B, root: Rank) -> Started<B>
    where
        B: AsMut<[T]> + Send + 'static,
    {
        let call = movement::<T>(Collective::Broadcast, buffer.as_mut().len(), root);
        self.start(&call, buffer, |it| (None, cast_slice_mut(B::as_mut(it))))
    }

    /// Starts [`reduce`](Self::reduce).
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    pub fn start_reduce<T: Element, B>(
        &mut self,
        mut buffer: B,
        op: ReduceOp,
        root: Rank,
    ) -> Started<B>
    where
        B: AsMut<[T]> + Send + 'static,
    {
        let len = buffer.as_mut().len();
        let call = reduction::<T>(self.wire(), Collective::Reduce, len, op, root);
        self.start(&call, buffer, |it| (None, cast_slice_mut(B::as_mut(it))))
    }

    /// Starts [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    pub fn start_barrier(&mut self) -> Started<()> {
        let call = movement::<u8>(Collective::Barrier, 0, Rank(0));
        self.start(&call, (), |()| (Some(&[]), &mut []))
    }

    fn start_apart<T: Pod, I, O>(&mut self, call: &Call, input: I, output: O) -> Started<(I, O)>
    where
        I: AsRef<[T]> + Send + 'static,
        O: AsMut<[T]> + Send + 'static,
    {
        self.start(call, (input, output), |(input, output)| {
            (Some(cast_slice(I::as_ref(input))), cast_slice_mut(O::as_mut(output)))
        })
    }

    /// Starts [`perform`](Self::perform): a call on the bytes that `view` shows of `buffers`. They
    /// are its input and its output. Without an input the call is in place.
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    pub fn start<B: Send + 'static, V>(&mut self, call: &Call, buffers: B, view: V) -> Started<B>
    where
        V: for<'b> Fn(&'b mut B) -> (Option<&'b [u8]>, &'b mut [u8]) + Send + Sync + 'static,
    {
        self.start_lent(lend(buffers, view), |comm, buffers| {
            let call = valid(call, Place::of(buffers), comm.size(), comm.rank())?;
            Ok(StartedCall::Scheduled { call, blocks: None, mark: None })
        })
    }

    /// Starts the call that `checked` makes of lent buffers.
    pub(crate) fn start_lent<B>(
        &mut self,
        (loan, mut owner): (Loan, Owner<B>),
        checked: impl FnOnce(&Self, &mut Buffers<'_>) -> Result<StartedCall, Error>,
    ) -> Started<B> {
        let mut memory = Memory::Lent(loan);
        let place = Place::of(&memory.buffers());
        let call = self.check_process().and_then(|()| checked(self, &mut memory.buffers()));
        match call.and_then(|call| self.check_failure().map(|()| call)) {
            Ok(call) => {
                let ticket = Arc::new(Ticket::default());
                let job = CallJob {
                    call,
                    place,
                    timeout: self.timeout(),
                    memory,
                    begun: None,
                    ticket: Arc::clone(&ticket),
                };
                self.begin(Job::Call(job));
                Ok(Request::new(self.rank(), owner, ticket, Arc::clone(self.slot())))
            }
            Err(error) => {
                drop(memory);
                let Some(buffers) = owner.take() else { unreachable!("the loan has ended") };
                Err(Failed { error, buffers })
            }
        }
    }
}
