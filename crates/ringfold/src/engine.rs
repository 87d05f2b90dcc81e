//! Progress: runs a schedule's machine over transports and memory, in the caller's thread.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ringfold_bootstrap::Verdict;
use ringfold_collectives::{Action, Form, Machine, Schedule, Source, Step, Waiting};
use ringfold_reduce::{Kernel, Line, Operand};
use ringfold_transport::{Link, LinkError, copy_past};
use ringfold_types::limits::{LANES_MAX, SOURCES_MAX};
use ringfold_types::{Buffer, Lane, Rank, Slice};

use crate::calls::Buffers;
use crate::memory::{Memory, Place};
use crate::pair::Pair;
use crate::router::{Router, TRANSPORTS_MAX};
use crate::short::dash;
use crate::wait::{Idle, Nap, Patience, Stage, Vigil, park};
use crate::watch::Watch;

/// One call, ready to run.
pub(crate) struct Task<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) kernel: &'a Kernel,
    /// Whether its reductions are so short that `dash` does them.
    pub(crate) in_lines: bool,
    /// Whether its messages are offered, rather than sent.
    pub(crate) offers: bool,
    /// Marks the call's bytes; all ranks compute the same.
    pub(crate) tag: u32,
    /// How long to wait for the others, counted from when there was first nothing to do.
    pub(crate) timeout: Duration,
    pub(crate) watch: &'a Watch,
}

/// Why a call could not finish.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The job has failed.
    Verdict(Arc<Verdict>),
    /// A link failed.
    Link(LinkError),
    /// A peer sent bytes of another call.
    Stranger(Rank),
    /// The call's time is up.
    Overdue,
}

impl From<LinkError> for Trouble {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

/// What runs tasks, one after another.
#[derive(Debug)]
pub(crate) struct Engine {
    router: Router,
    machine: Machine,
    /// What a peer sent in the shortest call.
    theirs: Line,
    patience: Patience,
}

impl Engine {
    pub(crate) fn new(router: Router, patience: Patience) -> Self {
        Self { router, machine: Machine::new(), theirs: Line([0; size_of::<Line>()]), patience }
    }

    pub(crate) const fn router(&self) -> &Router {
        &self.router
    }

    pub(crate) const fn router_mut(&mut self) -> &mut Router {
        &mut self.router
    }

    /// Does the shortest call; how many of its steps are done.
    #[inline]
    pub(crate) fn exchange(&mut self, pair: &Pair, tag: u32, buffers: &mut Buffers<'_>) -> usize {
        pair.exchange(&mut self.router, &mut self.theirs, tag, self.patience.tries(), buffers)
    }

    /// Runs `task` from step number `first` to its end. Blocks.
    #[inline]
    pub(crate) fn run(
        &mut self,
        task: &Task<'_>,
        memory: &mut Memory<'_>,
        first: usize,
    ) -> Result<(), Trouble> {
        let outcome = self.finish(task, memory, first);
        // Others may have given the call up while this process was stopped.
        let outcome = outcome.and_then(|()| task.watch.check_abort_after_pause());
        if outcome.is_err() {
            // The caller's memory is the caller's again.
            self.router.withdraw();
        } else {
            memory.complete();
        }
        outcome
    }

    fn finish(
        &mut self,
        task: &Task<'_>,
        memory: &mut Memory<'_>,
        first: usize,
    ) -> Result<(), Trouble> {
        if let Some((step, done)) = dash(&mut self.router, self.patience, task, memory, first)? {
            self.machine.start(task.schedule, memory.overlay());
            self.machine.skip_to(step, done);
        } else if self.router.is_flushed() {
            return Ok(());
        } else {
            self.machine.rest();
        }
        let mut idle = Idle::default();
        let mut vigil = Vigil::new(task.timeout);
        loop {
            if self.sweep(task, memory)? {
                self.patience.learn(idle);
                idle = Idle::default();
            }
            if self.machine.is_done() && self.router.is_flushed() {
                return Ok(());
            }
            let polled = self.router.poll()?;
            if idle.is_worth_a_sweep(polled) {
                task.watch.check_abort()?;
                continue;
            }
            let Some(stage) = idle.next(self.patience) else {
                std::hint::spin_loop();
                continue;
            };
            task.watch.check_abort()?;
            match stage {
                Stage::Spin => {}
                Stage::Yield => std::thread::yield_now(),
                Stage::Park if self.router.is_offering() && idle.lingers() => {
                    std::thread::yield_now();
                }
                Stage::Park => match self.nap(task, memory, vigil.nap_limit())? {
                    Nap::None => idle = Idle::default(),
                    nap if vigil.is_over_after(nap) => return Err(Trouble::Overdue),
                    _ => {}
                },
            }
        }
    }

    /// Sleeps until a peer or a verdict wakes this rank, or for `limit`, unless something moves
    /// after all.
    fn nap(
        &mut self,
        task: &Task<'_>,
        memory: &mut Memory<'_>,
        limit: Duration,
    ) -> Result<Nap, Trouble> {
        self.router.arm();
        let awake = self.router.poll().map_err(Trouble::from).and_then(|polled| {
            let moved = self.sweep(task, memory)?;
            let awake = polled || moved || self.machine.is_done() && self.router.is_flushed();
            if !awake {
                self.look_for_strangers(task)?;
            }
            Ok(awake)
        });
        let nap = if matches!(awake, Ok(false)) {
            let fds: [Option<BorrowedFd<'_>>; TRANSPORTS_MAX + 1] = {
                let mut fds = self.router.wake_fds().chain([task.watch.wake_fd()]);
                std::array::from_fn(|_| fds.next())
            };
            if park(&fds, limit) { Nap::Woken } else { Nap::Whole }
        } else {
            Nap::None
        };
        self.router.disarm();
        awake.map(|_| nap)
    }

    /// Finds out whether a rank that this one waits for is in another call, where that does not
    /// come to light by itself: it sends what this rank does not look for, which waits for a tell,
    /// or the other way round.
    fn look_for_strangers(&self, task: &Task<'_>) -> Result<(), Trouble> {
        let (router, schedule) = (&self.router, task.schedule);
        let wires = |source: &Source| match *source {
            Source::Wire(from, _) => Some(from),
            Source::Local(_) | Source::Peer(..) => None,
        };
        for Waiting { lane, step, .. } in self.machine.waiting() {
            match schedule.lanes()[lane].get(step) {
                Some(Step::Hear { from }) => hears_stranger(router, task.tag, *from)?,
                Some(Step::Recv { from, .. }) => awaits_stranger(router, task.tag, *from, lane)?,
                Some(Step::Reduce { sources, .. }) => schedule
                    .sources(sources)
                    .iter()
                    .filter_map(wires)
                    .try_for_each(|from| awaits_stranger(router, task.tag, from, lane))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Tries everything once; whether anything moved.
    fn sweep(&mut self, task: &Task<'_>, memory: &mut Memory<'_>) -> Result<bool, Trouble> {
        let mut moved = false;
        for lane in 0..task.schedule.lanes().len() {
            self.machine.sweep(lane);
            while let Some(action) = self.machine.next(task.schedule, lane) {
                let elements = perform(&mut self.router, task, memory, lane, &action)?;
                moved |= elements > 0;
                self.machine.handle(task.schedule, lane, elements);
            }
        }
        Ok(moved)
    }
}

/// Does as much of an action as is possible at once; how many elements that was.
fn perform(
    router: &mut Router,
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    lane: usize,
    action: &Action<'_>,
) -> Result<usize, Trouble> {
    let link = |peer| link(peer, lane);
    match *action {
        Action::Send { to, src } => {
            let bytes = memory.read(src);
            let sent = if task.offers {
                router.offer(link(to), task.tag, bytes)?
            } else {
                router.to(link(to)).send(link(to), task.tag, bytes)?
            };
            Ok(sent >> memory.shift(Form::of(src.buffer)))
        }
        Action::Recv { from, dst }
            if memory.receives_past() && !task.offers && router.shares_memory() =>
        {
            recv_past(router, task, memory, (from, link(from)), dst)
        }
        Action::Recv { from, dst } => {
            let received = router.to(link(from)).recv(link(from), task.tag, memory.write(dst))?;
            match received {
                None => Ok(0),
                Some(received) if received.tag == task.tag => {
                    Ok(received.bytes >> memory.shift(Form::of(dst.buffer)))
                }
                Some(_) => Err(Trouble::Stranger(from)),
            }
        }
        Action::Copy { src, dst } => {
            copy_step(task, memory, src, dst)?;
            Ok(dst.len)
        }
        Action::Put { to, src } => {
            put(task, memory, to, src)?;
            Ok(src.len)
        }
        Action::Get { from, src, dst } => {
            memory.get(from, src, dst);
            Ok(dst.len)
        }
        Action::Tell => {
            router.tell(task.tag);
            Ok(1)
        }
        Action::Hear { from } => Ok(usize::from(hear(router, task.tag, from)?)),
        Action::Trade => {
            memory.trade();
            Ok(0)
        }
        Action::Reduce { dst, sources, done } => {
            if let Some((reach, scratch)) = memory.reach() {
                task.watch.check_abort_after_pause()?;
                reach.reduce(task.kernel, scratch, dst, sources);
                return Ok(dst.len);
            }
            combine(router, task, memory, Reduction { dst, sources, done, lane })
        }
    }
}

/// Copies what has arrived to where it belongs, past the caches; how many elements that was.
fn recv_past(
    router: &mut Router,
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    (from, link): (Rank, Link),
    dst: Slice,
) -> Result<usize, Trouble> {
    let Some(fragment) = router.readable(link)? else { return Ok(0) };
    if fragment.tag != task.tag {
        return Err(Trouble::Stranger(from));
    }
    let into = memory.write(dst);
    let bytes = fragment.bytes.len().min(into.len());
    copy_past(&mut into[..bytes], &fragment.bytes[..bytes]);
    router.to(link).consume(link, bytes);
    Ok(bytes >> memory.shift(Form::of(dst.buffer)))
}

/// An error if a rank that is to tell has sent bytes of another call instead.
fn hears_stranger(router: &Router, tag: u32, from: Rank) -> Result<(), Trouble> {
    let is_other = |lane| {
        let sent = router.readable(link(from, lane));
        matches!(sent, Ok(Some(fragment)) if fragment.tag != tag)
    };
    // If it has told after all, those are of its next call. That a peer is gone is for the steps to
    // say, who look for all of what it sent before.
    if (0..LANES_MAX).any(is_other) && matches!(router.told(from), Ok(None)) {
        return Err(Trouble::Stranger(from));
    }
    Ok(())
}

/// An error if a rank that is to send has told of another call instead.
fn awaits_stranger(router: &Router, tag: u32, from: Rank, lane: usize) -> Result<(), Trouble> {
    let is_other = matches!(router.told(from), Ok(Some(told)) if told != tag);
    // If it has sent after all, that is of its next call.
    if is_other && matches!(router.readable(link(from, lane)), Ok(None)) {
        return Err(Trouble::Stranger(from));
    }
    Ok(())
}

/// Whether a rank has told once more, in this call; it counts as heard.
#[inline]
pub(crate) fn hear(router: &mut Router, tag: u32, from: Rank) -> Result<bool, Trouble> {
    match router.told(from)? {
        None => Ok(false),
        Some(told) if told == tag => {
            router.heard(from);
            Ok(true)
        }
        Some(_) => Err(Trouble::Stranger(from)),
    }
}

/// Sources of a reduction that is not a wide one.
const FEW: usize = 4;

/// A step that combines, of which `done` elements were before.
#[derive(Clone, Copy)]
pub(crate) struct Reduction<'s> {
    /// What is still missing.
    pub(crate) dst: Slice,
    pub(crate) sources: &'s [Source],
    pub(crate) done: usize,
    pub(crate) lane: usize,
}

/// Combines as many elements as all sources have; how many that was.
pub(crate) fn combine(
    router: &mut Router,
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    reduction: Reduction<'_>,
) -> Result<usize, Trouble> {
    // Most reductions have few sources; a short table costs less to lay out.
    if reduction.sources.len() <= FEW {
        reduce::<FEW>(router, task, memory, reduction)
    } else {
        reduce::<SOURCES_MAX>(router, task, memory, reduction)
    }
}

/// Combines as many elements as all of at most `N` sources have; how many that was.
fn reduce<const N: usize>(
    router: &mut Router,
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    Reduction { dst, sources, done, lane }: Reduction<'_>,
) -> Result<usize, Trouble> {
    let (element, accumulator) = (memory.shift(Form::Element), memory.shift(Form::Accumulator));
    let shift = |form: Form| if form == Form::Element { element } else { accumulator };
    let mut arrived: [&[u8]; N] = [&[]; N];
    let mut elements = dst.len;
    for (arrived, source) in arrived.iter_mut().zip(sources) {
        if let Source::Wire(from, form) = *source {
            let Some(fragment) = router.readable(link(from, lane))? else { return Ok(0) };
            if fragment.tag != task.tag {
                return Err(Trouble::Stranger(from));
            }
            *arrived = fragment.bytes;
            elements = elements.min(fragment.bytes.len() >> shift(form));
        }
    }
    if elements == 0 {
        return Ok(0);
    }
    let dst = dst.take(elements);
    for source in sources {
        if let Source::Peer(of, whole) = *source {
            memory.take(of, whole);
        }
    }
    let (into, rest) = memory.split(dst);
    let mut operands = [Operand::Destination; N];
    for ((operand, source), arrived) in operands.iter_mut().zip(sources).zip(arrived) {
        let (bytes, form) = match *source {
            Source::Wire(_, form) => (&arrived[..elements << shift(form)], form),
            Source::Local(whole) => match rest.find(whole.skip(done).take(elements)) {
                Place::Destination => continue,
                Place::Bytes(bytes) => (bytes, Form::of(whole.buffer)),
            },
            Source::Peer(of, whole) => {
                let form = Form::of(whole.buffer);
                (&rest.peer(of, whole)[done << shift(form)..][..elements << shift(form)], form)
            }
        };
        *operand = Operand::Bytes { bytes, form: kernel_form(form) };
    }
    task.kernel.combine(into, kernel_form(Form::of(dst.buffer)), &operands[..sources.len()]);
    for source in sources {
        if let Source::Wire(from, form) = *source {
            let link = link(from, lane);
            router.to(link).consume(link, elements << shift(form));
        }
    }
    Ok(elements)
}

#[inline]
pub(crate) fn link(peer: Rank, lane: usize) -> Link {
    #[expect(clippy::cast_possible_truncation, reason = "at most LANES_MAX")]
    Link { peer, lane: Lane(lane as u8) }
}

/// Stores `src` into the window of `to`, unless the job has failed.
pub(crate) fn put(
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    to: Rank,
    src: Slice,
) -> Result<(), Trouble> {
    let Some((reach, _)) = memory.reach() else {
        unreachable!("only schedules for windows store into peers' memory");
    };
    task.watch.check_abort_after_pause()?;
    reach.put(to, src);
    Ok(())
}

/// Copies `src` to `dst`; to the stage, which peers read and the next call may trade, only unless
/// the job has failed.
#[inline]
pub(crate) fn copy_step(
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    src: Slice,
    dst: Slice,
) -> Result<(), Trouble> {
    if dst.buffer == Buffer::Stage {
        task.watch.check_abort_after_pause()?;
    }
    memory.copy(src, dst);
    Ok(())
}

pub(crate) const fn kernel_form(form: Form) -> ringfold_reduce::Form {
    match form {
        Form::Element => ringfold_reduce::Form::Element,
        Form::Accumulator => ringfold_reduce::Form::Accumulator,
    }
}
