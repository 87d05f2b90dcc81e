//! The data path of a communicator: everything that a call needs while it runs.

mod started;

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use ringfold_bootstrap::CallName;
use ringfold_collectives::{Blocks, Stepper};
use ringfold_topology::{Aggregation, Layout, Occupancy};
use ringfold_transport::{Exchanged, Window, sent};
use ringfold_types::{Call, Rank, UnevenCall, Way};

pub(crate) use self::started::{BegunCall, StartedCall};
use crate::arguments::valid;
use crate::backoff::WaitPolicy;
use crate::buffers::{AlignedBytes, Place, Preparation, User};
use crate::cache::{Means, Request, ScheduleCache, tag_of};
use crate::config::Config;
use crate::error::{CallError, Error, Operation};
use crate::execute::{Finding, Run, RunCall, Waited, Work, block_on, stepped};
use crate::messages::{Alone, Beside, Exchange, Post};
use crate::profile::{Profile, ProfiledCalls};
use crate::router::Router;
use crate::timing::{Timer, Timing, Untimed};
use crate::watch::Watch;

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
    /// The profile to which calls add their times. While there is one, no call is the latest
    /// between two calls. So calls without a profile need no look at it.
    pub(crate) profile: Option<Box<Profile>>,
    /// The state of a program that runs. It has none between calls.
    stepper: Stepper,
    scratch: AlignedBytes,
    /// The scaled or copied input of a call.
    scaled: AlignedBytes,
    /// The buffer of collectives that are packed into one, and of uneven calls.
    pub(crate) packed: AlignedBytes,
    /// The messages of an uneven call.
    pub(crate) exchange: Exchange,
    /// The point-to-point messages that have not ended.
    pub(crate) post: Post,
    /// The staging buffer. The first call that uses it makes it.
    staging: Option<Window>,
    /// Whether the halves of the staging buffer are flipped: the same on all ranks.
    is_staging_flipped: bool,
    /// Whether the ranks have tested how they can read each other's private memory.
    has_tried_peer_memory: bool,
}

impl Core {
    pub(crate) fn new(
        config: &Config,
        rank: Rank,
        (layout, occupancy): (Layout, Occupancy),
        router: Router,
    ) -> Self {
        let (shares_memory, post) = (router.shares_memory(), Post::new(rank, layout.size()));
        Self {
            rank,
            layout,
            router,
            cache: ScheduleCache::new(config, shares_memory),
            seq: 0,
            timeout: config.timeout,
            wait_policy: WaitPolicy::new(occupancy, shares_memory),
            profile: None,
            stepper: Stepper::new(),
            scratch: AlignedBytes::default(),
            scaled: AlignedBytes::default(),
            packed: AlignedBytes::default(),
            exchange: Exchange::default(),
            post,
            staging: None,
            is_staging_flipped: false,
            has_tried_peer_memory: false,
        }
    }

    /// Checks a request, compiles it and makes it the latest.
    #[cold]
    pub(crate) fn compile(&mut self, request: Request<'_>, watch: &Watch) -> Result<(), Error> {
        let call = match request.blocks {
            Some(_) => *request.call,
            None => valid(request.call, request.place, self.layout.size(), self.rank)?,
        };
        self.enter(request, &call, watch);
        Ok(())
    }

    /// Compiles a valid request, checked as `call`, and makes it the latest.
    fn enter(&mut self, request: Request<'_>, call: &Call, watch: &Watch) {
        self.cache.enter(request, call, &self.layout, self.rank);
        self.cache.latest().begins_kind(watch, self.seq + 1);
    }

    /// Performs the request that is the latest of the cache. Blocks. A call of two ranks that is
    /// one exchange usually ends here.
    #[expect(clippy::inline_always, reason = "a part of the shortest calls")]
    #[inline(always)]
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
                watch.finished_at_once(self.seq);
                return Ok(());
            }
        }
        self.go_on(request, (tag, exchanged), user, watch, Untimed)
    }

    /// Runs a call that has begun to its end, after the exchange of its first cache line. Blocks.
    #[inline]
    fn go_on(
        &mut self,
        request: Request<'_>,
        (tag, exchanged): (u32, Exchanged),
        mut user: User<'_, '_>,
        watch: &Watch,
        timing: impl Timing,
    ) -> Result<(), CallError> {
        let place = request.place;
        match Preparation::of(request.call, place) {
            Preparation::Nothing => self.run((place, tag), exchanged, &mut user, watch, timing),
            preparation => self.run_prepared(tag, preparation, user, watch, timing),
        }
    }

    /// Performs the request that is the latest of the cache, and adds its times to the profile.
    /// Blocks.
    #[cold]
    pub(crate) fn begin_profiled(
        &mut self,
        request: Request<'_>,
        user: User<'_, '_>,
        watch: &Watch,
    ) -> Result<(), CallError> {
        let (since, timer) = (Instant::now(), &Timer::default());
        let compiled = self.cache.latest();
        self.seq += 1;
        let tag = compiled.begin(watch, self.seq, request.mark);
        self.go_on(request, (tag, Exchanged::Nothing), user, watch, timer)?;
        let time = since.elapsed();
        let (expected, compiled) = (self.cache.expected(&self.layout), self.cache.latest());
        let (call, size) = (&compiled.call, self.layout.size());
        let longest = || call.input_len(size).max(call.output_len(size));
        let elements = request.blocks.map_or_else(longest, Blocks::total);
        let calls = ProfiledCalls {
            operation: compiled.collective(),
            algorithm: compiled.program.algorithm(),
            calls: 1,
            bytes: (elements * call.data_type.bytes()) as u64,
            time,
            waiting: timer.waiting(),
            combining: timer.combining_time(),
            expected,
        };
        self.profile.iter_mut().for_each(|profile| profile.add(calls));
        self.cache.forget_latest();
        Ok(())
    }

    /// Scales the input of a call that has begun, or copies it where the call does not work in
    /// place. Runs the call to its end. Blocks.
    #[cold]
    fn run_prepared(
        &mut self,
        tag: u32,
        preparation: Preparation,
        mut user: User<'_, '_>,
        watch: &Watch,
        timing: impl Timing,
    ) -> Result<(), CallError> {
        // A panic leaves the copy behind: devices may read it until the guard withdraws it.
        let mut copy = ManuallyDrop::new(std::mem::take(&mut self.scaled));
        let program = &self.cache.latest().program;
        let mut prepared = user.prepared(preparation, true, program, &mut copy);
        let (place, mut user) = (prepared.place(), prepared.user());
        let outcome = self.run((place, tag), Exchanged::Nothing, &mut user, watch, timing);
        self.scaled = ManuallyDrop::into_inner(copy);
        outcome
    }

    /// Runs a call that has begun to its end. Blocks.
    fn run(
        &mut self,
        (place, tag): (Place, u32),
        exchanged: Exchanged,
        user: &mut User<'_, '_>,
        watch: &Watch,
        timing: impl Timing,
    ) -> Result<(), CallError> {
        let compiled = self.cache.latest();
        let (layout, rank, is_flipped) = (&self.layout, self.rank, self.is_staging_flipped);
        let call = RunCall { compiled, layout, rank, tag, seq: self.seq, is_flipped };
        let (finding, is_short) = {
            let mut run = Run::new(call, &mut self.scratch, &mut self.stepper, timing);
            run.add_user(user, place);
            match compiled.means {
                Means::Staging => run.add_staging(&mut self.staging),
                Means::Rendezvous if !self.has_tried_peer_memory => run.try_peer_memory(),
                Means::Provider if self.router.offload().is_some() => run.offload(),
                _ => {}
            }
            if exchanged != Exchanged::Nothing {
                sent(Way::Shm, compiled.call.count * compiled.call.data_type.bytes());
                run.exchanged(stepped(exchanged));
            }
            let (router, policy) = (&mut self.router, &mut self.wait_policy);
            let waited = if self.post.is_idle() {
                block_on(&mut run, router, watch, policy, self.timeout, timing)?
            } else {
                let beside = &mut Beside { work: &mut run, post: &mut self.post };
                let waited = block_on(beside, router, watch, policy, self.timeout, timing)?;
                self.post.note_flushed(self.router.is_flushed());
                waited
            };
            (run.end(), compiled.is_short && waited == Waited::No)
        };
        if let Some(finding) = finding {
            self.choose_again(finding, watch);
            return self.run((place, tag), Exchanged::Nothing, user, watch, timing);
        }
        self.is_staging_flipped ^= compiled.program.flips_staging();
        watch.finished(self.seq, is_short);
        Ok(())
    }

    /// Chooses the algorithm of the latest call again, after a `finding`.
    #[cold]
    fn choose_again(&mut self, finding: Finding, watch: &Watch) {
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
        self.cache.latest().begins_kind(watch, self.seq);
    }

    /// Begins a collective that consists of messages. Returns their tag.
    pub(crate) fn begin_messages(&mut self, call: &UnevenCall, watch: &Watch) -> u32 {
        self.seq += 1;
        tracing::trace!("{call} #{}", self.seq);
        let name = CallName::uneven(call);
        watch.begins_kind(self.seq, &name);
        watch.entered(self.seq, &name);
        tag_of(call.to_words(), self.seq)
    }

    /// Advances `work` until it is done. Blocks.
    pub(crate) fn block_on(
        &mut self,
        work: &mut impl Work,
        watch: &Watch,
    ) -> Result<(), CallError> {
        let Self { router, wait_policy: policy, timeout, post, .. } = self;
        if post.is_idle() {
            block_on(work, router, watch, policy, *timeout, Untimed)?;
        } else {
            let beside = &mut Beside { work, post: &mut *post };
            block_on(beside, router, watch, policy, *timeout, Untimed)?;
            post.note_flushed(router.is_flushed());
        }
        Ok(())
    }

    /// Performs the messages of a blocking call, while nothing else is under way. Blocks.
    pub(crate) fn exchange_alone(&mut self, watch: &Watch) -> Result<(), CallError> {
        let Self { router, wait_policy: policy, timeout, post, .. } = self;
        block_on(&mut Alone(&mut *post), router, watch, policy, *timeout, Untimed)?;
        post.note_flushed(true);
        Ok(())
    }

    /// The latest call of the cache.
    pub(crate) fn operation(&self) -> Operation {
        self.cache.latest().operation(self.seq)
    }
}
