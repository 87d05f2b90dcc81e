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
//!
//! In a sequence of calls, a rank begins a call when all of its lanes have ended the one before. So
//! its lanes know then what each of them knew. Each call has buffers of its own, whose user waits
//! for its end. All calls share the staging buffers, and the ranks flip the halves.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

use ringfold_types::Buffer;
use ringfold_types::limits::{STAGING_BYTES, STAGING_HALF_BYTES};

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
    /// By rank, the users of each byte.
    staging: Vec<Memory<Touched>>,
    /// By rank, whether the halves of the staging buffers are flipped.
    flipped: Vec<bool>,
    /// By rank and call.
    buffers: Vec<Vec<Buffers>>,
}

struct Thread {
    clock: Clock,
    /// Whether others may know of all accesses until now, so that later ones must count as later.
    is_published: bool,
}

/// The memory of one rank in one call that several lanes use.
struct Buffers {
    /// The offsets of input and output in their one memory, if the call is in place.
    together: Option<(usize, usize)>,
    input: Memory<Touched>,
    output: Memory<Touched>,
    /// Only for ranks of several lanes, because no other rank reads or writes scratch.
    scratch: Option<Memory<Touched>>,
    /// The same for rounded partial results.
    rounded: Option<Memory<Touched>>,
    /// Bytes of an element.
    bytes: usize,
    /// The clock of the user after the call.
    end: Option<Clock>,
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
    /// Between all lanes of `size` ranks. With `follows`, the ranks may be in an earlier call.
    pub(super) fn between_ranks(size: usize, lanes: usize, follows: bool) -> Self {
        let thread =
            |_| Thread { clock: Rc::new(alloc::vec![0; size * lanes]), is_published: false };
        let staging = |rank| {
            let user = Touched { written: (rank * lanes, 1), read: Vec::new() };
            let others = (0..size).filter(|other| follows && *other != rank);
            let read = others.map(|other| (other * lanes, 1)).collect();
            let late = Touched { read, ..user };
            Memory::of(alloc::vec![(STAGING_HALF_BYTES, user), (STAGING_HALF_BYTES, late)])
        };
        Self {
            lanes,
            threads: (0..size * lanes).map(thread).collect(),
            staging: (0..size).map(staging).collect(),
            flipped: alloc::vec![false; size],
            buffers: (0..size).map(|_| Vec::new()).collect(),
        }
    }

    /// Between the lanes of a rank whose memory no other rank uses, as if it were alone; `None` if
    /// it has one lane. A message goes from a lane to the same lane of its receiver. So a lane
    /// never learns of another lane of its own rank.
    pub(super) fn between_lanes(schedule: &Schedule, in_place: bool) -> Option<Self> {
        let lanes = schedule.lanes().len();
        (lanes > 1).then(|| {
            let mut alone = Self::between_ranks(1, lanes, false);
            alone.begin(0, schedule, in_place);
            alone
        })
    }

    /// A rank begins its next call, after its user has written the call's buffers.
    pub(super) fn begin(&mut self, rank: usize, schedule: &Schedule, in_place: bool) {
        let lanes = self.lanes;
        let mut user = self.known(rank);
        let count = &mut Rc::make_mut(&mut user)[rank * lanes];
        *count += 1;
        let written = (rank * lanes, *count);
        for at in rank * lanes..(rank + 1) * lanes {
            let mut clock = Rc::clone(&user);
            Rc::make_mut(&mut clock)[at] += 1;
            self.threads[at] = Thread { clock, is_published: false };
        }
        let at = schedule.overlay();
        let [input_len, output_len] = schedule.lens();
        let together = (at.min(0).unsigned_abs(), at.max(0).unsigned_abs());
        let whole = if in_place { input_len.max(output_len) } else { output_len };
        let of = |len| Memory::of(alloc::vec![(len, Touched { written, read: Vec::new() })]);
        self.buffers[rank].push(Buffers {
            together: in_place.then_some(together),
            input: of(input_len),
            output: of(whole),
            scratch: (lanes > 1).then(|| of(schedule.scratch_len())),
            rounded: (lanes > 1).then(|| of(schedule.rounded_len())),
            bytes: schedule.call().data_type.bytes(),
            end: None,
        });
    }

    /// A rank ends its latest call, and flips staging buffers if that `flips`.
    pub(super) fn leave(&mut self, rank: usize, flips: bool) {
        self.flipped[rank] ^= flips;
        let end = self.known(rank);
        if let Some(buffers) = self.buffers[rank].last_mut() {
            buffers.end = Some(end);
        }
    }

    /// The knowledge of all lanes of a rank.
    fn known(&self, rank: usize) -> Clock {
        let [first, others @ ..] = &self.threads[rank * self.lanes..(rank + 1) * self.lanes] else {
            unreachable!("a rank has a lane");
        };
        let mut clock = Rc::clone(&first.clock);
        others.iter().for_each(|thread| learn(&mut clock, &thread.clock));
        clock
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

    /// A lane reads or writes memory that rank `of` has in a call.
    pub(super) fn touch(
        &mut self,
        (rank, lane): (usize, usize),
        (of, call): (usize, usize),
        slice: &ringfold_types::Slice,
        writes: bool,
    ) -> Result<(), Race> {
        let at = rank * self.lanes + lane;
        let thread = &mut self.threads[at];
        if core::mem::take(&mut thread.is_published) {
            Rc::make_mut(&mut thread.clock)[at] += 1;
        }
        let clock = &thread.clock;
        let mark = (at, clock[at]);
        if slice.buffer == Buffer::Staging {
            let bytes = self.buffers[rank].last().map_or(1, |buffers| buffers.bytes);
            let flip = if self.flipped[rank] { STAGING_HALF_BYTES } else { 0 };
            let start = (slice.offset * bytes + flip) % STAGING_BYTES;
            let memory = &mut self.staging[of];
            return touch(memory, start, slice.len * bytes, mark, clock, writes);
        }
        // The other rank may not have begun the call.
        let Some(buffers) = self.buffers[of].get_mut(call) else { return Err(Race) };
        let (memory, start) = match (slice.buffer, buffers.together) {
            (Buffer::Scratch, _) => match &mut buffers.scratch {
                Some(scratch) => (scratch, 0),
                None => return Ok(()),
            },
            (Buffer::Rounded, _) => match &mut buffers.rounded {
                Some(rounded) => (rounded, 0),
                None => return Ok(()),
            },
            (Buffer::Staging, _) => unreachable!("calls share it"),
            (Buffer::Input, None) => (&mut buffers.input, 0),
            (Buffer::Output, None) => (&mut buffers.output, 0),
            (Buffer::Input, Some((start, _))) | (Buffer::Output, Some((_, start))) => {
                (&mut buffers.output, start)
            }
        };
        touch(memory, start + slice.offset, slice.len, mark, clock, writes)
    }

    /// The calls have ended, and the users use their windows again. Returns the first rank whose
    /// memory another rank may still use. With `swapped`, each of two ranks ends up with the
    /// other's staging buffer. With `is_whole`, it owns all of that.
    pub(super) fn end(&mut self, swapped: bool, is_whole: bool) -> Result<(), usize> {
        for of in 0..self.buffers.len() {
            for buffers in &mut self.buffers[of] {
                let Some(end) = &buffers.end else { return Err(of) };
                for memory in [&mut buffers.input, &mut buffers.output] {
                    own(memory, 0..usize::MAX / 4, of * self.lanes, end).map_err(|Race| of)?;
                }
            }
            let owner = if swapped { 1 - of } else { of };
            let quiet = if self.flipped[owner] { STAGING_HALF_BYTES } else { 0 };
            let quiet = quiet..quiet + STAGING_HALF_BYTES;
            let range = if is_whole { 0..STAGING_BYTES } else { quiet };
            let clock = self.known(owner);
            own(&mut self.staging[of], range, owner * self.lanes, &clock).map_err(|Race| owner)?;
        }
        Ok(())
    }
}

/// A user whose first lane is `first` writes all elements of a range after its call.
fn own(
    memory: &mut Memory<Touched>,
    Range { start: mut at, end }: Range<usize>,
    first: usize,
    clock: &Clock,
) -> Result<(), Race> {
    while let (len, Some(_)) = memory.run_at(at)
        && at < end
    {
        let len = len.min(end - at);
        touch(memory, at, len, (first, clock[first]), clock, true)?;
        at += len;
    }
    Ok(())
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
