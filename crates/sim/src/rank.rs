//! The ports of one rank's stepper: messages become flows, and combining takes time.

use std::convert::Infallible;

use ringfold_collectives::schedule::{Form, Source};
use ringfold_collectives::{Exchanged, Ports, Program, Reduction, Stores};
use ringfold_types::limits::SOURCES_MAX;
use ringfold_types::{Rank, Slice};

use crate::event::Event;
use crate::whole::short;
use crate::wires::Wires;

/// A turn of a rank: one operation at most takes time.
pub(crate) struct Turn<'t, 'j> {
    pub(crate) rank: Rank,
    pub(crate) now: u64,
    /// The time that the rank's CPU takes.
    pub(crate) takes_ps: u64,
    pub(crate) program: &'t Program,
    pub(crate) wires: &'t mut Wires<'j>,
}

impl Turn<'_, '_> {
    fn bytes(&self, slice: Slice) -> usize {
        slice.len << self.program.shift(Form::of(slice.buffer))
    }

    /// Elements of a form that have arrived by a connection.
    fn arrived(&self, number: usize, form: Form) -> usize {
        self.wires.connections[number].arrived >> self.program.shift(form)
    }

    fn take(&mut self, number: usize, elements: usize, form: Form) {
        let bytes = elements << self.program.shift(form);
        self.wires.connections[number].arrived -= bytes;
    }

    /// Reading or writing the memory of another rank of the host.
    fn moves(&mut self, slice: Slice) {
        self.takes_ps += self.bytes(slice) as u64 * self.wires.near.byte_ps;
    }
}

impl Ports for Turn<'_, '_> {
    type Error = Infallible;

    fn exchange(&mut self, _: Rank, _: Slice, _: Slice) -> Result<Exchanged, Infallible> {
        Ok(Exchanged::Nothing)
    }

    fn send(&mut self, lane: usize, to: Rank, src: Slice, _: bool) -> Result<usize, Infallible> {
        let (rank, now, bytes) = (self.rank, self.now, self.bytes(src));
        let number = self.wires.connection(rank, to, lane);
        if self.wires.refuses(number) {
            return Ok(0);
        }
        self.takes_ps += self.wires.price(rank, to).message_ps;
        self.wires.leave(now, number, bytes);
        Ok(src.len)
    }

    fn receive(
        &mut self,
        lane: usize,
        from: Rank,
        dst: Slice,
        _: Stores,
    ) -> Result<usize, Infallible> {
        let form = Form::of(dst.buffer);
        let number = self.wires.connection(from, self.rank, lane);
        let elements = self.arrived(number, form).min(dst.len);
        self.take(number, elements, form);
        Ok(elements)
    }

    fn copy(&mut self, _: usize, src: Slice, _: Slice, _: Stores) -> Result<(), Infallible> {
        self.takes_ps += self.bytes(src) as u64 * self.wires.combining_ps / 2;
        Ok(())
    }

    fn reduce(&mut self, lane: usize, reduction: Reduction<'_>) -> Result<usize, Infallible> {
        let Reduction { dst, sources, .. } = reduction;
        let mut elements = dst.len;
        let mut numbers = [0; SOURCES_MAX];
        for (source, number) in sources.iter().zip(&mut numbers) {
            if let Source::Wire(from, form) = *source {
                *number = self.wires.connection(from, self.rank, lane);
                elements = elements.min(self.arrived(*number, form));
            }
        }
        for (source, number) in sources.iter().zip(numbers) {
            if let Source::Wire(_, form) = *source {
                self.take(number, elements, form);
            }
        }
        let bytes = (elements as u64) << self.program.shift(Form::of(dst.buffer));
        let others = (sources.len() as u64 - 1).max(1);
        self.takes_ps += bytes * others * self.wires.combining_ps;
        Ok(elements)
    }

    fn reduce_to_all(
        &mut self,
        _: usize,
        dst: Slice,
        sources: &[Source],
        _: Stores,
    ) -> Result<(), Infallible> {
        self.takes_ps += (self.bytes(dst) * sources.len()) as u64 * self.wires.combining_ps;
        self.moves(dst);
        Ok(())
    }

    fn put(&mut self, _: usize, _: Rank, src: Slice) -> Result<(), Infallible> {
        self.moves(src);
        Ok(())
    }

    fn get(
        &mut self,
        _: usize,
        _: Rank,
        src: Slice,
        _: Slice,
        _: Stores,
    ) -> Result<(), Infallible> {
        self.moves(src);
        Ok(())
    }

    fn signal(&mut self, lane: usize) -> Result<(), Infallible> {
        let (rank, seen) = (self.rank, self.now + self.wires.near.latency_ps);
        self.takes_ps += self.wires.near.message_ps;
        self.wires.at(seen, Event::Signalled(rank, short(lane)));
        Ok(())
    }

    fn wait(&mut self, lane: usize, from: Rank) -> Result<bool, Infallible> {
        let count = self.wires.signals.get_mut(&(from, self.rank, lane));
        let is_there = count.is_some_and(|count| {
            let is_there = *count > 0;
            *count -= u32::from(is_there);
            is_there
        });
        Ok(is_there)
    }

    fn swap(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn post(&mut self, lane: usize, src: Slice, _: Slice) -> Result<bool, Infallible> {
        let (rank, now) = (self.rank, self.now);
        let Some(above) = self.wires.aggregators.above(lane, rank) else { return Ok(false) };
        let number = self.wires.connection(rank, above, lane);
        if self.wires.refuses(number) {
            return Ok(false);
        }
        // A chunk of no elements is a message too.
        let forms = [Form::of(src.buffer), Form::Element];
        let bytes = forms.map(|form| (src.len << self.program.shift(form)).max(1));
        self.wires.aggregators.hand_over(lane, rank, bytes);
        self.takes_ps += self.wires.price(rank, above).message_ps;
        self.wires.leave(now, number, bytes[0]);
        Ok(true)
    }

    fn take_result(&mut self, lane: usize, _: Slice) -> Result<bool, Infallible> {
        let wires = &mut *self.wires;
        let above = wires.aggregators.above(lane, self.rank);
        let result = wires.aggregators.next_result(lane, self.rank);
        let (Some(above), Some(bytes)) = (above, result) else { return Ok(false) };
        let number = wires.connection(above, self.rank, lane);
        let is_there = wires.take_from_all(&[number], bytes);
        if is_there {
            wires.aggregators.take(lane, self.rank);
        }
        Ok(is_there)
    }
}
