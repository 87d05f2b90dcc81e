//! Executes one rank's schedule without I/O. The caller asks `next` what to do, does as much of it
//! as is possible at once, and reports how much with `handle`; it owns memory, transports and time.
//!
//! ```text
//! until is_done:
//!     for each lane:
//!         sweep(lane)
//!         while let Some(action) = next(lane):
//!             handle(lane, elements moved)
//! ```
//!
//! One machine serves call after call, so that starting one allocates nothing.

use alloc::vec::Vec;

use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Rank, Slice};

use crate::schedule::{Schedule, Source, Step};

/// Something to do now, as far as it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<'s> {
    /// Offer `src` to the transport.
    Send {
        /// The receiving rank.
        to: Rank,
        /// What has not left yet.
        src: Slice,
    },
    /// Move what has arrived to the front of `dst`.
    Recv {
        /// The sending rank.
        from: Rank,
        /// What is still missing.
        dst: Slice,
    },
    /// Copy; always possible, so do all of it.
    Copy {
        /// From here,
        src: Slice,
        /// to here.
        dst: Slice,
    },
    /// Combine as many elements as every source has.
    Reduce {
        /// What is still missing.
        dst: Slice,
        /// The step's sources. Local slices are those of the whole step: skip `done` elements.
        sources: &'s [Source],
        /// Elements that were combined before.
        done: usize,
    },
    /// Store into another rank's output; always possible, so do all of it.
    Put {
        /// Whose output.
        to: Rank,
        /// What is stored, at the same place there.
        src: Slice,
    },
    /// Copy elements of another rank's stage; always possible, so do all of it.
    Get {
        /// Whose stage.
        from: Rank,
        /// From here,
        src: Slice,
        /// to here.
        dst: Slice,
    },
    /// Tell all others; always possible. Counts for one element.
    Tell,
    /// Wait for the next tell of a rank, which counts for one element.
    Hear {
        /// Whose tell.
        from: Rank,
    },
    /// Take the other rank's stage for one's own, and one's own for the other's.
    Trade,
}

/// The progress of one rank through one schedule.
#[derive(Debug, Default)]
pub struct Machine {
    lanes: Vec<LaneState>,
    unfinished: usize,
    /// First element of `Output` in `Input`'s count, where both are the same memory.
    overlay: Option<isize>,
}

#[derive(Debug, Default)]
struct LaneState {
    /// The current step,
    step: usize,
    /// and how many elements of it are done.
    done: usize,
    /// Sends that the program has left behind, oldest first.
    posted: Vec<Posted>,
    /// The posted send to try next in this sweep.
    cursor: usize,
    /// What the last action concerned, so that `handle` knows,
    asked: Asked,
    /// and how many elements it asked for.
    wanted: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    /// The posted send at the cursor.
    Posted,
    /// The current step.
    Step,
    /// The step could not move in this sweep.
    Blocked,
    Finished,
}

#[derive(Debug, Clone, Copy)]
struct Posted {
    to: Rank,
    src: Slice,
}

impl Machine {
    /// A machine with nothing to do, and room for a schedule of one lane: that may come to need it
    /// only after many calls.
    #[must_use]
    pub fn new() -> Self {
        let posted = Vec::with_capacity(POSTED_MAX);
        let lane = LaneState { posted, asked: Asked::Finished, ..LaneState::default() };
        Self { lanes: alloc::vec![lane], ..Self::default() }
    }

    /// Begins `schedule`. `overlay` is where `Output` begins in `Input`, in elements, if both are
    /// the same memory: 0 for allreduce, `-rank * count` for allgather, `rank * count` for
    /// reduce-scatter.
    pub fn start(&mut self, schedule: &Schedule, overlay: Option<isize>) {
        let lanes = schedule.lanes().len();
        if self.lanes.len() < lanes {
            self.lanes.resize_with(lanes, LaneState::default);
        }
        for stale in &mut self.lanes[lanes..] {
            stale.asked = Asked::Finished;
        }
        for lane in &mut self.lanes[..lanes] {
            lane.step = 0;
            lane.done = 0;
            lane.posted.clear();
            lane.posted.reserve(POSTED_MAX);
            lane.asked = Asked::Nothing;
            lane.wanted = 0;
        }
        self.unfinished = lanes;
        self.overlay = overlay;
    }

    /// Takes everything for done, of a schedule of one lane.
    pub fn rest(&mut self) {
        if self.lanes.is_empty() {
            // Nothing has been started yet, and yet the caller may look for something to do.
            self.lanes.push(LaneState::default());
        }
        self.lanes.iter_mut().for_each(|lane| lane.asked = Asked::Finished);
        self.unfinished = 0;
    }

    /// Takes for done, right after `start`, what lane 0 does before `step`, and `done` elements of
    /// that. The caller has done it itself, and all it sent has left.
    pub fn skip_to(&mut self, step: usize, done: usize) {
        self.lanes[0].step = step;
        self.lanes[0].done = done;
    }

    /// Whether all lanes have finished.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// Begins another round of trying on `lane`.
    #[inline]
    pub fn sweep(&mut self, lane: usize) {
        let state = &mut self.lanes[lane];
        state.cursor = 0;
        if state.asked != Asked::Finished {
            state.asked = Asked::Nothing;
        }
    }

    /// What `lane` could do now; `None` if there is nothing more to try in this sweep.
    #[inline]
    pub fn next<'s>(&mut self, schedule: &'s Schedule, lane: usize) -> Option<Action<'s>> {
        let state = &mut self.lanes[lane];
        if matches!(state.asked, Asked::Blocked | Asked::Finished) {
            return None;
        }
        if let Some(send) = state.next_posted() {
            return Some(send);
        }
        while let Some(step) = schedule.lanes()[lane].get(state.step) {
            let dst = destination(step).skip(state.done);
            if let Step::Send { to, src } = step {
                if state.posted.len() == POSTED_MAX {
                    return None;
                }
                if state.posted.iter().any(|earlier| earlier.to == *to) {
                    state.post(*to, *src);
                    continue;
                }
            } else if !matches!(step, Step::Put { .. })
                && state.posted.iter().any(|sent| overlap(sent.src, dst, self.overlay))
            {
                return None;
            }
            state.asked = Asked::Step;
            state.wanted = if matches!(step, Step::Tell | Step::Hear { .. }) { 1 } else { dst.len };
            return Some(action(schedule, step, dst, state.done));
        }
        if state.posted.is_empty() {
            state.asked = Asked::Finished;
            self.unfinished -= 1;
        }
        None
    }

    /// Reports that `elements` of the last action of `lane` were done; 0 if none could be.
    ///
    /// # Panics
    /// If they are more than the action asked for.
    #[inline]
    pub fn handle(&mut self, schedule: &Schedule, lane: usize, elements: usize) {
        let state = &mut self.lanes[lane];
        assert!(elements <= state.wanted, "more done than asked");
        let asked = core::mem::replace(&mut state.asked, Asked::Nothing);
        match asked {
            Asked::Posted => state.posted_left(elements),
            Asked::Step if elements == state.wanted => {
                state.step += 1;
                state.done = 0;
            }
            Asked::Step => match schedule.lanes()[lane][state.step] {
                Step::Send { to, src } => state.post(to, src.skip(state.done + elements)),
                _ if elements == 0 => state.asked = Asked::Blocked,
                _ => state.done += elements,
            },
            Asked::Nothing | Asked::Blocked | Asked::Finished => state.asked = asked,
        }
        state.wanted = 0;
    }

    /// What each unfinished lane waits for, for reports: the lane, its step's index, and the sends
    /// that have not left.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        self.lanes.iter().enumerate().filter(|(_, state)| state.asked != Asked::Finished).map(
            |(lane, state)| Waiting {
                lane,
                step: state.step,
                sending_to: state.posted.first().map(|posted| posted.to),
            },
        )
    }
}

/// Where a lane stands that has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which lane.
    pub lane: usize,
    /// Index of its current step; beyond the last if only sends are left.
    pub step: usize,
    /// The rank that the oldest posted send goes to.
    pub sending_to: Option<Rank>,
}

impl LaneState {
    /// The next posted send to try. One that has another to the same rank before it must wait:
    /// streams are ordered.
    #[inline]
    fn next_posted(&mut self) -> Option<Action<'static>> {
        while let Some(&Posted { to, src }) = self.posted.get(self.cursor) {
            if !self.posted[..self.cursor].iter().any(|earlier| earlier.to == to) {
                self.asked = Asked::Posted;
                self.wanted = src.len;
                return Some(Action::Send { to, src });
            }
            self.cursor += 1;
        }
        None
    }

    /// So much of the posted send at the cursor has left.
    fn posted_left(&mut self, elements: usize) {
        if elements == self.wanted {
            self.posted.remove(self.cursor);
        } else {
            let src = &mut self.posted[self.cursor].src;
            *src = src.skip(elements);
            self.cursor += 1;
        }
    }

    /// Leaves the current step, a send of which `src` is left, behind; it was tried in this sweep,
    /// or must wait for an earlier one that was.
    fn post(&mut self, to: Rank, src: Slice) {
        self.posted.push(Posted { to, src });
        self.cursor = self.posted.len();
        self.step += 1;
        self.done = 0;
    }
}

/// What a step writes here; where it writes nothing here, what it reads.
fn destination(step: &Step) -> Slice {
    match step {
        Step::Send { src, .. } | Step::Put { src, .. } => *src,
        Step::Recv { dst, .. }
        | Step::Copy { dst, .. }
        | Step::Get { dst, .. }
        | Step::Reduce { dst, .. } => *dst,
        Step::Trade | Step::Tell | Step::Hear { .. } => Slice::new(Buffer::Stage, 0, 0),
    }
}

fn action<'s>(schedule: &'s Schedule, step: &Step, dst: Slice, done: usize) -> Action<'s> {
    match step {
        Step::Send { to, .. } => Action::Send { to: *to, src: dst },
        Step::Recv { from, .. } => Action::Recv { from: *from, dst },
        Step::Copy { src, .. } => Action::Copy { src: src.skip(done), dst },
        Step::Reduce { sources, .. } => {
            Action::Reduce { dst, sources: schedule.sources(sources), done }
        }
        Step::Put { to, .. } => Action::Put { to: *to, src: dst },
        Step::Get { from, src, .. } => Action::Get { from: *from, src: src.skip(done), dst },
        Step::Tell => Action::Tell,
        Step::Hear { from } => Action::Hear { from: *from },
        Step::Trade => Action::Trade,
    }
}

/// Whether two slices share memory, given where `Output` begins in `Input` if they do.
fn overlap(a: Slice, b: Slice, overlay: Option<isize>) -> bool {
    let place = |slice: Slice| match (slice.buffer, overlay) {
        (Buffer::Scratch, _) => (Buffer::Scratch, slice.offset.cast_signed()),
        (Buffer::Output, Some(at)) => (Buffer::Input, slice.offset.cast_signed() + at),
        (buffer, _) => (buffer, slice.offset.cast_signed()),
    };
    let ((memory_a, start_a), (memory_b, start_b)) = (place(a), place(b));
    memory_a == memory_b
        && start_a < start_b + b.len.cast_signed()
        && start_b < start_a + a.len.cast_signed()
}

#[cfg(test)]
mod tests;
