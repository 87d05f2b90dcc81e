//! `ringfold topo --measure`: a job that probes every pair of NICs.
//!
//! One rank of each host takes part. A round pairs each host with one other. In each step of a
//! round a NIC is in one probe. Probes show which NICs reach each other. Flows then
//! show the bandwidth of each rail, and whether two rails at once carry less than both alone.
//!
//! * `nic`: the NICs of a host; `matrix`: the probe matrix with its rounds and steps;
//! * `flows`: the flows of a pairing, and their rates;
//! * `infer`: infers rails from the results; `progress`: prints the progress.

mod flows;
mod infer;
mod matrix;
mod nic;
mod progress;

use std::collections::BTreeMap;

use anyhow::ensure;
use ringfold::Config;
use ringfold_topology::fabric::{Fabric, Oddity, Place, PortId};
use ringfold_topology::site::Site;
use ringfold_types::Rank;

use self::nic::{Endpoint, HostInfo};
use super::source::{self, Network};
use crate::gather::all_gather;
use crate::probe;

/// Measures the network of a job. Every rank calls this, and only rank 0 gets a result. It blocks
/// for seconds for each host, at most some minutes. Rank 0 first calls `may_write`; if that fails,
/// no rank measures.
pub(super) fn measure(
    may_write: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Option<Network>> {
    let config = Config::from_env()?;
    let mut comm = probe::connect(&config)?;
    let is_first = comm.rank() == Rank(0);
    let checked = if is_first { may_write() } else { Ok(()) };
    if all_gather(&mut comm, &checked.is_err())?.contains(&true) {
        comm.leave()?;
        return checked.map(|()| None);
    }
    let infos = all_gather(&mut comm, &HostInfo::of_this_host(&config)?)?;
    let ends = Endpoint::all(comm.layout(), infos);
    ensure!(
        ends.len() > 1,
        "--measure: all ranks are on one host; start one on each, as in: ringrun --host a,b \
         ringfold topo --measure"
    );
    let results = matrix::probe(&mut comm, &config, &ends)?;
    comm.leave()?;
    if !is_first {
        return Ok(None);
    }
    let fabric = nic::fabric(&ends);
    let base = match &config.topology_file {
        Some(file) => source::files(&[file.into()])?.network,
        None => None,
    };
    let known = base.as_ref().map_or_else(Vec::new, |base| places(&fabric, base));
    let result = infer::infer(&ends, &results, &fabric, known);
    Ok(Some(match base {
        Some(base) => updated(base, &fabric, &result),
        None => new(fabric, &result),
    }))
}

/// Returns the place of each port of `fabric` in a site file or a fabric's files.
fn places(fabric: &Fabric, base: &Network) -> Vec<Option<Place>> {
    let known = base.fabric.ports.iter().zip(&base.found.places);
    let known: BTreeMap<PortId, Option<Place>> =
        known.map(|(port, (place, _))| (port.id, *place)).collect();
    fabric.ports.iter().map(|port| known.get(&port.id).copied().flatten()).collect()
}

fn new(fabric: Fabric, result: &infer::Result) -> Network {
    let found = result.found.clone();
    let site = Site { measured: result.measured.clone(), ..Site::of(&fabric, &found) };
    Network { fabric, found, site: Some(site) }
}

/// Returns the network of `RINGFOLD_TOPO_FILE`, with new results in place of older ones.
fn updated(base: Network, fabric: &Fabric, result: &infer::Result) -> Network {
    let Network { fabric: all, mut found, site } = base;
    let mut site = site.unwrap_or_else(|| Site::of(&all, &found));
    site.measured.clone_from(&result.measured);
    site.crosses = result.found.crosses.clone();
    found.crosses = site.crosses.clone();
    let place_of = |port: usize| all.ports.iter().position(|it| it.id == fabric.ports[port].id);
    found.oddities.extend(
        result.found.oddities.iter().map(|oddity| Oddity {
            port: oddity.port.and_then(place_of),
            what: oddity.what.clone(),
        }),
    );
    Network { fabric: all, found, site: Some(site) }
}
