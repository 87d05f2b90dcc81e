//! The ready-to-receive messages that a sender has seen, and its decision to ask for another and
//! wait.

use ringfold_types::limits::{RDMA_ASK_BYTES, RDMA_LEND_BYTES};

use super::backoff::Backoff;
use super::rtr::{Rtr, SLOTS, Seen};

/// The ready-to-receive messages that a sender has seen on one lane. Positions are bytes of the
/// stream.
#[derive(Debug, Default)]
pub(super) struct RtrState {
    /// The latest of each slot. The receiver never has two open for the same bytes.
    latest: [Option<Rtr>; SLOTS],
    seen: Seen,
    backoff: Backoff,
    /// The last fragment asked for a ready-to-receive message.
    has_asked: bool,
}

/// Memory of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) bytes: u64,
}

impl RtrState {
    /// Takes a ready-to-receive message from that slot of the mailbox. The highest number of a slot
    /// counts, because messages may come in any order.
    pub(super) fn take_rtr(&mut self, it: Rtr, slot: usize) {
        self.seen.saw(it.number, slot);
        let is_latest = |than: &Rtr| it.number.wrapping_sub(than.number).cast_signed() > 0;
        let latest = &mut self.latest[slot % SLOTS];
        if latest.as_ref().is_none_or(is_latest) {
            *latest = Some(it);
        }
    }

    /// The ready-to-receive message for the byte at `at` under `tag`, and the distance of the byte
    /// from its first one.
    fn answer(&self, tag: u32, at: u64) -> Option<(&Rtr, u64)> {
        let of_tag = self.latest.iter().flatten().filter(|it| it.tag == tag);
        of_tag.filter_map(|it| Some((it, it.reaches(at)?))).next()
    }

    /// Returns the receiver's memory for the bytes at `at` under `tag`, if a device on that cable
    /// can write it.
    pub(super) fn target(&self, tag: u32, at: u64, cable: Option<usize>) -> Option<Target> {
        let (it, skipped) = self.answer(tag, at)?;
        let key = it.to.keys[cable?];
        let address = it.to.address.wrapping_add(skipped);
        (key != 0).then_some(Target { address, key, bytes: it.bytes - skipped })
    }

    /// Returns whether to ask for a ready-to-receive message for those bytes, because none has
    /// come.
    pub(super) fn is_missing(&self, tag: u32, at: u64, cable: Option<usize>) -> bool {
        self.backoff.is_asking() && self.target(tag, at, cable).is_none()
    }

    /// Returns whether the receiver was asked where it wants the next bytes.
    pub(super) const fn is_asking(&self) -> bool {
        self.has_asked && self.backoff.is_asking()
    }

    /// Returns whether to wait for a ready-to-receive message for the bytes at `at`. The wait is
    /// short, and none if the caller is not patient.
    pub(super) fn waits(&mut self, tag: u32, at: u64, is_patient: bool) -> bool {
        self.answer(tag, at).is_none() && self.backoff.waits(is_patient)
    }

    /// Returns whether a fragment asks where the bytes after it are wanted. A message of `bytes`
    /// bytes begins with the fragment or goes on, lent or not.
    pub(super) const fn asks(&mut self, bytes: usize, is_lent: bool) -> bool {
        if bytes >= RDMA_LEND_BYTES {
            self.backoff.begin(is_lent, bytes >= RDMA_ASK_BYTES);
        }
        self.has_asked = self.backoff.is_asking();
        self.has_asked
    }

    /// Notes that the last fragment does not ask any more.
    pub(super) const fn unask(&mut self) {
        self.has_asked = false;
    }

    /// Notes how a fragment was sent: whether the rest is held back, and whether it went directly
    /// to the receiver's memory.
    pub(super) const fn note(&mut self, is_kept_back: bool, is_placed: bool) {
        self.backoff.note(is_kept_back, is_placed);
    }

    /// Notes that all of a lent message is under way.
    pub(super) fn end_message(&mut self) {
        self.backoff.learn();
    }

    /// The last messages that were seen, for a fragment's header.
    pub(super) const fn seen(&self) -> Seen {
        self.seen
    }
}
