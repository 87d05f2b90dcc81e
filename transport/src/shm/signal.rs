//! Signals to all peers at once: a number and a tag in one word of the signaller's own flag line,
//! which all peers map. Numbers only grow, so no word is ever cleared. A peer treats the word of an
//! earlier signal as no signal.

use std::sync::atomic::Ordering;

use ringfold_types::limits::SIGNALS_MAX;

use super::ring::Broken;
use super::slot::Slot;

/// Distance between the numbers of two successive signals in the same word.
#[expect(clippy::cast_possible_truncation, reason = "some words")]
const LAP: u32 = SIGNALS_MAX as u32;

/// This rank's flag line.
#[derive(Debug)]
pub(super) struct Signaller {
    slot: Slot,
    last: u32,
}

impl Signaller {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, last: 0 }
    }

    #[inline]
    pub(super) fn signal(&mut self, tag: u32) {
        self.last = self.last.wrapping_add(1);
        let word = u64::from(tag) << 32 | u64::from(self.last);
        // Release: for everything that this rank did before.
        self.slot.flag(self.last).store(word, Ordering::Release);
    }
}

#[cfg(test)]
impl Signaller {
    /// Continues as if `number` signals had been sent.
    pub(super) fn begin_at(&mut self, number: u32) {
        self.last = number;
        (0..LAP).for_each(|back| self.write(number.wrapping_sub(back), number.wrapping_sub(back)));
    }

    /// Writes `number` to the word of signal `at`.
    pub(super) fn write(&self, at: u32, number: u32) {
        self.slot.flag(at).store(number.into(), Ordering::Release);
    }
}

/// The signals of a peer, as far as this rank has taken them.
#[derive(Debug)]
pub(super) struct Signals {
    next: u32,
}

impl Signals {
    pub(super) const fn new() -> Self {
        Self { next: 1 }
    }

    /// Returns the tag of the next signal of the peer in `slot`, if it is there. A correct peer's
    /// word holds that signal or its predecessor.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each half is 32 bits")]
    pub(super) fn next(&self, slot: &Slot) -> Result<Option<u32>, Broken> {
        // Acquire: pairs with the store of `signal`.
        let word = slot.flag(self.next).load(Ordering::Acquire);
        let (tag, number) = ((word >> 32) as u32, word as u32);
        if number == self.next {
            Ok(Some(tag))
        } else if number == self.next.wrapping_sub(LAP) || number == 0 {
            Ok(None)
        } else {
            Err(Broken::Protocol("a signal with an unexpected number"))
        }
    }

    #[inline]
    pub(super) fn take(&mut self) {
        self.next = self.next.wrapping_add(1);
    }
}

#[cfg(test)]
impl Signals {
    /// Continues as if `number` signals had been taken.
    pub(super) fn begin_at(&mut self, number: u32) {
        self.next = number.wrapping_add(1);
    }
}
