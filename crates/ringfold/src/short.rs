//! Short calls: steps done one after another, each whole, without a machine. Most calls are short,
//! and what a machine is for (half-done steps, sends under way) does not happen to them.

use ringfold_collectives::{Form, Schedule, Source, Step};
use ringfold_reduce::Line;
use ringfold_transport::copy;
use ringfold_types::limits::SOURCES_MAX;
use ringfold_types::{Rank, Slice};

use crate::engine::{Reduction, Task, Trouble, combine, copy_step, hear, link, put};
use crate::memory::Memory;
use crate::router::Router;
use crate::wait::Patience;

/// The longest message that is received whole, in bytes.
const SHORT_BYTES: usize = 4096;

/// Most values that are combined whole fit a cache line,
const LINE_BYTES: usize = 64;

/// and mostly come from no more ranks than these.
const FEW: usize = 4;

/// Whether every reduction of a schedule is one that `dash` does.
pub(crate) fn reduces_in_lines(schedule: &Schedule) -> bool {
    let element = Form::Element.data_type(schedule.call()).bytes();
    schedule.lanes().iter().flatten().all(|step| {
        let Step::Reduce { dst, sources } = step else { return true };
        let sources = schedule.sources(sources);
        let is_short = |source: &Source| match *source {
            Source::Local(slice) => Form::of(slice.buffer) == Form::Element,
            Source::Wire(_, form) => form == Form::Element,
            Source::Peer(..) => false,
        };
        Form::of(dst.buffer) == Form::Element
            && dst.len <= LINE_BYTES / element
            && sources.len() <= SOURCES_MAX
            && sources.iter().all(is_short)
    })
}

/// What became of a step that was to be done whole.
enum Whole {
    Done,
    /// Its peers have not sent anything yet.
    Wait,
    /// It takes a machine to do it; so many elements are done.
    Part(usize),
}

/// Does the steps of a schedule of one lane, from `first` on, as long as each can be done whole: at
/// once, or after as many tries more in all and turns of others in a row as `patience` has. Returns
/// the step at which a machine goes on, and how much of it is done; `None` if nothing is left.
#[inline]
pub(crate) fn dash(
    router: &mut Router,
    patience: Patience,
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    first: usize,
) -> Result<Option<(usize, usize)>, Trouble> {
    let [steps] = task.schedule.lanes() else { return Ok(Some((0, 0))) };
    if task.offers {
        return Ok(Some((first, 0)));
    }
    let mut tries = patience.tries();
    for (index, step) in steps.iter().enumerate().skip(first) {
        let mut turns = patience.turns();
        loop {
            match whole(router, task, memory, step)? {
                Whole::Done => break,
                Whole::Part(done) => return Ok(Some((index, done))),
                Whole::Wait if tries > 0 => {
                    tries -= 1;
                    // What only polling brings is late anyway.
                    if tries.is_multiple_of(16) {
                        router.poll()?;
                    }
                    std::hint::spin_loop();
                }
                Whole::Wait if turns > 0 => {
                    turns -= 1;
                    task.watch.check_abort()?;
                    router.poll()?;
                    std::thread::yield_now();
                }
                Whole::Wait => return Ok(Some((index, 0))),
            }
        }
    }
    Ok(None)
}

/// Does a step if all of it is possible at once.
#[inline]
fn whole(
    router: &mut Router,
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    step: &Step,
) -> Result<Whole, Trouble> {
    match *step {
        Step::Send { to, src } => {
            let (link, bytes) = (link(to, 0), memory.read(src));
            let sent = router.to(link).send(link, task.tag, bytes)?;
            if sent == bytes.len() {
                return Ok(Whole::Done);
            }
            Ok(Whole::Part(sent >> memory.shift(Form::of(src.buffer))))
        }
        Step::Recv { from, dst } => {
            let dst = memory.write(dst);
            if dst.len() > SHORT_BYTES {
                return Ok(Whole::Part(0));
            }
            let Some(bytes) = arrived(router, task.tag, from, dst.len())? else {
                return Ok(Whole::Wait);
            };
            copy(dst, bytes);
            let link = link(from, 0);
            router.to(link).consume(link, dst.len());
            Ok(Whole::Done)
        }
        Step::Copy { src, dst } => {
            copy_step(task, memory, src, dst)?;
            Ok(Whole::Done)
        }
        Step::Put { to, src } => {
            put(task, memory, to, src)?;
            Ok(Whole::Done)
        }
        Step::Get { from, src, dst } => {
            memory.get(from, src, dst);
            Ok(Whole::Done)
        }
        Step::Tell => {
            router.tell(task.tag);
            Ok(Whole::Done)
        }
        Step::Hear { from } => {
            Ok(if hear(router, task.tag, from)? { Whole::Done } else { Whole::Wait })
        }
        Step::Trade => {
            memory.trade();
            Ok(Whole::Done)
        }
        Step::Reduce { dst, ref sources } => {
            let sources = task.schedule.sources(sources);
            if task.in_lines && sources.len() <= FEW {
                return reduce::<FEW>(router, task, memory, dst, sources);
            }
            if task.in_lines {
                return reduce::<SOURCES_MAX>(router, task, memory, dst, sources);
            }
            if task.schedule.needs_stage() {
                combine(router, task, memory, Reduction { dst, sources, done: 0, lane: 0 })?;
                return Ok(Whole::Done);
            }
            let Some((reach, scratch)) = memory.reach() else { return Ok(Whole::Part(0)) };
            task.watch.check_abort_after_pause()?;
            reach.reduce(task.kernel, scratch, dst, sources);
            Ok(Whole::Done)
        }
    }
}

/// Combines elements that fit a line each, of at most `N` sources.
#[inline]
fn reduce<const N: usize>(
    router: &mut Router,
    task: &Task<'_>,
    memory: &mut Memory<'_>,
    dst: Slice,
    sources: &[Source],
) -> Result<Whole, Trouble> {
    let bytes = dst.len << memory.shift(Form::Element);
    let mut lines = [Line([0; LINE_BYTES]); N];
    for (line, source) in lines.iter_mut().zip(sources) {
        let values = match *source {
            Source::Local(slice) => memory.read(slice),
            Source::Wire(from, _) => match arrived(router, task.tag, from, bytes)? {
                Some(values) => values,
                None => return Ok(Whole::Wait),
            },
            Source::Peer(..) => unreachable!("no line is combined in a window"),
        };
        copy(&mut line.0[..bytes], values);
    }
    task.kernel.combine_lines(memory.write(dst), &lines[..sources.len()]);
    for source in sources {
        if let Source::Wire(from, _) = *source {
            let link = link(from, 0);
            router.to(link).consume(link, bytes);
        }
    }
    Ok(Whole::Done)
}

/// The next `len` bytes from a rank, if all of them are there.
#[inline]
fn arrived(router: &Router, tag: u32, from: Rank, len: usize) -> Result<Option<&[u8]>, Trouble> {
    let Some(fragment) = router.readable(link(from, 0))? else { return Ok(None) };
    if fragment.tag != tag {
        return Err(Trouble::Stranger(from));
    }
    Ok(fragment.bytes.get(..len))
}
