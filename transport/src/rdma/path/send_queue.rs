//! The numbers of a queue pair's sends: posted, done, arrived. This module knows no device.

/// Sends that a queue pair holds.
pub(super) const SENDS: u32 = 128;
/// Sends that fragments leave to credits.
const RESERVED: u32 = 8;
/// The device signals the completion of at least one send in so many.
const SIGNAL_EVERY: u32 = 32;

/// The numbers of sends, counted without end. A send is *under way* until the device is done with
/// it. At most `SENDS` sends are under way.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    posted: u32,
    /// The last send that the device is known to be done with.
    done: u32,
    /// The last send that is known to have arrived.
    answered: u32,
    /// The last send that brings a fragment.
    last_fragment: u32,
    /// The last fragment whose completion the device was asked to signal.
    asked: u32,
    /// The bytes of all fragments.
    bytes: u64,
    /// The bytes of fragments that are known to have arrived.
    arrived_bytes: u64,
    /// A send, and the bytes of all fragments up to it. They count when it has arrived.
    mark: (u32, u64),
    /// The bytes of all counted sends.
    counted: u32,
    /// The bytes of counted sends that the device is done with.
    counted_done: u32,
    /// The bytes of counted sends that were reported as done.
    counted_told: u32,
    counted_by: CountedBy,
}

/// The bytes of all counted sends up to each send, by number modulo `SENDS`.
#[derive(Debug)]
struct CountedBy([u32; SENDS as usize]);

impl Default for CountedBy {
    fn default() -> Self {
        Self([0; SENDS as usize])
    }
}

/// The next send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The number of the send.
    pub(super) number: u32,
    /// The device must signal its completion.
    pub(super) tells: bool,
}

impl SendQueue {
    pub(super) const fn under_way(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }

    /// Returns whether there is room for a fragment, in at most two sends.
    pub(super) const fn takes_fragments(&self) -> bool {
        self.under_way() < SENDS - RESERVED
    }

    /// Returns whether there is room for a ready-to-receive message, in at most two sends.
    pub(super) const fn takes_rtrs(&self) -> bool {
        self.under_way() < SENDS - 2
    }

    /// Returns whether there is room for a credit, and a question after it.
    pub(super) const fn takes_credit(&self) -> bool {
        self.under_way() < SENDS - 1
    }

    /// Returns whether there is room for a question.
    pub(super) const fn takes_questions(&self) -> bool {
        self.under_way() < SENDS
    }

    /// The send that `requests` requests make. `tells` makes the device signal its completion.
    pub(super) const fn next(&self, requests: u32, tells: bool) -> Next {
        let number = self.posted.wrapping_add(requests);
        Next { number, tells: tells || number / SIGNAL_EVERY != self.posted / SIGNAL_EVERY }
    }

    /// Notes that the send is posted.
    pub(super) const fn post(&mut self, next: Next) {
        self.posted = next.number;
        self.count(0);
    }

    /// Counts bytes of the last send.
    pub(super) const fn count(&mut self, bytes: u32) {
        self.counted = self.counted.wrapping_add(bytes);
        self.counted_by.0[(self.posted % SENDS) as usize] = self.counted;
    }

    /// The counted bytes of sends under way.
    pub(super) const fn bytes_under_way(&self) -> u32 {
        self.counted.wrapping_sub(self.counted_done)
    }

    /// Returns the counted bytes that the device is newly known to be done with.
    pub(super) const fn take_done_bytes(&mut self) -> u32 {
        let bytes = self.counted_done.wrapping_sub(self.counted_told);
        self.counted_told = self.counted_done;
        bytes
    }

    /// Notes that the last send brings a fragment of so many bytes. `tells` means that the device
    /// signals its completion.
    pub(super) const fn mark_fragment(&mut self, tells: bool, bytes: usize) {
        self.last_fragment = self.posted;
        self.bytes += bytes as u64;
        if tells {
            self.asked = self.posted;
        }
    }

    /// Returns whether all fragments have arrived.
    pub(super) const fn has_arrived(&self) -> bool {
        let unsaid = self.posted.wrapping_sub(self.answered);
        unsaid <= self.posted.wrapping_sub(self.last_fragment)
    }

    /// Returns whether all sends have arrived.
    pub(super) const fn is_answered(&self) -> bool {
        self.answered == self.posted
    }

    /// Returns whether a question is needed to learn when the last fragment arrives.
    pub(super) const fn must_ask(&self) -> bool {
        let is_new =
            self.posted.wrapping_sub(self.last_fragment) < self.posted.wrapping_sub(self.asked);
        is_new && !self.has_arrived()
    }

    /// Notes that a question about the last fragment is posted next.
    pub(super) const fn mark_asked(&mut self) {
        self.asked = self.last_fragment;
    }

    /// Notes that the device is done with all sends up to this one. Answers may come after
    /// completions of later sends.
    pub(super) const fn done(&mut self, number: u32) {
        if number.wrapping_sub(self.done) <= self.under_way() {
            self.done = number;
            self.counted_done = self.counted_by.0[(number % SENDS) as usize];
        }
    }

    /// Notes that all sends up to this one have arrived.
    pub(super) const fn answered(&mut self, number: u32) {
        self.answered = number;
        if number.wrapping_sub(self.mark.0) < u32::MAX / 2 {
            self.arrived_bytes = self.mark.1;
            self.mark = (self.posted, self.bytes);
        }
    }

    /// The bytes of fragments that have arrived, at least.
    pub(super) const fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(sends: &mut SendQueue, requests: u32) -> Next {
        let next = sends.next(requests, false);
        sends.post(next);
        next
    }

    #[test]
    fn room_is_kept_for_urgent_sends() {
        let mut sends = SendQueue::default();
        while sends.takes_fragments() {
            post(&mut sends, 1);
        }
        assert_eq!(sends.under_way(), SENDS - RESERVED);
        while sends.takes_rtrs() {
            post(&mut sends, 2);
        }
        assert!(sends.takes_credit());
        post(&mut sends, 1);
        assert!(!sends.takes_credit() && sends.takes_questions());
        post(&mut sends, 1);
        assert!(!sends.takes_questions());
        sends.done(SENDS / 2);
        assert_eq!(sends.under_way(), SENDS / 2);
        sends.done(SENDS / 4);
        sends.done(SENDS + 1);
        assert_eq!(sends.under_way(), SENDS / 2, "neither an old number counts nor a false one");
    }

    /// The numbers wrap around without a gap in the signalled completions.
    #[test]
    fn the_device_tells_often_enough() {
        let begin = u32::MAX - 1000;
        let mut sends = SendQueue { posted: begin, done: begin, ..SendQueue::default() };
        let mut quiet = 0;
        for at in 0..2000 {
            let next = post(&mut sends, 1 + at % 2);
            quiet = if next.tells { 0 } else { quiet + 1 };
            assert!(quiet < SIGNAL_EVERY, "{next:?}");
        }
    }

    #[test]
    fn counted_bytes_are_under_way_until_their_send_is_done() {
        let mut sends =
            SendQueue { posted: u32::MAX - 1, done: u32::MAX - 1, ..Default::default() };
        let post = |sends: &mut SendQueue, bytes| {
            let next = post(sends, 2);
            sends.count(bytes);
            next.number
        };
        let numbers = [1000, 0, 500].map(|bytes| post(&mut sends, bytes));
        assert_eq!((sends.bytes_under_way(), sends.take_done_bytes()), (1500, 0));
        sends.done(numbers[1]);
        assert_eq!((sends.bytes_under_way(), sends.take_done_bytes()), (500, 1000));
        sends.done(numbers[0]);
        assert_eq!((sends.bytes_under_way(), sends.take_done_bytes()), (500, 0));
        sends.done(numbers[2]);
        assert_eq!((sends.bytes_under_way(), sends.take_done_bytes()), (0, 500));
    }

    #[test]
    fn a_fragment_is_asked_for_once() {
        let begin = u32::MAX - 1;
        let mut sends = SendQueue {
            posted: begin,
            done: begin,
            answered: begin,
            last_fragment: begin,
            asked: begin,
            ..SendQueue::default()
        };
        assert!(!sends.must_ask() && sends.has_arrived());
        post(&mut sends, 1);
        sends.mark_fragment(false, 1);
        assert!(sends.must_ask() && !sends.has_arrived());
        sends.mark_asked();
        let question = post(&mut sends, 1);
        assert!(!sends.must_ask() && !sends.has_arrived());
        post(&mut sends, 1);
        sends.done(question.number);
        sends.answered(question.number);
        assert!(sends.has_arrived() && !sends.is_answered(), "a credit is under way");
        post(&mut sends, 1);
        sends.mark_fragment(true, 1);
        assert!(!sends.must_ask() && !sends.has_arrived(), "the device tells anyway");
        let last = post(&mut sends, 1);
        sends.mark_fragment(false, 1);
        assert!(sends.must_ask());
        sends.answered(last.number);
        assert!(!sends.must_ask(), "it has arrived");
    }

    #[test]
    fn bytes_count_when_they_have_arrived() {
        let mut sends = SendQueue::default();
        let send = |sends: &mut SendQueue| {
            let next = post(sends, 1);
            sends.mark_fragment(false, 100);
            next.number
        };
        let first = send(&mut sends);
        sends.answered(first);
        let (second, third) = (send(&mut sends), send(&mut sends));
        assert_eq!(sends.arrived_bytes(), 0, "a sample is as old as the answer before");
        sends.answered(second);
        assert_eq!(sends.arrived_bytes(), 100);
        sends.answered(second);
        assert_eq!(sends.arrived_bytes(), 100, "the third is under way");
        sends.answered(third);
        assert_eq!(sends.arrived_bytes(), 300);
    }
}
