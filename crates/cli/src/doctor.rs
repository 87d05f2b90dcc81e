//! `ringfold doctor`: whether this host has what ringfold needs, and what to do where it has not.

use std::fmt::Write as _;
use std::net::IpAddr;

use ringfold::Config;
use ringfold_bootstrap::interface::{Choice, ChooseError, Family, Filter, choose, interfaces};
use ringfold_transport::rdma::{Finding, State, examine};

/// As typed.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// A line for every finding, and whether nothing is bad.
pub(crate) fn answer(_: &Args) -> anyhow::Result<(String, bool)> {
    let config = Config::from_env()?;
    let mut findings = Vec::new();
    let near = interface(&config, &mut findings)?;
    findings.extend(examine(&config.rdma(), near));
    let mut text = String::new();
    for Finding { about, state, what } in &findings {
        let mark = match state {
            State::Good => "ok",
            State::Fair => "note",
            State::Bad => "BAD",
        };
        writeln!(text, "{mark:<5} {about:<10} {what}")?;
    }
    Ok((text, findings.iter().all(|finding| finding.state != State::Bad)))
}

/// The address by which jobs would meet here.
fn interface(config: &Config, findings: &mut Vec<Finding>) -> anyhow::Result<Option<IpAddr>> {
    let filter = config.socket_ifname.as_deref().map(|text| {
        let Ok(filter) = text.parse::<Filter>();
        filter
    });
    let chosen: Result<Choice, ChooseError> =
        choose(&interfaces()?, filter.as_ref(), Family::Any, false);
    let (state, what) = match &chosen {
        Ok(choice) => (State::Good, choice.to_string()),
        Err(why) => (State::Bad, why.to_string()),
    };
    findings.push(Finding { about: "interface", state, what });
    Ok(chosen.ok().map(|choice| choice.address))
}
