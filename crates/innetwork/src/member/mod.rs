//! In-network reduction: the groups through which a communicator hands over chunks to a provider.
//!
//! * `term`: this rank's end of one group, from its grant until it is given up;
//! * `shared`: the terms of all groups, which the caller and the control thread use;
//! * `question`: the questions about a group that the control threads of all ranks answer.
//!
//! A group that fails is given up by all members together, at one chunk. One of them asks how far
//! everyone came. The control threads answer, because a member may have finished the call and
//! compute. From its answer on, a member takes no result that has not arrived yet. The term ends
//! before the first chunk whose result has arrived at no member. A member that lacks an earlier
//! result asks the one that has most results for it.
//!
//! The answers also say in which call each rank is, and a rank begins no further one until all have
//! answered. From the call after the latest one on, selection does without the groups.

mod question;
mod shared;
mod term;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::contract::Reduction;
use ringfold_bootstrap::Inquirer;

pub use shared::{Begun, Shared};

/// The end of a communicator's caller.
#[derive(Debug)]
pub struct Offload {
    shared: Arc<Shared>,
    inquirer: Inquirer,
}

/// The chunks that a lane of a call hands over.
#[derive(Clone, Copy, Debug)]
pub struct LaneReduction {
    /// The number of the group.
    pub group: usize,
    /// The operation of the chunks.
    pub reduction: Reduction,
}

impl Offload {
    /// Makes the end of the caller, which asks the other ranks by `inquirer`.
    #[must_use]
    pub const fn new(shared: Arc<Shared>, inquirer: Inquirer) -> Self {
        Self { shared, inquirer }
    }

    /// Notes that call `seq` begins.
    pub fn begin(&self, seq: u64) -> Begun {
        self.shared.lock().begin(seq)
    }

    /// Enters a lane of a call. Returns false if the lane must do without the provider.
    pub fn enter(&self, handed: &LaneReduction) -> bool {
        let is_supported = self.shared.supports(handed.group, &handed.reduction);
        let mut state = self.shared.lock();
        is_supported && state.term(handed.group).is_some_and(term::Term::enter)
    }

    /// The number of chunks of this call for which a group has results, if it was given up.
    pub fn ended(&self, group: usize) -> Option<u32> {
        self.shared.lock().term(group)?.ended()
    }

    /// Hands over the next chunk. Returns whether there was room.
    pub fn post(&self, tag: u32, handed: &LaneReduction, count: usize, bytes: &[u8]) -> bool {
        let mut state = self.shared.lock();
        let term = state.term(handed.group);
        term.is_some_and(|term| term.post(tag, handed.reduction, count, bytes))
    }

    /// Stores the oldest result that was not taken in `into`, which is empty where this rank does
    /// not need it. Returns whether it was there.
    pub fn take(&self, group: usize, into: &mut [u8]) -> bool {
        self.shared.lock().term(group).is_some_and(|term| term.take(into))
    }

    /// Sends and receives what it can, and asks the other ranks what this one must know. Returns
    /// whether anything moved.
    pub fn poll(&self) -> bool {
        self.shared.poll(&self.inquirer)
    }

    /// Makes `wake_fd` readable from now on when something happens, as `Transport::arm` does.
    pub fn arm(&self) {
        self.shared.lock().terms().for_each(term::Term::arm);
    }

    /// Cancels `arm`.
    pub fn disarm(&self) {
        self.shared.lock().terms().for_each(term::Term::disarm);
    }

    /// A descriptor that becomes readable when something may move.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake_fd()
    }

    /// Ends all groups at once, because the communicator has failed.
    pub fn withdraw(&self) {
        self.shared.lock().terms().for_each(term::Term::freeze);
    }
}

impl Drop for Offload {
    /// Leaves all groups.
    fn drop(&mut self) {
        self.shared.close();
    }
}
