//! The methods of [`Communicator`] that start collectives.

use std::ops::RangeBounds;
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
use crate::shared::SharedWindow;
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

    /// Starts [`perform_in_shared_windows`](Self::perform_in_shared_windows), for bindings, as
    /// [`start_all_reduce`](Self::start_all_reduce) starts its call. The request keeps `kept` and
    /// gives it back.
    ///
    /// # Errors
    /// As for [`perform_in_windows`](Self::perform_in_windows); also [`Error::Argument`] if the
    /// program has taken a window, or input and output are the same one.
    pub fn start_in_windows<T: Element, B: Send + 'static>(
        &mut self,
        call: &Call,
        input: Option<&SharedWindow<T>>,
        output: &SharedWindow<T>,
        at: usize,
        kept: B,
    ) -> Started<B> {
        let checked = self.check_process().and_then(|()| {
            let (place, mark, claim) = self.claim(call, input, output, at)?;
            let call = valid(call, place, self.size(), self.rank())?;
            self.check_failure().map(|()| (call, place, mark, claim))
        });
        let (call, place, mark, claim) = match checked {
            Ok(checked) => checked,
            Err(error) => return Err(Failed { error, buffers: kept }),
        };
        let call = StartedCall::Scheduled { call, blocks: None, mark: Some(mark) };
        let (kept, owner) = lend(kept, |_| (None, &mut []));
        Ok(self.start_in(call, place, Memory::Windows(Box::new(claim), kept), owner))
    }

    /// Starts [`all_reduce_window`](Self::all_reduce_window) in a window that was
    /// [shared](crate::Window::share). The request has no buffer: [`SharedWindow::take`] gives the
    /// window back after it. Does not wait for other ranks.
    ///
    /// # Errors
    /// As for [`start_in_windows`](Self::start_in_windows).
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut gradient = comm.alloc::<f32>(100)?;
    /// gradient.fill(1.0);
    /// let gradient = gradient.share();
    /// let halves = [
    ///     comm.start_all_reduce_window(&gradient, ..50, ReduceOp::Avg)?,
    ///     comm.start_all_reduce_window(&gradient, 50.., ReduceOp::Sum)?,
    /// ];
    /// // The program computes here.
    /// for half in halves {
    ///     half.wait()?;
    /// }
    /// let gradient = gradient.take().expect("all calls have ended");
    /// assert_eq!((gradient[0], gradient[50]), (1.0, comm.size() as f32));
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn start_all_reduce_window<T: Element>(
        &mut self,
        window: &SharedWindow<T>,
        range: impl RangeBounds<usize>,
        op: ReduceOp,
    ) -> Started<()> {
        let range = self.elements(window.facts.bytes / size_of::<T>(), &range);
        let range = range.map_err(|error| Failed { error, buffers: () })?;
        let call = reduction::<T>(self.wire(), Collective::AllReduce, range.len(), op, Rank(0));
        self.start_in_windows(&call, None, window, range.start * size_of::<T>(), ())
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
        (mut loan, mut owner): (Loan, Owner<B>),
        checked: impl FnOnce(&Self, &mut Buffers<'_>) -> Result<StartedCall, Error>,
    ) -> Started<B> {
        let mut buffers = Buffers::of_loan(&mut loan);
        let place = Place::of(&buffers);
        let call = self.check_process().and_then(|()| checked(self, &mut buffers));
        match call.and_then(|call| self.check_failure().map(|()| call)) {
            Ok(call) => Ok(self.start_in(call, place, Memory::Lent(loan), owner)),
            Err(error) => {
                drop(loan);
                let Some(buffers) = owner.take() else { unreachable!("the loan has ended") };
                Err(Failed { error, buffers })
            }
        }
    }

    /// Starts a call that was checked.
    pub(crate) fn start_in<B>(
        &mut self,
        call: StartedCall,
        place: Place,
        memory: Memory,
        owner: Owner<B>,
    ) -> Request<B> {
        let ticket = Arc::new(Ticket::default());
        let timeout = self.timeout();
        let job =
            CallJob { call, place, timeout, memory, begun: None, ticket: Arc::clone(&ticket) };
        self.begin(Job::Call(job));
        Request::new(self.rank(), owner, ticket, Arc::clone(self.slot()))
    }
}
