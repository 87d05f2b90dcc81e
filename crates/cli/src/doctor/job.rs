//! The doctor as a job: gathers the local checks of all ranks and runs the probe matrix.

use std::path::Path;

use ringfold::{Communicator, Config};
use ringfold_types::Rank;

use super::endpoint::{HostInfo, ends};
use super::facts::{self, Facts};
use super::matrix;
use super::report;
use crate::gather::all_gather;
use crate::new_file::NewFile;

/// Examines all hosts, and writes the facts about them to a file if one is named. Every rank calls
/// this. Only rank 0 gets a report and writes the file.
pub(super) fn answer(
    mut comm: Communicator,
    config: &Config,
    file: Option<&str>,
) -> anyhow::Result<(String, bool)> {
    let is_first = comm.rank() == Rank(0);
    let new_file =
        file.filter(|_| is_first).map(|path| NewFile::create("--report", path)).transpose()?;
    let read = || Facts::read(Path::new("/"));
    let before = file.map(|_| read());
    let near = comm.interface().map(|choice| choice.address);
    let own = HostInfo::of_this_host(&comm, config, near);
    let infos: Vec<HostInfo> = all_gather(&mut comm, &own)?;
    let ends = ends(&comm, infos);
    let host = format!("{} #{}", own.host, comm.rank());
    let probed = matrix::probe(&mut comm, config, near, &ends);
    let results = match (probed, new_file.as_ref()) {
        (Err(error), Some(_)) => {
            // The other hosts may be gone.
            let facts = [(host, before.unwrap_or_default(), read())];
            if let Some(new_file) = new_file {
                new_file.finish(&facts::report(&format!("BAD   {error:#}\n"), &facts))?;
            }
            return Err(error);
        }
        (probed, _) => probed?,
    };
    let mut facts = Vec::new();
    if let Some(before) = before {
        // One rank of each host and set of ports states them.
        let is_prober = ends.iter().any(|end| end.rank == comm.rank());
        let stated = is_prober.then(|| (host, before, read()));
        facts = facts::gather(&mut comm, stated.as_ref())?;
    }
    comm.leave()?;
    if !is_first {
        return Ok((String::new(), true));
    }
    let (text, is_sound) = report::all(&ends, &results, config);
    if let Some(new_file) = new_file {
        new_file.finish(&facts::report(&text, &facts))?;
    }
    Ok((text, is_sound))
}
