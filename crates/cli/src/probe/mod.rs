//! Probes between the hosts of a job, for `doctor` and `topo --measure`.
//!
//! One rank probes for each endpoint. A round pairs each endpoint with one other. In each step of a
//! round, a pair probes some paths at once, and the pairs do so at the same time.
//!
//! * `path`: the probe of one path; `rounds`: pairs the endpoints.

mod path;
mod rounds;

use std::io;
use std::net::SocketAddr;
use std::thread;

use ringfold::{Communicator, Config};
use ringfold_bootstrap::{Secret, discover};
use ringfold_transport::tcp::Listening;
use ringfold_transport::trial::Failed;
use ringfold_transport::{Link, Transport};
use ringfold_types::Rank;

use self::path::Probe;
pub(crate) use self::path::{Path, ProbeError, loopback};
use crate::gather::all_gather;

/// The most rounds. A round takes a fraction of a second for each step and about ten seconds for a
/// broken path of the doctor. Endpoints without a common round do not probe each other.
const ROUNDS_MAX: usize = 32;

/// Connects the ranks. They report over TCP, because RDMA is under test.
pub(crate) fn connect(config: &Config) -> Result<Communicator, ringfold::Error> {
    let mut control = config.clone();
    control.transports.rdma = false;
    control.transports.tcp = true;
    Communicator::init_with(&control)
}

/// The probes of a job. Every rank makes one and calls its methods in the same order.
pub(crate) struct Prober<'a> {
    config: &'a Config,
    pub(crate) comm: &'a mut Communicator,
    /// The rank of each endpoint.
    ends: Vec<Rank>,
    secret: Secret,
    /// Distinguishes this run from others with the same secret.
    nonce: String,
    /// Number of steps.
    steps: usize,
}

/// A pair of endpoints to which this rank belongs.
#[derive(Clone, Copy)]
pub(crate) struct Pairing {
    /// The indices of the lower and the higher endpoint.
    pub(crate) ends: [usize; 2],
    /// Whether this rank is the lower endpoint, which sends first.
    pub(crate) is_low: bool,
    peer: Rank,
}

impl Pairing {
    /// Returns the index of this rank's endpoint.
    pub(crate) const fn own(self) -> usize {
        self.ends[if self.is_low { 0 } else { 1 }]
    }
}

impl<'a> Prober<'a> {
    pub(crate) fn new(
        config: &'a Config,
        comm: &'a mut Communicator,
        ends: Vec<Rank>,
    ) -> anyhow::Result<Self> {
        let variable = |name: &str| config.environment.get(name).cloned();
        let secret = discover(&variable)?.secret(&variable, config.join_timeout)?;
        let mut nonce = [0_u8; 32];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        comm.broadcast(&mut nonce, Rank(0))?;
        let nonce = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { config, comm, ends, secret, nonce, steps: 0 })
    }

    /// Returns rounds of pairs of endpoints, each pair with the lower index first.
    pub(crate) fn rounds(&self) -> impl ExactSizeIterator<Item = Vec<(usize, usize)>> + use<> {
        rounds::rounds(self.ends.len(), ROUNDS_MAX)
    }

    /// Whether the rounds pair every endpoint with every other.
    pub(crate) fn is_complete(&self) -> bool {
        rounds::rounds(self.ends.len(), usize::MAX).len() <= ROUNDS_MAX
    }

    /// Returns this rank's pair in a round.
    pub(crate) fn pairing(&self, round: &[(usize, usize)]) -> Option<Pairing> {
        let own = self.comm.rank();
        round.iter().find_map(|&(low, high)| {
            let ranks = [low, high].map(|end| self.ends[end]);
            let at = ranks.iter().position(|rank| *rank == own)?;
            Some(Pairing { ends: [low, high], is_low: at == 0, peer: ranks[1 - at] })
        })
    }

    /// Exchanges addresses with the peer, and runs a trial on each of these paths at once. The peer
    /// gives as many paths, in the same order. Every rank calls this, with or without a pair.
    pub(crate) fn step<T: Send>(
        &mut self,
        pairing: Option<Pairing>,
        paths: &[Path<'_>],
        trial: impl Fn(&mut dyn Transport, Link, bool) -> Result<T, Failed> + Sync,
    ) -> anyhow::Result<Vec<Result<T, ProbeError>>> {
        self.steps += 1;
        let (own, size, config) = (self.comm.rank(), self.comm.size(), self.config);
        let begun = |(number, path)| {
            let Pairing { ends: [low, high], peer: other, .. } = pairing?;
            let label = format!("{} {} {low} {high} {number}", self.nonce, self.steps);
            let key = self.secret.derive(&["probe", &label]);
            let probe = Probe { own, other, size, key, config, path };
            Some((probe, probe.listen()))
        };
        let begun: Vec<_> = paths.iter().enumerate().filter_map(begun).collect();
        let address = |listener: &Listening| listener.addresses().to_vec();
        let addresses: Vec<Option<Vec<SocketAddr>>> =
            begun.iter().map(|(_, listener)| listener.as_ref().ok().map(address)).collect();
        let mut all = all_gather(self.comm, &addresses)?;
        let theirs = pairing.map(|pairing| std::mem::take(&mut all[pairing.peer.index()]));
        let theirs = theirs.into_iter().flatten().chain(std::iter::repeat(None));
        let trial = &trial;
        type Begun<'a> = (Probe<'a>, anyhow::Result<Listening>);
        let run = |((probe, listener), theirs): (Begun<'_>, Option<Vec<SocketAddr>>)| {
            let theirs = theirs.ok_or_else(|| ProbeError::secondary("the peer did not probe"));
            probe.run(listener?, theirs?, trial)
        };
        Ok(thread::scope(|scope| {
            let threads: Vec<_> =
                begun.into_iter().zip(theirs).map(|it| scope.spawn(move || run(it))).collect();
            let panicked = |_| Err(anyhow::anyhow!("the thread of the probe panicked").into());
            threads.into_iter().map(|it| it.join().unwrap_or_else(panicked)).collect()
        }))
    }
}
