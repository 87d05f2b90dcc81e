//! The flows that send, by the time at which the present message of each will have left.

/// The place of a flow that does not send.
const NOWHERE: usize = usize::MAX;

/// A heap in which each flow has one entry, whose time may change.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Times and flows: no entry is later than the two below it.
    heap: Vec<(u64, usize)>,
    /// By flow: its place in the heap.
    places: Vec<usize>,
}

impl Due {
    /// The first flow, and its time. Of several at one time, it is the one with the least number.
    pub(crate) fn first(&self) -> Option<(u64, usize)> {
        self.heap.first().copied()
    }

    /// Sets the time of a flow.
    pub(crate) fn set(&mut self, flow: usize, at: u64) {
        if self.places.len() <= flow {
            self.places.resize(flow + 1, NOWHERE);
        }
        let place = match self.places[flow] {
            NOWHERE => {
                self.heap.push((at, flow));
                self.heap.len() - 1
            }
            place => {
                self.heap[place].0 = at;
                place
            }
        };
        let place = self.rise(place);
        self.sink(place);
    }

    /// Removes the first flow.
    pub(crate) fn pop(&mut self) -> Option<(u64, usize)> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first_mut() else {
            self.places[last.1] = NOWHERE;
            return Some(last);
        };
        let first = std::mem::replace(first, last);
        self.places[first.1] = NOWHERE;
        self.sink(0);
        Some(first)
    }

    /// Moves an entry up, past those that are later. Returns its place.
    fn rise(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] <= entry {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        self.put(place, entry);
        place
    }

    /// Moves an entry down, past those that are earlier.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let mut below = 2 * place + 1;
            if self.heap.get(below + 1).is_some_and(|other| *other < self.heap[below]) {
                below += 1;
            }
            match self.heap.get(below) {
                Some(earlier) if *earlier < entry => self.put(place, *earlier),
                _ => break,
            }
            place = below;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (u64, usize)) {
        self.heap[place] = entry;
        self.places[entry.1] = place;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringfold_types::mix;

    use super::*;

    #[test]
    fn the_earliest_flow_is_first_though_times_change() {
        let (mut due, mut wanted) = (Due::default(), BTreeSet::new());
        let mut times = [None; 50];
        for step in 0..5000 {
            let random = mix(step);
            let (flow, at) = (usize::try_from(random % 50).unwrap(), random >> 32 & 0x3ff);
            if random >> 20 & 3 == 0 {
                let first = due.pop();
                assert_eq!(first, wanted.pop_first());
                first.into_iter().for_each(|(_, flow): (u64, usize)| times[flow] = None);
            } else {
                due.set(flow, at);
                times[flow].replace(at).into_iter().for_each(|old| {
                    wanted.remove(&(old, flow));
                });
                wanted.insert((at, flow));
            }
            assert_eq!(due.first(), wanted.first().copied());
        }
    }
}
