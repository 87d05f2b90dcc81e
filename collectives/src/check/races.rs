//! The order of accesses, where lanes share memory.
//!
//! Every lane has a vector clock: how far it knows each lane to have come. Messages and signals
//! carry their sender's clock. An access is marked with its lane and that lane's own count. It is
//! *known* to another lane whose clock counts as far. Of two accesses to one element, at least one
//! of them a write, the later must know of the earlier. That depends on the messages and not on the
//! order of events in this run. So a schedule that passes is right in every order.
//!
//! A call begins and ends with its user: the owner has written all of its windows before the call,
//! and does so again after it. The same holds for the first half of the owner's staging buffer
//! before the call. Others may have read the second half right before the call. After the call, one
//! half is quiet: the first half, or the second if the schedule flips them. The owner may write it
//! at once, and others may still read the other half. Where ranks swap staging buffers, a rank owns
//! all of the staging buffer that it ends up with.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

use ringfold_types::Buffer;
use ringfold_types::limits::STAGING_HALF_BYTES;

use super::memory::Memory;
use crate::schedule::Schedule;

/// A lane of a rank, and how far it had come.
type Mark = (usize, u32);

/// How far a lane knows each lane to have come.
pub(super) type Clock = Rc<Vec<u32>>;

pub(super) struct Races {
    /// Lanes of the rank that has most.
    lanes: usize,
    threads: Vec<Thread>,
    /// By rank.
    buffers: Vec<Buffers>,
}

struct Thread {
    clock: Clock,
    /// Whether others may know of all accesses until now, so that later ones must count as later.
    is_published: bool,
}

/// The memory of one rank that several lanes use.
struct Buffers {
    /// The offsets of input and output in their one memory, if the call is in place.
    together: Option<(usize, usize)>,
    input: Memory<Touched>,
    output: Memory<Touched>,
    staging: Memory<Touched>,
    /// Only for ranks of several lanes, because no other rank reads or writes scratch.
    scratch: Option<Memory<Touched>>,
    /// The same for rounded partial results.
    rounded: Option<Memory<Touched>>,
    /// Elements of a half of the staging buffer.
    half: usize,
    /// The first element of the half that is quiet after the call.
    quiet: usize,
}

/// The last users of a run of elements.
#[derive(Clone, PartialEq)]
struct Touched {
    written: Mark,
    /// The reads since the last write.
    read: Vec<Mark>,
}

/// Two accesses met in an unknown order.
pub(super) struct Race;

impl Races {
    /// Between all lanes of all ranks; `None` if no rank uses another's memory.
    pub(super) fn between_ranks(schedules: &[Schedule], in_place: bool) -> Option<Self> {
        let reaches = |schedule: &Schedule| schedule.needs_windows() || schedule.needs_staging();
        schedules.iter().any(reaches).then(|| Self::new(schedules, in_place))
    }

    /// Between the lanes of a rank whose memory no other rank uses, as if it were alone; `None` if
    /// it has one lane. A message goes from a lane to the same lane of its receiver. So a lane
    /// never learns of another lane of its own rank.
    pub(super) fn between_lanes(schedule: &Schedule, in_place: bool) -> Option<Self> {
        let alone = core::slice::from_ref(schedule);
        (schedule.lanes().len() > 1).then(|| Self::new(alone, in_place))
    }

    fn new(schedules: &[Schedule], in_place: bool) -> Self {
        let lanes = schedules.iter().map(|schedule| schedule.lanes().len()).max().unwrap_or(1);
        let thread = |at: usize| {
            let mut counts = alloc::vec![0; schedules.len() * lanes];
            // The first count of a rank's first lane is its user, before the call.
            counts[at - at % lanes] = 1;
            counts[at] += 1;
            Thread { clock: Rc::new(counts), is_published: false }
        };
        let buffers = |(rank, schedule): (usize, &Schedule)| {
            let at = schedule.overlay();
            let [input_len, output_len] = schedule.lens();
            let together = (at.min(0).unsigned_abs(), at.max(0).unsigned_abs());
            let whole = if in_place { input_len.max(output_len) } else { output_len };
            let user = Touched { written: (rank * lanes, 1), read: Vec::new() };
            let half = STAGING_HALF_BYTES / schedule.call().data_type.bytes();
            let others = (0..schedules.len()).filter(|other| *other != rank);
            let late = others.map(|other| (other * lanes, 1)).collect();
            let late = Touched { written: user.written, read: late };
            let of = |len| Memory::of(alloc::vec![(len, user.clone())]);
            Buffers {
                together: in_place.then_some(together),
                input: of(input_len),
                output: of(whole),
                staging: Memory::of(alloc::vec![(half, user.clone()), (half, late)]),
                scratch: (lanes > 1).then(|| of(schedule.scratch_len())),
                rounded: (lanes > 1).then(|| of(schedule.rounded_len())),
                half,
                quiet: if schedule.flips_staging() { half } else { 0 },
            }
        };
        Self {
            lanes,
            threads: (0..schedules.len() * lanes).map(thread).collect(),
            buffers: schedules.iter().enumerate().map(buffers).collect(),
        }
    }

    /// The clock that a message or signal of this lane carries.
    pub(super) fn publish(&mut self, (rank, lane): (usize, usize)) -> Clock {
        let thread = &mut self.threads[rank * self.lanes + lane];
        thread.is_published = true;
        Rc::clone(&thread.clock)
    }

    /// A lane receives a message or signal with this clock.
    pub(super) fn observe(&mut self, (rank, lane): (usize, usize), other: &Clock) {
        learn(&mut self.threads[rank * self.lanes + lane].clock, other);
    }

    /// A lane reads or writes memory of rank `of`.
    pub(super) fn touch(
        &mut self,
        (rank, lane): (usize, usize),
        of: usize,
        slice: &ringfold_types::Slice,
        writes: bool,
    ) -> Result<(), Race> {
        let at = rank * self.lanes + lane;
        let thread = &mut self.threads[at];
        if core::mem::take(&mut thread.is_published) {
            Rc::make_mut(&mut thread.clock)[at] += 1;
        }
        let (clock, buffers) = (&thread.clock, &mut self.buffers[of]);
        let (memory, start) = match (slice.buffer, buffers.together) {
            (Buffer::Scratch, _) => match &mut buffers.scratch {
                Some(scratch) => (scratch, 0),
                None => return Ok(()),
            },
            (Buffer::Rounded, _) => match &mut buffers.rounded {
                Some(rounded) => (rounded, 0),
                None => return Ok(()),
            },
            (Buffer::Staging, _) => (&mut buffers.staging, 0),
            (Buffer::Input, None) => (&mut buffers.input, 0),
            (Buffer::Output, None) => (&mut buffers.output, 0),
            (Buffer::Input, Some((start, _))) | (Buffer::Output, Some((_, start))) => {
                (&mut buffers.output, start)
            }
        };
        touch(memory, start + slice.offset, slice.len, (at, clock[at]), clock, writes)
    }

    /// The calls have ended, and the users use their windows again. Returns the first rank whose
    /// memory another rank may still use. `swapped` is set if ranks swapped staging buffers: it
    /// says whether each ends up with the other's.
    pub(super) fn end(&mut self, swapped: Option<bool>) -> Result<(), usize> {
        for (of, buffers) in self.buffers.iter_mut().enumerate() {
            let whole = 0..usize::MAX / 4;
            let quiet = buffers.quiet..buffers.quiet + buffers.half;
            let owner = if swapped == Some(true) { 1 - of } else { of };
            for (rank, memory, Range { start: mut at, end }) in [
                (of, &mut buffers.input, whole.clone()),
                (of, &mut buffers.output, whole.clone()),
                (owner, &mut buffers.staging, if swapped.is_some() { whole } else { quiet }),
            ] {
                let own = rank * self.lanes..(rank + 1) * self.lanes;
                let mut clock = Rc::clone(&self.threads[own.start].clock);
                let threads = &self.threads[own.clone()];
                threads.iter().for_each(|thread| learn(&mut clock, &thread.clock));
                while let (len, Some(_)) = memory.run_at(at)
                    && at < end
                {
                    let len = len.min(end - at);
                    touch(memory, at, len, (own.start, clock[own.start]), &clock, true)
                        .map_err(|Race| rank)?;
                    at += len;
                }
            }
        }
        Ok(())
    }
}

fn learn(clock: &mut Clock, other: &Clock) {
    if Rc::ptr_eq(clock, other) {
        return;
    }
    for (known, other) in Rc::make_mut(clock).iter_mut().zip(other.iter()) {
        *known = (*known).max(*other);
    }
}

fn touch(
    memory: &mut Memory<Touched>,
    start: usize,
    len: usize,
    mark: Mark,
    clock: &Clock,
    writes: bool,
) -> Result<(), Race> {
    let is_known = |(thread, count): &Mark| clock[*thread] >= *count;
    let Some(mut runs) = memory.read(start, len) else { return Err(Race) };
    for (_, touched) in &mut runs {
        if !is_known(&touched.written) || writes && !touched.read.iter().all(is_known) {
            return Err(Race);
        }
        if writes {
            *touched = Touched { written: mark, read: Vec::new() };
        } else {
            touched.read.retain(|(thread, _)| *thread != mark.0);
            touched.read.push(mark);
        }
    }
    memory.write(start, runs);
    Ok(())
}
