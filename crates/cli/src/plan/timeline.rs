//! The timeline of schedules, if a link carries one message in a step and all else takes no time.

use std::collections::{HashMap, VecDeque};

use ringfold_collectives::Schedule;
use ringfold_collectives::schedule::{Source, Step};
use ringfold_types::{Buffer, Rank, ReduceOp, Slice};

/// The actions of each rank in each step: `[step - 1][rank]`, one line for each action, in order.
/// A message is sent and received in the same step, unless the receiver is late.
pub(super) type Timeline = Vec<Vec<Vec<String>>>;

/// Messages in flight, by receiver, sender and lane, or `SIGNALS`.
type Links = HashMap<(usize, usize, usize), Link>;

/// The pseudo-lane of signals.
const SIGNALS: usize = usize::MAX;

#[derive(Default)]
struct Link {
    /// Elements of each message, and the step in which the link carries it.
    messages: VecDeque<(usize, usize)>,
    /// The last step in which the link carried a message.
    busy: usize,
}

/// Plays proven schedules. In a flawed schedule, a receive without a send ends its lane.
pub(super) fn timeline(schedules: &[Schedule]) -> Timeline {
    let mut lanes: Vec<Lane<'_>> = schedules
        .iter()
        .flat_map(|schedule| (0..schedule.lanes().len()).map(move |lane| (schedule, lane)))
        .map(|(schedule, lane)| Lane { schedule, lane, next: 0, step: 0 })
        .collect();
    let (mut links, mut timeline) = (Links::new(), Timeline::new());
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for lane in &mut lanes {
            while let Some((at, text)) = lane.play(&mut links) {
                moved = true;
                if timeline.len() < at {
                    timeline.resize(at, vec![Vec::new(); schedules.len()]);
                }
                timeline[at - 1][lane.schedule.rank().index()].push(text);
            }
        }
    }
    timeline
}

struct Lane<'s> {
    schedule: &'s Schedule,
    lane: usize,
    /// Index of the lane's next step.
    next: usize,
    /// The timeline's step of the latest message that the lane received.
    step: usize,
}

impl Lane<'_> {
    /// Runs the lane's next step if its messages have been sent. Returns its place in the timeline
    /// and its description.
    fn play(&mut self, links: &mut Links) -> Option<(usize, String)> {
        let step = self.schedule.lanes()[self.lane].get(self.next)?;
        let own = self.schedule.rank().index();
        let mut at = self.step.max(1);
        match step {
            Step::Send { to, src } => {
                let link = links.entry((to.index(), own, self.lane)).or_default();
                at = self.step.max(link.busy) + 1;
                link.messages.push_back((src.len, at));
                link.busy = at;
            }
            Step::Signal => {
                at = self.step + 1;
                for other in (0..self.schedule.size()).filter(|other| *other != own) {
                    links.entry((other, own, SIGNALS)).or_default().messages.push_back((1, at));
                }
            }
            Step::Wait { from } => at = self.take(links, &[*from], SIGNALS, 1)?,
            Step::Recv { from, dst } => at = self.take(links, &[*from], self.lane, dst.len)?,
            Step::Reduce { dst, sources } => {
                let sources = self.schedule.sources(sources).iter();
                let from = sources.filter_map(|source| match source {
                    Source::Wire(from, _) => Some(*from),
                    Source::Local(_) | Source::Peer(..) => None,
                });
                at = self.take(links, &from.collect::<Vec<_>>(), self.lane, dst.len)?.max(1);
            }
            Step::Copy { .. }
            | Step::Put { .. }
            | Step::Get { .. }
            | Step::Offload { .. }
            | Step::Swap => {}
        }
        self.next += 1;
        let text = self.describe(step);
        Some((at, text))
    }

    /// Takes `len` elements of a lane from each of some ranks, if all of them were sent. Returns
    /// the step in which the last one arrives.
    fn take(&mut self, links: &mut Links, from: &[Rank], lane: usize, len: usize) -> Option<usize> {
        let key = |from: &Rank| (self.schedule.rank().index(), from.index(), lane);
        let there = |from: &Rank| -> usize {
            let link = links.get(&key(from));
            link.map_or(0, |link| link.messages.iter().map(|message| message.0).sum())
        };
        if from.iter().any(|from| there(from) < len) {
            return None;
        }
        let mut step = self.step;
        for link in from.iter().map(key) {
            let (mut missing, messages) = (len, &mut links.get_mut(&link)?.messages);
            while missing > 0 {
                let (elements, at) = messages.front_mut()?;
                let part = missing.min(*elements);
                step = step.max(*at);
                missing -= part;
                *elements -= part;
                if *elements == 0 {
                    messages.pop_front();
                }
            }
        }
        self.step = step;
        Some(step)
    }

    fn describe(&self, step: &Step) -> String {
        let text = match step {
            Step::Send { to, src } => format!("{} -> #{to}", name(*src)),
            Step::Recv { from, dst } => format!("{} = #{from}", name(*dst)),
            Step::Copy { src, dst } => format!("{} = {}", name(*dst), name(*src)),
            Step::Put { to, src } => format!("#{to}.{0} = {0}", name(*src)),
            Step::Get { from, src, dst } => format!("{} = #{from}.{}", name(*dst), name(*src)),
            Step::Signal => "signal all".to_owned(),
            Step::Wait { from } => format!("wait #{from}"),
            Step::Swap => "swap staging".to_owned(),
            Step::Offload { src, dst } => format!("{} = offload {}", name(*dst), name(*src)),
            Step::Reduce { dst, sources } => {
                let op = self.schedule.call().op;
                let sources = self.schedule.sources(sources).iter().map(|source| match source {
                    Source::Local(slice) => name(*slice),
                    Source::Wire(from, _) => format!("#{from}"),
                    Source::Peer(of, slice) => format!("#{of}.{}", name(*slice)),
                });
                let sources: Vec<String> = sources.collect();
                let combined = sources.join(match op {
                    ReduceOp::Prod => " * ",
                    ReduceOp::Min => " min ",
                    ReduceOp::Max => " max ",
                    _ => " + ",
                });
                match (op, dst.buffer) {
                    (ReduceOp::Avg, Buffer::Output | Buffer::Staging) => {
                        format!("{} = ({combined}) / {}", name(*dst), self.schedule.size())
                    }
                    _ => format!("{} = {combined}", name(*dst)),
                }
            }
        };
        if self.schedule.lanes().len() > 1 { format!("{}: {text}", self.lane) } else { text }
    }
}

/// Formats a slice, shorter than its `Display`.
fn name(slice: Slice) -> String {
    let buffer = match slice.buffer {
        Buffer::Input => "in",
        Buffer::Output => "out",
        Buffer::Scratch => "s",
        Buffer::Rounded => "r",
        Buffer::Staging => "staging",
    };
    format!("{buffer}[{}..{}]", slice.offset, slice.end())
}
