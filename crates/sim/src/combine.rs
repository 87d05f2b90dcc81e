//! The turn of an aggregator, which combines the chunks of its children and passes on results.

use std::collections::HashSet;

use ringfold_types::Rank;

use crate::aggregators::Aggregator;
use crate::event::Event;
use crate::wires::Wires;

impl Wires<'_> {
    /// Lets an aggregator pass on all that it can.
    pub(crate) fn aggregate(&mut self, now: u64, place: Rank) {
        let index = place.index() - self.layout.size();
        if self.aggregators.all[index].from.is_empty() {
            self.connect(place, index);
        }
        let mut it = std::mem::take(&mut self.aggregators.all[index]);
        let (lane, latency_ps) = (it.lane, self.aggregators.latency_ps);
        while let Some([part, _]) = self.aggregators.chunk(lane, it.combined)
            && self.take_from_all(&it.from, part)
        {
            it.combined += 1;
            it.ready.push_back(now + latency_ps);
            self.at(now + latency_ps, Event::Woken(place));
        }
        while it.ready.pop_front_if(|at| *at <= now).is_some()
            && let Some([part, _]) = self.aggregators.chunk(lane, it.summed)
        {
            it.summed += 1;
            it.above.into_iter().for_each(|[up, _]| self.leave(now, up, part));
        }
        while let Some([_, result]) = self.aggregators.chunk(lane, it.passed)
            && match it.above {
                Some([_, down]) => self.take_from_all(&[down], result),
                None => it.passed < it.summed,
            }
        {
            it.passed += 1;
            it.to.iter().for_each(|number| self.leave(now, *number, result));
        }
        self.aggregators.all[index] = it;
    }

    fn connect(&mut self, place: Rank, index: usize) {
        let Aggregator { lane, ref children, .. } = self.aggregators.all[index];
        let (mut from, mut to, mut met) = (Vec::new(), Vec::new(), HashSet::new());
        for child in children.clone() {
            let number = self.connection(child, place, lane);
            if !from.contains(&number) {
                from.push(number);
            }
            if met.insert(self.fold.rank(child)) {
                to.push(self.connection(place, child, lane));
            }
        }
        let above = self.aggregators.above(lane, place);
        let above = above.map(|above| {
            [(place, above), (above, place)].map(|(from, to)| self.connection(from, to, lane))
        });
        let it = &mut self.aggregators.all[index];
        (it.from, it.to, it.above) = (from, to, above);
    }
}
