//! Local checks: the state of one host, without messages to others.

use std::net::IpAddr;

use ringfold::Config;
use ringfold_bootstrap::interface::{
    Choice, ChooseError, Family, Filter, Reason, choose, interfaces,
};
use ringfold_transport::rdma::{Examined, Finding, Port, State, examine};

/// The results of this host's local checks.
pub(super) struct LocalChecks {
    pub(super) findings: Vec<Finding>,
    /// The usable RDMA ports.
    pub(super) ports: Vec<Port>,
}

impl LocalChecks {
    /// Checks everything that RDMA needs. `near` is this host's address for the job's setup.
    pub(super) fn run(config: &Config, near: Option<IpAddr>) -> Self {
        if !config.transports.rdma {
            let what = "RINGFOLD_TRANSPORT leaves RDMA out".to_owned();
            let findings = vec![Finding { about: "rdma", state: State::Fair, what }];
            return Self { findings, ports: Vec::new() };
        }
        let Examined { findings, ports } = examine(&config.rdma(), near);
        Self { findings, ports }
    }
}

/// Finds this host's address for a job's setup.
pub(super) fn interface(config: &Config) -> anyhow::Result<(Finding, Option<IpAddr>)> {
    let filter = config.socket_ifname.as_deref().map(Filter::from);
    let chosen: Result<Choice, ChooseError> =
        choose(&interfaces()?, filter.as_ref(), Family::Any, false);
    let (state, what) = match &chosen {
        Ok(choice) if leads_nowhere(choice) => {
            (State::Fair, format!("{choice}: other hosts cannot reach this one"))
        }
        Ok(choice) => (State::Good, choice.to_string()),
        Err(why) => (State::Bad, why.to_string()),
    };
    let found = Finding { about: "interface", state, what };
    Ok((found, chosen.ok().map(|choice| choice.address)))
}

/// Whether other hosts cannot reach this address, or only those on the same cable.
const fn leads_nowhere(choice: &Choice) -> bool {
    matches!(choice.reason, Reason::OnlyLoopback | Reason::OnlyLinkLocal)
}

/// The first word of a finding's line.
pub(super) const fn mark(state: State) -> &'static str {
    match state {
        State::Good => "ok",
        State::Fair => "note",
        State::Bad => "BAD",
    }
}
