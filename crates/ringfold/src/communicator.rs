//! Communicators: the membership of a process in a group of ranks.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use ringfold_bootstrap::interface::Choice;
use ringfold_bootstrap::{Aborter, ParentGroup, show_connections};
use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Constraints, is_possible};
use ringfold_topology::Layout;
use ringfold_transport::close_in_children;
use ringfold_types::{Call, Rank, Wire, limits};

use crate::buffers::{Buffers, Memory, User};
use crate::cache::Request;
use crate::config::Config;
use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::health::Health;
use crate::lineage::Lineage;
use crate::profile::Profile;
use crate::requests::job::Job;
use crate::requests::slot::Slot;
use crate::setup::{InitError, Origin, Parts, join, join_by_id};
use crate::shared::WindowNumbers;
use crate::store::{KeyValueStore, share_id};
use crate::trace;
use crate::unique_id::UniqueId;

/// This process's membership in a group of ranks.
///
/// All ranks of a communicator must call its collectives in the same order, with the same counts,
/// types, operations and roots. A collective blocks until this rank's part is done, unless it is
/// [started](Self::start_all_reduce). One thread at a time uses a communicator.
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
    /// The way in which the ranks make groups among themselves.
    origin: Origin,
    /// The number of groups that these ranks have made.
    groups: u64,
    pub(crate) lineage: Lineage,
    rank: Rank,
    wire: Wire,
    interface: Option<Choice>,
    /// The number of operations that the user has registered.
    pub(crate) user_ops: usize,
    pub(crate) windows: WindowNumbers,
    /// The time that a call may take.
    timeout: Duration,
    /// The layout, as it was when the engine went to the slot.
    layout: Layout,
    group: Option<Arc<str>>,
    aborter: Aborter,
    /// Performs the calls. `None` while started calls are under way, and the engine is in the slot.
    engine: Option<Box<Engine>>,
    slot: Arc<Slot<Engine>>,
    /// The calls to be started, while the program prepares one.
    pub(crate) kept: Option<Vec<Job>>,
}

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
    /// A process that `ringrun --restart` has started in place of a dead rank joins the group that
    /// [waits for it](Self::wait_for_replacement), which has an [`epoch`](Self::epoch) above 0.
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
        if config.is_newcomer() {
            return Self::init_as_replacement(&config);
        }
        Ok(Self::new(&config, join(&config)?))
    }

    /// Joins the group of `size` ranks that share `id`, as `rank`, without a launcher.
    ///
    /// Every rank must call it with the same id and size, and a rank of its own; see [`UniqueId`].
    /// The launcher's variables and the secret in `config.environment` only tell of a launcher that
    /// votes when the ranks [`shrink`](Self::shrink). Blocks until all ranks have joined, for at
    /// most [`Config::join_timeout`].
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
    /// address and a fresh secret in the store, so nothing else needs to be set. The launcher's
    /// variables and the secret in `config.environment` only tell of a launcher that votes when the
    /// ranks [`shrink`](Self::shrink). All keys begin with `ringfold/1/`. Blocks until all ranks
    /// have joined, for at most [`Config::join_timeout`].
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
        mut parent: Option<ParentGroup>,
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
        parent: Option<ParentGroup>,
    ) -> Result<Parts, InitError> {
        let listener = if rank == Rank(0) && size > 1 { id.take_listener() } else { None };
        let place = (id.address(), listener);
        join_by_id(config, place, id.secret().clone(), (rank, size), parent)
    }

    pub(crate) fn new(config: &Arc<Config>, parts: Parts) -> Self {
        let Parts { layout, occupancy, router, control, interface, origin } = parts;
        let rank = control.rank();
        let (health, slot) = (Health::new(control), Slot::new());
        let aborter = health.watch().aborter();
        let core = Core::new(config, rank, (layout.clone(), occupancy), router);
        let progress = config.progress.clone();
        Self {
            config: Arc::clone(config),
            origin,
            groups: 0,
            lineage: Lineage::default(),
            rank,
            wire: config.wire,
            interface,
            user_ops: 0,
            windows: WindowNumbers::new(),
            timeout: config.timeout,
            layout,
            group: None,
            aborter,
            engine: Some(Box::new(Engine::new(core, health, progress, Arc::clone(&slot)))),
            slot,
            kept: None,
        }
    }

    /// Wraps the `parts` of a group of some of these ranks. It takes the name of the group, and the
    /// settings that this communicator has now.
    pub(crate) fn child(&mut self, group: Arc<str>, parts: Parts) -> Result<Self, Error> {
        let mut child = Self::new(&self.config, parts);
        child.wire = self.wire;
        child.set_timeout(self.timeout);
        let constraints = self.engine()?.core.cache.constraints().clone();
        child.engine()?.core.cache.constrain(constraints);
        child.name_group(group)?;
        Ok(child)
    }

    /// Gives the group its name.
    pub(crate) fn name_group(&mut self, group: Arc<str>) -> Result<(), Error> {
        self.engine()?.group = Some(Arc::clone(&group));
        self.group = Some(group);
        Ok(())
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
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout().size()
    }

    /// The hosts of the ranks, and the fabric between them as far as it is known.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> &Layout {
        self.engine.as_ref().map_or(&self.layout, |engine| &engine.core.layout)
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
        self.look(|engine| engine.core.router.name(peer))
    }

    /// The name of the algorithm that would perform `call` on ordinary memory, as in `ring`.
    #[must_use]
    pub fn algorithm_for(&self, call: &Call) -> &'static str {
        self.algorithm_in_memory(call, Memory::Ordinary)
    }

    /// The name of the algorithm that would perform `call` on this kind of memory.
    pub(crate) fn algorithm_in_memory(&self, call: &Call, memory: Memory) -> &'static str {
        self.look(|Engine { core, .. }| core.cache.algorithm(call, memory, &core.layout))
    }

    /// The names of all algorithms that can perform `call` on ordinary memory, as in `ring`. They
    /// do not depend on [`set_algorithms`](Self::set_algorithms), so a caller can allow each in
    /// turn.
    #[must_use]
    pub fn possible_algorithms(&self, call: &Call) -> Vec<&'static str> {
        let known = Algorithm::of(call.collective).iter();
        let possible = known.filter(|algorithm| is_possible(algorithm, call, self.layout()));
        possible.map(|algorithm| algorithm.name).collect()
    }

    /// Restricts all later calls to these algorithms, as `RINGFOLD_ALGO` does from the beginning.
    /// Every rank must call it with the same `algorithms`, between the same two collectives.
    pub fn set_algorithms(&mut self, algorithms: Constraints) {
        if let Ok(mut engine) = self.engine() {
            engine.core.cache.constrain(algorithms);
        }
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
        if let Some(engine) = &mut self.engine {
            engine.core.timeout = self.timeout;
        }
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
        if let Ok(engine) = self.engine() {
            engine.health.watch().set_hook(hook);
        }
    }

    /// Begins a profile of this rank's calls, in place of one that has begun before. First waits
    /// for the collectives that were started. Ranks may do so independently of each other.
    ///
    /// Each call then reads the clock several times, and looks up its schedule. Without a profile
    /// calls do nothing for it. A profile is a pair of methods rather than a closure, because a
    /// span of a training loop often begins and ends in different functions.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process.
    pub fn begin_profile(&mut self) -> Result<(), Error> {
        let core = &mut self.engine()?.core;
        core.profile = Some(Box::default());
        core.cache.forget_latest();
        Ok(())
    }

    /// Ends the profile, and returns it. It is empty if none had begun. First waits for the
    /// collectives that were started.
    ///
    /// A rank on which the others wait has the shortest waiting time of all. Where a network is
    /// slower than the ranks, all of them wait alike.
    ///
    /// ```
    /// use ringfold::{ReduceOp, local};
    ///
    /// let profiles = local::run(2, |comm| {
    ///     comm.begin_profile().unwrap();
    ///     for _ in 0..10 {
    ///         comm.all_reduce(&mut vec![1.0_f32; 1 << 16], ReduceOp::Sum).unwrap();
    ///     }
    ///     comm.end_profile().unwrap()
    /// })?;
    /// let calls = profiles[0].kinds[0];
    /// assert_eq!((calls.operation, calls.calls), ("allreduce", 10));
    /// assert_eq!(calls.waiting + calls.moving() + calls.combining, calls.time);
    /// println!("{}", profiles[0]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process.
    pub fn end_profile(&mut self) -> Result<Profile, Error> {
        Ok(self.engine()?.core.profile.take().map_or_else(Profile::default, |it| *it))
    }

    /// A handle that aborts this communicator from any thread, even while a call waits. Calls on
    /// all ranks then return [`Error::Failed`] with
    /// [`FailureCause::Aborted`](crate::FailureCause::Aborted), after one message to rank 0 and one
    /// back, or after two seconds if rank 0 does not answer.
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
        self.aborter.clone()
    }

    /// Aborts this communicator, as [`Aborter::abort`] does. All later calls on all ranks fail with
    /// an error that names this rank and the `reason`. Does not block.
    pub fn abort(&self, reason: impl Into<String>) {
        self.aborter.abort(reason);
    }

    /// Revokes this communicator, as `MPI_Comm_revoke` of `ULFM` does. All calls on all ranks then
    /// fail with [`FailureCause::Revoked`](crate::FailureCause::Revoked), those that wait included.
    /// One rank suffices. No rank counts as failed, so that [`shrink`](Self::shrink) makes a
    /// communicator of all that live. After a failure it does nothing. Does not block.
    pub fn revoke(&self) {
        self.aborter.revoke();
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
            match &mut self.engine {
                Some(engine) => std::mem::forget(engine.health.watch.take()),
                None => std::mem::forget(Arc::clone(&self.slot)),
            }
            std::mem::forget(std::mem::take(&mut self.lineage));
            return Err(error);
        }
        self.end_messages();
        let mut engine = self.engine()?;
        engine.unwatch();
        let health = &mut engine.health;
        let has_failed = health.failed.is_some();
        let left = health.watch.take().map(|watch| watch.into_control().leave());
        trace::flush();
        match left {
            Some(Err(cause)) if !has_failed => {
                drop(engine);
                let group = self.group.clone();
                let error = Error::Leave { rank: self.rank, group, cause };
                tracing::error!("{error}");
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Waits until the started calls have ended and all messages are sent, and ends the receives
    /// that are left.
    fn end_messages(&mut self) {
        if self.engine.is_some() {
            return;
        }
        self.recall(|engine| {
            let is_done = |it: &Engine| it.jobs.is_empty() && !it.core.post.has_unsent_to_others();
            engine.drive(|_| false, is_done);
            engine.end_receives();
        });
    }

    /// The engine, which performs the calls. First waits for the collectives that were started.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process.
    #[inline]
    pub(crate) fn engine(&mut self) -> Result<Engaged<'_>, Error> {
        if self.slot.is_forked() || self.engine.is_none() {
            self.check_process()?;
            self.recall(|engine| engine.drive(|_| false, |it| it.jobs.is_empty()));
        }
        Ok(Engaged(self))
    }

    /// The engine, beside the calls and messages that were started.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process.
    pub(crate) fn beside(&mut self) -> Result<Engaged<'_>, Error> {
        if self.slot.is_forked() || self.engine.is_none() {
            self.check_process()?;
            self.recall(|_| ());
        }
        Ok(Engaged(self))
    }

    /// Lays the engine in the slot if calls or messages are under way.
    #[cold]
    fn lay_aside(&mut self) {
        if let Some(engine) = self.engine.take_if(|engine| engine.has_work()) {
            self.layout.clone_from(&engine.core.layout);
            self.slot.put(engine);
        }
    }

    /// Takes the engine back from the slot, after `part`.
    #[cold]
    fn recall(&mut self, part: impl FnOnce(&mut Engine)) {
        let mut held = self.slot.take();
        part(held.engine());
        let mut engine = held.keep();
        engine.core.timeout = self.timeout;
        self.engine = Some(engine);
    }

    /// Looks at the engine, wherever it is.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        match &self.engine {
            Some(engine) => look(engine),
            None => self.slot.look(look),
        }
    }

    /// Whether no started call or message is under way.
    pub(crate) const fn is_at_rest(&self) -> bool {
        self.engine.is_some()
    }

    /// Fails if the job is known to have failed.
    pub(crate) fn check_failure(&self) -> Result<(), Error> {
        match &self.engine {
            Some(engine) => engine.health.check(),
            None => self.slot.check_failure(),
        }
    }

    /// The slot of the engine.
    pub(crate) const fn slot(&self) -> &Arc<Slot<Engine>> {
        &self.slot
    }

    /// Begins a started call or message, as far as that is possible without a wait.
    pub(crate) fn begin(&mut self, job: Job) {
        if let Some(kept) = &mut self.kept {
            return kept.push(job);
        }
        let Some(engine) = &mut self.engine else { return self.slot.start(job) };
        engine.add(job);
        engine.guarded_started(Engine::advance_new);
        self.lay_aside();
    }

    /// Fails in a child process made by `fork`.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.slot.is_forked() {
            return Err(Error::Forked { rank: self.rank });
        }
        Ok(())
    }

    /// Performs a call on bytes, for bindings and tools. `call` has the type of the elements. Every
    /// rank must make the same call. Blocks until this rank's part is done.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths do not fit the call; [`Error::Failed`] if the job has
    /// failed; [`Error::Forked`] in a child process.
    pub fn perform(&mut self, call: &Call, mut buffers: Buffers<'_>) -> Result<(), Error> {
        let request = Request::ordinary(call, &buffers);
        self.perform_request(request, User::Private(&mut buffers))
    }

    /// Performs a request on any memory.
    #[inline]
    pub(crate) fn perform_request(
        &mut self,
        request: Request<'_>,
        user: User<'_, '_>,
    ) -> Result<(), Error> {
        if self.slot.is_forked() || self.engine.is_none() {
            return self.engine()?.perform(request, user);
        }
        // Nothing is under way, so nothing has to go on behind the call.
        let Some(engine) = &mut self.engine else { unreachable!("it is here") };
        engine.perform(request, user)
    }
}

impl Engine {
    /// Performs a request on any memory.
    #[inline]
    fn perform(&mut self, request: Request<'_>, user: User<'_, '_>) -> Result<(), Error> {
        self.guarded(
            |seq| request.operation(seq),
            |it| {
                if !it.core.cache.is_latest(request) {
                    return it.perform_new(request, user);
                }
                let outcome = it.core.begin(request, user, it.health.watch());
                outcome.map_err(|error| it.fail_in(it.core.operation(), error))
            },
        )
    }

    /// Performs a request that is not the latest, or is profiled.
    #[cold]
    fn perform_new(&mut self, request: Request<'_>, user: User<'_, '_>) -> Result<(), Error> {
        // The cache of a failed communicator is empty, so each of its calls comes here.
        self.health.check()?;
        let Self { core, health, .. } = self;
        core.compile(request, health.watch())?;
        let outcome = match core.profile {
            None => core.begin(request, user, health.watch()),
            Some(_) => core.begin_profiled(request, user, health.watch()),
        };
        outcome.map_err(|error| self.fail_in(self.core.operation(), error))
    }
}

/// The engine of a communicator that uses it. Goes on with messages that are under way when it is
/// dropped.
pub(crate) struct Engaged<'c>(&'c mut Communicator);

impl Deref for Engaged<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        let Some(engine) = &self.0.engine else { unreachable!("it is here") };
        engine
    }
}

impl DerefMut for Engaged<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        let Some(engine) = &mut self.0.engine else { unreachable!("it is here") };
        engine
    }
}

impl Drop for Engaged<'_> {
    #[inline]
    fn drop(&mut self) {
        // A communicator that leaves has no control plane any more.
        if self.has_work() && self.health.watch.is_some() && !std::thread::panicking() {
            self.0.lay_aside();
        } else {
            // A message of a request may have ended beside the call.
            self.0.slot.wake_waiting();
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // While panicking the control is dropped without a goodbye, which tells the other ranks.
        if !std::thread::panicking() || self.slot.is_forked() {
            // The log has the error; `drop` cannot return it.
            self.leave_group().unwrap_or_default();
            return;
        }
        if self.engine.is_none() {
            // The started calls end with the failure of this rank, also where a thread waits.
            self.abort("the thread of the communicator panicked");
            self.recall(Engine::give_up_all);
        }
        if let Some(engine) = &mut self.engine {
            engine.unwatch();
        }
    }
}
