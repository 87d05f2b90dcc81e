//! Runs calls: a run is all state of one call under way, and a thread advances it.
//!
//! A run goes through phases. Where a call passes through staging buffers and there are none yet,
//! the ranks agree to make them, make them, and agree that all are there. Then the program runs.
//! [`Run::advance`] never waits, and any thread may call it next. [`block_on`] is a loop around it
//! for callers that wait.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringfold_collectives::{
    Algorithm, Exchanged, Form, Op, Plan, Ports, Program, Progress, Reduction, Source, Stepper,
    Stores, Target, lower,
};
use ringfold_reduce::{Kernel, Line, Operand};
use ringfold_topology::{Layout, PeerMemory};
use ringfold_transport::{Link, Window, copy, copy_past};
use ringfold_types::limits::{LANES_MAX, LINK_BYTES_MIN, SOURCES_MAX, STAGE_BYTES};
use ringfold_types::{Buffer, Call, Collective, DataType, Lane, Rank, ReduceOp, Slice};

use crate::backoff::{Idle, Nap, Patience, Stage, Vigil, park};
use crate::buffers::{AlignedBytes, BufferMap, Buffers, Found, Shape, User};
use crate::cache::CompiledCall;
use crate::error::CallError;
use crate::router::{Router, TRANSPORTS_MAX};
use crate::watch::Watch;

/// Work that goes on while its caller waits.
pub(crate) trait Work {
    /// Does what is possible at once, but at most about `budget` operations.
    ///
    /// # Errors
    /// The work cannot go on. Memory that it lent to peers is theirs until `Router::withdraw`.
    fn advance(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError>;

    /// The longest time to sleep before the next look, where nothing wakes a sleeper.
    fn longest_nap(&mut self) -> Duration {
        Duration::MAX
    }

    /// Finds out whether a rank for which this one waits is in another call.
    ///
    /// # Errors
    /// It is.
    fn look_for_foreign_calls(&self, _router: &Router) -> Result<(), CallError> {
        Ok(())
    }
}

/// Advances `work` to its end, and until all that it sent is on its way. Sleeps while nothing
/// moves, in the end `timeout` long.
///
/// # Errors
/// The job has failed, or the time is up. No peer uses memory of the work any more.
#[inline]
pub(crate) fn block_on(
    work: &mut impl Work,
    router: &mut Router,
    watch: &Watch,
    patience: &mut Patience,
    timeout: Duration,
) -> Result<(), CallError> {
    let outcome = match work.advance(router, watch, usize::MAX) {
        Ok(Progress::Done) if router.is_flushed() => Ok(()),
        Ok(_) => finish(work, router, watch, patience, timeout),
        Err(error) => Err(error),
    };
    // Others may have given the call up while this process was stopped.
    let outcome = outcome.and_then(|()| watch.check_abort_after_pause());
    if outcome.is_err() {
        // The caller's memory is the caller's again.
        router.withdraw();
    }
    outcome
}

fn finish(
    work: &mut impl Work,
    router: &mut Router,
    watch: &Watch,
    patience: &mut Patience,
    timeout: Duration,
) -> Result<(), CallError> {
    let (mut tries, mut turns) = (patience.tries(), patience.turns());
    let mut idle = Idle::default();
    let mut vigil = Vigil::new(timeout);
    loop {
        match work.advance(router, watch, usize::MAX)? {
            Progress::Done if router.is_flushed() => return Ok(()),
            Progress::Done => {}
            Progress::Moved => {
                patience.learn(idle);
                (idle, turns) = (Idle::default(), patience.turns());
                if tries > 0 || turns > 0 {
                    continue;
                }
            }
            Progress::Idle if tries > 0 => {
                tries -= 1;
                // Bytes that only polling brings are late anyway.
                if tries.is_multiple_of(16) {
                    router.poll()?;
                }
                std::hint::spin_loop();
                continue;
            }
            Progress::Idle if turns > 0 => {
                turns -= 1;
                watch.check_abort()?;
                router.poll()?;
                std::thread::yield_now();
                continue;
            }
            Progress::Idle => {}
        }
        let polled = router.poll()?;
        if idle.is_worth_a_sweep(polled) {
            watch.check_abort()?;
            continue;
        }
        let Some(stage) = idle.next(*patience) else {
            std::hint::spin_loop();
            continue;
        };
        watch.check_abort()?;
        match stage {
            Stage::Spin => {}
            Stage::Yield => std::thread::yield_now(),
            Stage::Park if router.is_offering() && idle.lingers() => std::thread::yield_now(),
            Stage::Park => match nap(work, router, watch, vigil.nap_limit())? {
                Nap::None => idle = Idle::default(),
                nap if vigil.is_over_after(nap) => return Err(CallError::Overdue),
                _ => {}
            },
        }
    }
}

/// Sleeps until a peer or a verdict wakes this rank, or for `limit`, unless something moves after
/// all.
fn nap(
    work: &mut impl Work,
    router: &mut Router,
    watch: &Watch,
    limit: Duration,
) -> Result<Nap, CallError> {
    router.arm();
    let awake = is_awake(work, router, watch);
    let nap = if matches!(awake, Ok(false)) {
        let longest = work.longest_nap();
        let fds: [Option<BorrowedFd<'_>>; TRANSPORTS_MAX + 1] = {
            let mut fds = router.wake_fds().chain([watch.wake_fd()]);
            std::array::from_fn(|_| fds.next())
        };
        let is_woken = park(&fds, limit.min(longest));
        if is_woken || longest < limit { Nap::Woken } else { Nap::Whole }
    } else {
        Nap::None
    };
    router.disarm();
    awake.map(|_| nap)
}

/// Whether something moves after all, once peers ring who sleeps.
fn is_awake(work: &mut impl Work, router: &mut Router, watch: &Watch) -> Result<bool, CallError> {
    let polled = router.poll()?;
    let awake = match work.advance(router, watch, usize::MAX)? {
        Progress::Moved => true,
        Progress::Done => polled || router.is_flushed(),
        Progress::Idle => polled,
    };
    if !awake {
        work.look_for_foreign_calls(router)?;
    }
    Ok(awake)
}

/// A run that has begun, and where its work stands.
pub(crate) struct Run<'c> {
    call: RunCall<'c>,
    stepper: &'c mut Stepper,
    buffers: BufferMap<'c>,
    /// The place of the staging buffer, until it is one of the buffers.
    staging: Option<&'c mut Option<Window>>,
    /// Whether it has to be found out first how all ranks can read each other's own memory.
    reads_peers: bool,
    phase: Phase,
}

/// The call of a run.
#[derive(Clone, Copy)]
pub(crate) struct RunCall<'c> {
    pub(crate) compiled: &'c CompiledCall,
    pub(crate) layout: &'c Layout,
    pub(crate) rank: Rank,
    /// Marks the bytes of the call.
    pub(crate) tag: u32,
    /// Whether the halves of the staging buffer have changed places.
    pub(crate) is_flipped: bool,
}

/// The work of a run. All but the steps are boxed, since most runs have no other.
enum Phase {
    /// All ranks say that they are in this call. A rank in another is found out here, before the
    /// others wait for its part.
    Agree(Box<Gather>),
    /// All ranks say how they can read the others' own memory.
    Read(Box<Gather>),
    /// The ranks hand their parts of the staging buffer around.
    Share(Box<Sharing>),
    /// All ranks say whether they have it.
    Confirm(Box<Gather>, Box<io::Result<Window>>),
    /// The ranks have found out what makes another choice of the algorithm.
    Found(Box<Finding>),
    Steps,
}

/// A finding of a run, the same on every rank, after which the algorithm is chosen anew.
pub(crate) enum Finding {
    /// Some rank lacks memory for the staging buffer.
    NoStaging(io::Result<Window>),
    /// All ranks can read each other's own memory so.
    PeerMemory(PeerMemory),
}

impl<'c> Run<'c> {
    /// A run without memory of the caller's.
    #[inline]
    pub(crate) fn new(
        call: RunCall<'c>,
        scratch: &'c mut AlignedBytes,
        stepper: &'c mut Stepper,
    ) -> Self {
        let CompiledCall { program, .. } = call.compiled;
        stepper.start(program);
        let buffers = BufferMap::new(program, scratch.exactly(call.compiled.scratch_bytes));
        Self { call, stepper, buffers, staging: None, reads_peers: false, phase: Phase::Steps }
    }

    /// Adds the caller's memory.
    #[inline]
    pub(crate) fn add_user(&mut self, user: &'c mut User<'_, '_>, shape: Shape) {
        let CompiledCall { program, in_windows, .. } = self.call.compiled;
        self.buffers.add_user(program, *in_windows, user, shape);
    }

    /// Adds the staging buffer, which is made first if it is not there.
    pub(crate) fn add_staging(&mut self, staging: &'c mut Option<Window>) {
        let RunCall { compiled, is_flipped, .. } = self.call;
        if let Some(staging) = staging {
            self.buffers.add_staging(&compiled.program, staging, is_flipped);
        } else {
            self.phase = Phase::Agree(self.gather(1));
            self.staging = Some(staging);
        }
    }

    /// Has the ranks find out how all can read each other's own memory, instead of any step.
    #[cold]
    pub(crate) fn try_peer_memory(&mut self) {
        self.phase = Phase::Agree(self.gather(1));
        self.reads_peers = true;
    }

    /// Asks all ranks for such a byte.
    fn gather(&self, own: u8) -> Box<Gather> {
        Box::new(Gather::new(self.call.layout, self.call.rank, &[own]))
    }

    /// Reports, before the first step, how far the exchange got that the program begins with.
    #[inline]
    pub(crate) fn exchanged(&mut self, exchanged: Exchanged) {
        self.stepper.exchanged(exchanged);
    }

    /// As `advance`, of the phases before the steps.
    #[cold]
    fn prepare(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        let tag = self.call.tag;
        let progress = match &mut self.phase {
            Phase::Agree(gather) | Phase::Read(gather) | Phase::Confirm(gather, _) => {
                gather.advance(tag, router, watch, budget)?
            }
            Phase::Share(sharing) => sharing.advance(router, watch, budget)?,
            Phase::Found(_) | Phase::Steps => Progress::Done,
        };
        if progress != Progress::Done {
            return Ok(progress);
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Steps) {
            // Only now has every rank come, so that the others can try to read its memory.
            Phase::Agree(_) if self.reads_peers => {
                Phase::Read(self.gather(router.peer_memory() as u8))
            }
            Phase::Agree(_) => Phase::Share(Box::new(Sharing::begin(router, STAGE_BYTES)?)),
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

    /// Ends a run that is done. With a finding, no step of the call is done; it has to be performed
    /// by the algorithm that is chosen now.
    ///
    /// # Panics
    /// If it is not done: peers may still use the memory that it lent them.
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
                let (CompiledCall { kernel, program, .. }, tag) =
                    (self.call.compiled, self.call.tag);
                let mut ports =
                    CallPorts { router, watch, kernel, tag, buffers: &mut self.buffers };
                self.stepper.advance(program, &mut ports, budget)
            }
            Phase::Found(_) => Ok(Progress::Done),
            _ => self.prepare(router, watch, budget),
        }
    }

    fn longest_nap(&mut self) -> Duration {
        match &mut self.phase {
            Phase::Share(sharing) => sharing.longest_nap(),
            _ => Duration::MAX,
        }
    }

    fn look_for_foreign_calls(&self, router: &Router) -> Result<(), CallError> {
        let (program, stepper) = match &self.phase {
            Phase::Steps => (&self.call.compiled.program, &*self.stepper),
            Phase::Agree(gather) | Phase::Read(gather) | Phase::Confirm(gather, _) => {
                (&gather.program, &gather.stepper)
            }
            Phase::Share(_) | Phase::Found(_) => return Ok(()),
        };
        let tag = self.call.tag;
        let mut waiting = stepper.waiting();
        waiting.try_for_each(|at| look_for_foreign_call(router, tag, program, at.lane, at.at))
    }
}

/// Ranks up to which agreement is by messages from each to all others.
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
        let call = Call { collective, count: own.len(), data_type, op, root: Rank(0) };
        let size = layout.size();
        // Where all wait for all, a rank in another call is found out at once. That takes links to
        // all others, which many ranks do not make for it.
        let name = if size <= DIRECT_RANKS { "direct" } else { "bruck" };
        let algorithm = Algorithm::named(collective, name).expect("an algorithm of that name");
        let chunk = size * own.len();
        let plan = Plan { call, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let target = Target { in_place: true, ..Target::default() };
        let program = lower(&(algorithm.schedule)(&plan), target);
        let scratch = vec![0; program.scratch_len()];
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
        let kernel = &self.kernel;
        let mut ports = CallPorts { router, watch, kernel, tag, buffers: &mut buffers };
        self.stepper.advance(&self.program, &mut ports, budget)
    }
}

/// How long to wait for peers' parts before the second look, and at most between two. The time
/// doubles, since many ranks that look often keep each other from making their parts.
const GLANCE: Duration = Duration::from_micros(200);
const GLANCE_MAX: Duration = Duration::from_millis(20);

/// The making of a window, of which each rank makes its part.
pub(crate) struct Sharing {
    made: Option<io::Result<Window>>,
    glance: Duration,
}

impl Sharing {
    /// Makes this rank's part, and hands it to the peers.
    pub(crate) fn begin(router: &mut Router, bytes: usize) -> Result<Self, CallError> {
        let Some(memory) = router.windows() else {
            unreachable!("every rank has just said that it shares memory")
        };
        memory.begin_window(bytes)?;
        Ok(Self { made: None, glance: GLANCE })
    }

    /// This rank's and the others' parts, or why there are none.
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

    fn longest_nap(&mut self) -> Duration {
        let glance = self.glance;
        self.glance = GLANCE_MAX.min(glance * 2);
        glance
    }
}

/// Sources of a reduction that is not a wide one. A short table costs less to lay out.
const FEW: usize = 4;

/// The ports of one call.
struct CallPorts<'r, 'a> {
    router: &'r mut Router,
    watch: &'r Watch,
    kernel: &'r Kernel,
    /// Marks the bytes of the call. All ranks compute the same.
    tag: u32,
    buffers: &'r mut BufferMap<'a>,
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
            self.router.offer(link, self.tag, bytes)?
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
        if dst.buffer == Buffer::Stage {
            // Peers read the staging buffer, and may own it in the next call.
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
        self.router.tell(self.tag);
        Ok(())
    }

    #[inline]
    fn wait(&mut self, _: usize, from: Rank) -> Result<bool, CallError> {
        match self.router.told(from)? {
            None => Ok(false),
            Some(tag) if tag == self.tag => {
                self.router.heard(from);
                Ok(true)
            }
            Some(_) => Err(CallError::Foreign(from)),
        }
    }

    fn swap(&mut self) -> Result<(), CallError> {
        self.buffers.swap();
        Ok(())
    }
}

/// How far an exchange of a transport got, for a stepper.
#[inline]
pub(crate) const fn stepped(exchanged: ringfold_transport::Exchanged) -> Exchanged {
    match exchanged {
        ringfold_transport::Exchanged::Nothing => Exchanged::Nothing,
        ringfold_transport::Exchanged::Sent => Exchanged::Sent,
        ringfold_transport::Exchanged::Both => Exchanged::Both,
    }
}

impl CallPorts<'_, '_> {
    /// Copies elements that have arrived past the caches.
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
        copy_past(&mut into[..bytes], &arrived[..bytes]);
        self.router.to(link).consume(link, bytes);
        Ok(bytes >> shift)
    }

    /// Combines at most `N` sources that fit a line each. `Some(0)` if one has not arrived, and
    /// `None` if one has arrived in part.
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
        self.kernel.combine_lines(self.buffers.write(dst), &lines[..sources.len()]);
        self.consume(lane, sources, |_| bytes);
        Ok(Some(dst.len))
    }

    /// Combines as many elements as all of at most `N` sources have.
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
        let mut is_shared = dst.buffer == Buffer::Stage;
        for (bytes, source) in on_wire.iter_mut().zip(sources) {
            match *source {
                Source::Wire(from, form) => {
                    let arrived = arrived(self.router, self.tag, link(from, lane))?;
                    let Some(arrived) = arrived else { return Ok(0) };
                    *bytes = arrived;
                    elements = elements.min(arrived.len() >> shift(form));
                }
                Source::Peer(_, slice) => is_shared |= slice.buffer != Buffer::Stage,
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
                    Found::Destination => continue,
                    Found::Bytes(bytes) => (bytes, Form::of(whole.buffer)),
                },
                Source::Peer(of, whole) => {
                    let part = whole.skip(done).take(elements);
                    (parts.peer(of, part), Form::of(whole.buffer))
                }
            };
            *operand = Operand::Bytes { bytes, form: kernel_form(form) };
        }
        let form = kernel_form(Form::of(dst.buffer));
        self.kernel.combine(parts.bytes, form, &operands[..sources.len()]);
        self.consume(lane, sources, |form| elements << shift(form));
        Ok(elements)
    }

    /// Gives back so many bytes of each source on the wire.
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

/// The bytes that have arrived on a link, if any have.
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
    #[expect(clippy::cast_possible_truncation, reason = "at most LANES_MAX")]
    Link { peer, lane: Lane(lane as u8) }
}

const fn kernel_form(form: Form) -> ringfold_reduce::Form {
    match form {
        Form::Element => ringfold_reduce::Form::Element,
        Form::Accumulator => ringfold_reduce::Form::Accumulator,
    }
}

/// Finds out whether a rank for which this one waits at `at` is in another call, where that does
/// not come to light by itself: it sends while this rank waits for a signal, or the reverse.
///
/// # Errors
/// It is.
fn look_for_foreign_call(
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

/// An error if a rank that is to signal has sent bytes of another call instead.
fn sends_foreign(router: &Router, tag: u32, from: Rank) -> Result<(), CallError> {
    let is_other = |lane| {
        let sent = router.readable(link(from, lane));
        matches!(sent, Ok(Some(fragment)) if fragment.tag != tag)
    };
    // If it has signalled after all, those are of its next call. The operations report a peer that
    // is gone, once they have taken all that it sent before.
    if (0..LANES_MAX).any(is_other) && matches!(router.told(from), Ok(None)) {
        return Err(CallError::Foreign(from));
    }
    Ok(())
}

/// An error if a rank that is to send has signalled in another call instead.
fn signals_foreign(router: &Router, tag: u32, link: Link) -> Result<(), CallError> {
    let is_other = matches!(router.told(link.peer), Ok(Some(other)) if other != tag);
    // If it has sent after all, the signal is of its next call.
    if is_other && matches!(router.readable(link), Ok(None)) {
        return Err(CallError::Foreign(link.peer));
    }
    Ok(())
}
