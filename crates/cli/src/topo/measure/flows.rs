//! The flows between the two hosts of a pairing: one for each NIC, alone and two at once.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use ringfold_transport::trial::{self, Failed};
use ringfold_transport::{Link, Transport};
use serde::{Deserialize, Serialize};

use crate::probe::ProbeError;

/// Duration of a flow's start, which burst allowances may speed up, and which does not count.
const WARM_UP: Duration = Duration::from_millis(60);
/// The shortest time that the flows of a step must run together.
const COUNTED_MIN: Duration = Duration::from_millis(60);
/// CPU time is the limit of a flow if its thread ran, or waited for a CPU, for more than this part.
const CPU_SHARE_MAX: f64 = 0.8;
/// Measurements of each flow, and of each two at once. A busy machine slows some of them.
const REPEATS: usize = 3;

/// Returns the pairs of NICs that carry a flow, the low end's NIC first. No NIC is in two pairs.
/// `reached` has the pairs that answered.
pub(super) fn choose(reached: &BTreeSet<[usize; 2]>) -> Vec<[usize; 2]> {
    let mut chosen: Vec<[usize; 2]> = Vec::new();
    let is_equal = |pair: &&[usize; 2]| pair[0] == pair[1];
    let equal = reached.iter().filter(is_equal);
    let other = reached.iter().filter(|pair| !is_equal(pair));
    for pair in equal.chain(other) {
        if chosen.iter().all(|busy| busy[0] != pair[0] && busy[1] != pair[1]) {
            chosen.push(*pair);
        }
    }
    chosen
}

/// Returns the steps of a pairing with `flows` flows: the indices of the flows that run at once.
pub(super) fn steps(flows: usize) -> Vec<Vec<usize>> {
    let alone = (0..flows).map(|flow| vec![flow]);
    let two = (0..flows).flat_map(|one| (one + 1..flows).map(move |other| vec![one, other]));
    let once: Vec<_> = alone.chain(two).collect();
    once.iter().cycle().take(REPEATS * once.len()).cloned().collect()
}

/// One end's result of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Bytes per second, as received; 0 at the sender.
    pub(super) rate: f64,
    /// Whether CPU time was the limit.
    pub(super) is_starved: bool,
}

/// One end's record of a flow.
pub(super) struct Half {
    /// The time and number of received bytes; empty at the sender.
    arrivals: Vec<(Instant, usize)>,
    is_starved: bool,
}

/// Runs one end of a flow.
pub(super) fn run(transport: &mut dyn Transport, link: Link, begins: bool) -> Result<Half, Failed> {
    let (start, before) = (Instant::now(), Cpu::used());
    let arrivals = trial::flow(transport, link, begins)?;
    // A receiver that still waits for the first bytes needs no CPU.
    let start = arrivals.first().map_or(start, |(at, _)| *at);
    Ok(Half { arrivals, is_starved: before.is_starved(start.elapsed()) })
}

/// Returns the rate of each flow in the time when all of them ran. It is `None` for a flow that
/// broke, and for all flows if they did not run together.
pub(super) fn rates(halves: &[Result<Half, ProbeError>]) -> Vec<Option<Flow>> {
    let arrivals = halves.iter().flatten().map(|half| &half.arrivals);
    let received: Vec<_> = arrivals.filter(|arrivals| !arrivals.is_empty()).collect();
    let start = received.iter().map(|arrivals| arrivals[0].0).max().map(|it| it + WARM_UP);
    let end = received.iter().map(|arrivals| arrivals[arrivals.len() - 1].0).min();
    let took = start.zip(end).map(|(start, end)| end.saturating_duration_since(start));
    let flow = |half: &Result<Half, ProbeError>| {
        let Half { arrivals, is_starved } = half.as_ref().ok()?;
        let is_starved = *is_starved;
        let (Some(start), Some(end), Some(took)) = (start, end, took) else {
            return Some(Flow { rate: 0.0, is_starved });
        };
        let counts = |(at, _): &&(Instant, usize)| *at > start && *at <= end;
        let bytes: usize = arrivals.iter().filter(counts).map(|(_, bytes)| bytes).sum();
        let rate = bytes as f64 / took.as_secs_f64();
        (took >= COUNTED_MIN).then_some(Flow { rate, is_starved })
    };
    halves.iter().map(flow).collect()
}

/// Time that this thread ran or waited for a CPU, as the kernel reports it.
struct Cpu(Duration);

impl Cpu {
    fn used() -> Self {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanos = text.split_whitespace().take(2).filter_map(|word| word.parse::<u64>().ok());
        Self(Duration::from_nanos(nanos.sum()))
    }

    fn is_starved(&self, of: Duration) -> bool {
        let used = Self::used().0.saturating_sub(self.0);
        used.as_secs_f64() > CPU_SHARE_MAX * of.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_is_in_one_flow() {
        let all = (0..3).flat_map(|low| (0..4).map(move |high| [low, high])).collect();
        assert_eq!(choose(&all), [[0, 0], [1, 1], [2, 2]]);
        let crossed = BTreeSet::from([[0, 1], [1, 0], [2, 2]]);
        assert_eq!(choose(&crossed), [[2, 2], [0, 1], [1, 0]]);
        assert!(choose(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn each_flow_runs_alone_and_with_each_other() {
        assert!(steps(0).is_empty());
        assert_eq!(steps(1), vec![vec![0]; REPEATS]);
        assert_eq!(steps(3)[..6], [vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![1, 2]]);
        assert_eq!(steps(3).len(), 6 * REPEATS);
    }

    /// A flow of 1 MB/s between two times in milliseconds.
    fn half(from: u64, to: u64, start: Instant) -> Result<Half, ProbeError> {
        let at = |millis| start + Duration::from_millis(millis);
        let arrivals = (from..=to).map(|millis| (at(millis), 1000)).collect();
        Ok(Half { arrivals, is_starved: false })
    }

    #[test]
    fn only_time_in_which_all_flows_ran_counts() {
        let start = Instant::now();
        let rounded = |halves: &[Result<Half, ProbeError>]| -> Vec<Option<f64>> {
            rates(halves).iter().map(|flow| flow.map(|flow| flow.rate.round())).collect()
        };
        let both = [half(0, 300, start), half(100, 400, start)];
        assert_eq!(rounded(&both), [Some(1e6); 2]);
        // Bytes before the other flow began or after it ended do not count.
        let burst = Ok(Half { arrivals: vec![(start, 1 << 30)], is_starved: false });
        let mut halves = [burst, half(100, 400, start)];
        halves[0].as_mut().unwrap().arrivals.extend(half(300, 301, start).unwrap().arrivals);
        assert!(rounded(&halves)[0].unwrap() < 1e5);
        assert_eq!(rounded(&[half(0, 200, start), half(200, 400, start)]), [None; 2]);
        assert_eq!(rounded(&[half(0, 300, start), Err(ProbeError::secondary("late"))])[1], None);
        let sent = Ok(Half { arrivals: Vec::new(), is_starved: true });
        assert_eq!(rates(&[sent]), [Some(Flow { rate: 0.0, is_starved: true })]);
    }
}
