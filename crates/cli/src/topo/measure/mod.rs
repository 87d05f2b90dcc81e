//! `ringfold topo --measure`: a job that tries every pair of NICs.
//!
//! One rank of each host takes part. In each round every host meets one other; in each step of a
//! round a NIC is in one probe. Probes show which NICs reach each other and in what time. Flows
//! then show the bandwidth of each rail, and whether two rails at once carry less than both alone.
//!
//! * `nic`: the NICs of a host; `line`: a connection that is bound to one;
//! * `meet`: rounds and steps; `flows`: the flows of a meeting;
//! * `infer`: what the results say of rails; `progress`: a line on a terminal.

mod flows;
mod infer;
mod line;
mod meet;
mod nic;
mod progress;

use anyhow::ensure;
use ringfold::{Communicator, Config};
use ringfold_topology::site::Site;
use ringfold_types::Rank;

use self::meet::Tour;
use self::nic::{Card, End};
use super::source::Network;
use crate::doctor::job::share;

/// The result of measuring; nothing on ranks other than 0. Every rank of the job calls this. Takes
/// seconds for each host, at most some minutes.
pub(super) fn measure() -> anyhow::Result<Option<Network>> {
    let config = Config::from_env()?;
    // RDMA is under test here, so ranks talk without it.
    let mut talking = config.clone();
    talking.transports.rdma = false;
    talking.transports.tcp = true;
    let mut comm = Communicator::init_with(&talking)?;
    let cards = share(&mut comm, &Card::of_this_host(&config)?)?;
    let ends = End::all(comm.layout(), cards);
    let is_first = comm.rank() == Rank(0);
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
    let result = infer::infer(&ends, &tried, &fabric);
    let mut site = Site::of(&fabric, &result.found);
    site.measured = result.measured;
    Ok(Some(Network { fabric, found: result.found, site: Some(site) }))
}
