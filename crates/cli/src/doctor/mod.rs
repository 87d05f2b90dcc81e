//! `ringfold doctor`: whether hosts have what ringfold needs, and what to do where they have not.
//! Alone it looks at this host and tries each RDMA port with itself; as the ranks of a job, one for
//! each host and set of ports, it tries every rail between every two, or where they are many
//! between each and some.
//!
//! * `look`: what is found on one host;
//! * `trial`: a port or a rail, tried;
//! * `job`: all ranks' findings come together (`end`); `tour`: all pairs are tried in turn;
//! * `report`, `tables`: what is printed of it.

mod end;
mod job;
mod look;
mod report;
mod tables;
mod tour;
mod trial;

use std::fmt::Write as _;

use ringfold::{Communicator, Config};
use ringfold_transport::rdma::{Finding, State};

use self::look::{Here, interface, mark};

/// As typed.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// What was found, and whether nothing is bad. In a job only rank 0 has something to say.
pub(crate) fn answer(_: &Args) -> anyhow::Result<(String, bool)> {
    let config = Config::from_env()?;
    // What is to be examined should not be needed to tell of it.
    let mut talking = config.clone();
    talking.transports.rdma = false;
    talking.transports.tcp = true;
    let comm = Communicator::init_with(&talking)?;
    if comm.size() > 1 {
        return job::answer(comm, &config);
    }
    let (found, near) = interface(&config)?;
    let mut here = Here::look(&config, near);
    here.findings.insert(0, found);
    for port in &here.ports {
        here.findings.push(trial::with_itself(port, &config, near));
    }
    let mut text = String::new();
    for Finding { about, state, what } in &here.findings {
        writeln!(text, "{:<5} {about:<10} {what}", mark(*state))?;
    }
    let is_sound = here.findings.iter().all(|finding| finding.state != State::Bad);
    if is_sound && here.ports.is_empty() {
        text += &report::without_rdma(&config);
    }
    Ok((text, is_sound))
}
