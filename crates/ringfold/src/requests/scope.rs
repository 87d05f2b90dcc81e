//! Started calls on borrowed buffers. They end before their scope does.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_lend::lend_in_scope;
use ringfold_reduce::Element;
use ringfold_types::{Call, Collective, Rank, ReduceOp};

use super::{Request, Started};
use crate::arguments::valid;
use crate::buffers::Place;
use crate::collective::{movement, reduction};
use crate::communicator::Communicator;
use crate::core::StartedCall;
use crate::messages::Elements;
use crate::point_to_point::Received;
use crate::ticket::Ticket;

/// Starts calls on buffers that it borrows for `'b`. See [`Communicator::scope`].
#[derive(Debug)]
pub struct Scope<'c, 'b> {
    communicator: &'c mut Communicator,
    /// The calls that may not have ended.
    tickets: Vec<Arc<Ticket>>,
    buffers: PhantomData<fn(&'b ()) -> &'b ()>,
}

impl Communicator {
    /// Runs `body`, which may start calls on borrowed buffers. Blocks until all of them have ended,
    /// also if `body` panics. The wait of a request returns its borrow sooner.
    ///
    /// All ranks must start the same collectives in the same order, as without a scope.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut gradients = vec![[1.0_f32; 1000]; 4];
    /// comm.scope(|scope| {
    ///     let mut requests = Vec::new();
    ///     for gradient in &mut gradients {
    ///         requests.push(scope.all_reduce(&mut gradient[..], ReduceOp::Sum)?);
    ///         // The next layer is computed here.
    ///     }
    ///     for request in requests {
    ///         let sums = request.wait()?;
    ///         assert_eq!(sums[0], 1.0);
    ///     }
    ///     Ok::<(), ringfold::Error>(())
    /// })?;
    /// assert_eq!(gradients[3], [1.0; 1000]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn scope<'b, R>(&mut self, body: impl FnOnce(&mut Scope<'_, 'b>) -> R) -> R {
        let mut scope = Scope { communicator: self, tickets: Vec::new(), buffers: PhantomData };
        body(&mut scope)
    }
}

impl<'b> Scope<'_, 'b> {
    /// Starts [`Communicator::all_reduce`].
    ///
    /// # Errors
    /// As for [`Communicator::start_all_reduce`].
    pub fn all_reduce<T: Element + Send>(
        &mut self,
        buffer: &'b mut [T],
        op: ReduceOp,
    ) -> Started<&'b mut [T]> {
        let wire = self.communicator.wire();
        let call = reduction::<T>(wire, Collective::AllReduce, buffer.len(), op, Rank(0));
        self.start(&call, buffer, |it| (None, cast_slice_mut(it)))
    }

    /// Starts [`Communicator::all_reduce_into`].
    ///
    /// # Errors
    /// As for [`Communicator::start_all_reduce`].
    pub fn all_reduce_into<T: Element + Sync + Send>(
        &mut self,
        input: &'b [T],
        output: &'b mut [T],
        op: ReduceOp,
    ) -> Started<(&'b [T], &'b mut [T])> {
        let wire = self.communicator.wire();
        let call = reduction::<T>(wire, Collective::AllReduce, input.len(), op, Rank(0));
        self.start_apart(&call, input, output)
    }

    /// Starts [`Communicator::all_gather_into`].
    ///
    /// # Errors
    /// As for [`Communicator::start_all_reduce`].
    pub fn all_gather_into<T: Pod + Sync + Send>(
        &mut self,
        input: &'b [T],
        output: &'b mut [T],
    ) -> Started<(&'b [T], &'b mut [T])> {
        let call = movement::<T>(Collective::AllGather, input.len(), Rank(0));
        self.start_apart(&call, input, output)
    }

    /// Starts [`Communicator::reduce_scatter_into`].
    ///
    /// # Errors
    /// As for [`Communicator::start_all_reduce`].
    pub fn reduce_scatter_into<T: Element + Sync + Send>(
        &mut self,
        input: &'b [T],
        output: &'b mut [T],
        op: ReduceOp,
    ) -> Started<(&'b [T], &'b mut [T])> {
        let wire = self.communicator.wire();
        let call = reduction::<T>(wire, Collective::ReduceScatter, output.len(), op, Rank(0));
        self.start_apart(&call, input, output)
    }

    /// Starts [`Communicator::broadcast`].
    ///
    /// # Errors
    /// As for [`Communicator::start_all_reduce`].
    pub fn broadcast<T: Pod + Send>(
        &mut self,
        buffer: &'b mut [T],
        root: Rank,
    ) -> Started<&'b mut [T]> {
        let call = movement::<T>(Collective::Broadcast, buffer.len(), root);
        self.start(&call, buffer, |it| (None, cast_slice_mut(it)))
    }

    /// Starts [`Communicator::send`], also to this rank.
    ///
    /// # Errors
    /// As for [`Communicator::start_send`].
    pub fn send<T: Pod + Sync>(&mut self, data: &'b [T], to: Rank, tag: u32) -> Started<&'b [T]> {
        let lent = lend_in_scope(data, |it| (Some(cast_slice(it)), &mut []));
        let started = self.communicator.send_lent(lent, Elements::of::<T>(), to, tag);
        self.ending(started)
    }

    /// Starts [`Communicator::recv`], also from this rank.
    ///
    /// # Errors
    /// As for [`Communicator::start_send`].
    pub fn recv<T: Pod + Send>(
        &mut self,
        buffer: &'b mut [T],
        from: impl Into<Option<Rank>>,
        tag: impl Into<Option<u32>>,
    ) -> Started<Received<&'b mut [T]>> {
        let which = (from.into(), tag.into());
        let received = self.communicator.awaited(buffer, which);
        let lent = lend_in_scope(received, |it| (None, cast_slice_mut(it.buffer)));
        let started = self.communicator.recv_lent(lent, Elements::of::<T>(), which);
        self.ending(started.map(|it| it.noting(|it, message| it.message = message)))
    }

    fn start_apart<T: Pod + Sync + Send>(
        &mut self,
        call: &Call,
        input: &'b [T],
        output: &'b mut [T],
    ) -> Started<(&'b [T], &'b mut [T])> {
        self.start(call, (input, output), |(input, output)| {
            (Some(cast_slice(input)), cast_slice_mut(output))
        })
    }

    /// Starts [`Communicator::perform`] on the bytes that `view` shows of `buffers`, as
    /// [`Communicator::start`] does.
    ///
    /// # Errors
    /// As for [`Communicator::start_all_reduce`].
    pub fn start<B: Send + 'b, V>(&mut self, call: &Call, buffers: B, view: V) -> Started<B>
    where
        V: for<'v> Fn(&'v mut B) -> (Option<&'v [u8]>, &'v mut [u8]) + Send + Sync + 'static,
    {
        let lent = lend_in_scope(buffers, view);
        let started = self.communicator.start_lent(lent, |comm, buffers| {
            let call = valid(call, Place::of(buffers), comm.size(), comm.rank())?;
            Ok(StartedCall::Scheduled { call, blocks: None, mark: None })
        });
        self.ending(started)
    }

    /// Has the scope wait for a request.
    fn ending<B>(&mut self, started: Started<B>) -> Started<B> {
        let request: Request<B> = started?;
        if self.tickets.len() == self.tickets.capacity() {
            self.tickets.retain(|ticket| !ticket.has_ended());
        }
        self.tickets.push(Arc::clone(&request.ticket));
        Ok(request)
    }
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        // A scope within a preparation.
        let kept = self.communicator.kept.take();
        kept.into_iter().flatten().for_each(|job| self.communicator.begin(job));
        // In a child process no thread uses the buffers.
        if !self.communicator.slot().is_forked() {
            for ticket in self.tickets.iter().filter(|ticket| !ticket.has_ended()) {
                self.communicator.slot().wait_for(ticket, None);
            }
        }
    }
}
