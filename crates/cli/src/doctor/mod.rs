//! `ringfold doctor`: checks that hosts have everything that ringfold needs, and says how to fix
//! the rest.
//!
//! As one process it checks this host and probes each RDMA port through a loopback. As a job it
//! runs one prober for each host and set of ports. The probers try every rail between every two of
//! them; in a large job each tries a limited number of others.
//!
//! * `local`: local checks of one host;
//! * `endpoint`: the hosts and ports that are probed; `matrix`: the probe matrix over all pairs;
//! * `facts`: the statements of the kernel about the devices, for a file that the user sends on;
//! * `job`: gathers the findings of all ranks;
//! * `report`, `tables`: the printed result.

mod endpoint;
mod facts;
mod job;
mod local;
mod matrix;
mod report;
mod tables;

use std::fmt::Write as _;
use std::path::Path;

use ringfold::Config;
use ringfold_topology::discover::Host;
use ringfold_transport::rdma::{Finding, State};
use ringfold_transport::trial::Figures;

use self::facts::Facts;
use self::local::{LocalChecks, interface, mark};
use self::tables::{rate, time};
use crate::new_file::NewFile;
use crate::probe;

/// The command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also write the findings to this file, with the devices, firmware, rates, addresses and
    /// counters of all hosts, for somebody who helps. It has no secret, key or environment variable
    #[arg(long, value_name = "FILE")]
    report: Option<String>,
}

/// Returns the report, and whether it has no fault. In a job only rank 0 has a report.
pub(crate) fn answer(args: &Args) -> anyhow::Result<(String, bool)> {
    let config = Config::from_env()?;
    let comm = probe::connect(&config)?;
    if comm.size() > 1 {
        return job::answer(comm, &config, args.report.as_deref());
    }
    let file = args.report.as_deref().map(|path| NewFile::create("--report", path)).transpose()?;
    let read = || Facts::read(Path::new("/"));
    let before = file.as_ref().map(|_| read());
    let (found, near) = interface(&config)?;
    let mut here = LocalChecks::run(&config, near);
    here.findings.insert(0, found);
    for port in &here.ports {
        let (state, what) = match probe::loopback(port, &config, near) {
            Ok(Figures { latency, bytes_per_second }) => {
                (State::Good, format!("{}, {} for 8 bytes", rate(bytes_per_second), time(latency)))
            }
            Err(error) => (State::Bad, error.why),
        };
        let what = format!("{} to itself: {what}", port.name);
        here.findings.push(Finding { about: "probe", state, what });
    }
    let mut text = String::new();
    for Finding { about, state, what } in &here.findings {
        writeln!(text, "{:<5} {about:<10} {what}", mark(*state))?;
    }
    let is_sound = here.findings.iter().all(|finding| finding.state != State::Bad);
    if is_sound && here.ports.is_empty() {
        text += &report::without_rdma(&config);
    }
    if let (Some(file), Some(before)) = (file, before) {
        let facts = (Host::this().name, before, read());
        file.finish(&facts::report(&text, &[facts]))?;
    }
    Ok((text, is_sound))
}
