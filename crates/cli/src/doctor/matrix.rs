//! The probe matrix: every endpoint probes all paths to every other, in rounds of disjoint pairs.

use std::iter;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use ringfold::{Communicator, Config};
use ringfold_topology::Layout;
use ringfold_transport::rdma::Port;
use ringfold_transport::trial::{self, Figures};

use super::endpoint::Endpoint;
use crate::gather::all_gather;
use crate::probe::{self, Pairing, ProbeError, Prober};

/// Two endpoints, and the paths between them: tcp and their common rails.
pub(super) struct Pair {
    /// Index of the lower endpoint.
    pub(super) low: usize,
    /// Index of the higher endpoint.
    pub(super) high: usize,
    pub(super) paths: Vec<Path>,
}

/// A path between two endpoints, with the result of each.
pub(super) struct Path {
    /// The index of each end's port; `None` for tcp.
    pub(super) rail: Option<(usize, usize)>,
    pub(super) low: Result<Figures, ProbeError>,
    pub(super) high: Result<Figures, ProbeError>,
}

/// The results of all rounds.
pub(super) struct MatrixResults {
    pub(super) pairs: Vec<Pair>,
    pub(super) rounds: usize,
    /// Whether every endpoint was paired with every other.
    pub(super) is_complete: bool,
}

/// Probes all paths of all pairs. `near` is this host's address for the job's setup. Every rank
/// calls this.
pub(super) fn probe(
    comm: &mut Communicator,
    config: &Config,
    near: Option<IpAddr>,
    ends: &[Endpoint],
) -> anyhow::Result<MatrixResults> {
    let mut prober = Prober::new(config, comm, ends.iter().map(|end| end.rank).collect())?;
    let (mut all, mut probed) = (Vec::new(), 0);
    for round in prober.rounds() {
        let mut pairs = pairs(ends, &round, prober.comm.layout());
        probed += usize::from(!pairs.is_empty());
        let names: Vec<_> = pairs.iter().map(|pair| (pair.low, pair.high)).collect();
        let pairing = prober.pairing(&names);
        let mine =
            pairing.and_then(|it| pairs.iter().find(|pair| it.ends == [pair.low, pair.high]));
        let steps = pairs.iter().map(|pair| pair.paths.len()).max().unwrap_or(0);
        let mut found: Vec<Result<(Duration, f64), ProbeError>> = Vec::new();
        for step in 0..steps {
            let rail = mine.and_then(|pair| Some(pair.paths.get(step)?.rail));
            // Every other path is set up over tcp.
            let may_work = !matches!(found.first(), Some(Err(_)));
            let path = rail.filter(|_| may_work).map(|rail| -> anyhow::Result<_> {
                let address = near.context("there is no network interface")?;
                let port = |(pairing, (one, other)): (Pairing, _)| {
                    &ends[pairing.own()].ports[if pairing.is_low { one } else { other }]
                };
                let rdma = pairing.zip(rail).map(|it| (port(it), near));
                Ok(probe::Path { address, interface: None, rdma })
            });
            let path = path.transpose()?;
            let mut results = prober.step(pairing, path.as_slice(), trial::run)?;
            if rail.is_some() {
                let skipped =
                    || Err(ProbeError::secondary("not probed, because tcp does not work"));
                let result = results.pop().unwrap_or_else(skipped);
                found.push(result.map(|it| (it.latency, it.bytes_per_second)));
            }
        }
        let mut found = all_gather(prober.comm, &found)?;
        for pair in &mut pairs {
            let [low, high] =
                [pair.low, pair.high].map(|end| std::mem::take(&mut found[ends[end].rank.index()]));
            let figures = |(latency, bytes_per_second)| Figures { latency, bytes_per_second };
            for ((path, low), high) in pair.paths.iter_mut().zip(low).zip(high) {
                (path.low, path.high) = (low.map(figures), high.map(figures));
            }
        }
        all.extend(pairs);
    }
    all.sort_by_key(|pair| (pair.low, pair.high));
    Ok(MatrixResults { pairs: all, rounds: probed, is_complete: prober.is_complete() })
}

/// Returns the pairs of a round with their paths, without pairs that share memory.
fn pairs(ends: &[Endpoint], round: &[(usize, usize)], layout: &Layout) -> Vec<Pair> {
    let share_memory = |(low, high): &(usize, usize)| {
        let (low, high) = (&ends[*low], &ends[*high]);
        low.info.shm && high.info.shm && layout.same_host(low.rank, high.rank)
    };
    let pair = |&(low, high): &(usize, usize)| {
        let rails = Port::pairs(&ends[low].ports, &ends[high].ports);
        let paths = iter::once(None).chain(rails.into_iter().map(Some));
        let missing = || Err(ProbeError::secondary("no rank reported a result of the probe"));
        let paths = paths.map(|rail| Path { rail, low: missing(), high: missing() }).collect();
        Pair { low, high, paths }
    };
    round.iter().filter(|pair| !share_memory(pair)).map(pair).collect()
}
