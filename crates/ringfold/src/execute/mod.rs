//! Executes calls. A run holds the state of one call, and a thread advances it.
//!
//! A run has phases. The first call that uses staging buffers makes them: the ranks agree to make
//! them, make them, and confirm that every rank has them. Then the program's steps run.
//! [`Run::advance`] never waits, and any thread may call it next. [`block_on`] repeats it for
//! callers that wait.

mod block_on;
mod buffer_map;
mod foreign;
mod gather;
mod ports;
mod sharing;

use std::io;
use std::time::Duration;

use ringfold_collectives::{Exchanged, Progress, Stepper};
use ringfold_topology::{Layout, PeerMemory};
use ringfold_transport::Window;
use ringfold_types::Rank;
use ringfold_types::limits::STAGING_BYTES;

pub(crate) use self::block_on::{Drive, Waited, Work, block_on, finish, park_on};
use self::buffer_map::BufferMap;
pub(crate) use self::foreign::signals_foreign;
use self::gather::Gather;
use self::ports::CallPorts;
pub(crate) use self::ports::stepped;
pub(crate) use self::sharing::Sharing;
use crate::buffers::{AlignedBytes, Place, User};
use crate::cache::{CompiledCall, Means};
use crate::error::CallError;
use crate::router::Router;
use crate::timing::Timing;
use crate::watch::Watch;
use ringfold_innetwork::member::{Begun, LaneReduction};

/// A run that has begun.
pub(crate) struct Run<'c, T> {
    call: RunCall<'c>,
    stepper: &'c mut Stepper,
    buffers: BufferMap<'c>,
    /// The communicator's staging buffer, until the run has added it to its buffers.
    staging: Option<&'c mut Option<Window>>,
    /// Whether the ranks first test how they can read each other's private memory.
    reads_peers: bool,
    /// The lanes that hand over chunks to a provider that was not given up, as a mask.
    offloaded: u8,
    phase: Phase,
    timing: T,
}

/// The call of a run.
#[derive(Clone, Copy)]
pub(crate) struct RunCall<'c> {
    pub(crate) compiled: &'c CompiledCall,
    pub(crate) layout: &'c Layout,
    pub(crate) rank: Rank,
    /// The tag of the call's messages and signals.
    pub(crate) tag: u32,
    /// The number of the call.
    pub(crate) seq: u64,
    /// Whether the halves of the staging buffer are flipped.
    pub(crate) is_flipped: bool,
}

/// The phase of a run. Phases before the steps are boxed, since most runs have only steps.
enum Phase {
    /// Every rank says that it is in this call. A rank in another call is detected here, before the
    /// others wait for its part.
    Agree(Box<Gather>),
    /// Every rank says how it can read the others' private memory.
    Read(Box<Gather>),
    /// The ranks pass their parts of the staging buffer to each other.
    Share(Box<Sharing>),
    /// Every rank says whether it has all parts of the staging buffer.
    Confirm(Box<Gather>, Box<io::Result<Window>>),
    /// The ranks decide which groups of in-network reduction serve the call.
    Settle,
    /// The ranks have a finding that changes the choice of the algorithm.
    Found(Box<Finding>),
    /// The steps of the program.
    Steps,
}

/// The state of a run that is suspended, beside that of its stepper.
pub(crate) struct Suspended {
    reads_peers: bool,
    offloaded: u8,
    phase: Phase,
}

impl Suspended {
    /// The state of a run that has only steps.
    const BEGUN: Self = Self { reads_peers: false, offloaded: 0, phase: Phase::Steps };
}

/// A finding of a run, the same on every rank. The algorithm is chosen again after it.
pub(crate) enum Finding {
    /// Some rank lacks memory for the staging buffer.
    NoStaging(io::Result<Window>),
    /// All ranks can read each other's private memory in this way.
    PeerMemory(PeerMemory),
    /// The ranks have given up a group of in-network reduction.
    GroupLost,
}

impl<'c, T: Timing> Run<'c, T> {
    /// A run that has none of the caller's memory yet.
    #[inline]
    pub(crate) fn new(
        call: RunCall<'c>,
        scratch: &'c mut AlignedBytes,
        stepper: &'c mut Stepper,
        timing: T,
    ) -> Self {
        stepper.start(&call.compiled.program);
        Self::resume(call, scratch, stepper, Suspended::BEGUN, timing)
    }

    /// A run that was suspended, without any memory of the caller or of peers.
    #[inline]
    pub(crate) fn resume(
        call: RunCall<'c>,
        scratch: &'c mut AlignedBytes,
        stepper: &'c mut Stepper,
        Suspended { reads_peers, offloaded, phase }: Suspended,
        timing: T,
    ) -> Self {
        let CompiledCall { program, scratch_bytes, .. } = call.compiled;
        let buffers = BufferMap::new(program, scratch.exactly(*scratch_bytes));
        Self { call, stepper, buffers, staging: None, reads_peers, offloaded, phase, timing }
    }

    /// Ends the loans of memory in the middle of the run. The stepper stays as it is.
    pub(crate) fn suspend(mut self) -> Suspended {
        self.buffers.suspend();
        let Self { reads_peers, offloaded, phase, .. } = self;
        Suspended { reads_peers, offloaded, phase }
    }

    /// Has lanes hand over chunks to the groups of in-network reduction.
    pub(crate) fn offload(&mut self) {
        self.phase = Phase::Settle;
    }

    /// Adds the caller's memory.
    #[inline]
    pub(crate) fn add_user(&mut self, user: &'c mut User<'_, '_>, place: Place) {
        let CompiledCall { program, means, .. } = self.call.compiled;
        self.buffers.add_user(program, *means == Means::Windows, user, place);
    }

    /// Adds the staging buffer. If there is none yet, the run makes it first.
    pub(crate) fn add_staging(&mut self, staging: &'c mut Option<Window>) {
        let RunCall { compiled, is_flipped, .. } = self.call;
        if let Some(staging) = staging {
            self.buffers.add_staging(&compiled.program, staging, is_flipped);
        } else {
            self.phase = Phase::Agree(self.gather(1));
            self.staging = Some(staging);
        }
    }

    /// Adds the staging buffer of a run that was suspended.
    pub(crate) fn add_staging_again(&mut self, staging: &'c mut Option<Window>) {
        let RunCall { compiled, is_flipped, .. } = self.call;
        match staging {
            Some(staging) => self.buffers.add_staging(&compiled.program, staging, is_flipped),
            None => self.staging = Some(staging),
        }
    }

    /// Has the ranks test how they can read each other's private memory, instead of any step.
    #[cold]
    pub(crate) fn try_peer_memory(&mut self) {
        self.phase = Phase::Agree(self.gather(1));
        self.reads_peers = true;
    }

    /// Gathers one byte of every rank. This rank contributes `own`.
    fn gather(&self, own: u8) -> Box<Gather> {
        Box::new(Gather::new(self.call.layout, self.call.rank, &[own]))
    }

    /// Reports the progress of the exchange that the program begins with. Comes before any step.
    #[inline]
    pub(crate) fn exchanged(&mut self, exchanged: Exchanged) {
        self.stepper.exchanged(exchanged);
    }

    /// Advances the phases before the steps.
    #[cold]
    fn prepare(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        if matches!(self.phase, Phase::Settle) {
            match self.settle(router) {
                Some(phase) => self.phase = phase,
                None => return Ok(Progress::Idle),
            }
            return Ok(Progress::Moved);
        }
        let tag = self.call.tag;
        let progress = match &mut self.phase {
            Phase::Agree(gather) | Phase::Read(gather) | Phase::Confirm(gather, _) => {
                gather.advance(tag, router, watch, budget)?
            }
            Phase::Share(sharing) => sharing.advance(router, watch, budget)?,
            Phase::Settle | Phase::Found(_) | Phase::Steps => Progress::Done,
        };
        if progress != Progress::Done {
            return Ok(progress);
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Steps) {
            // Every rank is in the call now, so each can test whether it reads the others' memory.
            Phase::Agree(_) if self.reads_peers => {
                Phase::Read(self.gather(router.peer_memory() as u8))
            }
            Phase::Agree(_) => Phase::Share(Box::new(Sharing::begin(router, STAGING_BYTES)?)),
            Phase::Read(gather) => {
                let worst = [PeerMemory::Closed, PeerMemory::Slow, PeerMemory::Fast]
                    .into_iter()
                    .find(|memory| gather.all.contains(&(*memory as u8)));
                let worst = worst.unwrap_or(PeerMemory::Closed);
                Phase::Found(Box::new(Finding::PeerMemory(worst)))
            }
            Phase::Share(sharing) => {
                let made = sharing.end();
                Phase::Confirm(self.gather(u8::from(made.is_ok())), Box::new(made))
            }
            Phase::Confirm(gather, made) => match (*made, self.staging.take()) {
                (Ok(window), Some(staging)) if gather.all.iter().all(|has| *has == 1) => {
                    *staging = Some(window);
                    self.add_staging(staging);
                    Phase::Steps
                }
                (made, _) => Phase::Found(Box::new(Finding::NoStaging(made))),
            },
            phase => phase,
        };
        Ok(Progress::Moved)
    }

    /// Begins the lanes that hand over chunks, once the ranks have decided which groups serve this
    /// call. Returns the next phase then. After the loss of a group only calls that users give to
    /// the groups go on in this way.
    fn settle(&mut self, router: &Router) -> Option<Phase> {
        let CompiledCall { program, handed, .. } = self.call.compiled;
        let Some(offload) = router.offload() else { return Some(Phase::Steps) };
        match offload.begin(self.call.seq) {
            Begun::Undecided => return None,
            Begun::Lost if self.call.layout.aggregation().is_some_and(|it| it.is_automatic) => {
                return Some(Phase::Found(Box::new(Finding::GroupLost)));
            }
            Begun::Lost | Begun::Whole => {}
        }
        self.stepper.start_with_provider(program);
        for (lane, handed) in handed.iter().enumerate() {
            let Some(handed) = handed else { continue };
            if offload.enter(handed) {
                self.offloaded |= 1 << lane;
            } else {
                self.stepper.fall_back(program, lane, 0);
            }
        }
        Some(Phase::Steps)
    }

    /// Has the members' own steps take the place of a group that was given up.
    fn fall_back(&mut self, router: &Router) {
        let CompiledCall { program, handed, .. } = self.call.compiled;
        let Some(offload) = router.offload() else { return };
        for (lane, handed) in handed.iter().enumerate() {
            if let Some(LaneReduction { group, .. }) = handed
                && self.offloaded & 1 << lane != 0
                && let Some(from) = offload.ended(*group)
            {
                self.offloaded &= !(1 << lane);
                self.stepper.fall_back(program, lane, from);
            }
        }
    }

    /// Ends a run that is done. After a finding no step of the call is done: the caller performs it
    /// by the algorithm that it chooses next.
    ///
    /// # Panics
    /// If the run is not done: peers may still use the memory that it lent them.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<Finding> {
        if matches!(self.phase, Phase::Steps) {
            assert!(self.stepper.is_done(), "a run ends when it is done");
            self.buffers.complete();
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Steps) {
            Phase::Found(finding) => Some(*finding),
            _ => unreachable!("a run ends when it is done"),
        }
    }
}

impl<T: Timing> Work for Run<'_, T> {
    #[inline]
    fn advance(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        match self.phase {
            Phase::Steps => {
                if self.offloaded != 0 {
                    self.fall_back(router);
                }
                let (CompiledCall { kernel, program, handed, .. }, tag) =
                    (self.call.compiled, self.call.tag);
                let (buffers, timing) = (&mut self.buffers, self.timing);
                let mut ports = CallPorts { router, watch, kernel, tag, buffers, handed, timing };
                self.stepper.advance(program, &mut ports, budget)
            }
            Phase::Found(_) => Ok(Progress::Done),
            _ => self.prepare(router, watch, budget),
        }
    }

    #[inline]
    fn lease(&mut self, router: &mut Router) {
        let (input, written) = self.buffers.private();
        router.lease_input(input);
        written.into_iter().for_each(|bytes| router.lease_output(bytes));
    }

    fn park_limit(&mut self) -> Duration {
        match &mut self.phase {
            Phase::Share(sharing) => sharing.park_limit(),
            _ => Duration::MAX,
        }
    }

    fn check_peers(&mut self, router: &Router, _: &Watch) -> Result<(), CallError> {
        let (program, stepper) = match &self.phase {
            Phase::Steps => (&self.call.compiled.program, &*self.stepper),
            Phase::Agree(gather) | Phase::Read(gather) | Phase::Confirm(gather, _) => {
                (&gather.program, &gather.stepper)
            }
            Phase::Share(_) | Phase::Settle | Phase::Found(_) => return Ok(()),
        };
        let tag = self.call.tag;
        let mut waiting = stepper.waiting();
        waiting.try_for_each(|at| foreign::check(router, tag, program, at.lane, at.at))
    }
}
