//! The doctor as a job: gathers the local checks of all ranks and runs the probe matrix.

use ringfold::{Communicator, Config};
use ringfold_types::Rank;

use super::endpoint::{HostInfo, ends};
use super::matrix;
use super::report;
use crate::gather::all_gather;

/// Examines all hosts. Every rank calls this. Only rank 0 gets a report.
pub(super) fn answer(mut comm: Communicator, config: &Config) -> anyhow::Result<(String, bool)> {
    let near = comm.interface().map(|choice| choice.address);
    let own = HostInfo::of_this_host(&comm, config, near);
    let infos: Vec<HostInfo> = all_gather(&mut comm, &own)?;
    let ends = ends(&comm, infos);
    let results = matrix::probe(&mut comm, config, near, &ends)?;
    let is_first = comm.rank() == Rank(0);
    comm.leave()?;
    Ok(if is_first { report::all(&ends, &results, config) } else { (String::new(), true) })
}
