//! The pauses in which a sender neither asks for a ready-to-receive message nor waits for one.
//!
//! A receiver that reads messages in the ring never answers. After each message that waited in
//! vain, the number of messages that do not ask doubles.

/// The state of a sender that asks and waits, or pauses.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// A part of a zero-copy message was sent, and a part is left.
    is_begun: bool,
    /// The last message that was not short is worth asking for.
    is_worth_it: bool,
    /// This message, or a part of it, has waited for a ready-to-receive message.
    is_tried: bool,
    is_of_use: bool,
    /// The number of attempts to begin this message, or to go on.
    offers: u32,
    pause: u32,
    left: u32,
}

impl Backoff {
    const PAUSE_MOST: u32 = 64;
    /// The number of attempts that suffices for an answer under way. It is small enough for a
    /// caller that never sleeps.
    const OFFERS_MOST: u32 = 64;

    /// Notes that a message that is not short begins or goes on. It is worth asking for if it is
    /// zero-copy and `is_long`.
    pub(super) const fn begin(&mut self, is_lent: bool, is_long: bool) {
        if !self.is_begun || !is_lent {
            self.is_worth_it = is_lent && is_long;
        }
        self.is_begun = is_lent;
    }

    /// Notes how a fragment was sent: whether the rest is held back, and whether it went directly
    /// to the receiver's memory.
    pub(super) const fn note(&mut self, is_kept_back: bool, is_placed: bool) {
        self.is_tried |= is_kept_back;
        self.is_of_use |= is_placed;
    }

    /// Returns whether to ask for a ready-to-receive message for the rest of this message, or for
    /// the next one.
    pub(super) const fn is_asking(&self) -> bool {
        self.is_worth_it && self.left == 0
    }

    /// Returns whether the message must not begin or go on yet.
    pub(super) const fn waits(&mut self, is_patient: bool) -> bool {
        self.offers = self.offers.saturating_add(1);
        let is_over = !is_patient || self.offers > Self::OFFERS_MOST;
        self.is_tried |= is_over;
        !is_over
    }

    /// Notes that a message is complete.
    pub(super) fn learn(&mut self) {
        if self.is_of_use {
            (self.pause, self.left) = (0, 0);
        } else if self.is_tried {
            self.pause = (2 * self.pause).clamp(1, Self::PAUSE_MOST);
            self.left = self.pause;
        } else {
            self.left = self.left.saturating_sub(1);
        }
        (self.is_tried, self.is_of_use, self.offers) = (false, false, 0);
        self.is_begun = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends messages that never begin at once while they ask. Returns which of them asked.
    fn asking(backoff: &mut Backoff, messages: usize, is_placed: bool) -> Vec<bool> {
        let mut message = || {
            let is_asking = backoff.is_asking();
            assert!(!is_asking || backoff.waits(true));
            assert!(!is_asking || is_placed || !backoff.waits(false), "its caller sleeps");
            backoff.begin(true, true);
            backoff.note(false, is_placed);
            backoff.learn();
            is_asking
        };
        (0..messages).map(|_| message()).collect()
    }

    #[test]
    fn a_sender_that_waits_in_vain_asks_ever_more_rarely() {
        let mut backoff = Backoff::default();
        assert!(!backoff.is_asking(), "nothing was ever lent");
        backoff.begin(true, true);
        assert!(asking(&mut backoff, 5, true).iter().all(|it| *it));
        let asked = asking(&mut backoff, 12, false);
        assert_eq!(asked, [1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0].map(|it| it == 1));
        let asked = asking(&mut backoff, 1000, false).iter().filter(|it| **it).count();
        assert!((14..20).contains(&asked), "{asked}, once in 64 at last");
        let asked = asking(&mut backoff, 100, true).iter().filter(|it| **it).count();
        assert!(asked > 35, "{asked}, and again as before once it is of use");
        backoff.begin(true, true);
        backoff.begin(true, false);
        assert!(backoff.is_asking(), "the end of a long one is short");
        backoff.begin(false, true);
        assert!(!backoff.is_asking(), "this one is not lent");
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut backoff = Backoff::default();
        backoff.begin(true, true);
        let offers = (0..1000).take_while(|_| backoff.waits(true)).count();
        assert_eq!(offers, 64);
        backoff.learn();
        assert!(!backoff.is_asking(), "that was in vain");
    }
}
