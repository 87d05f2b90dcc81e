//! Prepared calls, which a program starts many times.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ringfold_lend::borrow_input;

use super::job::Job;
use super::{Failed, Request};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::ticket::Ticket;

/// A call that [`Communicator::prepare`] has made. [`start`](Self::start) starts it, as often as
/// the program wants.
///
/// It owns the buffers of the call between its starts too. It is active from a start until
/// [`wait`](Self::wait) has returned. Meanwhile it is a [`Request`] for [`Request::test`],
/// [`wait_any`](crate::wait_any) and their relatives. Before its first start and after a wait it
/// counts as ended for them. Dropping it does not cancel a call that is active.
pub struct Prepared<B> {
    request: Request<B>,
    /// The call, without its memory.
    job: Box<Job>,
    is_active: bool,
}

impl Communicator {
    /// Prepares the call that `make` starts, and does not start it. That call is any which a method
    /// of this communicator starts, also a message. Does not wait for other ranks.
    ///
    /// Calls have the order of their starts. So ranks may prepare them in any order, and one rank
    /// may make a call without a preparation. `make` must not wait for the request. Further calls
    /// that it starts begin when it returns.
    ///
    /// # Errors
    /// Those of the start, with the buffers. [`Error::Argument`] if the request is that of another
    /// communicator; its call has ended then.
    ///
    /// ```
    /// use ringfold::{Communicator, ReduceOp};
    ///
    /// let mut comm = Communicator::init()?;
    /// let gradient = vec![0.0_f32; 1000];
    /// let mut average = comm.prepare(|comm| comm.start_all_reduce(gradient, ReduceOp::Avg))?;
    /// for step in 0..3 {
    ///     average.buffers().expect("it is not active").fill(step as f32);
    ///     average.start(&mut comm)?;
    ///     // The program computes here.
    ///     assert_eq!(average.wait()?[999], step as f32);
    /// }
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn prepare<B: Send + 'static, E: From<Failed<B>>>(
        &mut self,
        make: impl FnOnce(&mut Self) -> Result<Request<B>, E>,
    ) -> Result<Prepared<B>, E> {
        let preparing = Preparing::new(self);
        let request = make(&mut *preparing.communicator)?;
        let all = preparing.communicator.kept.iter_mut();
        let job = all.flat_map(|all| all.extract_if(.., |job| job.is_of(&request.ticket))).next();
        drop(preparing);
        let Some(job) = job else {
            let what = "the request is that of another communicator".to_owned();
            let error = Error::Argument { rank: self.rank(), call: "prepare", what };
            let buffers = request.wait().unwrap_or_else(|failed| failed.buffers);
            return Err(Failed { error, buffers }.into());
        };
        let ticket = &request.ticket;
        let template = job.again(borrow_input(&[]), Arc::clone(ticket), Duration::ZERO);
        drop(job);
        ticket.end(Ok(None));
        ticket.take();
        Ok(Prepared { request, job: Box::new(template), is_active: false })
    }
}

/// Has a communicator keep the calls that it should start. It begins them when this is dropped.
struct Preparing<'c> {
    communicator: &'c mut Communicator,
    /// The calls that it kept before.
    outer: Option<Vec<Job>>,
}

impl<'c> Preparing<'c> {
    const fn new(communicator: &'c mut Communicator) -> Self {
        let outer = communicator.kept.replace(Vec::new());
        Self { communicator, outer }
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        let kept = std::mem::replace(&mut self.communicator.kept, self.outer.take());
        kept.into_iter().flatten().for_each(|job| self.communicator.begin(job));
    }
}

impl<B: Send + 'static> Prepared<B> {
    /// Starts the call, after all calls that were started before. `communicator` is the one that
    /// has prepared it. Does not wait for other ranks.
    ///
    /// # Errors
    /// [`Error::Argument`] if the call is active, `communicator` is another one, the buffers have
    /// other lengths than at the preparation, or the program has taken the window;
    /// [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process. The call is
    /// not active then.
    pub fn start(&mut self, communicator: &mut Communicator) -> Result<(), Error> {
        communicator.check_process()?;
        let refusal = |what: &str| {
            let rank = communicator.rank();
            Err(Error::Argument { rank, call: "start", what: what.to_owned() })
        };
        if self.is_active {
            return refusal("the call is active; wait for it before its next start");
        }
        if !Arc::ptr_eq(&self.request.slot, communicator.slot()) {
            return refusal("another communicator has prepared the call");
        }
        communicator.check_failure()?;
        let ticket = Arc::new(Ticket::default());
        let Some(memory) = self.request.buffers.lend() else {
            unreachable!("nothing uses the memory of a call that is not active")
        };
        let mut job = self.job.again(memory, Arc::clone(&ticket), communicator.timeout());
        if let Err(why) = job.check_memory() {
            return refusal(why);
        }
        if let Some(event) = self.request.event.get() {
            event.0.clear();
            ticket.signal_at_end(Waker::from(Arc::clone(event)));
        }
        (self.request.ticket, self.is_active) = (ticket, true);
        communicator.begin(job);
        Ok(())
    }
}

impl<B> Prepared<B> {
    /// Waits until the call has ended, and returns its buffers. Returns at once if the call is not
    /// active.
    ///
    /// # Errors
    /// Those of the call. It is not active then, and [`buffers`](Self::buffers) has its buffers.
    pub fn wait(&mut self) -> Result<&mut B, Error> {
        let was_active = std::mem::take(&mut self.is_active);
        self.request.wait_for(Duration::MAX);
        let Request { rank, ticket, buffers, note, .. } = &mut self.request;
        let is_lost = was_active && !ticket.has_ended();
        let outcome =
            if is_lost { Some(Err(Error::Forked { rank: *rank })) } else { ticket.take() };
        let message = outcome.transpose()?.flatten();
        let Some(buffers) = buffers.value() else { unreachable!("the loan has ended") };
        if let Some(message) = message {
            note(buffers, message);
        }
        Ok(buffers)
    }

    /// The buffers. `None` while the call is active.
    pub fn buffers(&mut self) -> Option<&mut B> {
        if self.is_active { None } else { self.request.buffers.value() }
    }

    /// Waits as [`wait`](Self::wait), and returns the buffers for good.
    ///
    /// # Errors
    /// Those of the call, with the buffers.
    pub fn into_buffers(mut self) -> Result<B, Failed<B>> {
        let outcome = self.wait().map(drop);
        let Some(buffers) = self.request.buffers.take() else { unreachable!("the loan has ended") };
        match outcome {
            Ok(()) => Ok(buffers),
            Err(error) => Err(Failed { error, buffers }),
        }
    }
}

impl<B> Deref for Prepared<B> {
    type Target = Request<B>;

    fn deref(&self) -> &Request<B> {
        &self.request
    }
}

impl<B> fmt::Debug for Prepared<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("call", &self.job).finish_non_exhaustive()
    }
}
