//! Telling all peers at once: a number and a tag in one word of the teller's own line, which all
//! have mapped. Numbers only go up, so nothing is ever cleared, and a word of a tell long heard is
//! taken for none.

use std::sync::atomic::Ordering;

use ringfold_types::limits::TELLS_MAX;

use super::ring::Broken;
use super::slot::Slot;

/// How far a word's number is from the one that its place had before.
#[expect(clippy::cast_possible_truncation, reason = "some words")]
const LAP: u32 = TELLS_MAX as u32;

/// This rank's line.
#[derive(Debug)]
pub(super) struct Teller {
    slot: Slot,
    told: u32,
}

impl Teller {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, told: 0 }
    }

    #[inline]
    pub(super) fn tell(&mut self, tag: u32) {
        self.told = self.told.wrapping_add(1);
        let word = u64::from(tag) << 32 | u64::from(self.told);
        // Release, for all that this rank did before.
        self.slot.board(self.told).store(word, Ordering::Release);
    }
}

#[cfg(test)]
impl Teller {
    /// As if so many tells were over.
    pub(super) fn begin_at(&mut self, number: u32) {
        self.told = number;
        (0..LAP).for_each(|back| self.write(number.wrapping_sub(back), number.wrapping_sub(back)));
    }

    /// Writes a number where tell number `at` belongs.
    pub(super) fn write(&self, at: u32, number: u32) {
        self.slot.board(at).store(number.into(), Ordering::Release);
    }
}

/// Which tell of a peer to look for.
#[derive(Debug)]
pub(super) struct Hearer {
    next: u32,
}

impl Hearer {
    pub(super) const fn new() -> Self {
        Self { next: 1 }
    }

    /// The tag of the next tell of the peer in `slot`, if it is there. Anything but that or what
    /// was there before is nothing that a rank writes.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each half is 32 bits")]
    pub(super) fn told(&self, slot: &Slot) -> Result<Option<u32>, Broken> {
        // Acquire: pairs with the store of `tell`.
        let word = slot.board(self.next).load(Ordering::Acquire);
        let (tag, number) = ((word >> 32) as u32, word as u32);
        if number == self.next {
            Ok(Some(tag))
        } else if number == self.next.wrapping_sub(LAP) || number == 0 {
            Ok(None)
        } else {
            Err(Broken::Protocol("a tell out of turn"))
        }
    }

    #[inline]
    pub(super) fn heard(&mut self) {
        self.next = self.next.wrapping_add(1);
    }
}

#[cfg(test)]
impl Hearer {
    /// As if so many tells were over.
    pub(super) fn begin_at(&mut self, number: u32) {
        self.next = number.wrapping_add(1);
    }
}
