//! Who a rank is, and where it meets the others: what discovery finds and joining needs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ringfold_types::Rank;

use crate::address::{default_source, is_loopback, source_toward};
use crate::pmi;
use crate::secret::{Secret, SecretError};
use crate::torch_store::TorchStore;

/// What a launcher says of a rank.
#[derive(Debug)]
pub struct Identity {
    /// This rank.
    pub rank: Rank,
    /// How many ranks there are.
    pub size: usize,
    /// The job's name, the same on every rank and different for every job that may meet it.
    pub job: String,
    /// Where the ranks meet.
    pub rendezvous: Rendezvous,
    /// Who started the rank.
    pub launcher: Launcher,
    /// How the launcher hands on the job's secret, if it does.
    pub carrier: Carrier,
}

/// How a launcher hands on the job's secret, where the user names none.
#[derive(Debug, Default)]
pub enum Carrier {
    /// It does not, or not otherwise than by `Rendezvous::Kvs`.
    #[default]
    None,
    /// It has done so, in the environment or for an earlier communicator of this process.
    Known(Secret),
    /// torchrun's store.
    TorchStore(TorchStore),
}

/// How the ranks learn where rank 0's hub listens.
#[derive(Debug)]
pub enum Rendezvous {
    /// There is nobody to meet.
    Alone,
    /// Rank 0 listens on the first of `ports` that is free on its host; the others try each.
    Ports {
        /// Rank 0's host: a name, or an address, or several addresses of it.
        hosts: Vec<String>,
        /// The variable or other source that names the host, as in `MASTER_ADDR`; for messages.
        named_by: &'static str,
        /// Candidates, in order.
        ports: Vec<u16>,
    },
    /// The launcher knows: it serves `rendezvous::serve` there.
    Ask {
        /// `host:port`.
        address: String,
    },
    /// A launcher's key-value space, spoken to in PMI-1.
    Kvs(pmi::Client),
}

/// Who started the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// Nobody; the only rank.
    Alone,
    /// `ringrun`.
    Ringrun,
    /// torchrun, or whoever sets torch's variables.
    Torchrun,
    /// `srun`.
    Slurm,
    /// `mpiexec` of MPICH and its relatives, or another that speaks PMI-1.
    Hydra,
    /// `mpirun` of Open MPI.
    OpenMpi,
}

impl Identity {
    /// The only rank of a job of one.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            rank: Rank(0),
            size: 1,
            job: "alone".into(),
            rendezvous: Rendezvous::Alone,
            launcher: Launcher::Alone,
            carrier: Carrier::None,
        }
    }

    /// The job's secret: the one that the user names (`Secret::given`), or else the one that the
    /// launcher carries, or else the one in the home directory. To be called by every rank: over a
    /// launcher's key-value space it blocks until all have, for at most `timeout`.
    ///
    /// # Errors
    /// The source that the user names holds no secret, the launcher fails, or there is no home
    /// directory.
    pub fn secret(
        &mut self,
        variable: &dyn Fn(&str) -> Option<String>,
        timeout: Duration,
    ) -> Result<Secret, SecretError> {
        let given = Secret::given(variable)?;
        let carried = match (&mut self.rendezvous, &self.carrier) {
            // All ranks take part, even those that were given a secret: a barrier waits for each.
            (Rendezvous::Kvs(client), _) => {
                client.share_secret(self.rank, given.is_none(), timeout)?
            }
            (_, Carrier::Known(secret)) => Some(secret.clone()),
            (_, Carrier::TorchStore(store)) if given.is_none() => {
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
            (_, Carrier::TorchStore(_)) => None,
            (_, Carrier::None) => None,
        };
        given.or(carried).map_or_else(|| Secret::at_home(variable), Ok)
    }

    /// The address under which the other ranks most likely reach this one: that of the route to the
    /// meeting place; the loopback address where all of them are on this host. May look up a name.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let toward = |place: &str| source_toward(place).unwrap_or_else(|_| default_source());
        match &self.rendezvous {
            Rendezvous::Alone => HERE,
            Rendezvous::Ports { hosts, .. } => match hosts.first() {
                Some(host) if !is_loopback(host) => match toward(&format!("{host}:9")) {
                    // On its own host a name may well lead to the loopback address.
                    ip if ip.is_loopback() => default_source(),
                    ip => ip,
                },
                _ => HERE,
            },
            Rendezvous::Ask { address } => toward(address),
            Rendezvous::Kvs(client) if client.is_one_host() => HERE,
            Rendezvous::Kvs(_) => default_source(),
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
