//! Every end tries all ways to every other, some pairs at a time.

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

use super::end::End;
use super::trial::{By, Trouble};
use crate::rounds::rounds;
use crate::share::share;

/// Two ends, and the ways between them: tcp, and the rails that they have in common.
pub(super) struct Pair {
    /// Places among the ends.
    pub(super) low: usize,
    pub(super) high: usize,
    pub(super) ways: Vec<Way>,
}

/// A way between two ends, and what either found.
pub(super) struct Way {
    /// The port of either, by its place; else tcp.
    pub(super) rail: Option<(usize, usize)>,
    pub(super) low: Result<Figures, Trouble>,
    pub(super) high: Result<Figures, Trouble>,
}

/// What a rank found, to be sent: the pair's ends and the place of the way; nanoseconds and bytes
/// per second.
type Told = (usize, usize, usize, Result<(u64, f64), Trouble>);

/// What came of all rounds.
pub(super) struct Tried {
    pub(super) pairs: Vec<Pair>,
    pub(super) rounds: usize,
    /// Whether every end met every other.
    pub(super) is_all: bool,
}

/// Rounds at most: one takes a fraction of a second for each way, or some ten seconds where one is
/// broken, and there are as many as hosts.
const ROUNDS_MAX: usize = 32;

/// What all trials need.
pub(super) struct Tour<'a> {
    pub(super) config: &'a Config,
    /// The address by which ranks meet here.
    pub(super) near: Option<IpAddr>,
    pub(super) ends: &'a [End],
}

impl Tour<'_> {
    /// Tries all ways of all pairs; those of a round, which have no end in common, at the same
    /// time. To be called by all ranks.
    pub(super) fn all(&self, comm: &mut Communicator) -> anyhow::Result<Tried> {
        let variable = |name: &str| self.config.environment.get(name).cloned();
        let secret = discover(&variable)?.secret(&variable, self.config.join_timeout)?;
        // So that no two runs have a key in common.
        let mut nonce = [0_u8; 32];
        getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
        comm.broadcast(&mut nonce, Rank(0))?;
        let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        let (mut found, mut pairs) = (Vec::new(), BTreeMap::new());
        let is_all = rounds(self.ends.len(), usize::MAX).len() <= ROUNDS_MAX;
        let mut tried = 0;
        for round in rounds(self.ends.len(), ROUNDS_MAX) {
            let round = self.pairs(round, comm.layout());
            tried += usize::from(!round.is_empty());
            let own = comm.rank();
            let mine = round.iter().find_map(|pair| Some((pair, self.other(pair, own)?)));
            let most = round.iter().map(|pair| pair.ways.len()).max().unwrap_or(0);
            let mut works = true;
            for step in 0..most {
                let way = mine.and_then(|(pair, other)| Some((pair, other, pair.ways.get(step)?)));
                let Some((&Pair { low, high, .. }, other, way)) = way else {
                    share::<Vec<SocketAddr>>(comm, &Vec::new())?;
                    continue;
                };
                let label = format!("{nonce} {low} {high} {step}");
                let (config, near) = (self.config, self.near);
                let (key, size) = (secret.derive(&["doctor", &label]), comm.size());
                let port = way.rail.map(|(one, another)| match own < other {
                    true => &self.ends[low].ports[one],
                    false => &self.ends[high].ports[another],
                });
                let by = By { own, other, size, key, config, port, near };
                let result = self.meet(comm, &by, works)?;
                // Nothing can be set up without tcp.
                works &= step > 0 || result.is_ok();
                let result = result.map(|it| (nanos(it.latency), it.bytes_per_second));
                found.push((low, high, step, result));
            }
            pairs.extend(round.into_iter().map(|pair| ((pair.low, pair.high), pair)));
        }
        for (rank, told) in share(comm, &found)?.into_iter().enumerate() {
            self.hear(Rank::at(rank), told, &mut pairs);
        }
        Ok(Tried { pairs: pairs.into_values().collect(), rounds: tried, is_all })
    }

    /// The pairs of a round, but for those that share memory, and the ways between them.
    fn pairs(&self, round: Vec<(usize, usize)>, layout: &Layout) -> Vec<Pair> {
        let share_memory = |(low, high): &(usize, usize)| {
            let (low, high) = (&self.ends[*low], &self.ends[*high]);
            low.card.shm && high.card.shm && layout.same_host(low.rank, high.rank)
        };
        let pair = |(low, high): (usize, usize)| {
            let rails = Port::pairs(&self.ends[low].ports, &self.ends[high].ports);
            let ways = iter::once(None).chain(rails.into_iter().map(Some));
            let unheard = || Err(Trouble::told("nothing was heard of the trial"));
            let ways = ways.map(|rail| Way { rail, low: unheard(), high: unheard() }).collect();
            Pair { low, high, ways }
        };
        round.into_iter().filter(|pair| !share_memory(pair)).map(pair).collect()
    }

    /// Whom a rank meets that is one of the pair.
    fn other(&self, pair: &Pair, rank: Rank) -> Option<Rank> {
        let (low, high) = (self.ends[pair.low].rank, self.ends[pair.high].rank);
        match rank {
            _ if rank == low => Some(high),
            _ if rank == high => Some(low),
            _ => None,
        }
    }

    /// Meets the other rank, and tries one way, if that may work.
    fn meet(
        &self,
        comm: &mut Communicator,
        by: &By<'_>,
        may_work: bool,
    ) -> anyhow::Result<Result<Figures, Trouble>> {
        let address = self.near.context("there is no network interface")?;
        let own = may_work.then(|| by.door(address));
        let addresses = match &own {
            Some(Ok(door)) => door.addresses().to_vec(),
            _ => Vec::new(),
        };
        let mut doors = share(comm, &addresses)?;
        let theirs = std::mem::take(&mut doors[by.other.index()]);
        Ok(match own {
            None => Err(Trouble::told("not tried, as tcp does not work")),
            Some(Ok(_)) if theirs.is_empty() => Err(Trouble::told("the other end did not try")),
            Some(Ok(door)) => by.run(door, theirs),
            Some(Err(why)) => Err(why.into()),
        })
    }

    /// Takes note of what a rank found.
    fn hear(&self, rank: Rank, told: Vec<Told>, pairs: &mut BTreeMap<(usize, usize), Pair>) {
        for (low, high, step, found) in told {
            let pair = pairs.get_mut(&(low, high));
            let Some((other, pair)) = pair.and_then(|it| Some((self.other(it, rank)?, it))) else {
                continue;
            };
            let Some(way) = pair.ways.get_mut(step) else { continue };
            let found = found.map(|(nanos, bytes_per_second)| Figures {
                latency: Duration::from_nanos(nanos),
                bytes_per_second,
            });
            *(if rank < other { &mut way.low } else { &mut way.high }) = found;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
