//! Executes calls. A run holds the state of one call, and a thread advances it.
//!
//! A run has phases. The first call that uses staging buffers makes them: the ranks agree to make
//! them, make them, and confirm that every rank has them. Then the program's steps run.
//! [`Run::advance`] never waits, and any thread may call it next. [`block_on`] repeats it for
//! callers that wait.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringfold_collectives::{
    Algorithm, Exchanged, Form, Op, Ports, Program, Progress, Reduction, ScheduleParams, Source,
    Stepper, Stores, Target, lower,
};
use ringfold_reduce::{Kernel, Line, Operand};
use ringfold_topology::{Layout, PeerMemory};
use ringfold_transport::{Link, Window, copy, copy_non_temporal};
use ringfold_types::limits::{CHANNELS_MAX, LINK_BYTES_MIN, SOURCES_MAX, STAGING_BYTES};
use ringfold_types::{Buffer, Call, Collective, DataType, Lane, Rank, ReduceOp, Slice, Wire};

use crate::backoff::{Backoff, Deadline, Parked, Pause, WaitPolicy, park};
use crate::buffers::{AlignedBytes, BufferMap, Buffers, LocalSource, Shape, User};
use crate::cache::CompiledCall;
use crate::error::CallError;
use crate::offload::Handed;
use crate::router::{Router, WAKE_FDS_MAX};
use crate::watch::Watch;

/// Work that a waiting caller advances.
pub(crate) trait Work {
    /// Performs the operations that are possible now, at most about `budget` of them.
    ///
    /// # Errors
    /// The work cannot go on. Peers may use the memory that it lent them until `Router::withdraw`.
    fn advance(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError>;

    /// The longest park before the next advance, where no event wakes the thread.
    fn park_limit(&mut self) -> Duration {
        Duration::MAX
    }

    /// Checks, before a park, whether a rank for which this one waits is in another call or has
    /// left.
    ///
    /// # Errors
    /// `CallError::Foreign` or `CallError::Left` with that rank.
    fn check_peers(&mut self, _router: &Router, _watch: &Watch) -> Result<(), CallError> {
        Ok(())
    }
}

/// Advances `work` until it is done and the transports have sent all of its bytes. Waits while
/// nothing moves, for at most `timeout`.
///
/// # Errors
/// The job has failed, or the time is up. Peers no longer use memory of the work.
#[inline]
pub(crate) fn block_on(
    work: &mut impl Work,
    router: &mut Router,
    watch: &Watch,
    policy: &mut WaitPolicy,
    timeout: Duration,
) -> Result<(), CallError> {
    let outcome = match work.advance(router, watch, usize::MAX) {
        Ok(Progress::Done) if router.is_flushed() => Ok(()),
        Ok(_) => finish(work, router, watch, policy, timeout),
        Err(error) => Err(error),
    };
    // The other ranks may have given the call up while this process was stopped.
    let outcome = outcome.and_then(|()| watch.check_abort_after_pause());
    if outcome.is_err() {
        // From here on only the caller uses its memory.
        router.withdraw();
    }
    outcome
}

fn finish(
    work: &mut impl Work,
    router: &mut Router,
    watch: &Watch,
    policy: &mut WaitPolicy,
    timeout: Duration,
) -> Result<(), CallError> {
    let (mut early_spins, mut early_yields) = (policy.early_spins(), policy.early_yields());
    let mut backoff = Backoff::default();
    let mut deadline = Deadline::new(timeout);
    loop {
        match work.advance(router, watch, usize::MAX)? {
            Progress::Done if router.is_flushed() => {
                policy.learn(backoff.ended());
                return Ok(());
            }
            Progress::Done => {}
            Progress::Moved => {
                policy.learn(backoff.ended());
                (backoff, early_yields) = (Backoff::default(), policy.early_yields());
                if early_spins > 0 || early_yields > 0 {
                    continue;
                }
            }
            Progress::Idle if early_spins > 0 => {
                early_spins -= 1;
                // Only a few rounds poll: bytes that need a poll are late in any case.
                if early_spins.is_multiple_of(16) {
                    router.poll()?;
                }
                std::hint::spin_loop();
                continue;
            }
            Progress::Idle if early_yields > 0 => {
                early_yields -= 1;
                watch.check_abort()?;
                router.poll()?;
                std::thread::yield_now();
                continue;
            }
            Progress::Idle => {}
        }
        let polled = router.poll()?;
        if backoff.is_worth_a_pass(polled) {
            watch.check_abort()?;
            continue;
        }
        let Some(pause) = backoff.next(*policy) else {
            std::hint::spin_loop();
            continue;
        };
        watch.check_abort()?;
        match pause {
            Pause::Spin => {}
            Pause::Yield => std::thread::yield_now(),
            Pause::Park if router.has_reader() && backoff.may_yield_to_reader() => {
                std::thread::yield_now();
            }
            Pause::Park => match park_rank(work, router, watch, deadline.park_limit())? {
                Parked::Not => backoff = Backoff::default(),
                parked if deadline.is_over_after(parked) => return Err(CallError::Overdue),
                _ => {}
            },
        }
    }
}

/// Parks until a peer or a cause wakes this rank, or for `limit`. Does not park if something
/// moves after all.
fn park_rank(
    work: &mut impl Work,
    router: &mut Router,
    watch: &Watch,
    limit: Duration,
) -> Result<Parked, CallError> {
    router.arm();
    let awake = is_awake(work, router, watch);
    let parked = if matches!(awake, Ok(false)) {
        let longest = work.park_limit();
        let fds: [Option<BorrowedFd<'_>>; WAKE_FDS_MAX + 1] = {
            let mut fds = router.wake_fds().chain([watch.wake_fd()]);
            std::array::from_fn(|_| fds.next())
        };
        let is_woken = park(&fds, limit.min(longest));
        if is_woken || longest < limit { Parked::Woken } else { Parked::Whole }
    } else {
        Parked::Not
    };
    router.disarm();
    watch.has_parked();
    awake.map(|_| parked)
}

/// Whether something moves after all. Peers ring this rank from now on.
fn is_awake(work: &mut impl Work, router: &mut Router, watch: &Watch) -> Result<bool, CallError> {
    let polled = router.poll()?;
    let awake = match work.advance(router, watch, usize::MAX)? {
        Progress::Moved => true,
        Progress::Done => polled || router.is_flushed(),
        Progress::Idle => polled,
    };
    if !awake {
        work.check_peers(router, watch)?;
    }
    Ok(awake)
}

/// A run that has begun.
pub(crate) struct Run<'c> {
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

/// A finding of a run, the same on every rank. The algorithm is chosen again after it.
pub(crate) enum Finding {
    /// Some rank lacks memory for the staging buffer.
    NoStaging(io::Result<Window>),
    /// All ranks can read each other's private memory in this way.
    PeerMemory(PeerMemory),
}

impl<'c> Run<'c> {
    /// A run that has none of the caller's memory yet.
    #[inline]
    pub(crate) fn new(
        call: RunCall<'c>,
        scratch: &'c mut AlignedBytes,
        stepper: &'c mut Stepper,
    ) -> Self {
        let CompiledCall { program, .. } = call.compiled;
        stepper.start(program);
        let buffers = BufferMap::new(program, scratch.exactly(call.compiled.scratch_bytes));
        let phase = Phase::Steps;
        Self { call, stepper, buffers, staging: None, reads_peers: false, offloaded: 0, phase }
    }

    /// Has lanes hand over chunks to the groups of in-network reduction.
    pub(crate) fn offload(&mut self) {
        self.phase = Phase::Settle;
    }

    /// Adds the caller's memory.
    #[inline]
    pub(crate) fn add_user(&mut self, user: &'c mut User<'_, '_>, shape: Shape) {
        let CompiledCall { program, in_windows, .. } = self.call.compiled;
        self.buffers.add_user(program, *in_windows, user, shape);
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
        if matches!(self.phase, Phase::Settle) && !self.has_settled(router) {
            return Ok(Progress::Idle);
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
            Phase::Settle => Phase::Steps,
            phase => phase,
        };
        Ok(Progress::Moved)
    }

    /// Begins the lanes that hand over chunks, once the ranks have decided which groups serve this
    /// call. Returns whether they have.
    fn has_settled(&mut self, router: &Router) -> bool {
        let CompiledCall { program, handed, .. } = self.call.compiled;
        let Some(offload) = router.offload() else { return true };
        if !offload.begin(self.call.seq) {
            return false;
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
        true
    }

    /// Has the members' own steps take the place of a group that was given up.
    fn fall_back(&mut self, router: &Router) {
        let CompiledCall { program, handed, .. } = self.call.compiled;
        let Some(offload) = router.offload() else { return };
        for (lane, handed) in handed.iter().enumerate() {
            if let Some(Handed { group, .. }) = handed
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

impl Work for Run<'_> {
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
                let buffers = &mut self.buffers;
                let mut ports = CallPorts { router, watch, kernel, tag, buffers, handed };
                self.stepper.advance(program, &mut ports, budget)
            }
            Phase::Found(_) => Ok(Progress::Done),
            _ => self.prepare(router, watch, budget),
        }
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
        waiting.try_for_each(|at| check_for_foreign_call(router, tag, program, at.lane, at.at))
    }
}

/// Ranks up to which each rank sends its byte to all others directly.
const DIRECT_RANKS: usize = 16;

/// An exchange of a few bytes of every rank, within a call.
struct Gather {
    program: Program,
    kernel: Kernel,
    stepper: Stepper,
    scratch: Vec<u8>,
    /// The bytes of all ranks, in rank order.
    all: Vec<u8>,
}

impl Gather {
    fn new(layout: &Layout, rank: Rank, own: &[u8]) -> Self {
        let (collective, data_type, op) = (Collective::AllGather, DataType::U8, ReduceOp::Sum);
        let call = Call {
            collective,
            count: own.len(),
            data_type,
            op,
            root: Rank(0),
            wire: Wire::default(),
        };
        let size = layout.size();
        // With messages between all ranks, each detects a rank in another call at once. Larger
        // groups avoid it: it would open a link between every two ranks.
        let name = if size <= DIRECT_RANKS { "direct" } else { "bruck" };
        let algorithm = Algorithm::named(collective, name).expect("an algorithm of that name");
        let chunk = size * own.len();
        let plan = ScheduleParams { call, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let target = Target { in_place: true, ..Target::default() };
        let program = lower(&(algorithm.schedule)(&plan), target);
        let scratch = vec![0; program.scratch_len() + program.rounded_len()];
        let mut all = vec![0; size * own.len()];
        all[rank.index() * own.len()..][..own.len()].copy_from_slice(own);
        let mut stepper = Stepper::new();
        stepper.start(&program);
        Self { kernel: Kernel::new(data_type, op, size), program, stepper, scratch, all }
    }

    fn advance(
        &mut self,
        tag: u32,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        let bytes = self.all.len();
        let shape = Shape { in_place: true, input: bytes, output: bytes };
        let mut all = Buffers::InPlace(&mut self.all);
        let mut user = User::Private(&mut all);
        let mut buffers = BufferMap::new(&self.program, &mut self.scratch);
        buffers.add_user(&self.program, false, &mut user, shape);
        let (kernel, buffers) = (&self.kernel, &mut buffers);
        let mut ports = CallPorts { router, watch, kernel, tag, buffers, handed: &[] };
        self.stepper.advance(&self.program, &mut ports, budget)
    }
}

/// The time between the first two checks for peers' parts of a window. It doubles with each check:
/// many ranks that check often slow down the ranks that still make their parts.
const RECHECK: Duration = Duration::from_micros(200);

/// The longest time between two checks for peers' parts.
const RECHECK_MAX: Duration = Duration::from_millis(20);

/// The creation of a window. Each rank makes its part and passes it to the peers.
pub(crate) struct Sharing {
    made: Option<io::Result<Window>>,
    recheck: Duration,
}

impl Sharing {
    /// Makes this rank's part and passes it to the peers.
    pub(crate) fn begin(router: &mut Router, bytes: usize) -> Result<Self, CallError> {
        let Some(memory) = router.windows() else {
            unreachable!("every rank has just said that it shares memory")
        };
        memory.begin_window(bytes)?;
        Ok(Self { made: None, recheck: RECHECK })
    }

    /// The window with all ranks' parts.
    ///
    /// # Errors
    /// The reason why a part is missing.
    pub(crate) fn end(self) -> io::Result<Window> {
        self.made.unwrap_or_else(|| unreachable!("sharing ends when it is done"))
    }
}

impl Work for Sharing {
    fn advance(&mut self, router: &mut Router, _: &Watch, _: usize) -> Result<Progress, CallError> {
        if self.made.is_none()
            && let Some(memory) = router.windows()
        {
            self.made = memory.finish_window()?;
        }
        Ok(if self.made.is_some() { Progress::Done } else { Progress::Idle })
    }

    fn park_limit(&mut self) -> Duration {
        let recheck = self.recheck;
        self.recheck = RECHECK_MAX.min(recheck * 2);
        recheck
    }
}

/// The most sources of a reduction with a small operand table, which is cheaper to set up.
const FEW: usize = 4;

/// The ports of one call.
struct CallPorts<'r, 'a> {
    router: &'r mut Router,
    watch: &'r Watch,
    kernel: &'r Kernel,
    /// The tag of the call's messages and signals. All ranks compute the same.
    tag: u32,
    buffers: &'r mut BufferMap<'a>,
    /// The chunks that each lane hands over to a provider.
    handed: &'r [Option<Handed>],
}

impl Ports for CallPorts<'_, '_> {
    type Error = CallError;

    fn exchange(&mut self, with: Rank, src: Slice, dst: Slice) -> Result<Exchanged, CallError> {
        let (mut line, input) = (Line([0; size_of::<Line>()]), self.buffers.read(src));
        let own = &mut line.0[..input.len()];
        copy(own, input);
        let output = self.buffers.write(dst);
        copy(output, own);
        let mut buffers = Buffers::InPlace(output);
        Ok(stepped(self.router.exchange(self.kernel, self.tag, with, &mut buffers, 0)))
    }

    #[inline]
    fn send(
        &mut self,
        lane: usize,
        to: Rank,
        src: Slice,
        rendezvous: bool,
    ) -> Result<usize, CallError> {
        let (link, bytes) = (link(to, lane), self.buffers.read(src));
        let sent = if rendezvous {
            self.router.send_rendezvous(link, self.tag, bytes)?
        } else {
            self.router.to(link).send(link, self.tag, bytes)?
        };
        Ok(sent >> self.buffers.shift(Form::of(src.buffer)))
    }

    #[inline]
    fn receive(
        &mut self,
        lane: usize,
        from: Rank,
        dst: Slice,
        stores: Stores,
    ) -> Result<usize, CallError> {
        if stores == Stores::Streaming {
            return self.receive_streaming(lane, from, dst);
        }
        let link = link(from, lane);
        let shift = self.buffers.shift(Form::of(dst.buffer));
        let received = self.router.to(link).recv(link, self.tag, self.buffers.write(dst))?;
        match received {
            None => Ok(0),
            Some(received) if received.tag == self.tag => Ok(received.bytes >> shift),
            Some(_) => Err(CallError::Foreign(from)),
        }
    }

    fn copy(&mut self, _: usize, src: Slice, dst: Slice, stores: Stores) -> Result<(), CallError> {
        if dst.buffer == Buffer::Staging {
            // Peers read the staging buffer, and may write to it in the next call.
            self.watch.check_abort_after_pause()?;
        }
        self.buffers.copy(src, dst, stores);
        Ok(())
    }

    #[inline]
    fn reduce(&mut self, lane: usize, reduction: Reduction<'_>) -> Result<usize, CallError> {
        let Reduction { sources, done, in_lines, .. } = reduction;
        if in_lines && done == 0 {
            let reduced = if sources.len() <= FEW {
                self.reduce_lines::<FEW>(lane, reduction)?
            } else {
                self.reduce_lines::<SOURCES_MAX>(lane, reduction)?
            };
            if let Some(reduced) = reduced {
                return Ok(reduced);
            }
        }
        if sources.len() <= FEW {
            self.reduce_bytes::<FEW>(lane, reduction)
        } else {
            self.reduce_bytes::<SOURCES_MAX>(lane, reduction)
        }
    }

    fn reduce_to_all(
        &mut self,
        _: usize,
        dst: Slice,
        sources: &[Source],
        stores: Stores,
    ) -> Result<(), CallError> {
        self.watch.check_abort_after_pause()?;
        let windows = self.buffers.windows_of_all(dst);
        let range = windows.range;
        let mut operands = [Operand::Destination; SOURCES_MAX];
        for (operand, source) in operands.iter_mut().zip(sources) {
            *operand = match (*source, windows.input) {
                (Source::Local(_), None) => Operand::Destination,
                (Source::Peer(of, _), None) => Operand::Other(windows.peers.place(of)),
                (Source::Local(_), Some((own, _))) => Operand::elements(own.read(range.clone())),
                (Source::Peer(of, _), Some((_, peers))) => {
                    Operand::elements(peers.read(of, range.clone()))
                }
                (Source::Wire(..), _) => unreachable!("windows are not on a wire"),
            };
        }
        let mut others: [&mut [u8]; SOURCES_MAX] = Default::default();
        let mut count = 0;
        for (other, part) in others.iter_mut().zip(windows.peers.write_all(&range)) {
            *other = part;
            count += 1;
        }
        let (into, others) = (windows.own.write(range), &mut others[..count]);
        let is_streaming = stores == Stores::Streaming;
        self.kernel.combine_to_all(into, others, &operands[..sources.len()], is_streaming);
        Ok(())
    }

    fn put(&mut self, _: usize, to: Rank, src: Slice) -> Result<(), CallError> {
        self.watch.check_abort_after_pause()?;
        self.buffers.put(to, src);
        Ok(())
    }

    fn get(
        &mut self,
        _: usize,
        from: Rank,
        src: Slice,
        dst: Slice,
        stores: Stores,
    ) -> Result<(), CallError> {
        self.buffers.get(from, src, dst, stores);
        Ok(())
    }

    #[inline]
    fn signal(&mut self, _: usize) -> Result<(), CallError> {
        self.router.signal(self.tag);
        Ok(())
    }

    #[inline]
    fn wait(&mut self, _: usize, from: Rank) -> Result<bool, CallError> {
        match self.router.signalled(from)? {
            None => Ok(false),
            Some(tag) if tag == self.tag => {
                self.router.take_signal(from);
                Ok(true)
            }
            Some(_) => Err(CallError::Foreign(from)),
        }
    }

    fn swap(&mut self) -> Result<(), CallError> {
        self.buffers.swap();
        Ok(())
    }

    fn post(&mut self, lane: usize, src: Slice, _: Slice) -> Result<bool, CallError> {
        let (Some(Some(handed)), Some(offload)) = (self.handed.get(lane), self.router.offload())
        else {
            return Ok(false);
        };
        Ok(match handed.reduction.collective {
            Collective::Barrier => offload.post(self.tag, handed, 0, &[]),
            _ => offload.post(self.tag, handed, src.len, self.buffers.read(src)),
        })
    }

    fn take_result(&mut self, lane: usize, dst: Slice) -> Result<bool, CallError> {
        let (Some(Some(handed)), Some(offload)) = (self.handed.get(lane), self.router.offload())
        else {
            return Ok(false);
        };
        let has_bytes = handed.reduction.collective != Collective::Barrier && dst.len > 0;
        let into = if has_bytes { self.buffers.write(dst) } else { &mut [] };
        Ok(offload.take(handed.group, into))
    }
}

/// Converts the progress of a transport's exchange for the stepper.
#[inline]
pub(crate) const fn stepped(exchanged: ringfold_transport::Exchanged) -> Exchanged {
    match exchanged {
        ringfold_transport::Exchanged::Nothing => Exchanged::Nothing,
        ringfold_transport::Exchanged::Sent => Exchanged::Sent,
        ringfold_transport::Exchanged::Both => Exchanged::Both,
    }
}

impl CallPorts<'_, '_> {
    /// Copies received elements by non-temporal stores.
    fn receive_streaming(
        &mut self,
        lane: usize,
        from: Rank,
        dst: Slice,
    ) -> Result<usize, CallError> {
        let link = link(from, lane);
        let shift = self.buffers.shift(Form::of(dst.buffer));
        let Some(arrived) = arrived(self.router, self.tag, link)? else { return Ok(0) };
        let into = self.buffers.write(dst);
        let bytes = arrived.len().min(into.len());
        copy_non_temporal(&mut into[..bytes], &arrived[..bytes]);
        self.router.to(link).consume(link, bytes);
        Ok(bytes >> shift)
    }

    /// Combines at most `N` sources that fit a cache line each. Returns `Some(0)` if a source has
    /// not arrived, and `None` if only a part of one has.
    #[inline]
    fn reduce_lines<const N: usize>(
        &mut self,
        lane: usize,
        Reduction { dst, sources, .. }: Reduction<'_>,
    ) -> Result<Option<usize>, CallError> {
        let bytes = dst.len << self.buffers.shift(Form::Element);
        let mut lines = [Line([0; size_of::<Line>()]); N];
        for (line, source) in lines.iter_mut().zip(sources) {
            let values = match *source {
                Source::Local(slice) => self.buffers.read(slice),
                Source::Wire(from, _) => {
                    let Some(values) = arrived(self.router, self.tag, link(from, lane))? else {
                        return Ok(Some(0));
                    };
                    let Some(values) = values.get(..bytes) else { return Ok(None) };
                    values
                }
                Source::Peer(..) => unreachable!("lines are in this rank's memory"),
            };
            copy(&mut line.0[..bytes], values);
        }
        kernel_of(self.kernel, dst, &mut None)
            .combine_lines(self.buffers.write(dst), &lines[..sources.len()]);
        self.consume(lane, sources, |_| bytes);
        Ok(Some(dst.len))
    }

    /// Combines at most `N` sources, as far as elements of all have arrived.
    fn reduce_bytes<const N: usize>(
        &mut self,
        lane: usize,
        Reduction { dst, sources, done, .. }: Reduction<'_>,
    ) -> Result<usize, CallError> {
        let (element, accumulator) =
            (self.buffers.shift(Form::Element), self.buffers.shift(Form::Accumulator));
        let shift = |form: Form| if form == Form::Element { element } else { accumulator };
        let mut on_wire: [&[u8]; N] = [&[]; N];
        let mut elements = dst.len;
        let mut is_shared = dst.buffer == Buffer::Staging;
        for (bytes, source) in on_wire.iter_mut().zip(sources) {
            match *source {
                Source::Wire(from, form) => {
                    let arrived = arrived(self.router, self.tag, link(from, lane))?;
                    let Some(arrived) = arrived else { return Ok(0) };
                    *bytes = arrived;
                    elements = elements.min(arrived.len() >> shift(form));
                }
                Source::Peer(_, slice) => is_shared |= slice.buffer != Buffer::Staging,
                Source::Local(_) => {}
            }
        }
        if elements == 0 {
            return Ok(0);
        }
        if is_shared {
            self.watch.check_abort_after_pause()?;
        }
        let parts = self.buffers.split(dst.take(elements));
        let mut operands = [Operand::Destination; N];
        for ((operand, source), arrived) in operands.iter_mut().zip(sources).zip(on_wire) {
            let (bytes, form) = match *source {
                Source::Wire(_, form) => (&arrived[..elements << shift(form)], form),
                Source::Local(whole) => match parts.find(whole.skip(done).take(elements)) {
                    LocalSource::Destination => continue,
                    LocalSource::Bytes(bytes) => (bytes, Form::of(whole.buffer)),
                },
                Source::Peer(of, whole) => {
                    let part = whole.skip(done).take(elements);
                    (parts.peer(of, part), Form::of(whole.buffer))
                }
            };
            *operand = Operand::Bytes { bytes, form: kernel_form(form) };
        }
        let form = kernel_form(Form::of(dst.buffer));
        kernel_of(self.kernel, dst, &mut None).combine(
            parts.bytes,
            form,
            &operands[..sources.len()],
        );
        self.consume(lane, sources, |form| elements << shift(form));
        Ok(elements)
    }

    /// Consumes `bytes` of each source on the wire.
    #[inline]
    fn consume(&mut self, lane: usize, sources: &[Source], bytes: impl Fn(Form) -> usize) {
        for source in sources {
            if let Source::Wire(from, form) = *source {
                let link = link(from, lane);
                self.router.to(link).consume(link, bytes(form));
            }
        }
    }
}

/// The kernel for results in `dst`. It divides averages only at their end.
#[inline]
fn kernel_of<'k>(kernel: &'k Kernel, dst: Slice, partial: &'k mut Option<Kernel>) -> &'k Kernel {
    match dst.buffer {
        Buffer::Rounded => partial.insert(kernel.partial()),
        _ => kernel,
    }
}

/// The bytes that have arrived on a link; `None` if none have.
#[inline]
fn arrived(router: &Router, tag: u32, link: Link) -> Result<Option<&[u8]>, CallError> {
    match router.readable(link)? {
        None => Ok(None),
        Some(fragment) if fragment.tag == tag => Ok(Some(fragment.bytes)),
        Some(_) => Err(CallError::Foreign(link.peer)),
    }
}

#[inline]
fn link(peer: Rank, lane: usize) -> Link {
    #[expect(clippy::cast_possible_truncation, reason = "at most CHANNELS_MAX")]
    Link { peer, lane: Lane(lane as u8) }
}

const fn kernel_form(form: Form) -> ringfold_reduce::Form {
    match form {
        Form::Element => ringfold_reduce::Form::Element,
        Form::Accumulator => ringfold_reduce::Form::Accumulator,
    }
}

/// Checks whether the peer for which this rank waits at `at` is in another call. Tags show this for
/// most calls. The check is for a message in place of a signal, and for the reverse.
///
/// # Errors
/// `CallError::Foreign` with the peer.
fn check_for_foreign_call(
    router: &Router,
    tag: u32,
    program: &Program,
    lane: usize,
    at: usize,
) -> Result<(), CallError> {
    match program.lanes()[lane].get(at) {
        Some(Op::Wait { from }) => sends_foreign(router, tag, *from),
        Some(Op::Receive { from, .. }) => signals_foreign(router, tag, link(*from, lane)),
        Some(Op::Reduce { sources, .. }) => {
            program.sources(sources).iter().try_for_each(|source| match *source {
                Source::Wire(from, _) => signals_foreign(router, tag, link(from, lane)),
                Source::Local(_) | Source::Peer(..) => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

/// Fails if a peer whose signal this rank awaits has sent bytes of another call instead.
fn sends_foreign(router: &Router, tag: u32, from: Rank) -> Result<(), CallError> {
    let is_other = |lane| {
        let sent = router.readable(link(from, lane));
        matches!(sent, Ok(Some(fragment)) if fragment.tag != tag)
    };
    // If the peer has signalled after all, the bytes are of its next call. A peer that is gone is
    // reported by the operations, once they have consumed its earlier messages.
    if (0..CHANNELS_MAX.into()).any(is_other) && matches!(router.signalled(from), Ok(None)) {
        return Err(CallError::Foreign(from));
    }
    Ok(())
}

/// Fails if a peer whose bytes this rank awaits has signalled in another call instead.
pub(crate) fn signals_foreign(router: &Router, tag: u32, link: Link) -> Result<(), CallError> {
    let is_other = matches!(router.signalled(link.peer), Ok(Some(other)) if other != tag);
    // If the peer has sent after all, the signal is of its next call.
    if is_other && matches!(router.readable(link), Ok(None)) {
        return Err(CallError::Foreign(link.peer));
    }
    Ok(())
}
