//! Ready to receive: the sender's view of where the receiver wants the next bytes, and whether to
//! ask for that and wait for the answer.

use ringfold_types::limits::{RDMA_ASK_BYTES, RDMA_LEND_BYTES};

use super::backoff::Backoff;
use super::invitation::{Invitation, Seen};

/// The invitations that a sender has seen of one lane. Positions are bytes of the stream.
#[derive(Debug, Default)]
pub(super) struct Rtr {
    latest: Option<Invitation>,
    seen: Seen,
    /// The invitations that the receiver knows to be seen.
    told: Seen,
    backoff: Backoff,
    /// The last fragment has asked.
    has_asked: bool,
}

/// Memory of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) bytes: u64,
}

impl Rtr {
    /// Takes note of an invitation in that place of the mailbox. The latest counts, in whatever
    /// order they come.
    pub(super) fn invite(&mut self, it: Invitation, place: usize) {
        self.seen.saw(it.number, place);
        let is_latest = |than: &Invitation| it.number.wrapping_sub(than.number).cast_signed() > 0;
        if self.latest.as_ref().is_none_or(is_latest) {
            self.latest = Some(it);
        }
    }

    /// Where a device on that cable can write the bytes at `at` under `tag`.
    pub(super) fn target(&self, tag: u32, at: u64, cable: Option<usize>) -> Option<Target> {
        let it = self.latest.as_ref().filter(|it| it.tag == tag)?;
        let (skipped, key) = (it.reaches(at)?, it.to.keys[cable?]);
        let address = it.to.address.wrapping_add(skipped);
        (key != 0).then_some(Target { address, key, bytes: it.bytes - skipped })
    }

    /// Whether the receiver is asked where it wants those bytes, and has not said so.
    pub(super) fn is_missing(&self, tag: u32, at: u64, cable: Option<usize>) -> bool {
        self.backoff.is_asking() && self.target(tag, at, cable).is_none()
    }

    /// Whether the receiver was asked where it wants the next message, which has not begun.
    pub(super) const fn is_asking(&self) -> bool {
        self.has_asked && self.backoff.is_asking() && !self.backoff.is_begun()
    }

    /// Whether to wait for the answer, while the receiver has not said where it wants the bytes at
    /// `at`. Not for long, nor if the caller `is_patient` no more.
    pub(super) fn waits(&mut self, tag: u32, at: u64, is_patient: bool) -> bool {
        let latest = self.latest.as_ref().filter(|it| it.tag == tag);
        let is_answered = latest.is_some_and(|it| it.reaches(at).is_some());
        !is_answered && self.backoff.waits(is_patient)
    }

    /// Whether a fragment asks where the bytes after it are wanted: a message of so many bytes
    /// begins with it or goes on, lent or not.
    pub(super) const fn asks(&mut self, bytes: usize, is_lent: bool) -> bool {
        if bytes >= RDMA_LEND_BYTES {
            self.backoff.begin(is_lent, bytes >= RDMA_ASK_BYTES);
        }
        self.has_asked = self.backoff.is_asking();
        self.has_asked
    }

    /// The last fragment does not ask any more.
    pub(super) const fn unask(&mut self) {
        self.has_asked = false;
    }

    /// Takes note of a fragment: the rest is kept back, or it goes where it is invited.
    pub(super) const fn note(&mut self, is_kept_back: bool, is_placed: bool) {
        self.backoff.note(is_kept_back, is_placed);
    }

    /// All of a lent message is on its way.
    pub(super) fn end_message(&mut self) {
        self.backoff.learn();
    }

    /// The last invitations that were seen, for a fragment's header.
    pub(super) const fn seen(&self) -> Seen {
        self.seen
    }

    /// A header tells which were seen.
    pub(super) const fn tell(&mut self) {
        self.told = self.seen;
    }

    /// Whether the receiver knows without a header which were seen: a fragment that is where it was
    /// invited says that all were.
    pub(super) fn has_told(&mut self, is_placed: bool) -> bool {
        if is_placed && self.seen.has_all(self.latest.map_or(0, |it| it.number)) {
            self.tell();
            return true;
        }
        !is_placed && self.told == self.seen
    }
}
