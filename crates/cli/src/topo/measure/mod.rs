//! `ringfold topo --measure`: a job that tries every pair of NICs.
//!
//! One rank of each host takes part. In each round every host meets one other; in each step of a
//! round a NIC is in one probe. Probes show which NICs reach each other and in what time. Flows
//! then show the bandwidth of each rail, and whether two rails at once carry less than both alone.
//!
//! * `nic`: the NICs of a host; `line`: a connection that is bound to one;
//! * `meet`: rounds and steps; `flows`: the flows of a meeting;
//! * `infer`: rails from the results; `progress`: lines that say how far it is.

mod flows;
mod infer;
mod line;
mod meet;
mod nic;
mod progress;

use std::collections::BTreeMap;

use anyhow::ensure;
use ringfold::{Communicator, Config};
use ringfold_topology::fabric::{Fabric, Oddity, Place, PortId};
use ringfold_topology::site::Site;
use ringfold_types::Rank;

use self::meet::Tour;
use self::nic::{Card, End};
use super::source::{self, Network};
use crate::share::share;

/// The result of measuring; nothing on ranks other than 0. Every rank of the job calls this. Takes
/// seconds for each host, at most some minutes. Rank 0 first calls `may_write`, and nothing is
/// measured where that fails.
pub(super) fn measure(
    may_write: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Option<Network>> {
    let config = Config::from_env()?;
    // RDMA is under test here, so ranks talk without it.
    let mut talking = config.clone();
    talking.transports.rdma = false;
    talking.transports.tcp = true;
    let mut comm = Communicator::init_with(&talking)?;
    let is_first = comm.rank() == Rank(0);
    let checked = if is_first { may_write() } else { Ok(()) };
    if share(&mut comm, &checked.is_err())?.contains(&true) {
        comm.leave()?;
        return checked.map(|()| None);
    }
    let cards = share(&mut comm, &Card::of_this_host(&config)?)?;
    let ends = End::all(comm.layout(), cards);
    ensure!(
        ends.len() > 1,
        "--measure: all ranks are on one host; start one on each, as in: ringrun --host a,b \
         ringfold topo --measure"
    );
    let tried = Tour::new(&config, &mut comm, &ends)?.all(&mut comm)?;
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
    let result = infer::infer(&ends, &tried, &fabric, known);
    Ok(Some(match base {
        Some(base) => updated(base, &fabric, &result),
        None => new(fabric, &result),
    }))
}

/// The places that a site file or a fabric's files give the ports of `fabric`.
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

/// What `RINGFOLD_TOPO_FILE` says, with the results in place of older ones.
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
