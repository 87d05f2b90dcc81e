//! Communicators: the membership of a process in a group of ranks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfold_bootstrap::interface::Choice;
use ringfold_bootstrap::{
    Aborter, CallName, FailureCause, FailureReport, Parent, RankOnHost, Windows, show_connections,
};
use ringfold_collectives::Algorithm;
use ringfold_collectives::Stepper;
use ringfold_collectives::select::{Constraints, is_possible};
use ringfold_reduce::scale;
use ringfold_topology::{Aggregation, Layout};
use ringfold_transport::{Exchanged, LinkFault, Window, close_in_children};
use ringfold_types::{Call, Rank, ReduceOp, UnevenCall, Wire, limits};

use crate::backoff::{WaitPolicy, park};
use crate::buffers::{AlignedBytes, Buffers, User};
use crate::cache::{Memory, Request, ScheduleCache, Table, tag_of};
use crate::config::Config;
use crate::error::{CallError, Error, Failure, Operation};
use crate::execute::{Finding, Run, RunCall, Work, block_on, stepped};
use crate::messages::Lists;
use crate::router::Router;
use crate::setup::{InitError, Origin, Parts, join, join_by_id};
use crate::shared::WindowNumbers;
use crate::store::{KeyValueStore, share_id};
use crate::unique_id::UniqueId;
use crate::watch::Watch;

/// This process's membership in a group of ranks.
///
/// All ranks of a communicator must call its collectives in the same order, with the same counts,
/// types, operations and roots. A collective blocks until this rank's part is done. One thread at a
/// time uses a communicator.
///
/// Buffers are slices: vectors, arrays, boxed slices and [`Window`](crate::Window)s coerce to them,
/// as in `&mut vector`. A window passed as a slice is ordinary memory. Only the methods with
/// `window` in their names work in windows, and all ranks must call them together.
///
/// Dropping a communicator [leaves](Self::leave) the group. If the thread is panicking, the other
/// ranks instead learn that this one has failed.
///
/// A child process made by `fork` cannot use the communicators of its parent: calls return
/// [`Error::Forked`], and dropping one does nothing. The child holds no control connection open, so
/// it does not hide the parent's death. Windows remain shared with the parent; the child must not
/// touch them.
#[derive(Debug)]
pub struct Communicator {
    /// The settings with which the communicator was made.
    config: Arc<Config>,
    /// The name of the group; `None` for a group that no other group has made.
    group: Option<Arc<str>>,
    /// The way in which the ranks make groups among themselves.
    origin: Origin,
    /// The number of groups that these ranks have made.
    groups: u64,
    rank: Rank,
    layout: Layout,
    pub(crate) router: Router,
    pub(crate) cache: ScheduleCache,
    wait_policy: WaitPolicy,
    /// The control plane. `None` only while dropping.
    control: Option<Watch>,
    wire: Wire,
    timeout: Duration,
    /// The number of the latest call.
    seq: u64,
    failed: Option<Arc<Failure>>,
    scratch: AlignedBytes,
    pub(crate) scaled: AlignedBytes,
    /// The rank at which the next receive from any rank begins to look for a message.
    pub(crate) looks_first_at: usize,
    /// The number of operations that the user has registered.
    pub(crate) user_ops: usize,
    /// The buffer of collectives that are packed into one.
    pub(crate) packed: AlignedBytes,
    /// The lists of uneven calls. They are empty between calls.
    pub(crate) lists: Lists<'static>,
    /// The staging buffer. The first call that uses it makes it.
    staging: Option<Window>,
    /// Whether the halves of the staging buffer are flipped: the same on all ranks.
    is_staging_flipped: bool,
    /// Whether the ranks have tested how they can read each other's private memory.
    has_tried_peer_memory: bool,
    /// The state of a program that runs. It has none between calls.
    stepper: Stepper,
    pub(crate) windows: WindowNumbers,
    interface: Option<Choice>,
}

/// The time that a rank waits for the cause after it reported a failure. Then it states its own
/// cause. The control thread has the cause far sooner, even if rank 0 dies or stops.
const CAUSE_WAIT: Duration = Duration::from_millis(5 * limits::COORDINATOR_SILENCE_MS);

impl Communicator {
    /// Joins the group of ranks that a launcher started, with the settings of the environment.
    /// Without a launcher this process becomes a group of one.
    ///
    /// Every rank must call it. It blocks until all ranks have joined, for at most
    /// [`Config::join_timeout`].
    ///
    /// A process may call it again, also while earlier communicators exist; each is a group of its
    /// own. All ranks must make their communicators in the same order: the n-th of one rank meets
    /// the n-th of the others. The next program that a rank runs under the same launcher, as in
    /// `ringrun -n 2 sh -c 'one; two'`, may call it too. Under Hydra it may not: PMI-1 serves one
    /// program.
    ///
    /// # Errors
    /// [`Error::Config`] if a variable is invalid; [`Error::Init`] if the ranks cannot form a
    /// group.
    pub fn init() -> Result<Self, Error> {
        Self::init_with(&Config::from_env()?)
    }

    /// Joins the group of ranks that a launcher started, as [`Communicator::init`] does, with the
    /// caller's settings.
    ///
    /// # Errors
    /// [`Error::Init`] if the ranks cannot form a group.
    pub fn init_with(config: &Config) -> Result<Self, Error> {
        show_connections(close_in_children);
        let config = config.bounded();
        Ok(Self::new(&config, join(&config)?))
    }

    /// Joins the group of `size` ranks that share `id`, as `rank`, without a launcher.
    ///
    /// Every rank must call it with the same id and size, and a rank of its own; see [`UniqueId`].
    /// The launcher's variables and the secret in `config.environment` are ignored. Blocks until
    /// all ranks have joined, for at most [`Config::join_timeout`].
    ///
    /// # Errors
    /// [`Error::Init`] if `rank` is not below `size`, or the ranks cannot form a group.
    pub fn init_with_id(
        config: &Config,
        id: &UniqueId,
        rank: Rank,
        size: usize,
    ) -> Result<Self, Error> {
        show_connections(close_in_children);
        let config = config.bounded();
        let parts = Self::join_id(&config, id, (rank, size), None)?;
        Ok(Self::new(&config, parts))
    }

    /// Joins the group of `size` ranks that share `store`, as `rank`, without a launcher.
    ///
    /// Every rank must call it with the same size, and a rank of its own. Rank 0 publishes its
    /// address and a fresh secret in the store, so nothing else needs to be set: the launcher's
    /// variables and the secret in `config.environment` are ignored. All keys begin with
    /// `ringfold/1/`. Blocks until all ranks have joined, for at most [`Config::join_timeout`].
    ///
    /// Ranks may call it again with the same store: the n-th call of one rank meets the n-th call
    /// of the others. After a call has failed, use a store of other values, or another prefix.
    ///
    /// # Errors
    /// [`Error::Init`] if the store fails, `rank` is not below `size`, or the ranks cannot form a
    /// group.
    pub fn init_with_store(
        config: &Config,
        store: impl KeyValueStore,
        rank: Rank,
        size: usize,
    ) -> Result<Self, Error> {
        Self::join_by_store(config, store, (rank, size), None)
    }

    /// Joins the ranks that share `store`, which may be some of a `parent` group.
    pub(crate) fn join_by_store(
        config: &Config,
        store: impl KeyValueStore,
        place: (Rank, usize),
        mut parent: Option<Parent>,
    ) -> Result<Self, Error> {
        let config = config.bounded();
        let waiting = parent.clone();
        share_id(&config, store, place, waiting.as_ref(), |id, join_timeout| {
            if let Some(parent) = &mut parent {
                let [group @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
                    id.secret().derive(&["nonce"]);
                parent.group = u128::from_le_bytes(group);
            }
            show_connections(close_in_children);
            let rest = Config { join_timeout, ..(*config).clone() }.bounded();
            let parts = Self::join_id(&rest, &id, place, parent)?;
            Ok(Self::new(&config, parts))
        })
    }

    /// Joins the ranks of `id`, which may be some of a `parent` group. Rank 0 takes the socket that
    /// listens for it.
    fn join_id(
        config: &Config,
        id: &UniqueId,
        (rank, size): (Rank, usize),
        parent: Option<Parent>,
    ) -> Result<Parts, InitError> {
        let listener = if rank == Rank(0) && size > 1 { id.take_listener() } else { None };
        let place = (id.address(), listener);
        join_by_id(config, place, id.secret().clone(), (rank, size), parent)
    }

    pub(crate) fn new(config: &Arc<Config>, parts: Parts) -> Self {
        let Parts { layout, occupancy, router, control, interface, origin } = parts;
        let shares_memory = router.shares_memory();
        Self {
            config: Arc::clone(config),
            group: None,
            origin,
            groups: 0,
            rank: control.rank(),
            layout,
            router,
            cache: ScheduleCache::new(config, shares_memory),
            wait_policy: WaitPolicy::new(occupancy, shares_memory),
            control: Some(Watch::new(control)),
            wire: config.wire,
            timeout: config.timeout,
            seq: 0,
            failed: None,
            scratch: AlignedBytes::default(),
            scaled: AlignedBytes::default(),
            looks_first_at: 0,
            user_ops: 0,
            packed: AlignedBytes::default(),
            lists: Lists::default(),
            staging: None,
            is_staging_flipped: false,
            has_tried_peer_memory: false,
            stepper: Stepper::new(),
            windows: WindowNumbers::new(),
            interface,
        }
    }

    /// Wraps the `parts` of a group of some of these ranks. It takes the name of the group, and the
    /// settings that this communicator has now.
    pub(crate) fn child(&self, group: Arc<str>, parts: Parts) -> Self {
        let mut child = Self::new(&self.config, parts);
        child.group = Some(group);
        child.cache.constrain(self.cache.constraints().clone());
        (child.wire, child.timeout) = (self.wire, self.timeout);
        child
    }

    /// The settings with which the communicator was made.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The way in which the ranks make groups among themselves.
    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Counts a group that these ranks make. Returns its number, from 1.
    pub(crate) const fn count_group(&mut self) -> u64 {
        self.groups += 1;
        self.groups
    }

    /// The name of the group, as in `split 2 color 1`. `None` if these ranks are not a part of
    /// another communicator. The name of a part of a group begins with that of the whole group.
    #[must_use]
    pub fn group_name(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// The number of this rank, from 0 to [`size`](Self::size) - 1.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// The hosts of the ranks, and the fabric between them as far as it is known.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The network interface on which this rank listens for its peers, and the reason for that
    /// choice. `None` if it needs no interface, as in a group of one.
    #[must_use]
    pub const fn interface(&self) -> Option<&Choice> {
        self.interface.as_ref()
    }

    /// The name of the transport that carries the data to `peer`: `shm`, `rdma`, `tcp`, `local` for
    /// threads, or `none` for this rank itself.
    ///
    /// # Panics
    /// If `peer` is not a rank of this communicator.
    #[must_use]
    pub fn transport_to(&self, peer: Rank) -> &'static str {
        self.router.name(peer)
    }

    /// The name of the algorithm that would perform `call` on ordinary memory, as in `ring`.
    #[must_use]
    pub fn algorithm_for(&self, call: &Call) -> &'static str {
        self.algorithm_in_memory(call, Memory::Ordinary)
    }

    /// The name of the algorithm that would perform `call` on this kind of memory.
    pub(crate) fn algorithm_in_memory(&self, call: &Call, memory: Memory) -> &'static str {
        self.cache.algorithm(call, memory, &self.layout)
    }

    /// The names of all algorithms that can perform `call` on ordinary memory, as in `ring`. They
    /// do not depend on [`set_algorithms`](Self::set_algorithms), so a caller can allow each in
    /// turn.
    #[must_use]
    pub fn possible_algorithms(&self, call: &Call) -> Vec<&'static str> {
        let known = Algorithm::of(call.collective).iter();
        let possible = known.filter(|algorithm| is_possible(algorithm, call, &self.layout));
        possible.map(|algorithm| algorithm.name).collect()
    }

    /// Restricts all later calls to these algorithms, as `RINGFOLD_ALGO` does from the beginning.
    /// Every rank must call it with the same `algorithms`, between the same two collectives.
    pub fn set_algorithms(&mut self, algorithms: Constraints) {
        self.cache.constrain(algorithms);
    }

    /// Sends partial results of short floats between hosts in this form in all later calls, as
    /// `RINGFOLD_WIRE` does from the beginning. Every rank must call it with the same `wire`,
    /// between the same two collectives.
    pub const fn set_wire(&mut self, wire: Wire) {
        self.wire = wire;
    }

    /// The form in which calls send partial results of short floats between hosts. [`perform`]
    /// takes the form of its call instead.
    ///
    /// [`perform`]: Self::perform
    #[must_use]
    #[inline]
    pub const fn wire(&self) -> Wire {
        self.wire
    }

    /// Sets the time that a call may take, from a millisecond to a hundred years. A call that takes
    /// longer fails on all ranks, with an error that names the ranks that are missing from it.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = limits::timeout(timeout);
    }

    /// The time that a call may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets a function that runs in the thread of a call while the call waits, every 100 ms or so.
    /// It may end the wait by an [`Aborter`]. A binding lets its language handle signals there.
    /// `None` removes it.
    pub fn set_wait_hook(&mut self, hook: Option<Box<dyn FnMut() + Send>>) {
        self.control().set_hook(hook);
    }

    /// A handle that aborts this communicator from any thread, even while a call waits. Calls on
    /// all ranks then return [`Error::Failed`] with [`FailureCause::Aborted`], after one message to
    /// rank 0 and one back, or after two seconds if rank 0 does not answer.
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

    /// Aborts this communicator, as [`Aborter::abort`] does. All later calls on all ranks fail with
    /// an error that names this rank and the `reason`. Does not block.
    pub fn abort(&self, reason: impl Into<String>) {
        self.aborter().abort(reason);
    }

    /// Leaves the group. Blocks until the other ranks leave too: at most five seconds on rank 0,
    /// which carries the control plane, and at most one second on the others.
    ///
    /// The ranks then compare their latest calls. This detects ranks that made different calls even
    /// if no call waited for the missing messages.
    ///
    /// # Errors
    /// [`Error::Leave`] if the job has failed and no call of this communicator has returned that
    /// failure. [`Error::Forked`] in a child process.
    pub fn leave(mut self) -> Result<(), Error> {
        self.leave_group()
    }

    fn leave_group(&mut self) -> Result<(), Error> {
        if let Err(error) = self.check_process() {
            // Only the parent has the control thread, and only the parent may say goodbye.
            std::mem::forget(self.control.take());
            return Err(error);
        }
        match self.control.take().map(|watch| watch.into_control().leave()) {
            Some(Err(cause)) if self.failed.is_none() => {
                let group = self.group.clone();
                let error = Error::Leave { rank: self.rank, group, cause };
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

    /// Fails in a child process made by `fork`.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.router.is_forked() {
            return Err(Error::Forked { rank: self.rank });
        }
        Ok(())
    }

    /// Performs a part of `call`. If that panics, no peer uses the call's memory any longer, the
    /// communicator has failed, and the other ranks learn of the failure.
    #[inline]
    pub(crate) fn guarded<R>(&mut self, call: &Call, part: impl FnOnce(&mut Self) -> R) -> R {
        self.guarded_in(Doing::Call(call), part)
    }

    /// Performs a part of an operation, as [`guarded`](Self::guarded) does.
    #[inline]
    pub(crate) fn guarded_in<R>(
        &mut self,
        doing: Doing<'_>,
        part: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let guard = Guard { communicator: self, doing };
        let result = part(&mut *guard.communicator);
        std::mem::forget(guard);
        result
    }

    /// Makes the communicator fail for good, because `operation` panicked.
    #[cold]
    fn give_up(&mut self, operation: Operation) {
        self.router.withdraw();
        self.cache.forget();
        if self.failed.is_some() {
            return;
        }
        let reason = format!("{operation} panicked");
        self.abort(reason.clone());
        let cause = self.control().failure_cause();
        let own = || {
            Arc::new(FailureCause::Aborted {
                who: RankOnHost { rank: self.rank, host: None },
                reason,
            })
        };
        let cause = cause.unwrap_or_else(own);
        let failure = self.failure(operation, cause);
        tracing::error!("{failure}");
        self.failed = Some(Arc::new(failure));
    }

    /// Performs a call on bytes, for bindings and tools. `call` has the type of the elements. Every
    /// rank must make the same call. Blocks until this rank's part is done.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths do not fit the call; [`Error::Failed`] if the job has
    /// failed; [`Error::Forked`] in a child process.
    pub fn perform(&mut self, call: &Call, mut buffers: Buffers<'_>) -> Result<(), Error> {
        self.check_process()?;
        let request = Request::ordinary(call, &buffers);
        self.perform_request(request, User::Private(&mut buffers), None)
    }

    /// Performs a call on blocks whose lengths may differ. Its buffers fit them. Blocks.
    pub(crate) fn perform_in_blocks(
        &mut self,
        call: &Call,
        table: &Table,
        mut buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let request = Request { table: Some(table), ..Request::ordinary(call, &buffers) };
        self.guarded_in(Doing::Uneven(&table.call), |it| {
            it.begin(request, User::Private(&mut buffers), None)
        })
    }

    /// Performs a request on any memory. `windows` has the numbers of the call's windows, for the
    /// comparison with other ranks.
    #[inline]
    pub(crate) fn perform_request(
        &mut self,
        request: Request<'_>,
        user: User<'_, '_>,
        windows: Option<Windows>,
    ) -> Result<(), Error> {
        self.guarded(request.call, |it| it.begin(request, user, windows))
    }

    /// Begins a call. A call of two ranks that is one exchange usually ends here.
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
            let tries = self.wait_policy.early_spins();
            exchanged = self.router.exchange(&compiled.kernel, tag, with, buffers, tries);
            if exchanged == Exchanged::Both && control.is_quiet() {
                control.finished(self.seq);
                return Ok(());
            }
        }
        match request.call.op {
            ReduceOp::PreMulSum(factor) if request.call.collective.reduces() => {
                self.run_prepared(request, Some(factor.factor()), tag, user)
            }
            _ if request.shape.in_place && !request.call.collective.works_in_place() => {
                self.run_prepared(request, None, tag, user)
            }
            _ => self.run(request, tag, exchanged, &mut user),
        }
    }

    /// Scales the input of a call that has begun, or copies it where the call does not work in
    /// place. Runs the call to its end. Blocks.
    #[cold]
    fn run_prepared(
        &mut self,
        request: Request<'_>,
        factor: Option<f64>,
        tag: u32,
        user: User<'_, '_>,
    ) -> Result<(), Error> {
        let Some(compiled) = self.cache.latest() else { unreachable!("it has begun") };
        match user {
            User::Private(buffers) => {
                let mut copy = std::mem::take(&mut self.scaled);
                let mut prepared = match factor {
                    Some(factor) => buffers.scaled(factor, &compiled.program, &mut copy),
                    None => buffers.apart(&mut copy),
                };
                let request = request.on(&prepared);
                let user = &mut User::Private(&mut prepared);
                let outcome = self.run(request, tag, Exchanged::Nothing, user);
                self.scaled = copy;
                outcome
            }
            User::Windows { input, output, range } => {
                let from = input.map(|input| input.read(range.clone()));
                let factor = factor.unwrap_or(1.0);
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
        let call = RunCall { compiled, layout, rank, tag, seq: self.seq, is_flipped };
        let outcome = {
            let mut run = Run::new(call, &mut self.scratch, &mut self.stepper);
            run.add_user(user, request.shape);
            if compiled.is_staged {
                run.add_staging(&mut self.staging);
            }
            if compiled.is_rendezvous && !self.has_tried_peer_memory {
                run.try_peer_memory();
            }
            if compiled.is_offloaded && self.router.offload().is_some() {
                run.offload();
            }
            if exchanged != Exchanged::Nothing {
                run.exchanged(stepped(exchanged));
            }
            let (router, policy) = (&mut self.router, &mut self.wait_policy);
            block_on(&mut run, router, control, policy, self.timeout).map(|()| run.end())
        };
        match outcome {
            Ok(None) => {
                self.is_staging_flipped ^= compiled.program.flips_staging();
                control.finished(self.seq);
                Ok(())
            }
            Ok(Some(finding)) => self.run_after(finding, request, tag, user),
            Err(error) => {
                let operation = compiled.operation(self.seq);
                Err(self.fail_in(operation, error))
            }
        }
    }

    /// Chooses the algorithm of a call again after a `finding`, and runs the call to its end.
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
                    made.err().map_or_else(|| "another rank failed".to_owned(), |e| e.to_string());
                tracing::warn!(
                    "rank {rank} cannot make staging buffers, so calls copy more: {why}"
                );
                layout.sharing_memory(false)
            }
            Finding::PeerMemory(memory) => {
                tracing::info!("rank {rank}: reading other ranks' private memory is {memory:?}");
                self.has_tried_peer_memory = true;
                layout.with_peer_memory(memory)
            }
            Finding::GroupLost => {
                let given_up = layout
                    .aggregation()
                    .cloned()
                    .map(|aggregation| Aggregation { is_automatic: false, ..aggregation });
                layout.with_aggregation(given_up)
            }
        };
        self.cache.forget();
        self.compile(request)?;
        self.run(request, tag, Exchanged::Nothing, user)
    }

    /// Checks a request, compiles it and makes it the latest.
    #[cold]
    fn compile(&mut self, request: Request<'_>) -> Result<(), Error> {
        // The cache of a failed communicator is empty, so each of its calls comes here.
        self.check_failed()?;
        let (call, shape) = (request.call, request.shape);
        let call = match request.table {
            // Its caller has checked it.
            Some(_) => *call,
            None => crate::arguments::valid(call, shape, self.size(), self.rank)?,
        };
        self.cache.enter(request, &call, &self.layout, self.rank);
        Ok(())
    }

    /// Fails if the job has failed in an earlier operation.
    pub(crate) fn check_failed(&self) -> Result<(), Error> {
        self.failed.as_ref().map_or(Ok(()), |failure| Err(Error::Failed(Arc::clone(failure))))
    }

    /// Polls the transports once, if the job has not failed.
    pub(crate) fn polled(&mut self) -> Result<(&Router, &Watch), CallError> {
        self.control().check_abort_after_pause()?;
        self.router.poll()?;
        Ok((&self.router, self.control()))
    }

    /// Advances `work` until it is done. Blocks.
    pub(crate) fn block_on(&mut self, work: &mut impl Work) -> Result<(), CallError> {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        block_on(work, &mut self.router, control, &mut self.wait_policy, self.timeout)
    }

    /// Makes the communicator fail for good, in `call`.
    #[cold]
    pub(crate) fn fail(&mut self, call: Call, error: CallError) -> Error {
        self.fail_in(Operation::Call { call, seq: self.seq }, error)
    }

    /// The number of the latest collective.
    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }

    /// Begins an uneven collective. Returns the tag of its messages.
    pub(crate) fn begin_uneven(&mut self, call: &UnevenCall) -> u32 {
        self.seq += 1;
        tracing::trace!("{call} #{}", self.seq);
        self.control().entered(self.seq, &CallName::uneven(call));
        tag_of(call.to_words(), self.seq)
    }

    /// Ends the collective that has begun last.
    pub(crate) fn end_uneven(&self) {
        self.control().finished(self.seq);
    }

    /// Makes the communicator fail for good, in `operation`.
    #[cold]
    pub(crate) fn fail_in(&mut self, operation: Operation, error: CallError) -> Error {
        let cause = self.cause_of(operation, error);
        let failure = Arc::new(self.failure(operation, cause));
        tracing::error!("{failure}");
        self.failed = Some(Arc::clone(&failure));
        self.cache.forget();
        Error::Failed(failure)
    }

    fn failure(&self, operation: Operation, cause: Arc<FailureCause>) -> Failure {
        Failure { rank: self.rank, group: self.group.clone(), operation, cause }
    }

    /// The report of a message that failed, and this rank's own cause.
    fn message_failure(&self, peer: Rank, cause: String) -> (FailureReport, FailureCause) {
        let who = |rank| RankOnHost { rank, host: None };
        let own =
            FailureCause::Message { from: who(self.rank), to: who(peer), cause: cause.clone() };
        (FailureReport::Message { peer: peer.0, cause }, own)
    }

    /// The report of a failure that has no other rank's part, and this rank's own cause.
    fn abort_report(&self, reason: String) -> (FailureReport, FailureCause) {
        let who = RankOnHost { rank: self.rank, host: None };
        let own = FailureCause::Aborted { who, reason: reason.clone() };
        (FailureReport::Abort { reason }, own)
    }

    /// Reports a failure that this rank observed, and waits for the cause that all ranks agree on.
    fn cause_of(&self, operation: Operation, error: CallError) -> Arc<FailureCause> {
        let Some(control) = &self.control else { unreachable!("only drop takes the control") };
        let (seq, who) = (self.seq, |rank| RankOnHost { rank, host: None });
        let (report, own) = match error {
            CallError::FailureCause(cause) => return cause,
            CallError::Link(link) if matches!(link.fault, LinkFault::Died) => {
                let peer = link.link.peer;
                (FailureReport::Died { peer: peer.0 }, FailureCause::Died { who: who(peer) })
            }
            CallError::Link(link) => {
                let (peer, cause) = (link.link.peer, link.to_string());
                let own = FailureCause::Link {
                    from: who(self.rank),
                    to: who(peer),
                    cause: cause.clone(),
                };
                (FailureReport::Link { peer: peer.0, cause }, own)
            }
            CallError::Left(peer) => {
                let cause = "the rank has left the job".to_owned();
                let own = FailureCause::Link {
                    from: who(self.rank),
                    to: who(peer),
                    cause: cause.clone(),
                };
                (FailureReport::Link { peer: peer.0, cause }, own)
            }
            CallError::Foreign(peer) => {
                let cause = "it sent bytes of another call".to_owned();
                let own = FailureCause::Link { from: who(self.rank), to: who(peer), cause };
                (FailureReport::Mismatch { seq, peer: peer.0 }, own)
            }
            CallError::Unexpected { peer, cause } => self.message_failure(peer, cause),
            CallError::Panicked(reason) => self.abort_report(reason),
            CallError::Overdue if let Operation::Message(message) = operation => {
                let cause = format!("{message} took longer than {:?}", self.timeout);
                self.message_failure(message.peer, cause)
            }
            CallError::Overdue if let Operation::AnyMessage { .. } = operation => {
                self.abort_report(format!("{operation} took longer than {:?}", self.timeout))
            }
            CallError::Overdue => {
                let reason = format!("call #{seq} took longer than {:?}", self.timeout);
                (
                    FailureReport::Overdue { seq },
                    FailureCause::Aborted { who: who(self.rank), reason },
                )
            }
        };
        control.report_failure(report);
        let deadline = Instant::now() + CAUSE_WAIT;
        loop {
            if let Some(cause) = control.failure_cause() {
                return cause;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("no cause within {CAUSE_WAIT:?}; this rank states its own");
                return Arc::new(own);
            }
            park(&[Some(control.wake_fd())], left);
        }
    }
}

/// The operation that a guarded part belongs to.
#[derive(Clone, Copy)]
pub(crate) enum Doing<'c> {
    /// A collective.
    Call(&'c Call),
    /// A message, and perhaps others beside it, or the search for one.
    Message(Operation),
    /// An uneven collective.
    Uneven(&'c UnevenCall),
}

/// A guard of an operation that runs. It is dropped only if the operation panics.
struct Guard<'c> {
    communicator: &'c mut Communicator,
    doing: Doing<'c>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let operation = match self.doing {
            Doing::Call(call) => Operation::Call { call: *call, seq: self.communicator.seq },
            Doing::Message(message) => message,
            Doing::Uneven(call) => Operation::Uneven { call: *call, seq: self.communicator.seq },
        };
        self.communicator.give_up(operation);
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // While panicking the control is dropped without a goodbye, which tells the other ranks.
        if !std::thread::panicking() || self.router.is_forked() {
            // The log has the error; `drop` cannot return it.
            self.leave_group().unwrap_or_default();
        }
    }
}
