//! Runs one rank's program without I/O. A stepper decides which operation is next, and [`Ports`]
//! perform it. The facade implements them over transports and memory, `check` over symbols.
//!
//! A lane performs its operations in order, except that a send is only posted: the lane goes on
//! while the elements leave. It stalls if a later operation would overwrite elements that have not
//! left. Lanes are independent of each other.
//!
//! The stepper keeps all progress, and resumes an operation that is partly done. So any thread may
//! call [`Stepper::advance`] next. One stepper serves call after call, and starting another call
//! with as many lanes allocates nothing.
//!
//! A lane may hand over chunks to a provider in the network. If that is given up in the middle of a
//! call, [`Stepper::fall_back`] has the members' own operations take its place.

mod announced;
mod chunks;
mod ports;

use alloc::vec::Vec;

use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Rank, Slice};

use crate::program::{Op, Program};
use announced::Announced;
use chunks::Chunks;
pub use ports::{Exchanged, Ports, Reduction};

/// The outcome of a call to `advance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something moved, and more may be possible at once.
    Moved,
    /// Nothing can move until a peer does something.
    Idle,
    /// All operations are done.
    Done,
}

/// The progress of one rank through one program.
#[derive(Debug, Default)]
pub struct Stepper {
    /// The program's lanes. Lanes of earlier, wider programs may follow them.
    lanes: Vec<Lane>,
    /// Number of the program's lanes.
    active: usize,
    /// Number of those lanes that are not done.
    unfinished: usize,
}

#[derive(Debug, Default)]
struct Lane {
    /// The index of the current operation.
    at: usize,
    /// Elements of the current operation that are done.
    done: usize,
    /// Posted sends that have not left, oldest first.
    posted: Vec<Posted>,
    chunks: Chunks,
    announced: Announced,
}

/// The value of `Lane::at` when a lane is done.
const DONE: usize = usize::MAX;

#[derive(Clone, Copy, Debug)]
struct Posted {
    to: Rank,
    src: Slice,
    rendezvous: bool,
}

/// The position of a lane that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The lane.
    pub lane: usize,
    /// Index of its current operation. It is beyond the last if only sends are left.
    pub at: usize,
    /// The receiver of the oldest posted send.
    pub sending_to: Option<Rank>,
}

impl Stepper {
    /// A stepper with nothing to do.
    #[must_use]
    pub const fn new() -> Self {
        Self { lanes: Vec::new(), active: 0, unfinished: 0 }
    }

    /// Begins a program.
    #[inline]
    pub fn start(&mut self, program: &Program) {
        self.begin(program, Chunks::RELAYED);
    }

    /// Begins a program whose lanes hand over their chunks to a provider. Without it the members'
    /// own operations take its place.
    pub fn start_with_provider(&mut self, program: &Program) {
        self.begin(program, Chunks::OFFLOADED);
    }

    #[inline]
    fn begin(&mut self, program: &Program, chunks: Chunks) {
        self.active = program.lanes().len();
        self.unfinished = self.active;
        while self.lanes.len() < self.active {
            let posted = Vec::with_capacity(POSTED_MAX);
            self.lanes.push(Lane { posted, ..Lane::default() });
        }
        for (at, lane) in self.lanes[..self.active].iter_mut().enumerate() {
            (lane.at, lane.done, lane.chunks) = (0, 0, chunks);
            lane.posted.clear();
            lane.announced = Announced::begin(program.expected(at));
        }
    }

    /// Records the progress of the exchange that the program begins with. The caller performed it
    /// right after `start`.
    #[inline]
    pub fn exchanged(&mut self, exchanged: Exchanged) {
        self.lanes[0].at = after_exchange(0, exchanged);
    }

    /// Whether all operations are done.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// Performs all operations that are possible at once, but at most about `budget`. Never waits.
    ///
    /// # Errors
    /// The error of `ports`. The call cannot go on.
    ///
    /// # Panics
    /// If the ports claim to have done more than was asked.
    #[inline]
    pub fn advance<P: Ports>(
        &mut self,
        program: &Program,
        ports: &mut P,
        budget: usize,
    ) -> Result<Progress, P::Error> {
        let mut moved = false;
        for lane in 0..self.active {
            moved |= self.advance_lane(program, lane, ports, budget)?;
        }
        Ok(match (self.unfinished, moved) {
            (0, _) => Progress::Done,
            (_, true) => Progress::Moved,
            (_, false) => Progress::Idle,
        })
    }

    /// Like `advance`, for one lane. Returns whether something moved.
    ///
    /// # Errors
    /// As `advance`.
    ///
    /// # Panics
    /// As `advance`.
    #[inline]
    pub fn advance_lane<P: Ports>(
        &mut self,
        program: &Program,
        lane: usize,
        ports: &mut P,
        budget: usize,
    ) -> Result<bool, P::Error> {
        let state = &mut self.lanes[lane];
        if state.at == DONE {
            return Ok(false);
        }
        let ops = program.lanes()[lane].as_slice();
        let mut moved = !state.posted.is_empty() && state.send_posted(lane, ports)?;
        let mut left = budget;
        while left > 0 {
            (state.at, state.done) = state.chunks.after(ops, (state.at, state.done));
            let Some(op) = ops.get(state.at) else { break };
            left -= 1;
            if state.at >= state.announced.due {
                let posted = &state.posted;
                let is_free = |dst| !posted.iter().any(|sent| program.overlap(sent.src, dst));
                let now = (state.at, state.done);
                state.announced.announce(program, lane, now, is_free, ports);
            }
            if !state.posted.is_empty() && !state.may_begin(program, op) {
                break;
            }
            if !state.perform(program, lane, op, ports)? {
                break;
            }
            moved = true;
        }
        if state.at == ops.len() && state.posted.is_empty() {
            state.at = DONE;
            self.unfinished -= 1;
        }
        Ok(moved)
    }

    /// The chunks that a lane has handed over to its provider, and the results that it has taken.
    #[must_use]
    pub fn chunks(&self, lane: usize) -> (u32, u32) {
        let Chunks { posted, taken, .. } = self.lanes[lane].chunks;
        (posted, taken)
    }

    /// Gives up the provider of a lane. Results before chunk `from` still come from
    /// `Ports::take_result`; later chunks go by the members' own operations. All members of the
    /// group must give it up with the same `from`. It is not below the results that any of them has
    /// taken, nor above the chunks that any of them has handed over.
    ///
    /// # Panics
    /// If `from` is below the results taken or above the chunks handed over, or the lane has given
    /// up its provider before.
    pub fn fall_back(&mut self, program: &Program, lane: usize, from: u32) {
        let state = &mut self.lanes[lane];
        if state.at != DONE {
            let ops = program.lanes()[lane].as_slice();
            (state.at, state.done) = state.chunks.relay_from(from, ops, (state.at, state.done));
        }
    }

    /// The positions of all lanes that are not done, for reports.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        let lanes = self.lanes[..self.active].iter().enumerate();
        lanes.filter(|(_, state)| state.at != DONE).map(|(lane, state)| Waiting {
            lane,
            at: state.at,
            sending_to: state.posted.first().map(|posted| posted.to),
        })
    }
}

/// The index of the next operation after the exchange at `at`.
const fn after_exchange(at: usize, exchanged: Exchanged) -> usize {
    at + match exchanged {
        Exchanged::Nothing => 1,
        Exchanged::Sent => 2,
        Exchanged::Both => 3,
    }
}

impl Lane {
    /// Tries each posted send once, in order. A send waits for earlier ones to the same rank,
    /// because streams are ordered.
    fn send_posted<P: Ports>(&mut self, lane: usize, ports: &mut P) -> Result<bool, P::Error> {
        let (mut at, mut moved) = (0, false);
        while let Some(&Posted { to, src, rendezvous }) = self.posted.get(at) {
            if self.posted[..at].iter().any(|earlier| earlier.to == to) {
                at += 1;
                continue;
            }
            let sent = ports.send(lane, to, src, rendezvous)?;
            moved |= sent > 0;
            if is_whole(sent, src.len) {
                self.posted.remove(at);
            } else {
                self.posted[at].src = src.skip(sent);
                at += 1;
            }
        }
        Ok(moved)
    }

    /// Whether an operation may begin while sends are posted: there is room for one more, or it
    /// overwrites none of them.
    fn may_begin(&self, program: &Program, op: &Op) -> bool {
        let dst = match op {
            Op::Send { .. } | Op::Exchange { .. } => return self.posted.len() < POSTED_MAX,
            Op::Put { .. } | Op::Signal | Op::Wait { .. } | Op::Swap | Op::Post { .. } => {
                return true;
            }
            Op::Receive { dst, .. }
            | Op::Copy { dst, .. }
            | Op::Get { dst, .. }
            | Op::Take { dst, .. }
            | Op::Reduce { dst, .. }
            | Op::ReduceToAll { dst, .. } => dst.skip(self.done),
        };
        !self.posted.iter().any(|sent| program.overlap(sent.src, dst))
    }

    /// Performs the current operation as far as possible. Returns whether the lane can go on.
    #[inline]
    fn perform<P: Ports>(
        &mut self,
        program: &Program,
        lane: usize,
        op: &Op,
        ports: &mut P,
    ) -> Result<bool, P::Error> {
        let (wanted, done) = match *op {
            Op::Exchange { with, src, dst } => {
                self.at = after_exchange(self.at, ports.exchange(with, src, dst)?);
                return Ok(true);
            }
            Op::Send { to, src, rendezvous } => {
                self.send(lane, Posted { to, src, rendezvous }, ports)?;
                return Ok(true);
            }
            Op::Receive { from, dst, stores } => {
                let dst = dst.skip(self.done);
                (dst.len, ports.receive(lane, from, dst, stores)?)
            }
            Op::Reduce { dst, ref sources, in_lines } => {
                let (dst, sources, done) =
                    (dst.skip(self.done), program.sources(sources), self.done);
                (dst.len, ports.reduce(lane, Reduction { dst, sources, done, in_lines })?)
            }
            Op::Wait { from } => (1, usize::from(ports.wait(lane, from)?)),
            Op::Copy { src, dst, stores } => (0, all(ports.copy(lane, src, dst, stores))?),
            Op::ReduceToAll { dst, ref sources, stores } => {
                (0, all(ports.reduce_to_all(lane, dst, program.sources(sources), stores))?)
            }
            Op::Put { to, src } => (0, all(ports.put(lane, to, src))?),
            Op::Get { from, src, dst, stores } => {
                (0, all(ports.get(lane, from, src, dst, stores))?)
            }
            Op::Signal => (0, all(ports.signal(lane))?),
            Op::Swap => (0, all(ports.swap())?),
            Op::Post { chunk, .. } | Op::Take { chunk, .. } if self.chunks.relays(chunk) => (0, 0),
            Op::Post { src, dst, ops, .. } => {
                let posted = ports.post(lane, src, dst)?;
                self.chunks.posted += u32::from(posted);
                self.at += if posted { 1 + ops as usize } else { 0 };
                return Ok(posted);
            }
            Op::Take { dst, ops, .. } => {
                let taken = ports.take_result(lane, dst)?;
                self.chunks.taken += u32::from(taken);
                self.at += if taken { 1 + ops as usize } else { 0 };
                return Ok(taken);
            }
        };
        if is_whole(done, wanted) {
            (self.at, self.done) = (self.at + 1, 0);
            return Ok(true);
        }
        self.done += done;
        Ok(done > 0)
    }

    /// Sends the elements that leave at once, and posts the rest.
    #[inline]
    fn send<P: Ports>(&mut self, lane: usize, send: Posted, ports: &mut P) -> Result<(), P::Error> {
        let Posted { to, src, rendezvous } = send;
        let is_behind = self.posted.iter().any(|earlier| earlier.to == to);
        let sent = if is_behind { 0 } else { ports.send(lane, to, src, rendezvous)? };
        if !is_whole(sent, src.len) {
            self.posted.push(Posted { src: src.skip(sent), ..send });
        }
        self.at += 1;
        Ok(())
    }
}

/// Whether all wanted elements are done.
#[inline]
fn is_whole(done: usize, wanted: usize) -> bool {
    assert!(done <= wanted, "more done than asked");
    done == wanted
}

/// An operation that is always done as a whole.
fn all<E>(result: Result<(), E>) -> Result<usize, E> {
    result.map(|()| 0)
}

#[cfg(test)]
mod tests;
