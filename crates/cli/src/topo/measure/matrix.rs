//! The probe matrix: rounds pair the hosts, and each pair probes its NICs.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use ringfold::{Communicator, Config};
use ringfold_bootstrap::{Secret, discover};
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

use super::connection::{self, Flow, Listener, Tokens};
use super::flows;
use super::nic::Endpoint;
use super::progress::Progress;
use crate::gather::all_gather;
use crate::rounds::rounds;

/// The most rounds. Hosts without a common round are not measured with each other.
const ROUNDS_MAX: usize = 32;
/// The most rounds with flows. A flow takes a fraction of a second, and a round has many.
const FLOW_ROUNDS_MAX: usize = 8;

/// A probe between two NICs, the low end's first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Probe {
    pub(super) ends: [usize; 2],
    pub(super) nics: [usize; 2],
    /// One-way latency of 8 bytes in nanoseconds; `None` without an answer.
    pub(super) nanos: Option<u64>,
}

/// One end's report about flows that ran at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Carried {
    pub(super) ends: [usize; 2],
    /// The number of the step in the round, which joins the reports of both ends.
    pub(super) step: usize,
    /// The NICs and the result of each flow; `None` if it broke.
    pub(super) flows: Vec<([usize; 2], Option<Flow>)>,
}

/// The results of all rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct MatrixResults {
    pub(super) probes: Vec<Probe>,
    pub(super) carried: Vec<Carried>,
    /// Whether every host was paired with every other.
    pub(super) is_complete: bool,
}

/// The inputs of all pairings.
pub(super) struct ProbeMatrix<'a> {
    ends: &'a [Endpoint],
    /// This rank's index among `ends`; `None` if another rank measures on its host.
    own: Option<usize>,
    secret: Secret,
    /// Distinguishes this run from others with the same secret.
    nonce: String,
}

/// This rank's pairing in a round.
struct Pairing<'a> {
    matrix: &'a ProbeMatrix<'a>,
    round: usize,
    ends: [usize; 2],
    is_low: bool,
    /// The listener of each of this rank's NICs.
    listeners: Vec<io::Result<(Listener, SocketAddr)>>,
    /// The address of each of the peer's listeners, by NIC.
    theirs: Vec<Option<SocketAddr>>,
}

impl<'a> ProbeMatrix<'a> {
    pub(super) fn new(
        config: &Config,
        comm: &mut Communicator,
        ends: &'a [Endpoint],
    ) -> anyhow::Result<Self> {
        let variable = |name: &str| config.environment.get(name).cloned();
        let secret = discover(&variable)?.secret(&variable, config.join_timeout)?;
        let mut nonce = [0_u8; 32];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        comm.broadcast(&mut nonce, Rank(0))?;
        let nonce = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        let own = ends.iter().position(|end| end.rank == comm.rank());
        Ok(Self { ends, own, secret, nonce })
    }

    /// Runs all rounds. Every rank calls this.
    pub(super) fn all(&self, comm: &mut Communicator) -> anyhow::Result<MatrixResults> {
        let is_complete = rounds(self.ends.len(), usize::MAX).len() <= ROUNDS_MAX;
        let rounds = rounds(self.ends.len(), ROUNDS_MAX);
        let mut progress = Progress::new(comm.rank() == Rank(0), rounds.len());
        let (mut probes, mut carried) = (Vec::new(), Vec::new());
        for (number, round) in rounds.enumerate() {
            progress.next_round();
            let pairing = self.pairing(comm, number, &round)?;
            let own = self.probe(comm, &round, pairing.as_ref(), &mut progress)?;
            let found: Vec<Probe> = all_gather(comm, &own)?.concat();
            if number < FLOW_ROUNDS_MAX {
                let own = self.flow(comm, &round, pairing.as_ref(), &found, &mut progress)?;
                carried.extend(all_gather(comm, &own)?.concat());
            }
            probes.extend(found);
        }
        Ok(MatrixResults { probes, carried, is_complete })
    }

    /// Listens on each NIC, and learns the addresses of the peer's listeners.
    fn pairing(
        &self,
        comm: &mut Communicator,
        round: usize,
        pairs: &[(usize, usize)],
    ) -> anyhow::Result<Option<Pairing<'_>>> {
        let own = pairs.iter().find(|pair| self.own.is_some_and(|it| pair.0 == it || pair.1 == it));
        let nics = own.and(self.own).map_or(&[][..], |own| &self.ends[own].nics);
        let listeners: Vec<_> = nics.iter().map(Listener::open).collect();
        let addresses: Vec<Option<SocketAddr>> = listeners
            .iter()
            .map(|listener| listener.as_ref().ok().map(|(_, address)| *address))
            .collect();
        let mut all = all_gather(comm, &addresses)?;
        let Some(&(low, high)) = own else { return Ok(None) };
        let is_low = self.own == Some(low);
        let other = self.ends[if is_low { high } else { low }].rank;
        let theirs = std::mem::take(&mut all[other.index()]);
        Ok(Some(Pairing { matrix: self, round, ends: [low, high], is_low, listeners, theirs }))
    }

    /// Probes every NIC with every NIC of the peer. A NIC is in one probe at a time.
    fn probe(
        &self,
        comm: &mut Communicator,
        pairs: &[(usize, usize)],
        pairing: Option<&Pairing<'_>>,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Probe>> {
        let nics = |end: usize| self.ends[end].nics.len();
        let most = |pair: &(usize, usize)| nics(pair.0).max(nics(pair.1));
        let steps = pairs.iter().map(most).max().unwrap_or(0);
        let mut found = Vec::new();
        for step in 0..steps {
            progress.show("probes", step, steps);
            if let Some(pairing) = pairing {
                let [low, high] = pairing.ends.map(nics);
                let most = low.max(high);
                let other = |nic: usize| [nic, (nic + step) % most];
                let tried = (0..low).map(other).filter(|pair| step < most && pair[1] < high);
                let tried: Vec<_> = tried.collect();
                let times = pairing.at_once(step, &tried, |pairing, label, pair| {
                    connection::trips(&mut pairing.connect(label, pair)?, pairing.is_low)
                });
                let probe = |(nics, time): (&[usize; 2], io::Result<Duration>)| Probe {
                    ends: pairing.ends,
                    nics: *nics,
                    nanos: time.ok().and_then(|time| u64::try_from(time.as_nanos()).ok()),
                };
                if pairing.is_low {
                    found.extend(tried.iter().zip(times).map(probe));
                }
            }
            all_gather(comm, &true)?;
            // Each NIC of the end with fewer NICs was in a probe.
            let fewer = |pair: &(usize, usize)| nics(pair.0).min(nics(pair.1));
            progress.probed(pairs.iter().filter(|pair| step < most(pair)).map(fewer).sum());
        }
        Ok(found)
    }

    /// Measures each rail alone, and each two rails at once.
    fn flow(
        &self,
        comm: &mut Communicator,
        pairs: &[(usize, usize)],
        pairing: Option<&Pairing<'_>>,
        probes: &[Probe],
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Carried>> {
        let chosen = |ends: [usize; 2]| {
            let answered = probes.iter().filter(|it| it.ends == ends && it.nanos.is_some());
            flows::choose(&answered.map(|probe| probe.nics).collect::<BTreeSet<_>>())
        };
        let count = |pair: &(usize, usize)| flows::steps(chosen([pair.0, pair.1]).len()).len();
        let steps = pairs.iter().map(count).max().unwrap_or(0);
        let of_pairing = pairing.map(|pairing| {
            let chosen = chosen(pairing.ends);
            let steps = flows::steps(chosen.len());
            (pairing, chosen, steps)
        });
        let mut found = Vec::new();
        for step in 0..steps {
            progress.show("flows", step, steps);
            if let Some((pairing, chosen, steps)) = &of_pairing
                && let Some(at_once) = steps.get(step)
            {
                let nics: Vec<_> = at_once.iter().map(|flow| chosen[*flow]).collect();
                // Labels of probes and of flows differ.
                let results = pairing.at_once(usize::MAX - step, &nics, |pairing, label, pair| {
                    let mut stream = pairing.connect(label, pair)?;
                    let run = if pairing.is_low { connection::send } else { connection::receive };
                    run(&mut stream)
                });
                let flows = nics.into_iter().zip(connection::flows(&results)).collect();
                found.push(Carried { ends: pairing.ends, step, flows });
            }
            all_gather(comm, &true)?;
        }
        Ok(found)
    }
}

impl Pairing<'_> {
    /// Runs a function on several pairs of NICs at once.
    fn at_once<T: Send>(
        &self,
        step: usize,
        pairs: &[[usize; 2]],
        run: impl Fn(&Self, &str, [usize; 2]) -> io::Result<T> + Sync,
    ) -> Vec<io::Result<T>> {
        let (run, round) = (&run, self.round);
        let [low, high] = self.ends;
        thread::scope(|scope| {
            let threads: Vec<_> = pairs
                .iter()
                .map(|&pair| {
                    let [one, other] = pair;
                    let nonce = &self.matrix.nonce;
                    let label = format!("{nonce} {round} {step} {low} {high} {one} {other}");
                    scope.spawn(move || run(self, &label, pair))
                })
                .collect();
            let panicked = |_| Err(io::Error::other("the thread of a probe panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        })
    }

    /// Connects two NICs. The low end dials.
    fn connect(&self, label: &str, [low, high]: [usize; 2]) -> io::Result<std::net::TcpStream> {
        let token = |end| self.matrix.secret.derive(&["measure", label, end]);
        let tokens = Tokens { low: token("low"), high: token("high") };
        let own = &self.matrix.ends[self.ends[usize::from(!self.is_low)]].nics;
        if self.is_low {
            let closed = || io::Error::other("the peer does not listen on this NIC");
            let to = self.theirs.get(high).copied().flatten().ok_or_else(closed)?;
            return connection::dial(&own[low], to, &tokens);
        }
        match &self.listeners[high] {
            Ok((listener, _)) => listener.accept(&tokens),
            Err(error) => Err(error.kind().into()),
        }
    }
}
