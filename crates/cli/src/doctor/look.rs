//! What is found on one host, without asking any other.

use std::net::IpAddr;

use ringfold::Config;
use ringfold_bootstrap::interface::{Choice, ChooseError, Family, Filter, choose, interfaces};
use ringfold_transport::rdma::{Examined, Finding, Port, State, examine};

/// This host.
pub(super) struct Here {
    pub(super) findings: Vec<Finding>,
    /// RDMA ports that can be used.
    pub(super) ports: Vec<Port>,
}

impl Here {
    /// Looks at all that RDMA takes. `near` is the address by which ranks meet here.
    pub(super) fn look(config: &Config, near: Option<IpAddr>) -> Self {
        if !config.transports.rdma {
            let what = "RINGFOLD_TRANSPORT leaves RDMA out".to_owned();
            let findings = vec![Finding { about: "rdma", state: State::Fair, what }];
            return Self { findings, ports: Vec::new() };
        }
        let Examined { findings, ports } = examine(&config.rdma(), near);
        Self { findings, ports }
    }
}

/// The address by which a job would meet here.
pub(super) fn interface(config: &Config) -> anyhow::Result<(Finding, Option<IpAddr>)> {
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
    let found = Finding { about: "interface", state, what };
    Ok((found, chosen.ok().map(|choice| choice.address)))
}

/// How lines about it begin.
pub(super) const fn mark(state: State) -> &'static str {
    match state {
        State::Good => "ok",
        State::Fair => "note",
        State::Bad => "BAD",
    }
}
