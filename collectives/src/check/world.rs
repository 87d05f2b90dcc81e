//! All ranks of a communicator in one call. Each is a stepper with symbolic memory, and links join
//! them.

use alloc::vec::Vec;

use ringfold_types::{Buffer, Collective, Rank, Slice};

use super::expectations::Expectations;
use super::flaw::{Conditions, Flaw};
use super::memory::{Memory, Ranks, Run, combine, cut, shifted};
use super::provider::{Offloading, Provider};
use super::races::Races;
use super::shared::{Shared, use_memory_of_others};
use super::signals::Signals;
use super::stream::Mark;
use crate::algorithm::Stated;
use crate::program::{Program, Stores, Target, lower};
use crate::schedule::{Form, Schedule, Source};
use crate::stepper::{Exchanged, Ports, Progress, Reduction, Stepper};

pub(super) struct World<'s> {
    /// The number of the call in its sequence.
    pub(super) number: usize,
    pub(super) schedules: &'s [Schedule],
    programs: Vec<Program>,
    pub(super) conditions: Conditions,
    pub(super) nodes: Vec<Node>,
    pub(super) shared: Shared,
    /// Whether ranks use each other's memory in this call.
    pub(super) shares_memory: bool,
    /// The accesses of each rank's own lanes, by rank, where ranks do not. Only for ranks of
    /// several lanes.
    pub(super) lanes: Vec<Option<Races>>,
    pub(super) provider: Provider,
    pub(super) offloading: Offloading,
    /// Turns of ranks so far.
    turns: usize,
}

/// The ports of one rank.
struct PortsOf<'w, 's> {
    world: &'w mut World<'s>,
    index: usize,
}

pub(super) struct Node {
    pub(super) stepper: Stepper,
    /// Whether it or a peer of it has moved since it last stopped.
    pub(super) is_awake: bool,
    /// The set of this rank alone.
    pub(super) own: Ranks,
    pub(super) output: Memory,
    pub(super) scratch: Memory,
    pub(super) rounded: Memory,
    pub(super) staging: Memory,
    /// Per lane, the longest chain of messages that led to where it is.
    pub(super) depth: Vec<usize>,
    /// The ranks that it knows to have entered a barrier.
    pub(super) entered: Ranks,
    pub(super) sent: usize,
    pub(super) expectations: Expectations,
}

impl<'s> World<'s> {
    /// The call with this number. The links and memory that it shares with others are in `shared`
    /// while it runs.
    pub(super) fn of_sequence(
        number: usize,
        schedules: &'s [Schedule],
        conditions: Conditions,
        offloading: Offloading,
        uses_races: bool,
    ) -> Self {
        // Such a call works on a copy of its input.
        let in_place = conditions.in_place && schedules[0].call().collective.works_in_place();
        let conditions = Conditions { in_place, ..conditions };
        let Conditions { in_place, offers: rendezvous, .. } = conditions;
        let announces = Some(0);
        let target = Target { in_place, rendezvous, shares_memory: true, announces };
        let programs: Vec<Program> = schedules.iter().map(|it| lower(it, target)).collect();
        let nodes = schedules
            .iter()
            .zip(&programs)
            .map(|(schedule, program)| {
                let own = Ranks::only(schedule.rank().index(), schedules.len());
                let mut stepper = Stepper::new();
                match offloading {
                    Offloading::Never => stepper.start(program),
                    _ => stepper.start_with_provider(program),
                }
                Node {
                    stepper,
                    is_awake: true,
                    own: own.clone(),
                    output: Memory::default(),
                    scratch: Memory::default(),
                    rounded: Memory::default(),
                    staging: Memory::default(),
                    depth: alloc::vec![0; schedule.lanes().len()],
                    entered: own,
                    sent: 0,
                    expectations: Expectations::default(),
                }
            })
            .collect();
        let lanes = |schedule| match uses_races {
            true => None,
            false => Races::between_lanes(schedule, conditions.in_place),
        };
        let lanes = schedules.iter().map(lanes).collect();
        let provider = Provider::new(schedules);
        let turns = 0;
        Self {
            number,
            schedules,
            programs,
            conditions,
            nodes,
            shared: Shared::default(),
            shares_memory: use_memory_of_others(schedules),
            lanes,
            provider,
            offloading,
            turns,
        }
    }

    /// A call alone. The ranks may be in an earlier call at its beginning.
    pub(super) fn new(
        schedules: &'s [Schedule],
        conditions: Conditions,
        offloading: Offloading,
    ) -> Self {
        let shared = Shared::before([schedules].into_iter(), true);
        let mut world =
            Self::of_sequence(0, schedules, conditions, offloading, shared.races.is_some());
        world.shared = shared;
        world
    }

    /// Runs to the end. Returns the costs, and the outputs by rank.
    pub(super) fn run(mut self) -> Result<(Stated, Vec<Memory>), Flaw> {
        (0..self.nodes.len()).for_each(|index| self.begin(index));
        while self.nodes.iter().any(|node| node.is_awake) {
            for index in 0..self.nodes.len() {
                if core::mem::take(&mut self.nodes[index].is_awake) {
                    self.turns += 1;
                    if self.offloading == Offloading::Until(self.turns) {
                        self.lose_provider();
                    }
                    let moved = self.advance(index)?;
                    self.nodes[index].is_awake |= moved;
                }
            }
        }
        if self.nodes.iter().any(|node| !node.stepper.is_done()) {
            return Err(self.deadlock());
        }
        (0..self.nodes.len()).for_each(|index| self.leave(index));
        self.verify_links()?;
        self.verify_results()?;
        self.verify_accesses()?;
        let steps = self.nodes.iter().flat_map(|node| &node.depth).max().copied().unwrap_or(0);
        let sent = self.nodes.iter().map(|node| node.sent).max().unwrap_or(0);
        Ok((Stated { steps, sent }, self.nodes.into_iter().map(|node| node.output).collect()))
    }

    /// A rank begins the call.
    pub(super) fn begin(&mut self, index: usize) {
        if let Some(races) = &mut self.shared.races {
            races.begin(index, &self.schedules[index], self.conditions.in_place);
        }
    }

    /// A rank has ended the call.
    pub(super) fn leave(&mut self, index: usize) {
        if let Some(races) = &mut self.shared.races {
            races.leave(index, self.schedules[index].flips_staging());
        }
    }

    /// Checks, when all ranks have ended all calls, that nothing is left on the links.
    pub(super) fn verify_links(&self) -> Result<(), Flaw> {
        for (index, links) in self.shared.links.iter().enumerate() {
            if let Some(((from, _), _)) = links.iter().find(|(_, link)| link.elements > 0) {
                return Err(Flaw::Unreceived { rank: Rank::at(index), from: Rank::at(*from) });
            }
        }
        self.shared.signals.as_ref().map_or(Ok(()), Signals::end)
    }

    /// Checks the results of the call.
    pub(super) fn verify_results(&self) -> Result<(), Flaw> {
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(slice) = node.expectations.left() {
                return Err(Flaw::Expected { rank: Rank::at(index), slice });
            }
        }
        for index in 0..self.nodes.len() {
            self.verify(index)?;
        }
        self.verify_bits()?;
        let flips = |index: usize| self.schedules[index].flips_staging();
        match (0..self.nodes.len()).find(|index| flips(*index) != flips(0)) {
            Some(index) => Err(Flaw::Swap { rank: Rank::at(index) }),
            None => Ok(()),
        }
    }

    /// Checks, when all ranks have ended all calls, of which this is the last, that no rank may
    /// still use memory whose user has it again.
    pub(super) fn verify_accesses(&mut self) -> Result<(), Flaw> {
        let Shared { races, swapped, .. } = &mut self.shared;
        if let Some(index) = (0..swapped.len()).find(|index| swapped[*index] != swapped[0]) {
            return Err(Flaw::Swap { rank: Rank::at(index) });
        }
        let swaps = self.schedules.iter().any(Schedule::swaps_staging);
        let ended = races.as_mut().map_or(Ok(()), |races| races.end(swapped[0], swaps));
        ended.map_err(|index| {
            let (rank, slice) = (Rank::at(index), Slice::new(Buffer::Output, 0, 0));
            Flaw::Race { rank, of: rank, slice }
        })
    }

    /// The provider fails. All members agree on the results that it has delivered to any of them.
    fn lose_provider(&mut self) {
        for lane in 0..self.schedules.iter().map(|it| it.lanes().len()).max().unwrap_or(0) {
            let is_member = |index: &usize| {
                let schedule = &self.schedules[*index];
                lane < schedule.lanes().len() && schedule.group(lane).is_some()
            };
            let members: Vec<usize> = (0..self.nodes.len()).filter(is_member).collect();
            let taken = |index: &usize| self.nodes[*index].stepper.chunks(lane).1;
            let from = members.iter().map(taken).max().unwrap_or(0);
            for index in members {
                self.nodes[index].stepper.fall_back(&self.programs[index], lane, from);
            }
        }
        self.nodes.iter_mut().for_each(|node| node.is_awake = true);
    }

    pub(super) fn deadlock(&self) -> Flaw {
        let waiting = |(index, node): (usize, &Node)| {
            let at = node.stepper.waiting().map(move |w| (Rank::at(index), w.lane, w.at));
            at.collect::<Vec<_>>()
        };
        Flaw::Deadlock { waiting: self.nodes.iter().enumerate().flat_map(waiting).collect() }
    }

    /// Lets a rank do all that it can. Returns whether something moved.
    pub(super) fn advance(&mut self, index: usize) -> Result<bool, Flaw> {
        let mut stepper = core::mem::take(&mut self.nodes[index].stepper);
        // The programs move out for as long as the stepper runs, because its ports borrow the
        // world.
        let programs = core::mem::take(&mut self.programs);
        let budget = match self.offloading {
            // Few operations at a time, so that ranks are at many different places.
            Offloading::Until(_) => 1,
            Offloading::Always | Offloading::Never => usize::MAX,
        };
        let progress =
            stepper.advance(&programs[index], &mut PortsOf { world: self, index }, budget);
        self.programs = programs;
        self.nodes[index].stepper = stepper;
        Ok(progress? == Progress::Moved)
    }

    fn send(&mut self, index: usize, lane: usize, to: Rank, src: Slice) -> Result<usize, Flaw> {
        let rank = Rank::at(index);
        if to.index() >= self.nodes.len() || to == rank || src.len == 0 {
            return Err(Flaw::Bounds { rank, slice: src });
        }
        let form = Form::of(src.buffer);
        let bytes = form.data_type(self.schedules[index].call()).bytes();
        let stream = self.shared.links[to.index()].entry((index, lane)).or_default();
        if let Some(taken) = stream.accept() {
            return Ok(taken);
        }
        let room = self.conditions.window_bytes.saturating_sub(stream.bytes) / bytes;
        let offers = self.conditions.offers && src.len * bytes > self.conditions.window_bytes;
        let accepted = if offers { 0 } else { room.min(src.len) };
        let elements = if offers { src.len } else { accepted };
        // Bytes of an earlier call may fill the link for now.
        let may_wait = accepted < src.len && stream.bytes == 0;
        if self.shares_memory && (may_wait || src.buffer != Buffer::Scratch) {
            return Err(Flaw::Token { rank, slice: src });
        }
        if elements == 0 {
            return Ok(0);
        }
        let clock = self.shared.races.as_mut().map(|races| races.publish((index, lane)));
        let part = src.take(elements);
        // A receiver may take an offer at any time from now on, so the elements must be there
        // already.
        let values = self.read_to_send(index, part)?;
        self.touch((index, lane), index, part, false)?;
        let node = &mut self.nodes[index];
        node.sent += elements;
        let depth = node.depth[lane] + 1;
        self.nodes[to.index()].is_awake = true;
        let stream = self.shared.links[to.index()].entry((index, lane)).or_default();
        stream.elements += elements;
        stream.bytes += elements * bytes;
        stream.marks.push_back(Mark { elements, form, depth, call: self.number });
        stream.clocks.extend(clock);
        if offers {
            stream.offer(part);
        } else {
            stream.runs.extend(values);
        }
        Ok(accepted)
    }

    fn recv(&mut self, index: usize, lane: usize, from: Rank, dst: Slice) -> Result<usize, Flaw> {
        let dst = dst.take(self.arrived(index, lane, from)?);
        let values = self.take(index, lane, from, Form::of(dst.buffer), (dst, true))?;
        if dst.len > 0 {
            self.touch((index, lane), index, dst, true)?;
        }
        self.write(index, dst, values)?;
        Ok(dst.len)
    }

    fn put(&mut self, index: usize, lane: usize, to: Rank, src: Slice) -> Result<(), Flaw> {
        let rank = Rank::at(index);
        if to.index() >= self.nodes.len() || to == rank || src.buffer != Buffer::Output {
            return Err(Flaw::Bounds { rank, slice: src });
        }
        let values = self.read(index, src)?;
        self.touch((index, lane), index, src, false)?;
        self.touch((index, lane), to.index(), src, true)?;
        self.write(to.index(), src, values)?;
        self.nodes[index].sent += src.len;
        Ok(())
    }

    fn get(
        &mut self,
        index: usize,
        lane: usize,
        from: Rank,
        src: Slice,
        dst: Slice,
    ) -> Result<(), Flaw> {
        let rank = Rank::at(index);
        let exists = from.index() < self.nodes.len() && from != rank;
        let is_own = matches!(dst.buffer, Buffer::Scratch | Buffer::Rounded);
        if !exists || src.buffer != Buffer::Staging || is_own {
            return Err(Flaw::Bounds { rank, slice: src });
        }
        let values = self.read_of(index, from.index(), src)?;
        self.touch((index, lane), from.index(), src, false)?;
        self.touch((index, lane), index, dst, true)?;
        self.write(index, dst, shifted(values, src, dst))?;
        self.nodes[index].sent += src.len;
        Ok(())
    }

    fn copy(&mut self, index: usize, lane: usize, src: Slice, dst: Slice) -> Result<(), Flaw> {
        let forms = [src, dst].map(|slice| Form::of(slice.buffer));
        if forms[0] != forms[1] && self.schedules[index].call().collective.reduces() {
            let rank = Rank::at(index);
            return Err(Flaw::Form { rank, from: rank });
        }
        let values = self.read(index, src)?;
        self.touch((index, lane), index, src, false)?;
        self.touch((index, lane), index, dst, true)?;
        self.write(index, dst, shifted(values, src, dst))
    }

    fn signal(&mut self, index: usize, lane: usize) -> Result<(), Flaw> {
        let flaw = Flaw::Signal { rank: Rank::at(index) };
        let Shared { races: Some(races), signals: Some(signals), .. } = &mut self.shared else {
            return Err(flaw);
        };
        if !self.shares_memory {
            return Err(flaw);
        }
        if self.schedules[index].lanes().len() > 1 {
            return Err(flaw);
        }
        let clock = races.publish((index, lane));
        signals.signal((index, self.number), clock, self.nodes[index].depth[lane] + 1)?;
        self.nodes[index].sent += 1;
        self.nodes.iter_mut().for_each(|node| node.is_awake = true);
        Ok(())
    }

    fn wait(&mut self, index: usize, lane: usize, from: Rank) -> Result<bool, Flaw> {
        let (rank, at) = (Rank::at(index), from.index());
        if at >= self.nodes.len() || from == rank {
            return Err(Flaw::Bounds { rank, slice: Slice::new(Buffer::Staging, 0, 0) });
        }
        let Shared { races: Some(races), signals: Some(signals), .. } = &mut self.shared else {
            return Err(Flaw::Signal { rank });
        };
        let signal = signals.wait((index, self.number), at)?;
        let Some((clock, depth)) = signal else { return Ok(false) };
        races.observe((index, lane), &clock);
        let node = &mut self.nodes[index];
        node.depth[lane] = node.depth[lane].max(depth);
        Ok(true)
    }

    fn swap(&mut self, index: usize) -> Result<(), Flaw> {
        if self.nodes.len() != 2 {
            return Err(Flaw::Swap { rank: Rank::at(index) });
        }
        self.shared.swapped[index] ^= true;
        Ok(())
    }

    fn reduce(
        &mut self,
        index: usize,
        lane: usize,
        Reduction { dst, sources, done, .. }: Reduction<'_>,
    ) -> Result<usize, Flaw> {
        let rank = Rank::at(index);
        let elements = sources.iter().try_fold(dst.len, |least, source| match source {
            Source::Wire(from, _) => Ok(least.min(self.arrived(index, lane, *from)?)),
            Source::Local(_) | Source::Peer(..) => Ok(least),
        })?;
        if elements == 0 {
            return Ok(0);
        }
        let dst = dst.take(elements);
        // Two sources would read the same elements of one wire.
        let wire = |source: &Source| match source {
            Source::Wire(from, _) => Some(*from),
            Source::Local(_) | Source::Peer(..) => None,
        };
        for (at, source) in sources.iter().enumerate() {
            let from = wire(source);
            if from.is_some() && sources[..at].iter().any(|before| wire(before) == from) {
                return Err(Flaw::Twice { rank, slice: dst });
            }
        }
        let in_order = self.schedules[index].call().collective.is_scan();
        let mut total: Option<Vec<Run>> = None;
        for source in sources {
            let values = match *source {
                Source::Wire(from, form) => self.take(index, lane, from, form, (dst, false))?,
                Source::Local(whole) => {
                    let slice = whole.skip(done).take(elements);
                    let apart = slice.end() <= dst.offset || dst.end() <= slice.offset;
                    if slice.len != elements || slice.buffer == dst.buffer && slice != dst && !apart
                    {
                        return Err(Flaw::Bounds { rank, slice });
                    }
                    self.touch((index, lane), index, slice, false)?;
                    shifted(self.read(index, slice)?, slice, dst)
                }
                Source::Peer(of, whole) => {
                    let slice = whole.skip(done).take(elements);
                    let exists = of.index() < self.nodes.len() && of != rank;
                    let is_own = matches!(slice.buffer, Buffer::Scratch | Buffer::Rounded);
                    if !exists || slice.len != elements || is_own {
                        return Err(Flaw::Bounds { rank, slice });
                    }
                    self.touch((index, lane), of.index(), slice, false)?;
                    shifted(self.read_of(index, of.index(), slice)?, slice, dst)
                }
            };
            total = Some(match total {
                None => values,
                Some(before) => combine(&before, &values, in_order, (rank, dst))?,
            });
        }
        let mut values = total.unwrap_or_default();
        for (_, value) in &mut values {
            if value.finished {
                return Err(Flaw::Mixed { rank, slice: dst });
            }
            match dst.buffer {
                Buffer::Scratch => {}
                Buffer::Rounded => value.fold = value.fold.rounded(),
                _ => (value.finished, value.fold) = (true, value.fold.finished()),
            }
        }
        self.touch((index, lane), index, dst, true)?;
        self.write(index, dst, values)?;
        Ok(elements)
    }

    /// Number of elements of this call on the wire from `from`.
    fn arrived(&self, index: usize, lane: usize, from: Rank) -> Result<usize, Flaw> {
        let Some(stream) = self.shared.links[index].get(&(from.index(), lane)) else {
            return Ok(0);
        };
        stream.arrived(self.number).ok_or_else(|| Flaw::Foreign { rank: Rank::at(index), from })
    }

    /// Takes elements off the wire, which are there, and gives them shifts for the place of `dst`.
    /// They are kept there as they are, or combined.
    fn take(
        &mut self,
        index: usize,
        lane: usize,
        from: Rank,
        form: Form,
        (dst, is_kept): (Slice, bool),
    ) -> Result<Vec<Run>, Flaw> {
        let call = *self.schedules[index].call();
        if dst.len == 0 {
            return Ok(Vec::new());
        }
        let bytes = form.data_type(&call).bytes();
        let node = &mut self.nodes[index];
        if !node.expectations.receive((lane, from), dst, bytes, is_kept) {
            return Err(Flaw::Expected { rank: Rank::at(index), slice: dst });
        }
        self.nodes[from.index()].is_awake = true;
        let link = (from.index(), lane);
        let offered = self.shared.links[index].get_mut(&link);
        let offered = offered.and_then(|stream| stream.take_offered(dst.len));
        let offered = offered.map(|src| self.read_to_send(from.index(), src)).transpose()?;
        let node = &mut self.nodes[index];
        let Some(stream) = self.shared.links[index].get_mut(&link) else { return Ok(Vec::new()) };
        stream.runs.extend(offered.into_iter().flatten());
        stream.elements -= dst.len;
        let mut values = Vec::new();
        let mut missing = dst.len;
        while missing > 0 {
            let Some(mark) = stream.marks.front_mut() else { break };
            if mark.form != form {
                return Err(Flaw::Form { rank: Rank::at(index), from });
            }
            node.depth[lane] = node.depth[lane].max(mark.depth);
            let part = missing.min(mark.elements);
            let taken = cut(&mut stream.runs, part);
            stream.bytes -= part * form.data_type(&call).bytes();
            missing -= part;
            mark.elements -= part;
            if let (Some(races), Some(clock)) = (&mut self.shared.races, stream.clocks.front()) {
                races.observe((index, lane), clock);
            }
            if mark.elements == 0 {
                stream.marks.pop_front();
                stream.clocks.pop_front();
            }
            values.extend(taken);
        }
        let mut position = dst.offset.cast_signed();
        for (len, value) in &mut values {
            value.shift -= position;
            position += len.cast_signed();
            if call.collective == Collective::Barrier {
                node.entered = node.entered.union(&value.from);
            }
        }
        Ok(values)
    }
}

impl Ports for PortsOf<'_, '_> {
    type Error = Flaw;

    fn exchange(&mut self, with: Rank, src: Slice, dst: Slice) -> Result<Exchanged, Flaw> {
        let bytes =
            src.len * Form::Element.data_type(self.world.schedules[self.index].call()).bytes();
        let link = self.world.shared.links[with.index()].get(&(self.index, 0));
        let earlier = link.map_or(0, |stream| stream.bytes);
        if earlier + bytes > self.world.conditions.window_bytes {
            return Ok(Exchanged::Nothing);
        }
        self.send(0, with, src, false)?;
        let sources = [Source::Local(src), Source::Wire(with, Form::Element)];
        let reduction = Reduction { dst, sources: &sources, done: 0, in_lines: true };
        let is_there = self.world.arrived(self.index, 0, with)? >= dst.len;
        if is_there {
            self.reduce(0, reduction)?;
        }
        Ok(if is_there { Exchanged::Both } else { Exchanged::Sent })
    }

    fn send(&mut self, lane: usize, to: Rank, src: Slice, _: bool) -> Result<usize, Flaw> {
        self.world.send(self.index, lane, to, src)
    }

    fn expect(&mut self, lane: usize, from: Rank, skip: usize, dst: Slice) -> bool {
        self.world.nodes[self.index].expectations.expect((lane, from), skip, dst)
    }

    fn receive(&mut self, lane: usize, from: Rank, dst: Slice, _: Stores) -> Result<usize, Flaw> {
        self.world.recv(self.index, lane, from, dst)
    }

    fn copy(&mut self, lane: usize, src: Slice, dst: Slice, _: Stores) -> Result<(), Flaw> {
        self.world.copy(self.index, lane, src, dst)
    }

    fn reduce(&mut self, lane: usize, reduction: Reduction<'_>) -> Result<usize, Flaw> {
        self.world.reduce(self.index, lane, reduction)
    }

    fn reduce_to_all(
        &mut self,
        lane: usize,
        dst: Slice,
        sources: &[Source],
        _: Stores,
    ) -> Result<(), Flaw> {
        let reduction = Reduction { dst, sources, done: 0, in_lines: false };
        self.world.reduce(self.index, lane, reduction)?;
        let others = (0..self.world.nodes.len()).filter(|other| *other != self.index);
        others.map(Rank::at).try_for_each(|to| self.world.put(self.index, lane, to, dst))
    }

    fn put(&mut self, lane: usize, to: Rank, src: Slice) -> Result<(), Flaw> {
        self.world.put(self.index, lane, to, src)
    }

    fn get(
        &mut self,
        lane: usize,
        from: Rank,
        src: Slice,
        dst: Slice,
        _: Stores,
    ) -> Result<(), Flaw> {
        self.world.get(self.index, lane, from, src, dst)
    }

    fn signal(&mut self, lane: usize) -> Result<(), Flaw> {
        self.world.signal(self.index, lane)
    }

    fn wait(&mut self, lane: usize, from: Rank) -> Result<bool, Flaw> {
        self.world.wait(self.index, lane, from)
    }

    fn swap(&mut self) -> Result<(), Flaw> {
        self.world.swap(self.index)
    }

    fn post(&mut self, lane: usize, src: Slice, dst: Slice) -> Result<bool, Flaw> {
        self.world.post(self.index, lane, src, dst)
    }

    fn take_result(&mut self, lane: usize, dst: Slice) -> Result<bool, Flaw> {
        self.world.take_result(self.index, lane, dst)
    }
}
