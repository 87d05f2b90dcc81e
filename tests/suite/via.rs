//! Ranks as threads of the test, over each transport.

use std::collections::BTreeMap;
use std::thread;

use ringfold::{Communicator, Config, local};
use ringfold_collectives::Algorithm;
use ringfold_harness::{free_port, rdma, secret};
use ringfold_transport::rdma::{Rails, Settings};

/// The transport between the ranks of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// In-process queues.
    Local,
    /// Shared memory, joined through the real control plane.
    Shm,
    /// Shared memory, with single copies (CMA) for all but the shortest messages.
    ShmAttached,
    /// Shared memory, where ranks test whether single copies are possible and fast.
    ShmTried,
    /// TCP over loopback, joined through the real control plane.
    Tcp,
    /// Shared memory and TCP: ranks are assigned to this many hosts in turn.
    Hosts(usize),
    /// RDMA only: ranks are assigned in turn to the hosts of the devices.
    Rdma,
}

impl Via {
    pub(crate) const ALL: [Self; 3] = [Self::Local, Self::Shm, Self::Tcp];

    /// Returns whether its devices exist. Otherwise prints a note, or panics if
    /// `RINGFOLD_TEST_REQUIRE` names them.
    pub(crate) fn is_there(self) -> bool {
        self != Self::Rdma || !rdma_hosts().is_empty()
    }

    /// Returns whether ranks over this transport can perform `algorithm`. An algorithm for shared
    /// memory needs all ranks on one host, over `Shm`.
    pub(crate) fn carries(self, algorithm: &Algorithm) -> bool {
        let shares_memory = matches!(self, Self::Shm | Self::ShmAttached | Self::ShmTried);
        algorithm.works_anywhere() || shares_memory && !algorithm.needs_provider()
    }

    /// Runs `rank_main` on `size` ranks with these settings (`RINGFOLD_*` variables), and returns
    /// their results.
    pub(crate) fn run<R: Send>(
        self,
        size: usize,
        settings: &[(&str, &str)],
        rank_main: impl Fn(&mut Communicator) -> R + Sync,
    ) -> Vec<R> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut environment: BTreeMap<String, String> = settings.iter().map(own).collect();
        if self == Self::Local {
            let config = Config::from_map(environment).unwrap();
            return local::run_with(&config, size, rank_main).unwrap();
        }
        let transport = match self {
            Self::Tcp => "tcp",
            Self::Hosts(_) => "shm,tcp",
            Self::Rdma => "rdma",
            _ => "shm",
        };
        let attached = match self {
            Self::ShmAttached => "1",
            Self::ShmTried => "",
            _ => "0",
        };
        let hosts = self.hosts();
        let port = free_port().to_string();
        environment.extend(
            [
                ("RINGFOLD_TRANSPORT", transport),
                ("RINGFOLD_SHM_CMA", attached),
                ("RINGFOLD_JOIN_TIMEOUT", "20"),
                ("RINGFOLD_SECRET", &secret()),
                ("WORLD_SIZE", &size.to_string()),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &port),
            ]
            .map(|pair| own(&pair)),
        );
        thread::scope(|scope| {
            let rank_main = &rank_main;
            let threads: Vec<_> = (0..size)
                .map(|rank| {
                    let mut environment = environment.clone();
                    environment.insert("RANK".to_owned(), rank.to_string());
                    if !hosts.is_empty() {
                        let host = rank % hosts.len();
                        environment.insert("RINGFOLD_HOSTID".to_owned(), host.to_string());
                        environment.insert("RINGFOLD_IB_HCA".to_owned(), hosts[host].clone());
                    }
                    scope.spawn(move || {
                        let config = Config::from_map(environment).unwrap();
                        let mut comm = Communicator::init_with(&config).unwrap();
                        let result = rank_main(&mut comm);
                        comm.leave().unwrap();
                        result
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Returns the devices of each host, or an empty list for one host.
    fn hosts(self) -> Vec<String> {
        match self {
            Self::Hosts(hosts) => vec![String::new(); hosts],
            Self::Rdma => rdma_hosts(),
            _ => Vec::new(),
        }
    }
}

/// Returns the RDMA devices of each host.
fn rdma_hosts() -> Vec<String> {
    rdma::hosts(Rails::open(&Settings::default(), None))
}
