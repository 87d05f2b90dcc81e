//! A group of ranks and the collectives among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_bootstrap::interface::Choice;
use ringfold_bootstrap::{Aborter, Complaint, Verdict, Who, Windows, show_connections};
use ringfold_collectives::Stepper;
use ringfold_collectives::select::Constraints;
use ringfold_topology::Layout;
use ringfold_transport::{Exchanged, Window, close_in_children};
use ringfold_types::{Call, Rank, limits};

use crate::backoff::{Patience, park};
use crate::buffers::{AlignedBytes, Buffers, User};
use crate::cache::{Memory, Request, ScheduleCache};
use crate::config::{Config, LONGEST};
use crate::error::{CallError, Error, Failure};
use crate::execute::{Outcome, Run, RunCall, RunMemory, Work, block_on, stepped};
use crate::router::Router;
use crate::setup::{Parts, join};
use crate::shared::WindowNumbers;
use crate::watch::Watch;

/// This process's membership in a group of ranks.
///
/// Collectives are called by all ranks of the communicator, in the same order, with the same
/// counts, types, operations and roots. They block until this rank's part is done. One thread uses
/// a communicator at a time.
///
/// To drop it is to [leave](Self::leave) in good order, except while panicking: then the other
/// ranks are told that this one has failed.
///
/// A child process made by `fork` may not use the communicators of its parent: calls return
/// [`Error::Forked`], and to drop one there does nothing. It keeps no control connection open, so
/// the parent's death is noticed as soon as without it. Windows are shared with the parent; leave
/// them alone.
#[derive(Debug)]
pub struct Communicator {
    rank: Rank,
    layout: Layout,
    pub(crate) router: Router,
    pub(crate) cache: ScheduleCache,
    patience: Patience,
    /// `None` only while dropping.
    control: Option<Watch>,
    timeout: Duration,
    /// The number of the latest call.
    seq: u64,
    failed: Option<Arc<Failure>>,
    scratch: AlignedBytes,
    scaled: AlignedBytes,
    /// Made when a call first passes through it.
    staging: Option<Window>,
    /// Whether its halves have changed places: the same on all ranks.
    is_staging_flipped: bool,
    /// At rest between calls.
    stepper: Stepper,
    pub(crate) windows: WindowNumbers,
    interface: Option<Choice>,
}

/// A call that has begun, and how much of it is done.
#[derive(Clone, Copy)]
struct Begun {
    /// The tag of its bytes.
    tag: u32,
    exchanged: Exchanged,
}

/// How long a rank that noticed trouble waits for the verdict before it states its own. The control
/// thread has a verdict far sooner, even if rank 0 dies or stops, so only a rank without one waits.
const JUDGEMENT: Duration = Duration::from_millis(5 * limits::HUB_SILENCE_MS);

impl Communicator {
    /// Joins the group of ranks that the launcher started this process in, with the settings of the
    /// environment; a group of one if nothing did. To be called by every rank. Blocks until all are
    /// there.
    ///
    /// It may be called again, whether earlier communicators are still there or not; each is a
    /// group of its own. All ranks make their communicators in the same order, so that the n-th of
    /// one meets the n-th of the others. The next program that a rank runs under the same launcher,
    /// as in `ringrun -n 2 sh -c 'one; two'`, may call it too; not so under Hydra, whose PMI-1
    /// serves one program.
    ///
    /// # Errors
    /// [`Error::Config`] or [`Error::Init`].
    pub fn init() -> Result<Self, Error> {
        Self::init_with(&Config::from_env()?)
    }

    /// As [`Communicator::init`], with settings of the caller's.
    ///
    /// # Errors
    /// [`Error::Init`].
    pub fn init_with(config: &Config) -> Result<Self, Error> {
        show_connections(close_in_children);
        Ok(Self::new(config, join(config)?))
    }

    pub(crate) fn new(config: &Config, parts: Parts) -> Self {
        let Parts { layout, crowd, router, control, interface } = parts;
        let shares_memory = router.shares_memory();
        Self {
            rank: control.rank(),
            layout,
            router,
            cache: ScheduleCache::new(config, shares_memory),
            patience: Patience::new(crowd, shares_memory),
            control: Some(Watch::new(control)),
            timeout: config.timeout,
            seq: 0,
            failed: None,
            scratch: AlignedBytes::default(),
            scaled: AlignedBytes::default(),
            staging: None,
            is_staging_flipped: false,
            stepper: Stepper::new(),
            windows: WindowNumbers::new(),
            interface,
        }
    }

    /// This rank, `0..size`.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Which ranks share a host.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The network interface where this rank waits for others, and why that one; none where it
    /// needs none, as in a group of one.
    #[must_use]
    pub const fn interface(&self) -> Option<&Choice> {
        self.interface.as_ref()
    }

    /// The name of the transport to `peer`, as in `shm`.
    #[must_use]
    pub fn transport_to(&self, peer: Rank) -> &'static str {
        self.router.name(peer)
    }

    /// The name of the algorithm that `call` would run by, as in `ring`.
    ///
    /// # Errors
    /// None today.
    pub fn algorithm_for(&self, call: &Call) -> Result<&'static str, Error> {
        Ok(self.algorithm_in_memory(call, Memory::Ordinary))
    }

    /// As `algorithm_for`, for buffers in such memory.
    pub(crate) fn algorithm_in_memory(&self, call: &Call, memory: Memory) -> &'static str {
        self.cache.algorithm(call, memory, &self.layout)
    }

    /// Chooses among these algorithms from now on, as `RINGFOLD_ALGO` does from the beginning. To
    /// be called by every rank with the same, between the same calls.
    pub fn set_algorithms(&mut self, algorithms: Constraints) {
        self.cache.constrain(algorithms);
    }

    /// How long a call may take before the ranks are asked who is missing.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout.min(LONGEST);
    }

    /// A handle that ends this communicator from any thread, also while a call waits: the call
    /// returns [`Error::Failed`] with [`Verdict::Aborted`], and so do those of all other ranks. It
    /// takes a message to rank 0 and back, or two seconds if rank 0 does not answer.
    ///
    /// ```
    /// use ringfold::{Communicator, Error};
    ///
    /// let mut comm = Communicator::init()?;
    /// let aborter = comm.aborter();
    /// std::thread::spawn(move || aborter.abort("interrupted")).join().unwrap();
    /// assert!(matches!(comm.barrier(), Err(Error::Failed(_))));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn aborter(&self) -> Aborter {
        self.control().aborter()
    }

    /// Gives up: all ranks' calls on this communicator fail from now on, with an error that names
    /// this rank and the `reason`. As [`Aborter::abort`], for the thread that has the communicator.
    pub fn abort(&self, reason: impl Into<String>) {
        self.aborter().abort(reason);
    }

    /// Leaves in good order: waits for the others to leave too (rank 0, which carries the control
    /// plane, at most five seconds, the others a second), then compares with them what each has
    /// called of late. So a difference that no call has noticed, because nobody waited for what
    /// never came, does not pass for success.
    ///
    /// # Errors
    /// [`Error::Leave`] if the job has failed and no call of this communicator has said so.
    pub fn leave(mut self) -> Result<(), Error> {
        self.part()
    }

    fn part(&mut self) -> Result<(), Error> {
        if let Err(error) = self.check_process() {
            // The thread to wait for is the parent's, as is the goodbye.
            std::mem::forget(self.control.take());
            return Err(error);
        }
        match self.control.take().map(|watch| watch.into_control().leave()) {
            Some(Err(verdict)) if self.failed.is_none() => {
                let error = Error::Leave { rank: self.rank, verdict };
                tracing::error!("{error}");
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The control plane.
    #[inline]
    fn control(&self) -> &Watch {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        control
    }

    /// An error in a child made by `fork`.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.router.is_forked() {
            return Err(Error::Forked { rank: self.rank });
        }
        Ok(())
    }

    /// Does a part of `call`. If that panics, the memory that the call lent to peers is withdrawn,
    /// the communicator has failed, and the other ranks hear of it.
    #[inline]
    pub(crate) fn guarded<R>(&mut self, call: &Call, part: impl FnOnce(&mut Self) -> R) -> R {
        let guard = Guard { communicator: self, call };
        let result = part(&mut *guard.communicator);
        std::mem::forget(guard);
        result
    }

    /// Fails for good, as `call` panicked.
    #[cold]
    fn give_up(&mut self, call: Call) {
        self.router.withdraw();
        self.cache.forget();
        if self.failed.is_some() {
            return;
        }
        let reason = format!("{call} #{} panicked", self.seq);
        self.abort(reason.clone());
        let verdict = self.control().verdict();
        let own =
            || Arc::new(Verdict::Aborted { who: Who { rank: self.rank, host: None }, reason });
        let verdict = verdict.unwrap_or_else(own);
        let failure = Failure { rank: self.rank, call, seq: self.seq, verdict };
        tracing::error!("{failure}");
        self.failed = Some(Arc::new(failure));
    }

    /// Performs a call on ordinary memory, whose elements have a type that only the call knows. For
    /// bindings and tools.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Failed`].
    #[inline]
    pub fn perform(&mut self, call: &Call, mut buffers: Buffers<'_>) -> Result<(), Error> {
        self.check_process()?;
        let request = Request::ordinary(call, &buffers);
        self.guarded(call, |it| {
            let begun = it.begin_by_exchange(&request, &mut buffers);
            if let Some(Begun { exchanged: Exchanged::Both, .. }) = begun {
                let control = it.control();
                if control.is_quiet() {
                    control.finished(it.seq);
                    return Ok(());
                }
            }
            it.perform_whole(&request, User::Private(buffers), None, begun)
        })
    }

    /// As `perform`, on windows. `named` tells them from others.
    pub(crate) fn perform_on_windows(
        &mut self,
        request: Request,
        user: User<'_>,
        named: Windows,
    ) -> Result<(), Error> {
        self.guarded(&request.call, |it| it.perform_whole(&request, user, Some(named), None))
    }

    /// Performs a call, or the rest of one that has `begun`. Blocks.
    fn perform_whole(
        &mut self,
        request: &Request,
        user: User<'_>,
        windows: Option<Windows>,
        begun: Option<Begun>,
    ) -> Result<(), Error> {
        let begun = match begun {
            Some(begun) => begun,
            None => self.begin(request, windows)?,
        };
        self.run(request, begun, user)
    }

    /// Begins a call that repeats the latest and that begins with an exchange. Most often that is
    /// all of it.
    #[inline]
    fn begin_by_exchange(&mut self, request: &Request, buffers: &mut Buffers<'_>) -> Option<Begun> {
        let compiled = self.cache.latest(request)?;
        let with = compiled.exchange_with?;
        if tracing::level_enabled!(tracing::Level::TRACE) {
            return None;
        }
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        self.seq += 1;
        let tag = compiled.begin(control, self.seq, None);
        let tries = self.patience.tries();
        let exchanged = self.router.exchange(&compiled.kernel, tag, with, buffers, tries);
        Some(Begun { tag, exchanged })
    }

    /// Begins a call.
    fn begin(&mut self, request: &Request, windows: Option<Windows>) -> Result<Begun, Error> {
        if let Some(failure) = &self.failed {
            return Err(Error::Failed(Arc::clone(failure)));
        }
        self.compile(request)?;
        let Some(compiled) = self.cache.current() else { unreachable!("just compiled") };
        self.seq += 1;
        tracing::trace!("{compiled} #{}", self.seq);
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let tag = compiled.begin(control, self.seq, windows);
        Ok(Begun { tag, exchanged: Exchanged::Nothing })
    }

    /// Runs a call that has begun to its end. Blocks.
    fn run(&mut self, request: &Request, begun: Begun, mut user: User<'_>) -> Result<(), Error> {
        let Begun { tag, exchanged } = begun;
        if let Some(failure) = &self.failed {
            return Err(Error::Failed(Arc::clone(failure)));
        }
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let Some(compiled) = self.cache.current() else { unreachable!("it has begun") };
        let (layout, rank, is_flipped) = (&self.layout, self.rank, self.is_staging_flipped);
        let op = request.call.op;
        let call = RunCall { compiled, op, layout, rank, tag, exchanged: stepped(exchanged) };
        let memory = RunMemory {
            user: user.again(),
            scratch: &mut self.scratch,
            scaled: &mut self.scaled,
            staging: &mut self.staging,
            is_flipped,
            stepper: std::mem::take(&mut self.stepper),
        };
        let mut run = Run::new(call, memory);
        let (router, patience) = (&mut self.router, &mut self.patience);
        if let Err(error) = block_on(&mut run, router, control, patience, self.timeout) {
            let call = compiled.call;
            drop(run);
            return Err(self.fail(call, error));
        }
        let outcome = run.end();
        drop(run);
        match outcome {
            Outcome::Done(stepper) => {
                self.stepper = stepper;
                self.is_staging_flipped ^= compiled.program.flips_staging();
                control.finished(self.seq);
                Ok(())
            }
            Outcome::NoStaging(why, memory) => {
                let why =
                    why.err().map_or_else(|| "another lacks it".to_owned(), |e| e.to_string());
                tracing::warn!(
                    "rank {rank}: no memory for staging buffers, so calls copy more: {why}"
                );
                let RunMemory { stepper, .. } = *memory;
                self.stepper = stepper;
                self.layout = self.layout.clone().sharing_memory(false);
                self.cache.forget();
                self.compile(request)?;
                self.run(request, begun, user)
            }
        }
    }

    /// Makes a request the latest, if it is good.
    #[inline]
    fn compile(&mut self, request: &Request) -> Result<(), Error> {
        if self.cache.latest(request).is_some() {
            return Ok(());
        }
        let call = crate::arguments::valid(&request.call, request.shape, self.size(), self.rank)?;
        let compiled = self.cache.enter(*request, &call, &self.layout, self.rank);
        if compiled.is_rendezvous && !self.router.takes_offers() {
            tracing::info!("{compiled}: messages are copied twice where memory cannot be read");
        }
        Ok(())
    }

    /// Goes on with `work` of a call, until it is done. Blocks.
    pub(crate) fn block_on(&mut self, work: &mut impl Work) -> Result<(), CallError> {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        block_on(work, &mut self.router, control, &mut self.patience, self.timeout)
    }

    /// Fails for good, in `call`.
    #[cold]
    pub(crate) fn fail(&mut self, call: Call, error: CallError) -> Error {
        let verdict = self.judge(error);
        let failure = Arc::new(Failure { rank: self.rank, call, seq: self.seq, verdict });
        tracing::error!("{failure}");
        self.failed = Some(Arc::clone(&failure));
        self.cache.forget();
        Error::Failed(failure)
    }

    /// Turns what this rank noticed into what all ranks agree on.
    fn judge(&self, error: CallError) -> Arc<Verdict> {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let (seq, who) = (self.seq, |rank| Who { rank, host: None });
        let (complaint, own) = match error {
            CallError::Verdict(verdict) => return verdict,
            CallError::Link(link) => {
                let (peer, cause) = (link.link.peer, link.to_string());
                let own =
                    Verdict::Link { from: who(self.rank), to: who(peer), cause: cause.clone() };
                (Complaint::Link { peer: peer.0, cause }, own)
            }
            CallError::Foreign(peer) => {
                let cause = "it sent bytes of another call".to_owned();
                let own = Verdict::Link { from: who(self.rank), to: who(peer), cause };
                (Complaint::Mismatch { seq, peer: peer.0 }, own)
            }
            CallError::Overdue => {
                let reason = format!("call #{seq} took longer than {:?}", self.timeout);
                (Complaint::Overdue { seq }, Verdict::Aborted { who: who(self.rank), reason })
            }
        };
        control.complain(complaint);
        let patience = Instant::now() + JUDGEMENT;
        loop {
            if let Some(verdict) = control.verdict() {
                return verdict;
            }
            let left = patience.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("no verdict within {JUDGEMENT:?}; this rank states its own");
                return Arc::new(own);
            }
            park(&[Some(control.wake_fd())], left);
        }
    }
}

/// A call under way. It is dropped only if the call panics.
struct Guard<'c> {
    communicator: &'c mut Communicator,
    call: &'c Call,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.communicator.give_up(*self.call);
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // While panicking, the control is dropped as it is, which tells the others.
        if !std::thread::panicking() || self.router.is_forked() {
            // What went wrong is in the log; there is nobody left to return it to.
            self.part().unwrap_or_default();
        }
    }
}
