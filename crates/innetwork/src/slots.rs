//! The results that a member keeps, in two generations of slots.

/// The result of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The number of the chunk.
    pub number: u64,
    /// The tag that this member gave.
    pub tag: u32,
    /// The combined elements; empty for a barrier, and for a reduce at members other than its root.
    pub bytes: &'a [u8],
}

/// The slots of one member: twice the window. Result c lies in slot c modulo their number. While
/// the results of one generation arrive, those of the other stay for members that lack them.
#[derive(Debug)]
pub struct Slots {
    window: u64,
    slots: Vec<Slot>,
    /// Chunks handed over.
    posted: u64,
    /// Results that have arrived whole.
    arrived: u64,
    /// Results that the caller has released.
    taken: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    tag: u32,
    bytes: Vec<u8>,
}

impl Slots {
    /// Makes the slots for a window. They take memory as results need it.
    ///
    /// # Panics
    /// If `window` is 0.
    #[must_use]
    pub fn new(window: usize) -> Self {
        assert!(window > 0, "a window of at least one chunk");
        let slots = vec![Slot::default(); 2 * window];
        Self { window: window as u64, slots, posted: 0, arrived: 0, taken: 0 }
    }

    /// Chunks handed over.
    #[must_use]
    pub const fn posted(&self) -> u64 {
        self.posted
    }

    /// Results that have arrived whole.
    #[must_use]
    pub const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Whether some result is outstanding.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.arrived < self.posted
    }

    /// Whether the window has room for another chunk.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.posted - self.taken < self.window
    }

    /// The slot of chunk `number`.
    fn slot(&self, number: u64) -> usize {
        usize::try_from(number % (2 * self.window)).unwrap_or(0)
    }

    /// Notes that chunk `number` is handed over with this tag, and that its result has `bytes`
    /// bytes.
    ///
    /// # Panics
    /// If it is not the next chunk, or if there is no room for it.
    pub fn post(&mut self, number: u64, tag: u32, bytes: usize) {
        assert!(number == self.posted, "chunk {number} after {}", self.posted);
        assert!(self.has_room(), "the window is full");
        self.posted += 1;
        let slot = self.slot_mut(number);
        slot.tag = tag;
        // A slot keeps its memory, so later chunks of the same size allocate nothing.
        slot.bytes.resize(bytes, 0);
    }

    /// The tag and the memory of the result that arrives next.
    ///
    /// # Panics
    /// If no result is outstanding.
    pub fn arriving(&mut self) -> (u32, &mut [u8]) {
        assert!(self.is_waiting(), "no result is outstanding");
        let slot = self.slot_mut(self.arrived);
        (slot.tag, &mut slot.bytes)
    }

    /// The result that arrives next is whole.
    ///
    /// # Panics
    /// If no result is outstanding.
    pub fn arrive(&mut self) {
        assert!(self.is_waiting(), "no result is outstanding");
        self.arrived += 1;
    }

    /// The oldest result that has arrived and is not released.
    #[must_use]
    pub fn oldest(&self) -> Option<Outcome<'_>> {
        (self.taken < self.arrived).then(|| self.outcome(self.taken))
    }

    /// Releases the oldest result.
    ///
    /// # Panics
    /// If there is none.
    pub fn take(&mut self) {
        assert!(self.taken < self.arrived, "no result has arrived");
        self.taken += 1;
    }

    /// Result `number`, if it has arrived and result `number + window` has not.
    #[must_use]
    pub fn retained(&self, number: u64) -> Option<Outcome<'_>> {
        let is_kept = number < self.arrived && self.arrived - number <= self.window;
        is_kept.then(|| self.outcome(number))
    }

    fn outcome(&self, number: u64) -> Outcome<'_> {
        let slot = &self.slots[self.slot(number)];
        Outcome { number, tag: slot.tag, bytes: &slot.bytes }
    }

    fn slot_mut(&mut self, number: u64) -> &mut Slot {
        let slot = self.slot(number);
        &mut self.slots[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(slots: &mut Slots, value: u8) {
        slots.arriving().1[0] = value;
        slots.arrive();
    }

    #[test]
    fn a_result_stays_until_the_one_a_window_later_has_arrived() {
        let mut slots = Slots::new(2);
        for number in 0..6_u8 {
            slots.post(number.into(), 7, 1);
            arrive(&mut slots, number);
            assert_eq!(slots.oldest().unwrap().bytes, [number]);
            slots.take();
            for old in 0..=number {
                let wanted = (number - old < 2).then_some([old]);
                let kept = slots.retained(old.into()).map(|outcome| outcome.bytes);
                assert_eq!(kept, wanted.as_ref().map(|it| &it[..]), "{old} at {number}");
            }
        }
    }

    #[test]
    fn a_result_stays_while_the_next_generation_arrives() {
        let mut slots = Slots::new(2);
        for number in 0..2 {
            slots.post(number, 7 + u32::try_from(number).unwrap(), 1);
        }
        assert!(!slots.has_room());
        arrive(&mut slots, 10);
        assert!(!slots.has_room(), "a result that is not released holds its place");
        slots.take();
        slots.post(2, 9, 1);
        arrive(&mut slots, 11);
        slots.arriving().1[0] = 12;
        assert_eq!(slots.retained(0).unwrap().bytes, [10], "result 2 has not arrived whole");
        slots.arrive();
        assert_eq!(slots.retained(0), None);
        assert_eq!(slots.retained(1).unwrap().bytes, [11]);
        assert_eq!(slots.oldest().unwrap(), Outcome { number: 1, tag: 8, bytes: &[11] });
    }
}
