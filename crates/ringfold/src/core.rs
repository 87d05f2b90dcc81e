//! The data path of a communicator: everything that a call needs while it runs.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use ringfold_bootstrap::CallName;
use ringfold_collectives::{Progress, Stepper};
use ringfold_reduce::scale;
use ringfold_topology::{Aggregation, Layout, Occupancy};
use ringfold_transport::{Exchanged, Window};
use ringfold_types::{Call, Rank, UnevenCall};

use crate::arguments::valid;
use crate::backoff::WaitPolicy;
use crate::buffers::{AlignedBytes, Buffers, Place, Preparation, User};
use crate::cache::{Means, Request, ScheduleCache, tag_of};
use crate::config::Config;
use crate::error::{CallError, Error, Operation};
use crate::execute::{Finding, Run, RunCall, Suspended, Work, block_on, stepped};
use crate::messages::Lists;
use crate::router::Router;
use crate::watch::Watch;

/// A started call that runs, beside the state of its stepper.
pub(crate) struct BegunCall {
    tag: u32,
    /// When the call began.
    pub(crate) since: Instant,
    preparation: Preparation,
    is_prepared: bool,
    /// The run, once it has begun.
    run: Option<Suspended>,
}

/// Performs the calls of a rank, one after the other. The communicator checks them, and turns their
/// errors into its failure.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) rank: Rank,
    pub(crate) layout: Layout,
    pub(crate) router: Router,
    pub(crate) cache: ScheduleCache,
    /// The number of the latest collective.
    pub(crate) seq: u64,
    /// The time that a call may take.
    pub(crate) timeout: Duration,
    pub(crate) wait_policy: WaitPolicy,
    /// The state of a program that runs. It has none between calls.
    stepper: Stepper,
    scratch: AlignedBytes,
    /// The scaled or copied input of a call.
    scaled: AlignedBytes,
    /// The buffer of collectives that are packed into one, and of uneven calls.
    pub(crate) packed: AlignedBytes,
    /// The lists of uneven calls. They are empty between calls.
    pub(crate) lists: Lists<'static>,
    /// The staging buffer. The first call that uses it makes it.
    staging: Option<Window>,
    /// Whether the halves of the staging buffer are flipped: the same on all ranks.
    is_staging_flipped: bool,
    /// Whether the ranks have tested how they can read each other's private memory.
    has_tried_peer_memory: bool,
    /// The rank at which the next receive from any rank begins to look for a message.
    pub(crate) looks_first_at: usize,
}

impl Core {
    pub(crate) fn new(
        config: &Config,
        rank: Rank,
        (layout, occupancy): (Layout, Occupancy),
        router: Router,
    ) -> Self {
        let shares_memory = router.shares_memory();
        Self {
            rank,
            layout,
            router,
            cache: ScheduleCache::new(config, shares_memory),
            seq: 0,
            timeout: config.timeout,
            wait_policy: WaitPolicy::new(occupancy, shares_memory),
            stepper: Stepper::new(),
            scratch: AlignedBytes::default(),
            scaled: AlignedBytes::default(),
            packed: AlignedBytes::default(),
            lists: Lists::default(),
            staging: None,
            is_staging_flipped: false,
            has_tried_peer_memory: false,
            looks_first_at: 0,
        }
    }

    /// Checks a request, compiles it and makes it the latest.
    #[cold]
    pub(crate) fn compile(&mut self, request: Request<'_>) -> Result<(), Error> {
        let call = match request.blocks {
            Some(_) => *request.call,
            None => valid(request.call, request.place, self.layout.size(), self.rank)?,
        };
        self.cache.enter(request, &call, &self.layout, self.rank);
        Ok(())
    }

    /// Performs the request that is the latest of the cache. Blocks. A call of two ranks that is
    /// one exchange usually ends here.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        request: Request<'_>,
        mut user: User<'_, '_>,
        watch: &Watch,
    ) -> Result<(), CallError> {
        let compiled = self.cache.latest();
        self.seq += 1;
        tracing::trace!("{} by {}", compiled.operation(self.seq), compiled.program.algorithm());
        let tag = compiled.begin(watch, self.seq, request.mark);
        let mut exchanged = Exchanged::Nothing;
        if let (Some(with), User::Private(buffers)) = (compiled.exchange_with, &mut user) {
            let tries = self.wait_policy.early_spins();
            exchanged = self.router.exchange(&compiled.kernel, tag, with, buffers, tries);
            if exchanged == Exchanged::Both && watch.is_quiet() {
                watch.finished(self.seq);
                return Ok(());
            }
        }
        match Preparation::of(request.call, request.place) {
            Preparation::Nothing => self.run(request.place, tag, exchanged, &mut user, watch),
            preparation => self.run_prepared(request.place, preparation, tag, user, watch),
        }
    }

    /// Scales the input of a call that has begun, or copies it where the call does not work in
    /// place. Runs the call to its end. Blocks.
    #[cold]
    fn run_prepared(
        &mut self,
        place: Place,
        preparation: Preparation,
        tag: u32,
        user: User<'_, '_>,
        watch: &Watch,
    ) -> Result<(), CallError> {
        let compiled = self.cache.latest();
        match user {
            User::Private(buffers) => {
                // A panic leaves the copy behind: devices may read it until the guard withdraws it.
                let mut copy = ManuallyDrop::new(std::mem::take(&mut self.scaled));
                let mut prepared =
                    buffers.prepared(preparation, true, &compiled.program, &mut copy);
                let place = Place::of(&prepared);
                let user = &mut User::Private(&mut prepared);
                let outcome = self.run(place, tag, Exchanged::Nothing, user, watch);
                self.scaled = ManuallyDrop::into_inner(copy);
                outcome
            }
            User::Windows { input, output, range } => {
                let from = input.map(|input| input.read(range.clone()));
                let Preparation::Scale(factor) = preparation else {
                    unreachable!("collectives in windows work in place")
                };
                scale(compiled.call.data_type, output.write(range.clone()), from, factor);
                let user = &mut User::Windows { input: None, output, range };
                self.run(place, tag, Exchanged::Nothing, user, watch)
            }
        }
    }

    /// Runs a call that has begun to its end. Blocks.
    fn run(
        &mut self,
        place: Place,
        tag: u32,
        exchanged: Exchanged,
        user: &mut User<'_, '_>,
        watch: &Watch,
    ) -> Result<(), CallError> {
        let compiled = self.cache.latest();
        let (layout, rank, is_flipped) = (&self.layout, self.rank, self.is_staging_flipped);
        let call = RunCall { compiled, layout, rank, tag, seq: self.seq, is_flipped };
        let finding = {
            let mut run = Run::new(call, &mut self.scratch, &mut self.stepper);
            run.add_user(user, place);
            match compiled.means {
                Means::Staging => run.add_staging(&mut self.staging),
                Means::Rendezvous if !self.has_tried_peer_memory => run.try_peer_memory(),
                Means::Provider if self.router.offload().is_some() => run.offload(),
                _ => {}
            }
            if exchanged != Exchanged::Nothing {
                run.exchanged(stepped(exchanged));
            }
            let (router, policy) = (&mut self.router, &mut self.wait_policy);
            block_on(&mut run, router, watch, policy, self.timeout)?;
            run.end()
        };
        if let Some(finding) = finding {
            self.choose_again(finding);
            return self.run(place, tag, Exchanged::Nothing, user, watch);
        }
        self.is_staging_flipped ^= compiled.program.flips_staging();
        watch.finished(self.seq);
        Ok(())
    }

    /// Begins a started call, which becomes the latest: the caller has checked it. No other call
    /// runs.
    pub(crate) fn begin_started(&mut self, call: &Call, place: Place, watch: &Watch) -> BegunCall {
        let request = Request { call, place, blocks: None, mark: None };
        if !self.cache.is_latest(request) {
            self.cache.enter(request, call, &self.layout, self.rank);
        }
        let compiled = self.cache.latest();
        self.seq += 1;
        tracing::trace!("{} by {}", compiled.operation(self.seq), compiled.program.algorithm());
        let tag = compiled.begin(watch, self.seq, None);
        let preparation = Preparation::of(call, place);
        BegunCall { tag, since: Instant::now(), preparation, is_prepared: false, run: None }
    }

    /// Advances the started call. It is done when the transports have sent its bytes.
    pub(crate) fn advance_started(
        &mut self,
        begun: &mut BegunCall,
        buffers: Buffers<'_>,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        let (progress, suspended, finding) = self.resume(begun, buffers, |mut run, router| {
            let progress = run.advance(router, watch, budget)?;
            if progress != Progress::Done {
                return Ok((progress, Some(run.suspend()), None));
            }
            if !router.is_flushed() {
                return Ok((Progress::Idle, Some(run.suspend()), None));
            }
            // The other ranks may have given the call up while this process was stopped.
            watch.check_abort_after_pause()?;
            router.release();
            Ok((Progress::Done, None, run.end()))
        })?;
        begun.run = suspended;
        if let Some(finding) = finding {
            self.choose_again(finding);
            return Ok(Progress::Moved);
        }
        if progress == Progress::Done {
            self.is_staging_flipped ^= self.cache.latest().program.flips_staging();
            watch.finished(self.seq);
        }
        Ok(progress)
    }

    /// Checks, before a wait, whether a rank for which the started call waits is in another call or
    /// has left. Returns the longest wait.
    pub(crate) fn check_started(
        &mut self,
        begun: &mut BegunCall,
        buffers: Buffers<'_>,
        watch: &Watch,
    ) -> Result<Duration, CallError> {
        let (limit, suspended) = self.resume(begun, buffers, |mut run, router| {
            run.check_peers(router, watch)?;
            Ok((run.park_limit(), run.suspend()))
        })?;
        begun.run = Some(suspended);
        Ok(limit)
    }

    /// Resumes the run of the started call for `part`, which suspends or ends it.
    fn resume<R>(
        &mut self,
        begun: &mut BegunCall,
        mut buffers: Buffers<'_>,
        part: impl FnOnce(Run<'_>, &mut Router) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let compiled = self.cache.latest();
        let (layout, rank, is_flipped) = (&self.layout, self.rank, self.is_staging_flipped);
        let call = RunCall { compiled, layout, rank, tag: begun.tag, seq: self.seq, is_flipped };
        let is_first = !std::mem::replace(&mut begun.is_prepared, true);
        let mut buffers =
            buffers.prepared(begun.preparation, is_first, &compiled.program, &mut self.scaled);
        let (place, mut user) = (Place::of(&buffers), User::Private(&mut buffers));
        let (router, scratch, stepper) = (&mut self.router, &mut self.scratch, &mut self.stepper);
        let suspended = begun.run.take();
        let is_new = suspended.is_none();
        let mut run = match suspended {
            Some(suspended) => Run::resume(call, scratch, stepper, suspended),
            None => Run::new(call, scratch, stepper),
        };
        run.add_user(&mut user, place);
        match compiled.means {
            Means::Staging if is_new => run.add_staging(&mut self.staging),
            Means::Staging => run.add_staging_again(&mut self.staging),
            Means::Rendezvous if is_new && !self.has_tried_peer_memory => run.try_peer_memory(),
            Means::Provider if is_new && router.offload().is_some() => run.offload(),
            _ => {}
        }
        if is_new {
            run.lease(router);
        }
        part(run, router)
    }

    /// Gives up the started call, after a failure. Peers may use their own staging buffers on.
    pub(crate) fn give_up_started(&mut self) {
        self.router.withdraw();
        self.staging = None;
    }

    /// Chooses the algorithm of the latest call again, after a `finding`.
    #[cold]
    fn choose_again(&mut self, finding: Finding) {
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
        self.cache.renew(&self.layout, rank);
    }

    /// Begins a collective that consists of messages. Returns their tag.
    pub(crate) fn begin_messages(&mut self, call: &UnevenCall, watch: &Watch) -> u32 {
        self.seq += 1;
        tracing::trace!("{call} #{}", self.seq);
        watch.entered(self.seq, &CallName::uneven(call));
        tag_of(call.to_words(), self.seq)
    }

    /// Advances `work` until it is done. Blocks.
    pub(crate) fn block_on(
        &mut self,
        work: &mut impl Work,
        watch: &Watch,
    ) -> Result<(), CallError> {
        block_on(work, &mut self.router, watch, &mut self.wait_policy, self.timeout)
    }

    /// The latest call of the cache.
    pub(crate) fn operation(&self) -> Operation {
        self.cache.latest().operation(self.seq)
    }
}
