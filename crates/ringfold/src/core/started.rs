//! Started calls: another thread may advance them at each step.

use std::time::{Duration, Instant};

use ringfold_bootstrap::CallWindows;
use ringfold_collectives::{Blocks, Progress};
use ringfold_types::{Call, UnevenCall};

use super::Core;
use crate::buffers::{Buffers, Lent, Place, Preparation};
use crate::cache::{Means, Request};
use crate::error::{CallError, Operation};
use crate::execute::{Run, RunCall, Suspended, Work};
use crate::messages::{Exchange, Exchanging, Sides};
use crate::router::Router;
use crate::timing::Untimed;
use crate::uneven::{Reducing, Reduction};
use crate::watch::Watch;

/// A call that was started. It was checked.
#[derive(Clone)]
pub(crate) enum StartedCall {
    /// A collective. An uneven one whose counts all ranks know has blocks, and a packed one has a
    /// mark.
    Scheduled { call: Call, blocks: Option<Blocks>, mark: Option<CallWindows> },
    /// An uneven collective that consists of messages.
    Messages { call: UnevenCall, sides: Sides, exchange: Box<Exchange> },
    /// The first half of an all-reduce by an operation of the user, and its second half, which
    /// gathers the parts.
    Reduction { reduction: Box<Reduction>, gather: (Call, Blocks) },
}

/// A started call that runs, beside the state of its stepper.
pub(crate) struct BegunCall {
    tag: u32,
    /// When the call began.
    pub(crate) since: Instant,
    is_prepared: bool,
    /// The run of a scheduled call, once it has begun.
    run: Option<Suspended>,
}

impl StartedCall {
    /// The call as the operation with this number.
    pub(crate) const fn operation(&self, seq: u64) -> Operation {
        match self {
            Self::Scheduled { call, .. } => Operation::Call { call: *call, seq },
            Self::Messages { call, .. } => Operation::Uneven { call: *call, seq },
            Self::Reduction { reduction, .. } => Operation::Uneven { call: reduction.call, seq },
        }
    }

    /// The call that follows this one in the same memory.
    pub(crate) fn next(&self) -> Option<Self> {
        let Self::Reduction { gather: (call, blocks), .. } = self else { return None };
        Some(Self::Scheduled { call: *call, blocks: Some(blocks.clone()), mark: None })
    }
}

impl Core {
    /// Begins a started call. A scheduled one becomes the latest. No other call runs.
    pub(crate) fn begin_started(
        &mut self,
        started: &StartedCall,
        place: Place,
        watch: &Watch,
    ) -> BegunCall {
        let tag = match started {
            StartedCall::Scheduled { call, blocks, mark } => {
                let request = Request { call, place, blocks: blocks.as_ref(), mark: *mark };
                if !self.cache.is_latest(request) {
                    self.enter(request, call, watch);
                }
                let compiled = self.cache.latest();
                self.seq += 1;
                let algorithm = compiled.program.algorithm();
                tracing::trace!("{} by {algorithm}", compiled.operation(self.seq));
                compiled.begin(watch, self.seq, *mark)
            }
            StartedCall::Messages { call, .. } => self.begin_messages(call, watch),
            StartedCall::Reduction { reduction, .. } => self.begin_messages(&reduction.call, watch),
        };
        BegunCall { tag, since: Instant::now(), is_prepared: false, run: None }
    }

    /// Advances the started call. It is done when the transports have sent its bytes.
    pub(crate) fn advance_started(
        &mut self,
        started: &mut StartedCall,
        begun: &mut BegunCall,
        (lent, place): (Lent<'_>, Place),
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        // Messages must not hold the call up.
        let may_lag = self.post.has_unsent();
        let StartedCall::Scheduled { call, .. } = started else {
            let progress = self.resume_messages(started, begun, lent, |it, router| {
                match it.advance(router, watch, budget)? {
                    Progress::Done => end_part(router, watch, may_lag),
                    progress => Ok(progress),
                }
            })?;
            if progress == Progress::Done {
                self.post.note_flushed(self.router.is_flushed());
                watch.finished(self.seq, false);
            }
            return Ok(progress);
        };
        let (progress, suspended, finding) =
            self.resume(call, begun, (lent, place), |mut run, router| {
                let progress = match run.advance(router, watch, budget)? {
                    Progress::Done => end_part(router, watch, may_lag)?,
                    progress => progress,
                };
                Ok(match progress {
                    Progress::Done => (progress, None, run.end()),
                    progress => (progress, Some(run.suspend()), None),
                })
            })?;
        begun.run = suspended;
        if let Some(finding) = finding {
            self.choose_again(finding, watch);
            return Ok(Progress::Moved);
        }
        if progress == Progress::Done {
            self.is_staging_flipped ^= self.cache.latest().program.flips_staging();
            self.post.note_flushed(self.router.is_flushed());
            watch.finished(self.seq, false);
            if self.profile.is_some() {
                self.cache.forget_latest();
            }
        }
        Ok(progress)
    }

    /// Checks, before a wait, whether a rank for which the started call waits is in another call or
    /// has left. Returns the longest wait.
    pub(crate) fn check_started(
        &mut self,
        started: &mut StartedCall,
        begun: &mut BegunCall,
        (lent, place): (Lent<'_>, Place),
        watch: &Watch,
    ) -> Result<Duration, CallError> {
        let StartedCall::Scheduled { call, .. } = started else {
            return self.resume_messages(started, begun, lent, |it, router| {
                it.check_peers(router, watch).map(|()| it.park_limit())
            });
        };
        let (limit, suspended) = self.resume(call, begun, (lent, place), |mut run, router| {
            run.check_peers(router, watch)?;
            Ok((run.park_limit(), run.suspend()))
        })?;
        begun.run = Some(suspended);
        Ok(limit)
    }

    /// Resumes the messages of a started call for `part`.
    fn resume_messages<R>(
        &mut self,
        started: &mut StartedCall,
        begun: &mut BegunCall,
        lent: Lent<'_>,
        part: impl FnOnce(&mut dyn Work, &mut Router) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let (tag, ranks) = (begun.tag, (self.rank, self.layout.size()));
        match (started, lent) {
            (StartedCall::Messages { sides, exchange, .. }, Lent::Private(mut buffers)) => {
                let is_first = !std::mem::replace(&mut begun.is_prepared, true);
                let (input, output) = sides.of(&mut buffers, &mut self.packed, is_first);
                if is_first {
                    exchange.begin(tag, ranks, (input, &mut *output));
                }
                let mut exchanging = Exchanging { exchange, input, output };
                if is_first {
                    exchanging.lease(&mut self.router);
                }
                part(&mut exchanging, &mut self.router)
            }
            (StartedCall::Reduction { reduction, .. }, Lent::Private(Buffers::InPlace(buffer))) => {
                let memory = &mut self.packed;
                part(&mut Reducing { reduction, tag, ranks, buffer, memory }, &mut self.router)
            }
            _ => unreachable!("messages use private memory, and a reduction is in place"),
        }
    }

    /// Resumes the run of the started call for `part`, which suspends or ends it.
    fn resume<R>(
        &mut self,
        call: &Call,
        begun: &mut BegunCall,
        (mut lent, place): (Lent<'_>, Place),
        part: impl FnOnce(Run<'_, Untimed>, &mut Router) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let preparation = Preparation::of(call, place);
        let compiled = self.cache.latest();
        let (layout, rank, is_flipped) = (&self.layout, self.rank, self.is_staging_flipped);
        let run_call =
            RunCall { compiled, layout, rank, tag: begun.tag, seq: self.seq, is_flipped };
        let is_first = !std::mem::replace(&mut begun.is_prepared, true);
        let mut user = lent.user();
        let mut prepared =
            user.prepared(preparation, is_first, &compiled.program, &mut self.scaled);
        let (place, mut user) = (prepared.place(), prepared.user());
        let (router, scratch, stepper) = (&mut self.router, &mut self.scratch, &mut self.stepper);
        let suspended = begun.run.take();
        let is_new = suspended.is_none();
        let mut run = match suspended {
            Some(suspended) => Run::resume(run_call, scratch, stepper, suspended, Untimed),
            None => Run::new(run_call, scratch, stepper, Untimed),
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
}

/// Ends the part of this rank in a call whose steps are done, once the transports have sent its
/// bytes. With `may_lag` the post sees to those.
fn end_part(router: &mut Router, watch: &Watch, may_lag: bool) -> Result<Progress, CallError> {
    if !may_lag && !router.is_flushed() {
        return Ok(Progress::Idle);
    }
    // The other ranks may have given the call up while this process was stopped.
    watch.check_abort_after_pause()?;
    router.release();
    Ok(Progress::Done)
}
