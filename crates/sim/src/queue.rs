//! The events that are to come, by time: a radix heap.
//!
//! No event is earlier than the last one that was taken. So an event lies in the bucket of the
//! highest binary digit in which its time differs from that of the last one, and moves to lower
//! buckets only.
//!
//! Source: Ahuja, Mehlhorn, Orlin and Tarjan, "Faster algorithms for the shortest path problem",
//! 1990.

use crate::event::Event;

#[derive(Debug)]
pub(crate) struct Queue {
    last: u64,
    buckets: Vec<Vec<(u64, Event)>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { last: 0, buckets: (0..=u64::BITS).map(|_| Vec::new()).collect() }
    }
}

impl Queue {
    /// Adds an event, at the time of the last one that was taken or later.
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.buckets[(u64::BITS - (at ^ self.last).leading_zeros()) as usize].push((at, event));
    }

    /// Takes all events of the earliest time, in no order. Returns that time.
    pub(crate) fn take(&mut self, events: &mut Vec<Event>) -> Option<u64> {
        let lowest = self.buckets.iter().position(|bucket| !bucket.is_empty())?;
        if lowest > 0 {
            let mut moved = std::mem::take(&mut self.buckets[lowest]);
            self.last = moved.iter().map(|(at, _)| *at).min()?;
            moved.drain(..).for_each(|(at, event)| self.push(at, event));
            self.buckets[lowest] = moved;
        }
        self.take_more(events);
        Some(self.last)
    }

    /// Takes the events that were added since `take`, at the same time.
    pub(crate) fn take_more(&mut self, events: &mut Vec<Event>) {
        events.extend(self.buckets[0].drain(..).map(|(_, event)| event));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ringfold_types::{Rank, mix};

    use super::*;

    #[test]
    fn the_earliest_events_are_taken_first() {
        let (mut queue, mut wanted) = (Queue::default(), BTreeMap::new());
        let (mut now, mut taken) = (0, Vec::new());
        for step in 0..5000_usize {
            let random = mix(step as u64);
            // Some times are that of the last event, or close to it.
            let at = now + (random >> 16) % [1, 10, 1000, 1 << 40][step % 4];
            let event = Event::Woken(Rank::at(step));
            if random & 3 > 0 {
                queue.push(at, event);
                wanted.entry(at).or_insert_with(Vec::new).push(event);
            } else if let Some(at) = queue.take(&mut taken) {
                now = at;
                queue.push(now, event);
                queue.take_more(&mut taken);
                let (first, mut those) = wanted.pop_first().unwrap();
                those.push(event);
                assert_eq!(at, first);
                assert_eq!(taken.len(), those.len());
                assert!(taken.drain(..).all(|event| those.contains(&event)));
            }
        }
        assert!(!wanted.is_empty() && now > 0);
    }
}
