//! The NICs of each host that takes part.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use anyhow::ensure;
use ringfold::Config;
use ringfold_bootstrap::interface::{Family, Filter, choose_all, interfaces};
use ringfold_topology::Layout;
use ringfold_topology::discover::{self, Host};
use ringfold_topology::fabric::{EndPort, Fabric, PortId};
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

/// A NIC, by its network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nic {
    pub(super) interface: String,
    /// The address of the interface that probes use.
    pub(super) address: IpAddr,
    /// Bits of the address that name its network, of 32 or 128.
    pub(super) prefix: u8,
    /// The MAC address; 0 if none.
    pub(super) mac: u64,
    /// Gigabits per second; 0 if unknown.
    pub(super) gbps: u32,
}

impl Nic {
    /// The network of its address, as comparable numbers.
    pub(super) fn subnet(&self) -> (u128, u8) {
        let (bits, all) = match self.address {
            IpAddr::V4(address) => (u32::from(address).into(), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let prefix = self.prefix.min(all);
        // No prefix of all 128 bits is shifted away.
        (bits.checked_shr(u32::from(all - prefix)).unwrap_or(0), prefix)
    }

    fn id(&self) -> PortId {
        if self.mac != 0 {
            return PortId::Mac(self.mac);
        }
        PortId::Address(match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            IpAddr::V6(address) => address.into(),
        })
    }
}

/// One rank's word about its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) host: String,
    pub(super) nics: Vec<Nic>,
}

impl Card {
    pub(super) fn of_this_host(config: &Config) -> anyhow::Result<Self> {
        let filter = config.socket_ifname.as_deref().map(|text| {
            let Ok(filter) = text.parse::<Filter>();
            filter
        });
        let choices = choose_all(&interfaces()?, filter.as_ref(), Family::Any, false)?;
        let machine = discover::machine(Path::new("/"));
        let nics: Vec<Nic> = choices
            .into_iter()
            .map(|choice| {
                let known = machine.interfaces.iter().find(|it| it.name == choice.interface);
                Nic {
                    mac: known.map_or(0, |it| it.mac),
                    gbps: known.map_or(0, |it| it.gbps),
                    interface: choice.interface,
                    address: choice.address,
                    prefix: choice.prefix,
                }
            })
            .collect();
        ensure!(!nics.is_empty(), "--measure: this host has no network interface to measure");
        let host = config.host_id.clone().unwrap_or_else(|| Host::this().name);
        Ok(Self { host, nics })
    }
}

/// A host, and the rank that measures there.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) rank: Rank,
    /// Unique among ends.
    pub(super) host: String,
    pub(super) nics: Vec<Nic>,
}

impl End {
    /// One for each host: its lowest rank. Hosts of equal names are told apart by a number.
    pub(super) fn all(layout: &Layout, cards: Vec<Card>) -> Vec<Self> {
        let mut ends: Vec<Self> = Vec::new();
        let mut names = BTreeSet::new();
        for (rank, card) in cards.into_iter().enumerate() {
            let rank = Rank::at(rank);
            if ends.iter().any(|end| layout.same_host(end.rank, rank)) {
                continue;
            }
            let mut host = card.host.clone();
            for number in 2.. {
                if names.insert(host.clone()) {
                    break;
                }
                host = format!("{}#{number}", card.host);
            }
            ends.push(Self { rank, host, nics: card.nics });
        }
        ends
    }
}

/// The ports of all ends, without switches: probes see none.
pub(super) fn fabric(ends: &[End]) -> Fabric {
    let port = |end: &End, nic: &Nic| EndPort {
        id: nic.id(),
        host: end.host.clone(),
        device: nic.interface.clone(),
        number: 1,
        gbps: nic.gbps,
        attached: None,
    };
    let ports = ends.iter().flat_map(|end| end.nics.iter().map(|nic| port(end, nic))).collect();
    Fabric { ports, is_partial: true, ..Fabric::default() }
}
