//! The probe matrix: every endpoint probes all paths to every other, in rounds of disjoint pairs.

use std::collections::BTreeMap;
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use ringfold::{Communicator, Config};
use ringfold_bootstrap::discover;
use ringfold_topology::Layout;
use ringfold_transport::rdma::Port;
use ringfold_transport::trial::Figures;
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

use super::endpoint::Endpoint;
use super::probe::{Probe, ProbeError};
use crate::gather::all_gather;
use crate::rounds::rounds;

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

/// A rank's result of a path, in a form that can be serialized.
#[derive(Serialize, Deserialize)]
struct Outcome {
    /// Index of the pair's lower endpoint.
    low: usize,
    /// Index of its higher endpoint.
    high: usize,
    /// Index of the path in the pair.
    path: usize,
    /// Latency in nanoseconds, and bytes per second.
    result: Result<(u64, f64), ProbeError>,
}

/// The results of all rounds.
pub(super) struct MatrixResults {
    pub(super) pairs: Vec<Pair>,
    pub(super) rounds: usize,
    /// Whether every endpoint was paired with every other.
    pub(super) is_complete: bool,
}

/// The most rounds. A round takes a fraction of a second for each working path and about ten
/// seconds for a broken one.
const ROUNDS_MAX: usize = 32;

/// The inputs of all probes.
pub(super) struct ProbeMatrix<'a> {
    pub(super) config: &'a Config,
    /// This host's address for the job's setup.
    pub(super) near: Option<IpAddr>,
    pub(super) ends: &'a [Endpoint],
}

impl ProbeMatrix<'_> {
    /// Probes all paths of all pairs. The pairs of a round have no endpoint in common and run at
    /// the same time. Every rank calls this.
    pub(super) fn all(&self, comm: &mut Communicator) -> anyhow::Result<MatrixResults> {
        let variable = |name: &str| self.config.environment.get(name).cloned();
        let secret = discover(&variable)?.secret(&variable, self.config.join_timeout)?;
        // The nonce keeps the keys of two runs distinct.
        let mut nonce = [0_u8; 32];
        getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
        comm.broadcast(&mut nonce, Rank(0))?;
        let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        let (mut found, mut pairs) = (Vec::new(), BTreeMap::new());
        let is_complete = rounds(self.ends.len(), usize::MAX).len() <= ROUNDS_MAX;
        let mut probed = 0;
        for round in rounds(self.ends.len(), ROUNDS_MAX) {
            let round = self.pairs(round, comm.layout());
            probed += usize::from(!round.is_empty());
            let own = comm.rank();
            let mine = round.iter().find_map(|pair| Some((pair, self.other(pair, own)?)));
            let most = round.iter().map(|pair| pair.paths.len()).max().unwrap_or(0);
            let mut works = true;
            for step in 0..most {
                let path =
                    mine.and_then(|(pair, other)| Some((pair, other, pair.paths.get(step)?)));
                let Some((&Pair { low, high, .. }, other, path)) = path else {
                    all_gather::<Vec<SocketAddr>>(comm, &Vec::new())?;
                    continue;
                };
                let label = format!("{nonce} {low} {high} {step}");
                let (config, near) = (self.config, self.near);
                let (key, size) = (secret.derive(&["doctor", &label]), comm.size());
                let port = path.rail.map(|(one, another)| match own < other {
                    true => &self.ends[low].ports[one],
                    false => &self.ends[high].ports[another],
                });
                let probe = Probe { own, other, size, key, config, port, near };
                let result = self.run(comm, &probe, works)?;
                // Every other path is set up over tcp.
                works &= step > 0 || result.is_ok();
                let result = result.map(|it| (nanos(it.latency), it.bytes_per_second));
                found.push(Outcome { low, high, path: step, result });
            }
            pairs.extend(round.into_iter().map(|pair| ((pair.low, pair.high), pair)));
        }
        for (rank, outcomes) in all_gather(comm, &found)?.into_iter().enumerate() {
            self.record(Rank::at(rank), outcomes, &mut pairs);
        }
        Ok(MatrixResults { pairs: pairs.into_values().collect(), rounds: probed, is_complete })
    }

    /// Returns the pairs of a round with their paths, without pairs that share memory.
    fn pairs(&self, round: Vec<(usize, usize)>, layout: &Layout) -> Vec<Pair> {
        let share_memory = |(low, high): &(usize, usize)| {
            let (low, high) = (&self.ends[*low], &self.ends[*high]);
            low.info.shm && high.info.shm && layout.same_host(low.rank, high.rank)
        };
        let pair = |(low, high): (usize, usize)| {
            let rails = Port::pairs(&self.ends[low].ports, &self.ends[high].ports);
            let paths = iter::once(None).chain(rails.into_iter().map(Some));
            let missing = || Err(ProbeError::secondary("no rank reported a result of the probe"));
            let paths = paths.map(|rail| Path { rail, low: missing(), high: missing() }).collect();
            Pair { low, high, paths }
        };
        round.into_iter().filter(|pair| !share_memory(pair)).map(pair).collect()
    }

    /// Returns the peer of `rank` in a pair, or `None` if `rank` is not in it.
    fn other(&self, pair: &Pair, rank: Rank) -> Option<Rank> {
        let (low, high) = (self.ends[pair.low].rank, self.ends[pair.high].rank);
        match rank {
            _ if rank == low => Some(high),
            _ if rank == high => Some(low),
            _ => None,
        }
    }

    /// Exchanges addresses with the other rank, and probes one path if that `may_work`.
    fn run(
        &self,
        comm: &mut Communicator,
        probe: &Probe<'_>,
        may_work: bool,
    ) -> anyhow::Result<Result<Figures, ProbeError>> {
        let address = self.near.context("there is no network interface")?;
        let own = may_work.then(|| probe.listen(address));
        let addresses = match &own {
            Some(Ok(listener)) => listener.addresses().to_vec(),
            _ => Vec::new(),
        };
        let mut listeners = all_gather(comm, &addresses)?;
        let theirs = std::mem::take(&mut listeners[probe.other.index()]);
        Ok(match own {
            None => Err(ProbeError::secondary("not probed, because tcp does not work")),
            Some(Ok(_)) if theirs.is_empty() => {
                Err(ProbeError::secondary("the peer did not probe"))
            }
            Some(Ok(listener)) => probe.run(listener, theirs),
            Some(Err(why)) => Err(why.into()),
        })
    }

    /// Stores the outcomes that a rank reported.
    fn record(
        &self,
        rank: Rank,
        outcomes: Vec<Outcome>,
        pairs: &mut BTreeMap<(usize, usize), Pair>,
    ) {
        for Outcome { low, high, path, result } in outcomes {
            let pair = pairs.get_mut(&(low, high));
            let Some((other, pair)) = pair.and_then(|it| Some((self.other(it, rank)?, it))) else {
                continue;
            };
            let Some(path) = pair.paths.get_mut(path) else { continue };
            let found = result.map(|(nanos, bytes_per_second)| Figures {
                latency: Duration::from_nanos(nanos),
                bytes_per_second,
            });
            *(if rank < other { &mut path.low } else { &mut path.high }) = found;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
