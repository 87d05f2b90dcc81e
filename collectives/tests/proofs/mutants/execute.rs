//! Runs the schedules of all ranks on real numbers: two calls in a row, in a random order of
//! events.
//!
//! It shares nothing with `check` but `lower` and the stepper. It decides everything by chance that
//! may vary: the lane that moves next, how much of a message a link accepts and a receiver takes,
//! and whether a receiver reads a rendezvous send ahead. One rank may also be in the second call
//! while another is still in the first.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ringfold_collectives::check::Conditions;
use ringfold_collectives::schedule::{Form, Source};
use ringfold_collectives::{
    Exchanged, Ports, Program, Reduction, Schedule, Stepper, Stores, Target, lower,
};
use ringfold_types::limits::{STAGING_BYTES, STAGING_HALF_BYTES};
use ringfold_types::{Buffer, Collective, DataType, Rank, Slice};

use ringfold_harness::Random;

/// Calls in a row.
const CALLS: usize = 2;

/// The numbers that are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Small integers, whose sums are exact. They show which inputs a result contains.
    Exact,
    /// Floats of all sizes, whose sums depend on their order.
    Rounded,
}

/// Runs all ranks once. Returns the bits of all outputs, by call and rank, if they are right.
///
/// # Errors
/// The failure, in words.
pub(crate) fn execute(
    schedules: &[Schedule],
    conditions: Conditions,
    numbers: Numbers,
    random: Random,
) -> Result<Vec<Vec<u32>>, String> {
    let is_known = matches!(schedules[0].call().data_type, DataType::F32 | DataType::Bf16);
    assert!(is_known, "only f32 and bf16 can be executed");
    Job::new(schedules, conditions, numbers, random).run()
}

struct Job<'s> {
    schedules: &'s [Schedule],
    programs: Rc<[Program]>,
    conditions: Conditions,
    numbers: Numbers,
    random: Random,
    ranks: Vec<Member>,
    /// By sender, receiver and lane.
    links: BTreeMap<(usize, usize, usize), Link>,
    /// Whether a rank has offered a rendezvous send since the last question. No element has moved
    /// yet.
    has_offered: bool,
    outputs: Vec<Vec<u32>>,
}

struct Member {
    stepper: Stepper,
    /// The call that the rank is in; `CALLS` after the last.
    call: usize,
    /// Input, then output. In place, both begin at their offsets in one memory.
    user: Vec<f32>,
    scratch: Vec<f32>,
    rounded: Vec<f32>,
    stage: BTreeMap<usize, f32>,
    has_turned: bool,
    has_traded: bool,
    told: usize,
    heard: Vec<usize>,
}

#[derive(Default)]
struct Link {
    accepted: VecDeque<(Form, f32)>,
    offer: Option<Offer>,
}

struct Offer {
    /// The part that the receiver has not taken.
    left: Slice,
    /// The values of that part at the time of the offer, if the receiver has read them then.
    ahead: Option<VecDeque<f32>>,
    /// Elements that the receiver has taken since the sender last asked.
    taken: usize,
}

/// A number that no sum hides. It stands for unwritten values, and for values of another form than
/// the reader expects.
const GARBAGE: f32 = f32::NAN;

/// Stands in for division and rounding. The result is wrong if a schedule does it twice or never.
fn finish(sum: f32) -> f32 {
    2.0 * sum + 1.0
}

/// The nearest `bf16`, and the even one of two.
fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// The ports of one rank. They do all that is possible, or a random part of it.
struct Hands<'j, 's> {
    job: &'j mut Job<'s>,
    rank: usize,
    all: bool,
}

impl Ports for Hands<'_, '_> {
    type Error = String;

    fn exchange(&mut self, with: Rank, src: Slice, dst: Slice) -> Result<Exchanged, String> {
        let fits = src.len * DataType::F32.bytes() <= self.job.conditions.window_bytes;
        if !fits || self.job.random.below(2) == 0 {
            return Ok(Exchanged::Nothing);
        }
        self.send(0, with, src, false)?;
        let link = (self.job.other(self.rank, with)?, self.rank, 0);
        if self.job.arrived(link) < dst.len {
            return Ok(Exchanged::Sent);
        }
        let sources = [Source::Local(src), Source::Wire(with, Form::Element)];
        self.job.reduce((self.rank, 0), dst, &sources, 0, true)?;
        Ok(Exchanged::Both)
    }

    fn send(&mut self, lane: usize, to: Rank, src: Slice, _: bool) -> Result<usize, String> {
        let to = self.job.other(self.rank, to)?;
        self.job.send((self.rank, to, lane), src, self.all)
    }

    fn receive(&mut self, lane: usize, from: Rank, dst: Slice, _: Stores) -> Result<usize, String> {
        let link = (self.job.other(self.rank, from)?, self.rank, lane);
        let there = self.job.arrived(link).min(dst.len);
        let dst = dst.take(self.job.some(there, self.all));
        let form = self.job.form(Form::of(dst.buffer));
        let values = self.job.take(link, dst.len, form)?;
        self.job.write(self.rank, self.rank, dst, &values)?;
        Ok(dst.len)
    }

    fn copy(&mut self, _: usize, src: Slice, dst: Slice, _: Stores) -> Result<(), String> {
        let mut values = self.job.read(self.rank, self.rank, src)?;
        if self.job.form(Form::of(src.buffer)) != self.job.form(Form::of(dst.buffer)) {
            values.fill(GARBAGE);
        }
        self.job.write(self.rank, self.rank, dst, &values)
    }

    fn reduce(&mut self, lane: usize, reduction: Reduction<'_>) -> Result<usize, String> {
        let Reduction { dst, sources, done, .. } = reduction;
        self.job.reduce((self.rank, lane), dst, sources, done, self.all)
    }

    fn reduce_to_all(
        &mut self,
        lane: usize,
        dst: Slice,
        sources: &[Source],
        _: Stores,
    ) -> Result<(), String> {
        self.job.reduce((self.rank, lane), dst, sources, 0, true)?;
        let (size, rank) = (self.job.ranks.len(), self.rank);
        let others = (0..size).filter(|other| *other != rank);
        others.map(Rank::at).try_for_each(|to| self.put(lane, to, dst))
    }

    fn put(&mut self, _: usize, to: Rank, src: Slice) -> Result<(), String> {
        let values = self.job.read(self.rank, self.rank, src)?;
        let to = self.job.other(self.rank, to)?;
        self.job.write(self.rank, to, src, &values)
    }

    fn get(
        &mut self,
        _: usize,
        from: Rank,
        src: Slice,
        dst: Slice,
        _: Stores,
    ) -> Result<(), String> {
        let from = self.job.other(self.rank, from)?;
        let values = self.job.read(self.rank, from, src)?;
        self.job.write(self.rank, self.rank, dst, &values)
    }

    fn signal(&mut self, _: usize) -> Result<(), String> {
        self.job.ranks[self.rank].told += 1;
        Ok(())
    }

    fn wait(&mut self, _: usize, from: Rank) -> Result<bool, String> {
        let from = self.job.other(self.rank, from)?;
        let is_told = self.job.ranks[from].told > self.job.ranks[self.rank].heard[from];
        self.job.ranks[self.rank].heard[from] += usize::from(is_told);
        Ok(is_told)
    }

    fn swap(&mut self) -> Result<(), String> {
        self.job.ranks[self.rank].has_traded ^= true;
        Ok(())
    }
}

impl<'s> Job<'s> {
    fn new(
        schedules: &'s [Schedule],
        conditions: Conditions,
        numbers: Numbers,
        random: Random,
    ) -> Self {
        let member = |schedule: &Schedule| Member {
            stepper: Stepper::new(),
            call: 0,
            user: Vec::new(),
            scratch: vec![GARBAGE; schedule.scratch_len()],
            rounded: vec![GARBAGE; schedule.rounded_len()],
            stage: BTreeMap::new(),
            has_turned: false,
            has_traded: false,
            told: 0,
            heard: vec![0; schedules.len()],
        };
        let ranks = schedules.iter().map(member).collect();
        let (links, has_offered, outputs) = (BTreeMap::new(), false, Vec::new());
        // Such a call works on a copy of its input.
        let works = schedules[0].call().collective.works_in_place();
        let conditions = Conditions { in_place: conditions.in_place && works, ..conditions };
        let Conditions { in_place, offers: rendezvous, .. } = conditions;
        let target = Target { in_place, rendezvous, shares_memory: true, announces: None };
        let programs = schedules.iter().map(|schedule| lower(schedule, target)).collect();
        Self {
            schedules,
            programs,
            conditions,
            numbers,
            random,
            ranks,
            links,
            has_offered,
            outputs,
        }
    }

    fn run(mut self) -> Result<Vec<Vec<u32>>, String> {
        self.outputs.resize(CALLS * self.ranks.len(), Vec::new());
        (0..self.ranks.len()).for_each(|rank| self.begin(rank));
        while self.ranks.iter().any(|rank| rank.call < CALLS) {
            let mut moved = false;
            for _ in 0..4 * self.ranks.len() {
                let rank = self.random.below(self.ranks.len());
                let lane = self.random.below(self.schedules[rank].lanes().len());
                moved |= self.sweep(rank, lane, false)?;
            }
            if moved {
                continue;
            }
            // By chance, no lane may have moved so far.
            for rank in 0..self.ranks.len() {
                for lane in 0..self.schedules[rank].lanes().len() {
                    moved |= self.sweep(rank, lane, true)?;
                }
            }
            if !moved {
                return Err("all ranks wait for ever".to_owned());
            }
        }
        let is_left = |link: &Link| !link.accepted.is_empty() || link.offer.is_some();
        if self.links.values().any(is_left) {
            return Err("an element was never received".to_owned());
        }
        Ok(self.outputs)
    }

    /// The user of a rank writes its input and makes the call.
    fn begin(&mut self, rank: usize) {
        let (schedule, size) = (&self.schedules[rank], self.ranks.len());
        let call = schedule.call();
        let (input, output) = (call.input_len(size), call.output_len(size));
        let in_place = self.conditions.in_place;
        let number = self.ranks[rank].call;
        let values: Vec<f32> = (0..input).map(|at| self.input(number, rank, at)).collect();
        let len = if in_place { input.max(output) } else { input + output };
        let begin = self.begin_of(rank, Buffer::Input);
        let member = &mut self.ranks[rank];
        member.user = vec![GARBAGE; len];
        member.user[begin..begin + input].copy_from_slice(&values);
        member.scratch.fill(GARBAGE);
        member.rounded.fill(GARBAGE);
        member.stepper.start(&self.programs[rank]);
    }

    /// The user of a rank checks its output.
    fn end(&mut self, rank: usize) -> Result<(), String> {
        let (schedule, size) = (&self.schedules[rank], self.ranks.len());
        let (call, number) = (*schedule.call(), self.ranks[rank].call);
        if call.collective == Collective::Barrier {
            let missing = self.ranks.iter().position(|other| other.call < number);
            if let Some(missing) = missing {
                return Err(format!("rank {rank} left a barrier before rank {missing} entered"));
            }
        }
        let len = call.output_of(Rank::at(rank), size);
        let begin = self.begin_of(rank, Buffer::Output);
        let output = self.ranks[rank].user[begin..begin + len].to_vec();
        let is_sum = !call.summands(Rank::at(rank), size).is_empty();
        for (at, value) in output.iter().enumerate() {
            let right = match (self.numbers, self.expected(&call, number, rank, at)) {
                // The schedule alone decides the order of the sum.
                (Numbers::Rounded, _) if call.collective.reduces() && is_sum => !value.is_nan(),
                (_, expected) => value.to_bits() == expected.to_bits(),
            };
            if !right {
                return Err(format!("call {number}: rank {rank} has {value} in out[{at}]"));
            }
        }
        self.outputs[number * size + rank] = output.into_iter().map(f32::to_bits).collect();
        let first = &self.outputs[number * size];
        let is_other = |other: &Vec<u32>| !other.is_empty() && !first.is_empty() && other != first;
        let of_call = &self.outputs[number * size..(number + 1) * size];
        if call.collective == Collective::AllReduce && of_call.iter().any(is_other) {
            return Err(format!("call {number}: ranks have different bits"));
        }
        let member = &mut self.ranks[rank];
        member.has_turned ^= schedule.flips_staging();
        member.call += 1;
        // Until the next call, the user may write to the memory.
        member.user.fill(GARBAGE);
        if member.call < CALLS {
            self.begin(rank);
        }
        Ok(())
    }

    fn input(&self, call: usize, rank: usize, at: usize) -> f32 {
        let mut random = Random::new(((call as u64) << 48) + ((rank as u64) << 32) + at as u64);
        let value = f32::from(u16::try_from(1 + random.below(4095)).unwrap());
        match self.numbers {
            Numbers::Exact => value,
            Numbers::Rounded => {
                let power = 8 * i32::try_from(random.below(6)).unwrap() - 20;
                (value + 0.1) * 2_f32.powi(power)
            }
        }
    }

    fn expected(&self, call: &ringfold_types::Call, number: usize, rank: usize, at: usize) -> f32 {
        let size = self.ranks.len();
        let sum_of = |ranks: std::ops::Range<usize>, at: usize| {
            finish(ranks.map(|rank| self.input(number, rank, at)).sum())
        };
        let sum = |at: usize| sum_of(0..size, at);
        match call.collective {
            Collective::AllToAll => {
                self.input(number, at / call.count, rank * call.count + at % call.count)
            }
            Collective::Scatter => self.input(number, call.root.index(), rank * call.count + at),
            Collective::Scan => sum_of(0..rank + 1, at),
            Collective::Exscan if rank > 0 => sum_of(0..rank, at),
            // The output stays as it was.
            Collective::Exscan if self.conditions.in_place => self.input(number, 0, at),
            Collective::Exscan => GARBAGE,
            Collective::AllGather | Collective::Gather => {
                self.input(number, at / call.count, at % call.count)
            }
            Collective::Broadcast => self.input(number, call.root.index(), at),
            Collective::ReduceScatter => sum(rank * call.count + at),
            _ => sum(at),
        }
    }

    /// The offset of a buffer in the user's memory.
    fn begin_of(&self, rank: usize, buffer: Buffer) -> usize {
        let schedule = &self.schedules[rank];
        let at = schedule.overlay();
        match (buffer, self.conditions.in_place) {
            (Buffer::Input, true) => at.min(0).unsigned_abs(),
            (Buffer::Output, true) => at.max(0).unsigned_abs(),
            (Buffer::Output, false) => schedule.call().input_len(self.ranks.len()),
            _ => 0,
        }
    }

    fn read(&self, by: usize, of: usize, slice: Slice) -> Result<Vec<f32>, String> {
        let outside = || format!("rank {by} reads {slice} of rank {of}, out of bounds");
        match slice.buffer {
            Buffer::Scratch => self.ranks[of].scratch.get(slice.offset..slice.end()),
            Buffer::Rounded => self.ranks[of].rounded.get(slice.offset..slice.end()),
            Buffer::Staging => {
                let of = if self.ranks[by].has_traded { 1 - of } else { of };
                let places = self.stage_places(by, slice).ok_or_else(outside)?;
                let stage = &self.ranks[of].stage;
                let value = |place| stage.get(&place).copied().unwrap_or(GARBAGE);
                return Ok(places.map(value).collect());
            }
            buffer => {
                let begin = self.begin_of(of, buffer);
                self.ranks[of].user.get(begin + slice.offset..begin + slice.end())
            }
        }
        .map(<[f32]>::to_vec)
        .ok_or_else(outside)
    }

    fn write(&mut self, by: usize, of: usize, slice: Slice, values: &[f32]) -> Result<(), String> {
        let outside = || format!("rank {by} writes {slice} of rank {of}, out of bounds");
        let place = match slice.buffer {
            Buffer::Scratch => self.ranks[of].scratch.get_mut(slice.offset..slice.end()),
            Buffer::Rounded => self.ranks[of].rounded.get_mut(slice.offset..slice.end()),
            Buffer::Staging => {
                let of = if self.ranks[by].has_traded { 1 - of } else { of };
                let places = self.stage_places(by, slice).ok_or_else(outside)?;
                self.ranks[of].stage.extend(places.zip(values.iter().copied()));
                return Ok(());
            }
            buffer => {
                let begin = self.begin_of(of, buffer);
                self.ranks[of].user.get_mut(begin + slice.offset..begin + slice.end())
            }
        };
        place.ok_or_else(outside)?.copy_from_slice(values);
        Ok(())
    }

    /// The offsets of elements of a staging buffer, whose halves may have been swapped.
    fn stage_places(&self, by: usize, slice: Slice) -> Option<impl Iterator<Item = usize> + use<>> {
        let (all, half) = (STAGING_BYTES / 4, STAGING_HALF_BYTES / 4);
        let turn = if self.ranks[by].has_turned { half } else { 0 };
        (slice.end() <= all).then(|| (slice.offset..slice.end()).map(move |at| (at + turn) % all))
    }

    /// Lets a lane do all that it can, or, unless `all` is set, a random part of it.
    fn sweep(&mut self, rank: usize, lane: usize, all: bool) -> Result<bool, String> {
        if self.ranks[rank].call == CALLS {
            return Ok(false);
        }
        let programs = Rc::clone(&self.programs);
        let mut stepper = core::mem::take(&mut self.ranks[rank].stepper);
        let budget = if all { usize::MAX } else { 1 + self.random.below(4) };
        let mut hands = Hands { job: self, rank, all };
        let moved = stepper.advance_lane(&programs[rank], lane, &mut hands, budget);
        let is_done = stepper.is_done();
        self.ranks[rank].stepper = stepper;
        let moved = moved? || core::mem::take(&mut self.has_offered);
        if is_done {
            self.end(rank)?;
        }
        Ok(moved || is_done)
    }

    /// How many of the present elements are taken now.
    fn some(&mut self, there: usize, all: bool) -> usize {
        if all || self.random.below(2) == 0 { there } else { self.random.below(there + 1) }
    }

    /// The index of `other`, if it is another rank of the job.
    fn other(&self, rank: usize, other: Rank) -> Result<usize, String> {
        let is_there = other.index() < self.ranks.len() && other.index() != rank;
        is_there.then_some(other.index()).ok_or_else(|| format!("rank {rank} has no peer {other}"))
    }

    /// Collectives that do not combine have one form only.
    fn form(&self, form: Form) -> Form {
        if self.schedules[0].call().collective.reduces() { form } else { Form::Element }
    }

    fn send(
        &mut self,
        link: (usize, usize, usize),
        src: Slice,
        all: bool,
    ) -> Result<usize, String> {
        let offered = self.links.entry(link).or_default();
        if let Some(offer) = &mut offered.offer {
            let taken = core::mem::take(&mut offer.taken);
            if offer.left.len == 0 {
                offered.offer = None;
            }
            return Ok(taken);
        }
        let window = self.conditions.window_bytes / DataType::F32.bytes();
        let room = window.saturating_sub(offered.accepted.len()).min(src.len);
        if self.conditions.offers && src.len > window {
            let ahead = if self.random.below(2) == 0 { None } else { Some(()) };
            let ahead = ahead.map(|()| self.read(link.0, link.0, src)).transpose()?;
            let offer = Offer { left: src, ahead: ahead.map(VecDeque::from), taken: 0 };
            self.links.entry(link).or_default().offer = Some(offer);
            self.has_offered = true;
            return Ok(0);
        }
        // A message that fits an empty link is accepted as a whole. Schedules may rely on it.
        let fits = room == src.len;
        let src = src.take(if fits { room } else { self.some(room, all) });
        let form = self.form(Form::of(src.buffer));
        let values = self.read(link.0, link.0, src)?;
        let queue = &mut self.links.entry(link).or_default().accepted;
        queue.extend(values.into_iter().map(|value| (form, value)));
        Ok(src.len)
    }

    fn arrived(&self, link: (usize, usize, usize)) -> usize {
        let offered = |link: &Link| link.offer.as_ref().map_or(0, |offer| offer.left.len);
        self.links.get(&link).map_or(0, |link| link.accepted.len() + offered(link))
    }

    fn take(
        &mut self,
        at: (usize, usize, usize),
        elements: usize,
        form: Form,
    ) -> Result<Vec<f32>, String> {
        let Some(link) = self.links.get_mut(&at) else { return Ok(Vec::new()) };
        let there = elements.min(link.accepted.len());
        let of_form = |(sent, value): (Form, f32)| if sent == form { value } else { GARBAGE };
        let mut values: Vec<f32> = link.accepted.drain(..there).map(of_form).collect();
        let Some(offer) = link.offer.as_mut().filter(|_| there < elements) else {
            return Ok(values);
        };
        let part = offer.left.take(elements - there);
        offer.left = offer.left.skip(part.len);
        offer.taken += part.len;
        let ahead = offer.ahead.as_mut().map(|ahead| ahead.drain(..part.len).collect::<Vec<_>>());
        let mut more = match ahead {
            Some(ahead) => ahead,
            None => self.read(at.0, at.0, part)?,
        };
        if self.form(Form::of(part.buffer)) != form {
            more.fill(GARBAGE);
        }
        values.append(&mut more);
        Ok(values)
    }

    fn reduce(
        &mut self,
        (rank, lane): (usize, usize),
        dst: Slice,
        sources: &[Source],
        done: usize,
        all: bool,
    ) -> Result<usize, String> {
        let mut there = dst.len;
        for source in sources {
            if let Source::Wire(from, _) = source {
                there = there.min(self.arrived((self.other(rank, *from)?, rank, lane)));
            }
        }
        let has_wires = sources.iter().any(|source| matches!(source, Source::Wire(..)));
        let dst = dst.take(if has_wires { self.some(there, all) } else { there });
        let mut sum: Option<Vec<f32>> = None;
        for source in sources {
            let values = match *source {
                Source::Wire(from, form) => {
                    let link = (self.other(rank, from)?, rank, lane);
                    self.take(link, dst.len, self.form(form))?
                }
                Source::Local(whole) => self.read(rank, rank, whole.skip(done).take(dst.len))?,
                Source::Peer(of, whole) => {
                    let of = self.other(rank, of)?;
                    self.read(rank, of, whole.skip(done).take(dst.len))?
                }
            };
            if values.len() != dst.len {
                return Err(format!("rank {rank} has a source that is too short for {dst}"));
            }
            sum = Some(match sum {
                None => values,
                Some(sum) => sum.iter().zip(&values).map(|(a, b)| a + b).collect(),
            });
        }
        let mut sum = sum.unwrap_or_default();
        match dst.buffer {
            Buffer::Scratch => {}
            Buffer::Rounded if self.numbers == Numbers::Exact => {}
            Buffer::Rounded => sum.iter_mut().for_each(|value| *value = rounded(*value)),
            _ => sum.iter_mut().for_each(|value| *value = finish(*value)),
        }
        self.write(rank, rank, dst, &sum)?;
        Ok(dst.len)
    }
}
