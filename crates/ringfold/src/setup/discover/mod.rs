//! Discovery of this process, its host and its devices. It needs no peers.
//!
//! * `interfaces`: the network interfaces by which peers may reach this rank;
//! * `evidence`: the ports and their places in the fabric.

mod evidence;
mod interfaces;

use std::path::Path;
use std::sync::Arc;

use ringfold_bootstrap::Witness;
use ringfold_bootstrap::interface::{Choice, alike};
use ringfold_innetwork::RdmaDevices;
use ringfold_topology::discover::{Cpus, Host, cores, locality, machine, wire_mbps};
use ringfold_topology::machine::Machine;
use ringfold_topology::prices::{Locality, Rates};
use ringfold_transport::rdma::{OpenPort, Rails};
use ringfold_types::Rank;

use super::error::InitError;
use crate::config::{Config, Transports};

pub(super) use evidence::{LocalEvidence, evidence_name};
pub(super) use interfaces::{Listed, MeetingPlace};

/// This process, its host and its devices. They are the same for every group that it joins.
#[derive(Debug)]
pub(super) struct Discovered {
    pub(super) host: Host,
    /// The CPUs that this process may run on.
    pub(super) cpus: Cpus,
    /// The number of CPUs that this process may use at a time, within its quota.
    pub(super) cores: usize,
    /// The interface on which this process listens for peers, if it may need one.
    pub(super) interface: Option<Choice>,
    /// The interfaces on which this process listens for TCP.
    pub(super) interfaces: Vec<Listed>,
    /// Further addresses on which it listens for TCP.
    pub(super) others: Vec<Choice>,
    /// The hardware of the host, if the choice of routes depends on it.
    pub(super) machine: Option<Machine>,
    /// The evidence of this process's place in the fabric.
    pub(super) local: LocalEvidence,
    /// The rates of this process's NICs.
    pub(super) rates: Rates,
    /// The place of its cores.
    pub(super) locality: Locality,
    /// The number of RDMA ports that this process may use.
    pub(super) rdma_ports: usize,
    /// The witness that decides between two halves of a group after a failure.
    pub(super) witness: Option<Witness>,
}

impl Discovered {
    /// Reads the host's properties and opens its RDMA devices, for one group. Looks for no witness.
    /// `rank` is for the log. The ranks meet at `place`.
    ///
    /// # Errors
    /// No interface suits the settings, RDMA is missing and nothing else is allowed, or the file
    /// that describes the fabric cannot be used.
    pub(super) fn look(
        config: &Config,
        rank: Rank,
        place: MeetingPlace,
    ) -> Result<(Self, Option<Rails>), InitError> {
        let host = Host::this();
        let candidates = interfaces::choose(config, rank, place)?;
        let choices = alike(&candidates);
        let interface = choices.first().cloned();
        let mut rails = open_rails(config, rank, interface.as_ref())?;
        let is_worth_it = rails.is_some() || choices.len() > 1 || config.topology_file.is_some();
        let machine = (config.topology && is_worth_it).then(|| machine(Path::new("/")));
        if let (Some(rails), Some(machine)) = (&mut rails, &machine) {
            rails.locate(machine);
        }
        let interfaces = interfaces::listed(config, &choices, machine.as_ref());
        // The ranks of one host reach each other at any address.
        let others = (!place.is_local).then(|| interfaces::others(&candidates, &interfaces));
        let others = others.unwrap_or_default();
        let ports: Vec<OpenPort> = rails.as_ref().map(Rails::ports).unwrap_or_default();
        let local = LocalEvidence::look(config, &host.name, machine.as_ref(), &ports, &interfaces)?;
        let (cpus, cores) = (Cpus::allowed(), cores());
        let rdma_gbps = ports.iter().map(|port| port.gbps).min().unwrap_or(0);
        let rates = Rates { tcp_mbps: tcp_mbps(&interfaces), rdma_gbps };
        let (rates, locality) = match config.topology {
            true => (rates, locality(Path::new("/"), &cpus)),
            false => Default::default(),
        };
        let rdma_ports = ports.len();
        let found = Self {
            host,
            cpus,
            cores,
            interface,
            interfaces,
            others,
            machine,
            local,
            rates,
            locality,
            rdma_ports,
            witness: None,
        };
        Ok((found, rails))
    }

    /// Opens the RDMA devices again, for another group. `rank` is for the log.
    ///
    /// # Errors
    /// RDMA fails, and nothing else is allowed.
    pub(super) fn rails(&self, config: &Config, rank: Rank) -> Result<Option<Rails>, InitError> {
        if self.rdma_ports == 0 {
            return Ok(None);
        }
        let mut rails = open_rails(config, rank, self.interface.as_ref())?;
        if let (Some(rails), Some(machine)) = (&mut rails, &self.machine) {
            rails.locate(machine);
        }
        Ok(rails)
    }
}

impl Discovered {
    /// Returns the devices for in-network reduction, if this process has RDMA ports.
    pub(super) fn rdma_devices(&self, config: &Config) -> Option<Arc<RdmaDevices>> {
        let near = self.interface.as_ref().map(|choice| choice.address);
        let devices =
            || RdmaDevices::new(config.rdma(), near, self.machine.clone(), self.rdma_ports);
        (self.rdma_ports > 0).then(|| Arc::new(devices()))
    }
}

/// Mbit/s of all interfaces together, if messages are divided evenly; 0 if a rate is unknown.
fn tcp_mbps(interfaces: &[Listed]) -> u32 {
    let each = interfaces.iter().map(|it| wire_mbps(Path::new("/"), &it.choice.interface));
    let count = u32::try_from(interfaces.len()).unwrap_or(u32::MAX);
    each.min().unwrap_or(0).saturating_mul(count)
}

/// The rates of this host's interfaces for TCP under these settings.
pub(super) fn tcp_rates(config: &Config) -> Result<Rates, InitError> {
    let choices = alike(&interfaces::choose(config, Rank(0), MeetingPlace::default())?);
    let interfaces = interfaces::listed(config, &choices, None);
    let tcp_mbps = if config.topology { tcp_mbps(&interfaces) } else { 0 };
    Ok(Rates { tcp_mbps, rdma_gbps: 0 })
}

/// The interface that suits the settings best, if this host may need one.
pub(super) fn interface(config: &Config) -> Result<Option<Choice>, InitError> {
    Ok(interfaces::choose(config, Rank(0), MeetingPlace::default())?.into_iter().next())
}

/// Opens the RDMA devices, if they are allowed.
fn open_rails(
    config: &Config,
    rank: Rank,
    interface: Option<&Choice>,
) -> Result<Option<Rails>, InitError> {
    let Transports { shm, rdma, tcp } = config.transports;
    if !rdma {
        return Ok(None);
    }
    match Rails::open(&config.rdma(), interface.map(|choice| choice.address)) {
        Ok(rails) => Ok(Some(rails)),
        Err(source) if source.is_unknown() => Err(InitError::RdmaSetting { rank, source }),
        Err(source) if !shm && !tcp => Err(InitError::Rdma { rank, source }),
        Err(why) => {
            tracing::info!("rank {rank}: {why}");
            Ok(None)
        }
    }
}
