//! The identity of a rank and its rendezvous: discovery finds it, and joining needs it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use ringfold_types::{Rank, limits};

use super::address::{default_source, is_loopback, loopback, source_toward};
use super::pmi;
use super::secret::{Secret, SecretError};
use super::torch_store::TorchStore;

/// A rank's identity, as its launcher defines it.
#[derive(Debug)]
pub struct Identity {
    /// This rank.
    pub rank: Rank,
    /// The number of ranks.
    pub size: usize,
    /// The job's name. It is the same on every rank, and differs from that of every other job that
    /// may meet it.
    pub job: String,
    /// How the ranks find rank 0.
    pub rendezvous: Rendezvous,
    /// The launcher that started the rank.
    pub launcher: Launcher,
    /// How the launcher passes on the job's secret, if it does.
    pub secret_source: SecretSource,
}

/// How a launcher passes on the job's secret, if the user names none.
#[derive(Debug, Default)]
pub enum SecretSource {
    /// It does not, or only by `Rendezvous::Kvs`.
    #[default]
    None,
    /// The secret is known already, from the environment or from an earlier communicator of this
    /// process.
    Known(Secret),
    /// torchrun's store.
    TorchStore(TorchStore),
}

/// How the ranks learn where rank 0's coordinator listens.
#[derive(Debug)]
pub enum Rendezvous {
    /// There is only one rank.
    Alone,
    /// Rank 0 listens on the first of `ports` that is free on its host. The others try each port.
    Ports {
        /// Rank 0's host: a name, an address, or several addresses of it.
        hosts: Vec<String>,
        /// The variable or other source that names the host, as in `MASTER_ADDR`; for messages.
        named_by: &'static str,
        /// Candidate ports, in order.
        ports: Vec<u16>,
    },
    /// The launcher knows: it serves `rendezvous::serve` there.
    Ask {
        /// `host:port`.
        address: String,
    },
    /// A launcher's key-value space, over PMI-1.
    Kvs(pmi::Client),
    /// Rank 0 listens on this socket already, and the other ranks have its address by `Ports`.
    Listening(TcpListener),
}

/// The launcher that started the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// No launcher: the only rank.
    Alone,
    /// `ringrun`.
    Ringrun,
    /// torchrun, or another program that sets torch's variables.
    Torchrun,
    /// `srun`.
    Slurm,
    /// `mpiexec` of MPICH and its relatives, or another launcher that speaks PMI-1.
    Hydra,
    /// `mpirun` of Open MPI.
    OpenMpi,
}

impl Identity {
    /// The identity of the only rank of a job.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            rank: Rank(0),
            size: 1,
            job: "alone".into(),
            rendezvous: Rendezvous::Alone,
            launcher: Launcher::Alone,
            secret_source: SecretSource::None,
        }
    }

    /// The job's secret: the one that the user names (`Secret::given`), or else the launcher's, or
    /// else the one in the home directory. Every rank must call it. Over a launcher's key-value
    /// space it blocks until all ranks have called it, for at most `timeout`.
    ///
    /// # Errors
    /// The source that the user names holds no secret, the launcher fails, or there is no home
    /// directory.
    pub fn secret(
        &mut self,
        variable: &dyn Fn(&str) -> Option<String>,
        timeout: Duration,
    ) -> Result<Secret, SecretError> {
        let (given, timeout) = (Secret::given(variable)?, limits::timeout(timeout));
        let carried = match (&mut self.rendezvous, &self.secret_source) {
            // All ranks take part, even those with a given secret, because a barrier waits for
            // each.
            (Rendezvous::Kvs(client), _) => {
                client.share_secret(self.rank, given.is_none(), timeout)?
            }
            (_, SecretSource::Known(secret)) => Some(secret.clone()),
            (_, SecretSource::TorchStore(store)) if given.is_none() => {
                let shared = store.share_secret(timeout);
                let TorchStore { host, port, .. } = store;
                shared
                    .inspect_err(|e| {
                        tracing::warn!(
                            "rank {} cannot share a secret by torchrun's store at {host}:{port}, \
                             and takes the one in its home directory: {e}",
                            self.rank
                        );
                    })
                    .ok()
            }
            (_, SecretSource::TorchStore(_)) => None,
            (_, SecretSource::None) => None,
        };
        given.or(carried).map_or_else(|| Secret::at_home(variable), Ok)
    }

    /// The address at which the other ranks most likely reach this one: the source address of the
    /// route to the rendezvous. It is the loopback address if all ranks are on this host. May
    /// block to look up a name.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        let toward = |place: &str| source_toward(place).unwrap_or_else(|_| default_source());
        match &self.rendezvous {
            Rendezvous::Alone => loopback(),
            Rendezvous::Ports { hosts, .. } => match hosts.first() {
                Some(host) if !is_loopback(host) => match toward(&format!("{host}:9")) {
                    // On its own host a name may resolve to the loopback address.
                    ip if ip.is_loopback() => default_source(),
                    ip => ip,
                },
                _ => loopback(),
            },
            Rendezvous::Ask { address } => toward(address),
            Rendezvous::Kvs(client) if client.is_one_host() => loopback(),
            Rendezvous::Kvs(_) => default_source(),
            Rendezvous::Listening(listener) => {
                listener.local_addr().map_or_else(|_| loopback(), |at| at.ip())
            }
        }
    }
}

impl Rendezvous {
    /// Whether the ranks meet at an address that no other host reaches.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Alone => true,
            Self::Ports { hosts, .. } => hosts.iter().all(|host| is_loopback(host)),
            Self::Ask { address } => address
                .rsplit_once(':')
                .is_some_and(|(host, _)| is_loopback(host.trim_matches(['[', ']']))),
            Self::Kvs(_) => false,
            Self::Listening(listener) => {
                listener.local_addr().is_ok_and(|at| at.ip().is_loopback())
            }
        }
    }

    /// Whether the ranks meet at an address of IPv6.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        let is_v6 = |host: &str| host.parse::<Ipv6Addr>().is_ok();
        match self {
            Self::Ports { hosts, .. } => hosts.iter().all(|host| is_v6(host)),
            Self::Ask { address } => address.parse().is_ok_and(|at: SocketAddr| at.is_ipv6()),
            Self::Listening(listener) => listener.local_addr().is_ok_and(|at| at.is_ipv6()),
            Self::Alone | Self::Kvs(_) => false,
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Alone => "none",
            Self::Ringrun => "ringrun",
            Self::Torchrun => "torchrun",
            Self::Slurm => "Slurm",
            Self::Hydra => "Hydra (PMI-1)",
            Self::OpenMpi => "Open MPI",
        })
    }
}
