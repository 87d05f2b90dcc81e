//! The bytes that the processes of a job send, and the time that they wait, from two looks at their
//! records.

use std::time::Duration;

use ringfold_types::Way;

use crate::records::{Job, Process};
use crate::units;

/// The bytes by one way, and its losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) way: Way,
    /// Bytes per second between the looks.
    pub(crate) rate: u64,
    /// How often others took the place of the way, since the process began.
    pub(crate) failovers: u64,
}

/// The ways that a process used between the looks, or that it has lost.
pub(crate) fn sent(before: Option<&Process>, now: &Process) -> Vec<Sent> {
    let nanos = before.map_or(0, |before| now.now[1].saturating_sub(before.now[1]));
    let ways = Way::all().zip(&now.record.traffic).enumerate();
    let all = ways.map(|(index, (way, [bytes, failovers]))| {
        let earlier = before.and_then(|it| it.record.traffic.get(index)).map_or(*bytes, |it| it[0]);
        let more = u128::from(bytes.saturating_sub(earlier)) * 1_000_000_000;
        let rate = u64::try_from(more / u128::from(nanos.max(1))).unwrap_or(u64::MAX);
        Sent { way, rate, failovers: *failovers }
    });
    all.filter(|it| it.rate > 0 || it.failovers > 0).collect()
}

/// The traffic of all processes of a job.
pub(crate) fn sent_by_all(earlier: Option<&Job>, job: &Job) -> Vec<Sent> {
    let mut all = Vec::<Sent>::new();
    for process in &job.processes {
        let before = earlier.and_then(|job| job.processes.iter().find(|it| it.is(process)));
        for more in sent(before, process) {
            match all.iter_mut().find(|it| it.way == more.way) {
                Some(known) => {
                    known.rate = known.rate.saturating_add(more.rate);
                    known.failovers = known.failovers.saturating_add(more.failovers);
                }
                None => all.push(more),
            }
        }
    }
    all.sort_by_key(|it| it.way.index());
    all
}

/// The time for which the calls of a process have waited. A wait counts once it has ended.
pub(crate) fn waited(process: &Process) -> Duration {
    Duration::from_nanos(process.record.waited)
}

/// A way as text: `tcp rail 1`.
pub(crate) fn name(way: Way) -> String {
    let rail = way.rail().map_or_else(String::new, |rail| format!(" rail {rail}"));
    format!("{}{rail}", way.transport())
}

/// A line about traffic: `sends: shm 1.2 GB/s, tcp rail 1 3 MB/s; failovers: rdma rail 0: 2`.
pub(crate) fn line(sent: &[Sent]) -> String {
    let rates: Vec<_> = sent
        .iter()
        .filter(|it| it.rate > 0)
        .map(|it| format!("{} {}", name(it.way), units::byte_rate(it.rate)))
        .collect();
    let rates = if rates.is_empty() { "nothing".to_owned() } else { rates.join(", ") };
    let lost: Vec<_> = sent
        .iter()
        .filter(|it| it.failovers > 0)
        .map(|it| format!("{}: {}", name(it.way), it.failovers))
        .collect();
    let lost = if lost.is_empty() { "none".to_owned() } else { lost.join(", ") };
    format!("sends: {rates}; failovers: {lost}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rates_and_failovers_of_ways() {
        let sent = [
            Sent { way: Way::Shm, rate: 1_250_000_000, failovers: 0 },
            Sent { way: Way::Tcp(Some(1)), rate: 3_000_000, failovers: 0 },
            Sent { way: Way::Rdma(0), rate: 0, failovers: 2 },
        ];
        let said = "sends: shm 1.25 GB/s, tcp rail 1 3 MB/s; failovers: rdma rail 0: 2";
        assert_eq!(line(&sent), said);
        assert_eq!(line(&[]), "sends: nothing; failovers: none");
    }
}
