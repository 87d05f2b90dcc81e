//! The jobs of these tests, and their times.

use std::time::Duration;

use ringfold_harness::{Ranks, rdma};
use ringfold_transport::rdma::{Rails, Settings};

/// Far beyond the promised bound of 1 s after a death, for loaded machines. The test prints the
/// actual time.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Returns the timeout of a call. The first RDMA call sets up devices, which takes seconds on an
/// emulated processor.
pub(crate) fn timeout(transport: &str) -> Duration {
    Duration::from_secs(if transport == "rdma" { 5 } else { 2 })
}

/// Returns the devices of each host.
pub(crate) fn rdma_hosts() -> Vec<String> {
    rdma::hosts(Rails::open(&Settings::default(), None))
}

/// Starts ranks. Over RDMA they use the devices of the hosts in turn.
pub(crate) fn start(
    size: usize,
    transport: &str,
    task: &[&str],
    settings: &[(&str, &str)],
) -> Ranks {
    let hosts = if transport == "rdma" { rdma_hosts() } else { vec![String::new()] };
    Ranks::start(size, |rank, command| {
        command.args(task).env("RINGFOLD_TRANSPORT", transport);
        command.env("RINGFOLD_IB_HCA", &hosts[rank % hosts.len()]).envs(settings.iter().copied());
    })
}
