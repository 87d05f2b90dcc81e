//! The information that each rank sends to its peers: its host, its addresses and its settings.

use std::net::SocketAddr;

use ringfold_topology::discover::Cpus;
use ringfold_topology::prices::{Locality, Rates};
use ringfold_topology::statement::{self, Statement};
use ringfold_types::Digest;
use ringfold_types::limits::{EVIDENCE_BYTES_MAX, PEER_INFO_BYTES_MAX, PRICES_BYTES_MAX};
use serde::{Deserialize, Serialize};

use super::discover::LocalEvidence;
use super::error::UnreadablePeerInfo;
use super::settings::{Settings, build};

/// The information of one rank. Every rank receives that of every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    /// The id of the host (`Host::id`). Ranks with the same id can share memory.
    pub(crate) host_id: String,
    /// The name of the host, for messages.
    pub(crate) host: String,
    /// The address of the rank's shared memory; empty if it shares none.
    pub(crate) shm: String,
    /// The settings that must be the same on all ranks.
    pub(crate) settings: Settings,
    /// The CPUs that the rank may run on; empty if their list is too long.
    pub(crate) cpus: Cpus,
    /// The number of CPUs that the rank may use at a time, within its quota.
    pub(crate) cores: usize,
    /// The kinds of the rank's RDMA networks, one letter each.
    pub(crate) rdma: String,
    /// Whether the rank's data may go by TCP.
    pub(crate) may_use_tcp: bool,
    /// The statements of the rank from which all ranks derive their prices.
    pub(crate) prices: PriceSummary,
    /// The summary of the rank's evidence of the fabric. Ranks exchange the evidence later.
    pub(crate) evidence: Option<EvidenceSummary>,
    /// The addresses on which the rank listens for TCP, which RDMA needs too.
    pub(crate) tcp: Vec<TcpAddress>,
}

/// An address on which a rank listens for TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TcpAddress {
    pub(crate) at: SocketAddr,
    /// The name of its interface.
    pub(crate) interface: String,
}

/// A summary of a rank's evidence of the fabric. Ranks exchange it before the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EvidenceSummary {
    /// The digest of the evidence. One rank of a host sends the evidence for all with this digest.
    pub(crate) digest: u64,
    /// The bytes of the rank's statement, at most `limits::EVIDENCE_BYTES_MAX`.
    pub(crate) bytes: usize,
    /// Whether the evidence may change routes or schedules, so that ranks must exchange it.
    pub(crate) is_of_use: bool,
}

/// The statements of a rank about prices. Rank 0 sends its profile later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PriceSummary {
    /// The rates of the rank's NICs.
    pub(crate) rates: Rates,
    /// The place of its cores.
    pub(crate) locality: Locality,
    /// The bytes of its profile, at most `limits::PRICES_BYTES_MAX`; 0 without one.
    pub(crate) profile_bytes: usize,
}

/// The most bytes of a host's name that ranks exchange.
const HOST_NAME_BYTES: usize = 64;

/// The most bytes of the name of an interface, in Linux.
const INTERFACE_BYTES: usize = 15;

/// The most bytes of a list of CPUs that ranks exchange.
const CPUS_BYTES: usize = 64;

/// An upper bound on the cores of a machine.
const CORES_END: usize = 1 << 16;

impl PeerInfo {
    /// The id of the machine. Its containers are different hosts, but share its CPUs.
    pub(crate) fn machine(&self) -> &str {
        self.host_id.split_once('/').map_or(&self.host_id, |(boot, _)| boot)
    }

    /// The id of the network namespace. Ranks in different ones do not share loopback addresses.
    pub(crate) fn network(&self) -> &str {
        let end = self.host_id.match_indices('/').nth(1).map_or(self.host_id.len(), |it| it.0);
        &self.host_id[..end]
    }

    /// Encodes a line with the build, and the information. Addresses beyond the limit are left out,
    /// but for the first. The host's name is cut where that address needs its room.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let cut = |text: &str, bytes| {
            text[..text.floor_char_boundary(bytes)].replace(char::is_control, "?")
        };
        let mut sent = Self { host: cut(&self.host, HOST_NAME_BYTES), ..self.clone() };
        if sent.cpus.to_string().len() > CPUS_BYTES {
            sent.cpus = Cpus::default();
        }
        let plain = |it: char| if it.is_ascii_graphic() { it } else { '?' };
        for TcpAddress { interface, .. } in &mut sent.tcp {
            *interface = interface.chars().map(plain).take(INTERFACE_BYTES).collect();
        }
        loop {
            let line = format!("{}\n", build()).into_bytes();
            let bytes = postcard::to_extend(&sent, line).unwrap_or_default();
            let excess = bytes.len().saturating_sub(PEER_INFO_BYTES_MAX);
            if excess > 0 && sent.tcp.len() > 1 {
                sent.tcp.pop();
            } else if excess > 0 && !sent.host.is_empty() {
                sent.host = cut(&sent.host, sent.host.len().saturating_sub(excess));
            } else {
                return bytes;
            }
        }
    }

    /// The build of the rank that encoded the information. Only ranks of that build read the rest.
    pub(super) fn build_of(bytes: &[u8]) -> &str {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = std::str::from_utf8(line).ok();
        line.filter(|line| line.bytes().all(|byte| byte.is_ascii_graphic())).unwrap_or("?")
    }

    /// Decodes the information of a rank of this build.
    ///
    /// # Errors
    /// The bytes are not the information of a rank.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, UnreadablePeerInfo> {
        let body = bytes.iter().position(|byte| *byte == b'\n').map(|end| &bytes[end + 1..]);
        let body = body.filter(|_| bytes.len() <= PEER_INFO_BYTES_MAX).ok_or(UnreadablePeerInfo)?;
        match postcard::take_from_bytes::<Self>(body) {
            Ok((info, [])) if info.is_sound() => Ok(info),
            _ => Err(UnreadablePeerInfo),
        }
    }

    /// Whether the numbers are within their limits, and the texts may be printed.
    fn is_sound(&self) -> bool {
        let Self { host_id, host, shm, rdma, settings, .. } = self;
        let mut texts = [host_id, host, shm, rdma].map(String::as_str).into_iter();
        let is_printable = |text: &str| !text.contains(char::is_control);
        let is_interface = |it: &TcpAddress| {
            it.interface.len() <= INTERFACE_BYTES
                && it.interface.chars().all(|character| character.is_ascii_graphic())
        };
        texts.all(is_printable)
            && settings.shown().all(is_printable)
            && self.cores < CORES_END
            && self.prices.profile_bytes <= PRICES_BYTES_MAX
            && self.evidence.iter().all(|it| it.bytes <= EVIDENCE_BYTES_MAX)
            && self.tcp.iter().all(is_interface)
    }
}

impl EvidenceSummary {
    /// The summary of a rank's evidence, if it has any. `addresses` is the number of addresses in
    /// its statement.
    pub(super) fn of(local: &LocalEvidence, addresses: usize) -> Option<Self> {
        let bytes = statement::encode(&local.evidence);
        let has_some = !local.evidence.ports.is_empty() || local.evidence.path.is_some();
        has_some.then(|| Self {
            digest: Digest::of(&bytes),
            bytes: Statement::bytes(addresses) + bytes.len(),
            is_of_use: local.is_of_use,
        })
    }
}

/// Whether the bytes are the information of a rank, for fuzzing.
#[doc(hidden)]
#[must_use]
pub fn is_peer_info(bytes: &[u8]) -> bool {
    PeerInfo::decode(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn information_survives_encoding() {
        let address = |port| {
            let at = SocketAddr::from(([127, 0, 0, 1], port));
            TcpAddress { at, interface: "lo".to_owned() }
        };
        let info = PeerInfo {
            host_id: "boot/net:[1]".to_owned(),
            host: "node1".to_owned(),
            shm: "@ringfold-1".to_owned(),
            settings: Settings::of(&Config::default(), None),
            cpus: "0-3,8".parse().unwrap_or_default(),
            cores: 5,
            rdma: "ei".to_owned(),
            may_use_tcp: true,
            prices: PriceSummary {
                rates: Rates { tcp_mbps: 25_000, rdma_gbps: u32::MAX },
                locality: Locality { socket: Some(1), cache: None },
                profile_bytes: PRICES_BYTES_MAX,
            },
            evidence: Some(EvidenceSummary {
                digest: u64::MAX,
                bytes: EVIDENCE_BYTES_MAX,
                is_of_use: true,
            }),
            tcp: vec![address(1), address(65535)],
        };
        assert_eq!(PeerInfo::decode(&info.encode()), Ok(info));
        assert_eq!(PeerInfo::decode(&PeerInfo::default().encode()), Ok(PeerInfo::default()));
        let many = PeerInfo { tcp: vec![address(40000); 100], ..PeerInfo::default() };
        assert!(many.encode().len() <= PEER_INFO_BYTES_MAX);
        assert!(PeerInfo::decode(&many.encode()).is_ok());
    }

    #[test]
    fn the_longest_information_keeps_an_address() {
        let address = |port| {
            let at = SocketAddr::from(([u16::MAX; 8], port));
            TcpAddress { at, interface: "b\u{fc}ro-of-15-bytes".to_owned() }
        };
        let config = Config { chunk_bytes: Some(usize::MAX), ..Config::default() };
        let info = PeerInfo {
            host_id: "b".repeat(54),
            host: "n".repeat(64),
            shm: "s".repeat(66),
            settings: Settings::of(&config, None),
            cpus: "0-31,64-95".parse().unwrap_or_default(),
            cores: 65_535,
            prices: PriceSummary { profile_bytes: PRICES_BYTES_MAX, ..PriceSummary::default() },
            evidence: Some(EvidenceSummary {
                digest: u64::MAX,
                bytes: EVIDENCE_BYTES_MAX,
                is_of_use: true,
            }),
            tcp: (65_532..=u16::MAX).map(address).collect(),
            ..PeerInfo::default()
        };
        let bytes = info.encode();
        assert!(bytes.len() <= PEER_INFO_BYTES_MAX, "{}", bytes.len());
        let read = PeerInfo::decode(&bytes).unwrap();
        assert_eq!(read.tcp[0].at, info.tcp[0].at);
        assert_eq!(read.tcp[0].interface, "b?ro-of-15-byte");
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = Err(UnreadablePeerInfo);
        let at = "1.2.3.4:1".parse().unwrap();
        let tcp = vec![TcpAddress { at, interface: "e".to_owned() }];
        let good = PeerInfo { tcp, ..PeerInfo::default() };
        let bytes = good.encode();
        for end in 0..bytes.len() {
            assert_eq!(PeerInfo::decode(&bytes[..end]), refused, "{end}");
        }
        assert_eq!(PeerInfo::decode(&[&bytes[..], &[0]].concat()), refused);
        assert_eq!(PeerInfo::decode(&[0xff; PEER_INFO_BYTES_MAX + 1]), refused);
        let with = |change: &dyn Fn(&mut PeerInfo)| {
            let mut info = good.clone();
            change(&mut info);
            PeerInfo::decode(&postcard::to_extend(&info, b"b\n".to_vec()).unwrap())
        };
        assert_eq!(with(&|_| {}), Ok(good.clone()));
        let summary = EvidenceSummary { digest: 1, bytes: EVIDENCE_BYTES_MAX + 1, is_of_use: true };
        let wrong: [&dyn Fn(&mut PeerInfo); 5] = [
            &|it| it.host = "a\nb".to_owned(),
            &|it| it.cores = CORES_END,
            &|it| it.prices.profile_bytes = PRICES_BYTES_MAX + 1,
            &|it| it.evidence = Some(summary),
            &|it| it.tcp[0].interface = "e\u{fc}".to_owned(),
        ];
        for change in wrong {
            assert_eq!(with(change), refused);
        }
    }

    #[test]
    fn values_with_control_characters_are_sent() {
        let aggregators = Some("a:1,\tb:1".to_owned());
        let config = Config { aggregators, ..Config::default() };
        let settings = Settings::of(&config, None);
        let info = PeerInfo { settings, host: "a\tb".to_owned(), ..PeerInfo::default() };
        let read = PeerInfo::decode(&info.encode()).unwrap();
        assert_eq!((read.settings, &*read.host), (info.settings, "a?b"));
    }
}
