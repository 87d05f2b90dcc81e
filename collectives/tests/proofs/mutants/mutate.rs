//! One random change to one step of one rank.

use std::fmt;

use ringfold_collectives::ScheduleParams;
use ringfold_collectives::offload::offload;
use ringfold_collectives::schedule::{Builder, Form, Schedule, Source, Step};
use ringfold_types::{Rank, Slice};

use ringfold_harness::Random;

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Two steps of a lane change places.
    Swap,
    /// A step is left out, often one that waits.
    Drop,
    /// A slice begins elsewhere.
    Offset,
    /// A step moves fewer elements.
    Length,
    /// Two sources of a reduction change places.
    Sources,
    /// A step moves to another lane.
    Lane,
    /// A step gets another peer.
    Peer,
    /// A step is done twice.
    Again,
    /// The halves of the staging buffer are flipped where they should stay, or the other way round.
    Flip,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Swap,
        Self::Drop,
        Self::Offset,
        Self::Length,
        Self::Sources,
        Self::Lane,
        Self::Peer,
        Self::Again,
        Self::Flip,
    ];
}

/// A schedule taken apart.
#[derive(Clone, PartialEq)]
pub(crate) struct Parts {
    lanes: Vec<Vec<(Step, Vec<Source>)>>,
    flips: bool,
}

impl Parts {
    pub(crate) fn of(schedule: &Schedule) -> Self {
        let with_sources = |step: &Step| match step {
            Step::Reduce { dst, sources } => {
                (Step::Reduce { dst: *dst, sources: 0..0 }, schedule.sources(sources).to_vec())
            }
            step => (step.clone(), Vec::new()),
        };
        let lanes = schedule.lanes().iter();
        let lanes = lanes.map(|steps| steps.iter().map(with_sources).collect()).collect();
        Self { lanes, flips: schedule.flips_staging() }
    }

    /// A schedule put together again.
    pub(crate) fn build(&self, plan: &ScheduleParams<'_>, of: &Schedule) -> Schedule {
        let mut steps = Builder::new(plan, "mutant", self.lanes.len());
        steps.scratch(of.scratch_len());
        steps.sums(of.rounded_len(), Form::Element);
        steps.groups_of(of);
        for (lane, parts) in self.lanes.iter().enumerate() {
            steps.lane(lane);
            for (step, sources) in parts {
                // The algorithm has merged messages already, where it wanted to.
                steps.part();
                match step.clone() {
                    Step::Send { to, src } => steps.send(to, src),
                    Step::Recv { from, dst } => steps.recv(from, dst),
                    Step::Copy { src, dst } => steps.copy(src, dst),
                    Step::Reduce { dst, .. } => steps.reduce(dst, sources),
                    Step::Put { to, src } => steps.put(to, src),
                    Step::Get { from, src, dst } => steps.get(from, src, dst),
                    Step::Signal => steps.signal(),
                    Step::Wait { from } => steps.wait(from),
                    Step::Swap => steps.swap_staging(),
                    Step::Offload { src, dst } => offload(&mut steps, src, dst),
                }
            }
        }
        if self.flips {
            steps.flip_staging();
        }
        steps.build()
    }

    /// Makes a change of this kind, if one is possible. Returns it in words.
    pub(crate) fn change(
        &mut self,
        kind: Kind,
        size: usize,
        random: &mut Random,
    ) -> Option<String> {
        if kind == Kind::Flip {
            self.flips ^= true;
            return Some("flips staging otherwise".to_owned());
        }
        let lanes = self.lanes.len();
        let lane = random.below(lanes);
        let steps = &mut self.lanes[lane];
        if steps.is_empty() {
            return None;
        }
        let at = random.below(steps.len());
        let what = format!("lane {lane} step {at}");
        match kind {
            Kind::Swap => {
                let other = if random.below(2) == 0 { at + 1 } else { random.below(steps.len()) };
                if other >= steps.len() || steps[at] == steps[other] {
                    return None;
                }
                steps.swap(at, other);
                return Some(format!("{what} and {other}"));
            }
            Kind::Drop => drop(steps.remove(at)),
            Kind::Again => steps.insert(at, steps[at].clone()),
            Kind::Lane => {
                let step = (lanes > 1).then(|| steps.remove(at))?;
                let steps = &mut self.lanes[(lane + 1 + random.below(lanes - 1)) % lanes];
                steps.insert(random.below(steps.len() + 1), step);
            }
            Kind::Sources => {
                let sources = &mut steps[at].1;
                let first = (sources.len() > 1).then(|| random.below(sources.len() - 1))?;
                let last = first + 1 + random.below(sources.len() - 1 - first);
                sources.swap(first, last);
                return Some(format!("{what} sources {first} and {last}"));
            }
            Kind::Offset => {
                let mut slices = slices(&mut steps[at]);
                let slice = pick(&mut slices, random)?;
                let by = 1 + random.below(3);
                slice.offset = match random.below(2) {
                    0 => slice.offset.checked_sub(by)?,
                    _ => slice.offset + by,
                };
            }
            Kind::Length => {
                let mut slices = slices(&mut steps[at]);
                let len = slices.iter().map(|slice| slice.len).min().filter(|len| *len > 1)?;
                let len = 1 + random.below(len - 1);
                slices.iter_mut().for_each(|slice| slice.len = len);
            }
            Kind::Peer => {
                let mut peers = peers(&mut steps[at]);
                let peer = pick(&mut peers, random)?;
                **peer = Rank::at((peer.index() + 1 + random.below(size - 1)) % size);
            }
            Kind::Flip => {}
        }
        Some(what)
    }
}

fn pick<'a, 'b, T>(of: &'a mut [&'b mut T], random: &mut Random) -> Option<&'a mut &'b mut T> {
    if of.is_empty() { None } else { Some(&mut of[random.below(of.len())]) }
}

fn slices((step, sources): &mut (Step, Vec<Source>)) -> Vec<&mut Slice> {
    let of_sources = sources.iter_mut().filter_map(|source| match source {
        Source::Local(slice) | Source::Peer(_, slice) => Some(slice),
        Source::Wire(..) => None,
    });
    let of_step = match step {
        Step::Send { src, .. } | Step::Put { src, .. } => vec![src],
        Step::Recv { dst, .. } | Step::Reduce { dst, .. } => vec![dst],
        Step::Copy { src, dst } | Step::Get { src, dst, .. } => vec![src, dst],
        Step::Offload { src, dst } => vec![src, dst],
        Step::Signal | Step::Wait { .. } | Step::Swap => Vec::new(),
    };
    of_step.into_iter().chain(of_sources).collect()
}

fn peers((step, sources): &mut (Step, Vec<Source>)) -> Vec<&mut Rank> {
    let of_sources = sources.iter_mut().filter_map(|source| match source {
        Source::Wire(rank, _) | Source::Peer(rank, _) => Some(rank),
        Source::Local(_) => None,
    });
    let of_step = match step {
        Step::Send { to: rank, .. } | Step::Put { to: rank, .. } => Some(rank),
        Step::Recv { from: rank, .. }
        | Step::Wait { from: rank }
        | Step::Get { from: rank, .. } => Some(rank),
        Step::Copy { .. }
        | Step::Reduce { .. }
        | Step::Offload { .. }
        | Step::Signal
        | Step::Swap => None,
    };
    of_step.into_iter().chain(of_sources).collect()
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
