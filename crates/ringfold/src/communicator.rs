//! A group of ranks and the collectives among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_bootstrap::interface::Choice;
use ringfold_bootstrap::{Aborter, Complaint, Verdict, Who, Windows, show_connections};
use ringfold_collectives::Stepper;
use ringfold_collectives::select::Constraints;
use ringfold_reduce::scale;
use ringfold_topology::Layout;
use ringfold_transport::{Exchanged, Window, close_in_children};
use ringfold_types::{Call, Rank, ReduceOp, limits};

use crate::backoff::{Patience, park};
use crate::buffers::{AlignedBytes, Buffers, User};
use crate::cache::{Memory, Request, ScheduleCache};
use crate::config::{Config, LONGEST};
use crate::error::{CallError, Error, Failure};
use crate::execute::{Finding, Run, RunCall, Work, block_on, stepped};
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
    /// Whether the ranks have found out how they can read each other's own memory.
    has_tried_peer_memory: bool,
    /// At rest between calls.
    stepper: Stepper,
    pub(crate) windows: WindowNumbers,
    interface: Option<Choice>,
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
            has_tried_peer_memory: false,
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
    pub fn perform(&mut self, call: &Call, mut buffers: Buffers<'_>) -> Result<(), Error> {
        self.check_process()?;
        let request = Request::ordinary(call, &buffers);
        self.perform_request(request, User::Private(&mut buffers), None)
    }

    /// As `perform`, on any memory. `windows` tells the call's windows from others.
    #[inline]
    pub(crate) fn perform_request(
        &mut self,
        request: Request<'_>,
        user: User<'_, '_>,
        windows: Option<Windows>,
    ) -> Result<(), Error> {
        self.guarded(request.call, |it| it.begin(request, user, windows))
    }

    /// Begins a call. If it begins with an exchange, most often that is all of it.
    #[inline]
    fn begin(
        &mut self,
        request: Request<'_>,
        mut user: User<'_, '_>,
        windows: Option<Windows>,
    ) -> Result<(), Error> {
        if !self.cache.is_latest(request) {
            self.compile(request)?;
        }
        let (Some(compiled), Some(control)) = (self.cache.latest(), &self.control) else {
            unreachable!("it is compiled, and only drop takes the control")
        };
        self.seq += 1;
        tracing::trace!("{compiled} #{}", self.seq);
        let tag = compiled.begin(control, self.seq, windows);
        let mut exchanged = Exchanged::Nothing;
        if let (Some(with), User::Private(buffers)) = (compiled.exchange_with, &mut user) {
            let tries = self.patience.tries();
            exchanged = self.router.exchange(&compiled.kernel, tag, with, buffers, tries);
            if exchanged == Exchanged::Both && control.is_quiet() {
                control.finished(self.seq);
                return Ok(());
            }
        }
        match request.call.op {
            ReduceOp::PreMulSum(factor) if request.call.collective.reduces() => {
                self.run_scaled(request, factor.factor(), tag, user)
            }
            _ => self.run(request, tag, exchanged, &mut user),
        }
    }

    /// Runs a call that has begun to its end, after it has scaled the input. Blocks.
    #[cold]
    fn run_scaled(
        &mut self,
        request: Request<'_>,
        factor: f64,
        tag: u32,
        user: User<'_, '_>,
    ) -> Result<(), Error> {
        let Some(compiled) = self.cache.latest() else { unreachable!("it has begun") };
        match user {
            User::Private(buffers) => {
                let mut copy = std::mem::take(&mut self.scaled);
                let mut scaled = buffers.scaled(factor, &compiled.call, self.rank, &mut copy);
                let request = Request::ordinary(request.call, &scaled);
                let user = &mut User::Private(&mut scaled);
                let outcome = self.run(request, tag, Exchanged::Nothing, user);
                self.scaled = copy;
                outcome
            }
            User::Windows { input, output, range } => {
                let from = input.map(|input| input.read(range.clone()));
                scale(compiled.call.data_type, output.write(range.clone()), from, factor);
                let user = &mut User::Windows { input: None, output, range };
                self.run(request, tag, Exchanged::Nothing, user)
            }
        }
    }

    /// Runs a call that has begun to its end. Blocks.
    fn run(
        &mut self,
        request: Request<'_>,
        tag: u32,
        exchanged: Exchanged,
        user: &mut User<'_, '_>,
    ) -> Result<(), Error> {
        let (Some(compiled), Some(control)) = (self.cache.latest(), &self.control) else {
            unreachable!("it has begun, and only drop takes the control")
        };
        let (layout, rank, is_flipped) = (&self.layout, self.rank, self.is_staging_flipped);
        let call = RunCall { compiled, layout, rank, tag, is_flipped };
        let outcome = {
            let mut run = Run::new(call, &mut self.scratch, &mut self.stepper);
            run.add_user(user, request.shape);
            if compiled.is_staged {
                run.add_staging(&mut self.staging);
            }
            if compiled.is_rendezvous && !self.has_tried_peer_memory {
                run.try_peer_memory();
            }
            if exchanged != Exchanged::Nothing {
                run.exchanged(stepped(exchanged));
            }
            let (router, patience) = (&mut self.router, &mut self.patience);
            block_on(&mut run, router, control, patience, self.timeout).map(|()| run.end())
        };
        match outcome {
            Ok(None) => {
                self.is_staging_flipped ^= compiled.program.flips_staging();
                control.finished(self.seq);
                Ok(())
            }
            Ok(Some(finding)) => self.run_after(finding, request, tag, user),
            Err(error) => {
                let call = compiled.call;
                Err(self.fail(call, error))
            }
        }
    }

    /// Goes on with a call that has begun, by the algorithm that is chosen after a `finding`.
    /// Blocks.
    #[cold]
    fn run_after(
        &mut self,
        finding: Finding,
        request: Request<'_>,
        tag: u32,
        user: &mut User<'_, '_>,
    ) -> Result<(), Error> {
        let (rank, layout) = (self.rank, self.layout.clone());
        self.layout = match finding {
            Finding::NoStaging(made) => {
                let why =
                    made.err().map_or_else(|| "another lacks it".to_owned(), |e| e.to_string());
                tracing::warn!(
                    "rank {rank}: no memory for staging buffers, so calls copy more: {why}"
                );
                layout.sharing_memory(false)
            }
            Finding::PeerMemory(memory) => {
                tracing::info!("rank {rank}: other ranks' own memory is {memory:?} to read");
                self.has_tried_peer_memory = true;
                layout.with_peer_memory(memory)
            }
        };
        self.cache.forget();
        self.compile(request)?;
        self.run(request, tag, Exchanged::Nothing, user)
    }

    /// Makes a request the latest, if it is good.
    #[cold]
    fn compile(&mut self, request: Request<'_>) -> Result<(), Error> {
        // Where the communicator has failed, the cache is empty.
        if let Some(failure) = &self.failed {
            return Err(Error::Failed(Arc::clone(failure)));
        }
        let call = crate::arguments::valid(request.call, request.shape, self.size(), self.rank)?;
        self.cache.enter(request, &call, &self.layout, self.rank);
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
