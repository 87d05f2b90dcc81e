//! Started calls: another thread may advance them at each step.

use std::time::{Duration, Instant};

use ringfold_collectives::{Blocks, Progress};
use ringfold_types::{Call, UnevenCall};

use super::Core;
use crate::buffers::{Buffers, Place, Preparation, User};
use crate::cache::{Means, Request};
use crate::error::{CallError, Operation};
use crate::execute::{Run, RunCall, Suspended, Work};
use crate::messages::{Exchange, Exchanging, Sides};
use crate::router::Router;
use crate::watch::Watch;

/// A call that was started. It was checked.
#[derive(Clone)]
pub(crate) enum StartedCall {
    /// A collective. An uneven one whose counts all ranks know has blocks.
    Scheduled { call: Call, blocks: Option<Blocks> },
    /// An uneven collective that consists of messages.
    Messages { call: UnevenCall, sides: Sides, exchange: Box<Exchange> },
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
        }
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
            StartedCall::Scheduled { call, blocks } => {
                let request = Request { call, place, blocks: blocks.as_ref(), mark: None };
                if !self.cache.is_latest(request) {
                    self.cache.enter(request, call, &self.layout, self.rank);
                }
                let compiled = self.cache.latest();
                self.seq += 1;
                let algorithm = compiled.program.algorithm();
                tracing::trace!("{} by {algorithm}", compiled.operation(self.seq));
                compiled.begin(watch, self.seq, None)
            }
            StartedCall::Messages { call, .. } => self.begin_messages(call, watch),
        };
        BegunCall { tag, since: Instant::now(), is_prepared: false, run: None }
    }

    /// Advances the started call. It is done when the transports have sent its bytes.
    pub(crate) fn advance_started(
        &mut self,
        started: &mut StartedCall,
        begun: &mut BegunCall,
        buffers: Buffers<'_>,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        // Messages must not hold the call up.
        let may_lag = self.post.has_unsent();
        let call =
            match started {
                StartedCall::Messages { sides, exchange, .. } => {
                    let progress =
                        self.resume_messages((*sides, exchange), begun, buffers, |it, router| {
                            match it.advance(router, watch, budget)? {
                                Progress::Done => end_part(router, watch, may_lag),
                                progress => Ok(progress),
                            }
                        })?;
                    if progress == Progress::Done {
                        self.post.note_flushed(self.router.is_flushed());
                        watch.finished(self.seq);
                    }
                    return Ok(progress);
                }
                StartedCall::Scheduled { call, .. } => &*call,
            };
        let (progress, suspended, finding) =
            self.resume(call, begun, buffers, |mut run, router| {
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
            self.choose_again(finding);
            return Ok(Progress::Moved);
        }
        if progress == Progress::Done {
            self.is_staging_flipped ^= self.cache.latest().program.flips_staging();
            self.post.note_flushed(self.router.is_flushed());
            watch.finished(self.seq);
        }
        Ok(progress)
    }

    /// Checks, before a wait, whether a rank for which the started call waits is in another call or
    /// has left. Returns the longest wait.
    pub(crate) fn check_started(
        &mut self,
        started: &mut StartedCall,
        begun: &mut BegunCall,
        buffers: Buffers<'_>,
        watch: &Watch,
    ) -> Result<Duration, CallError> {
        let call = match started {
            StartedCall::Messages { sides, exchange, .. } => {
                let check = |it: &mut Exchanging<'_>, router: &mut Router| {
                    it.check_peers(router, watch).map(|()| it.park_limit())
                };
                return self.resume_messages((*sides, exchange), begun, buffers, check);
            }
            StartedCall::Scheduled { call, .. } => &*call,
        };
        let (limit, suspended) = self.resume(call, begun, buffers, |mut run, router| {
            run.check_peers(router, watch)?;
            Ok((run.park_limit(), run.suspend()))
        })?;
        begun.run = Some(suspended);
        Ok(limit)
    }

    /// Resumes the messages of a started call for `part`.
    fn resume_messages<R>(
        &mut self,
        (sides, exchange): (Sides, &mut Exchange),
        begun: &mut BegunCall,
        mut buffers: Buffers<'_>,
        part: impl FnOnce(&mut Exchanging<'_>, &mut Router) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let is_first = !std::mem::replace(&mut begun.is_prepared, true);
        let (input, output) = sides.of(&mut buffers, &mut self.packed, is_first);
        if is_first {
            exchange.begin(begun.tag, (self.rank, self.layout.size()), (input, &mut *output));
        }
        let mut exchanging = Exchanging { exchange, input, output };
        if is_first {
            exchanging.lease(&mut self.router);
        }
        part(&mut exchanging, &mut self.router)
    }

    /// Resumes the run of the started call for `part`, which suspends or ends it.
    fn resume<R>(
        &mut self,
        call: &Call,
        begun: &mut BegunCall,
        mut buffers: Buffers<'_>,
        part: impl FnOnce(Run<'_>, &mut Router) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let preparation = Preparation::of(call, Place::of(&buffers));
        let compiled = self.cache.latest();
        let (layout, rank, is_flipped) = (&self.layout, self.rank, self.is_staging_flipped);
        let run_call =
            RunCall { compiled, layout, rank, tag: begun.tag, seq: self.seq, is_flipped };
        let is_first = !std::mem::replace(&mut begun.is_prepared, true);
        let mut buffers =
            buffers.prepared(preparation, is_first, &compiled.program, &mut self.scaled);
        let (place, mut user) = (Place::of(&buffers), User::Private(&mut buffers));
        let (router, scratch, stepper) = (&mut self.router, &mut self.scratch, &mut self.stepper);
        let suspended = begun.run.take();
        let is_new = suspended.is_none();
        let mut run = match suspended {
            Some(suspended) => Run::resume(run_call, scratch, stepper, suspended),
            None => Run::new(run_call, scratch, stepper),
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
