//! A group of ranks and the collectives among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_bootstrap::interface::Choice;
use ringfold_bootstrap::{Aborter, Complaint, Verdict, Who, show_connections};
use ringfold_collectives::select::Constraints;
use ringfold_lend::expose;
use ringfold_reduce::scale;
use ringfold_topology::Layout;
use ringfold_transport::{Window, close_in_children};
use ringfold_types::{Call, Collective, Rank, ReduceOp, limits};

use crate::config::{Config, LONGEST};
use crate::engine::{Engine, Trouble};
use crate::error::{Error, Failure};
use crate::memory::{Memory, Shape, User};
use crate::pair::Begun;
use crate::plans::{Entry, Plans};
use crate::setup::{Parts, join};
use crate::wait::Patience;
use crate::watch::Watch;
use crate::window::Windowing;

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
    pub(crate) rank: Rank,
    pub(crate) layout: Layout,
    pub(crate) engine: Engine,
    pub(crate) plans: Plans,
    /// `None` only while dropping.
    pub(crate) control: Option<Watch>,
    pub(crate) timeout: Duration,
    pub(crate) seq: u64,
    pub(crate) failed: Option<Arc<Failure>>,
    pub(crate) scratch: Bytes,
    pub(crate) scaled: Bytes,
    /// Made when a call first passes through it.
    pub(crate) stage: Option<Window>,
    /// Whether its halves have changed places: the same on all ranks.
    pub(crate) is_stage_turned: bool,
    pub(crate) windows: Windowing,
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
        let patience = Patience::new(crowd, router.shares_memory());
        let mut plans = Plans::new(config);
        let windows = Windowing::new(&plans);
        if layout.shares_memory() {
            plans.hold_contests();
        }
        Self {
            windows,
            rank: control.rank(),
            layout,
            engine: Engine::new(router, patience),
            plans,
            control: Some(Watch::new(control)),
            timeout: config.timeout,
            seq: 0,
            failed: None,
            scratch: Bytes::default(),
            scaled: Bytes::default(),
            stage: None,
            is_stage_turned: false,
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
        self.engine.router().name(peer)
    }

    /// The name of the algorithm that `call` would run by, as in `ring`; before the first of its
    /// length, `attached` may yet prove to be faster.
    ///
    /// # Errors
    /// `RINGFOLD_ALGO` leaves none.
    pub fn algorithm_for(&mut self, call: &Call) -> Result<&'static str, Error> {
        self.plans.entry(call, &self.layout, self.rank).map(|entry| entry.schedule.algorithm())
    }

    /// Chooses among these algorithms from now on, as `RINGFOLD_ALGO` does from the beginning. To
    /// be called by every rank with the same, between the same calls.
    pub fn set_algorithms(&mut self, algorithms: Constraints) {
        self.windows.constrain(&algorithms);
        self.plans.constrain(algorithms);
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
    pub(crate) fn control(&self) -> &Watch {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        control
    }

    /// An error in a child made by `fork`.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.engine.router().is_forked() {
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
        self.engine.router_mut().withdraw();
        self.plans.forget();
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

    /// Runs one call over `user`'s memory, which has that `shape`, from where it was `begun`.
    pub(crate) fn run(
        &mut self,
        call: &Call,
        shape: Shape,
        mut user: User<'_>,
        begun: Option<Begun>,
    ) -> Result<(), Error> {
        if let Some(failure) = &self.failed {
            return Err(Error::Failed(Arc::clone(failure)));
        }
        self.plan(call, shape)?;
        let mut entry = self.plans.latest();
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let Begun { mut tag, steps } = begun.unwrap_or_else(|| {
            self.seq += 1;
            Begun { tag: entry.begin(control, self.seq, None), steps: 0 }
        });
        if entry.is_staged && self.stage.is_none() {
            let planned = entry.call;
            match self.make_stage(tag) {
                Ok(true) => {}
                Ok(false) => self.plan(call, shape)?,
                Err(trouble) => return Err(self.fail(planned, trouble)),
            }
            entry = self.plans.latest();
        }
        if let Some(rival) = entry.rival {
            let planned = entry.call;
            match self.hold_contest(tag, &planned, rival, user.again()) {
                // Who was told something else is in another call.
                Ok(verdict) => tag ^= verdict,
                Err(trouble) => return Err(self.fail(planned, trouble)),
            }
            self.plan(call, shape)?;
            entry = self.plans.latest();
        }
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let user = prescale(call, user, &mut self.scaled);
        let task = entry.task(control, tag, self.timeout);
        let (element, accumulator) = entry.element_bytes;
        let scratch = self.scratch.exactly(entry.scratch_bytes());
        let stage = self.stage.as_mut().filter(|_| entry.is_staged);
        let stage = stage.map(|stage| expose(&entry.schedule, stage));
        let staging = entry.staging(self.is_stage_turned, self.layout.size());
        let mut memory =
            Memory::new(user, scratch, element, accumulator).with_stage(stage, staging);
        match self.engine.run(&task, &mut memory, steps) {
            Ok(()) => {
                self.is_stage_turned ^= entry.schedule.turns_stage();
                control.finished(self.seq);
                Ok(())
            }
            Err(trouble) => {
                let call = entry.call;
                drop(memory);
                Err(self.fail(call, trouble))
            }
        }
    }

    /// Runs `entry` once more, within a call whose bytes carry `tag`, over `user`'s memory.
    pub(crate) fn run_entry(
        &mut self,
        entry: &Entry,
        tag: u32,
        user: User<'_>,
    ) -> Result<(), Trouble> {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let task = entry.task(control, tag, self.timeout);
        let (element, accumulator) = entry.element_bytes;
        let scratch = self.scratch.exactly(entry.scratch_bytes());
        let stage = self.stage.as_mut().filter(|_| entry.is_staged);
        let stage = stage.map(|stage| expose(&entry.schedule, stage));
        let staging = entry.staging(self.is_stage_turned, self.layout.size());
        let mut memory =
            Memory::new(user, scratch, element, accumulator).with_stage(stage, staging);
        self.engine.run(&task, &mut memory, 0)?;
        self.is_stage_turned ^= entry.schedule.turns_stage();
        Ok(())
    }

    /// Makes a call the latest, if it is good.
    #[inline]
    fn plan(&mut self, call: &Call, shape: Shape) -> Result<(), Error> {
        if self.plans.repeats(call, shape) {
            return Ok(());
        }
        let good = self.valid(*call, shape)?;
        self.plans.enter((call, shape), &good, &self.layout, self.rank)
    }

    /// Fails for good, in `call`.
    #[cold]
    pub(crate) fn fail(&mut self, call: Call, trouble: Trouble) -> Error {
        let verdict = self.judge(trouble);
        let failure = Arc::new(Failure { rank: self.rank, call, seq: self.seq, verdict });
        tracing::error!("{failure}");
        self.failed = Some(Arc::clone(&failure));
        self.plans.forget();
        Error::Failed(failure)
    }

    /// Turns what this rank noticed into what all ranks agree on.
    fn judge(&self, trouble: Trouble) -> Arc<Verdict> {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let (seq, who) = (self.seq, |rank| Who { rank, host: None });
        let (complaint, own) = match trouble {
            Trouble::Verdict(verdict) => return verdict,
            Trouble::Link(error) => {
                let (peer, cause) = (error.link.peer, error.to_string());
                let own =
                    Verdict::Link { from: who(self.rank), to: who(peer), cause: cause.clone() };
                (Complaint::Link { peer: peer.0, cause }, own)
            }
            Trouble::Stranger(peer) => {
                let cause = "it sent bytes of another call".to_owned();
                let own = Verdict::Link { from: who(self.rank), to: who(peer), cause };
                (Complaint::Mismatch { seq, peer: peer.0 }, own)
            }
            Trouble::Overdue => {
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
            crate::wait::park(&[Some(control.wake_fd())], left);
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
        if !std::thread::panicking() || self.engine.router().is_forked() {
            // What went wrong is in the log; there is nobody left to return it to.
            self.part().unwrap_or_default();
        }
    }
}

/// Applies the scale of a `PreMulSum` to the input. An allreduce scales on the way to the output
/// and goes on in place; the others need a copy, as the caller's input stays as it is.
fn prescale<'a>(call: &Call, user: User<'a>, copy: &'a mut Bytes) -> User<'a> {
    let ReduceOp::PreMulSum(factor) = call.op else { return user };
    if !call.collective.reduces() {
        return user;
    }
    let (data_type, factor) = (call.data_type, factor.factor());
    let is_allreduce = call.collective == Collective::AllReduce;
    match user {
        User::Together { bytes, .. } if is_allreduce => {
            scale(data_type, bytes, None, factor);
            User::Together { bytes, input_at: 0, output_at: 0 }
        }
        User::Apart { input, output } if is_allreduce => {
            scale(data_type, output, Some(input), factor);
            User::Together { bytes: output, input_at: 0, output_at: 0 }
        }
        User::Together { bytes, input_at, output_at } => {
            let scaled = copy.exactly(bytes.len() - input_at);
            scale(data_type, scaled, Some(&bytes[input_at..]), factor);
            User::Apart { input: scaled, output: &mut bytes[output_at..] }
        }
        User::Apart { input, output } => {
            let scaled = copy.exactly(input.len());
            scale(data_type, scaled, Some(input), factor);
            User::Apart { input: scaled, output }
        }
    }
}

/// Memory that grows and is kept from call to call, aligned to a cache line.
#[derive(Debug, Default)]
pub(crate) struct Bytes(Vec<Line>);

#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Bytes {
    /// Exactly `len` bytes, of which earlier contents may be left.
    pub(crate) fn exactly(&mut self, len: usize) -> &mut [u8] {
        let lines = len.div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line([0; 64]));
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..len]
    }

    /// The first `len` bytes, of those that there are.
    pub(crate) fn front(&self, len: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..len]
    }
}
