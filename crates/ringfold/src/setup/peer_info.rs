//! The information that each rank sends to its peers: its host, its addresses and its settings.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ringfold_topology::discover::Cpus;
use ringfold_topology::prices::{Rates, Seat};
use ringfold_types::limits::{EVIDENCE_BYTES_MAX, PEER_INFO_BYTES_MAX, PRICES_BYTES_MAX};

use super::discover::LocalEvidence;
use super::error::UnreadablePeerInfo;
use super::settings::{Settings, build};
use super::statement::{self, Statement};
use crate::digest::digest;

/// The information of one rank. Every rank receives that of every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpAddress {
    pub(crate) at: SocketAddr,
    /// The name of its interface.
    pub(crate) interface: String,
}

/// A summary of a rank's evidence of the fabric. Ranks exchange it before the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvidenceSummary {
    /// The digest of the evidence. One rank of a host sends the evidence for all with this digest.
    pub(crate) digest: u64,
    /// The bytes of the rank's statement, at most `limits::EVIDENCE_BYTES_MAX`.
    pub(crate) bytes: usize,
    /// Whether the evidence may change routes or schedules, so that ranks must exchange it.
    pub(crate) is_of_use: bool,
}

/// The statements of a rank about prices. Rank 0 sends its profile later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PriceSummary {
    /// The rates of the rank's NICs.
    pub(crate) rates: Rates,
    /// The place of its cores.
    pub(crate) seat: Seat,
    /// The bytes of its profile, at most `limits::PRICES_BYTES_MAX`; 0 without one.
    pub(crate) profile_bytes: usize,
}

/// Marks, in the line of RDMA networks, a rank whose data may not go by TCP.
const WITHOUT_TCP: char = '-';

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

    /// Encodes the information as lines of text: build, host, its name, shared memory, settings,
    /// CPUs, cores, RDMA networks, prices, evidence and TCP addresses. The host's name is cut where
    /// the first address needs its room. Further addresses beyond the limit are left out.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { host_id, shm, settings, cpus, cores, rdma, may_use_tcp, .. } = self;
        let Self { prices, evidence, .. } = self;
        let summary = |it: &EvidenceSummary| {
            let mark = if it.is_of_use { "+" } else { "" };
            format!("{:x}:{}{mark}", it.digest, it.bytes)
        };
        let evidence = evidence.as_ref().map_or_else(String::new, summary);
        let without_tcp = if *may_use_tcp { "" } else { "-" };
        let cpus = Some(cpus.to_string()).filter(|list| list.len() <= CPUS_BYTES);
        let (cpus, build) = (cpus.unwrap_or_default(), build());
        let with_host = |host: &str| {
            format!(
                "{build}\n{host_id}\n{host}\n{shm}\n{settings}\n{cpus}\n{cores}\n\
                 {without_tcp}{rdma}\n{prices}\n{evidence}\n"
            )
        };
        let addresses: Vec<_> = self.tcp.iter().map(|address| format!("{address} ")).collect();
        let needed = with_host("").len() + addresses.first().map_or(0, String::len);
        let room = PEER_INFO_BYTES_MAX.saturating_sub(needed).min(HOST_NAME_BYTES);
        let mut text = with_host(&self.host[..self.host.floor_char_boundary(room)]);
        for address in addresses {
            if text.len() + address.len() <= PEER_INFO_BYTES_MAX {
                text += &address;
            }
        }
        text.into_bytes()
    }

    /// The build of the rank that encoded the information. Its lines are those of that build.
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
        let text = std::str::from_utf8(bytes).map_err(|_| UnreadablePeerInfo)?;
        let mut lines = text.split('\n').skip(1);
        let mut line = || lines.next().ok_or(UnreadablePeerInfo);
        let [host_id, host, shm, settings] = [line()?, line()?, line()?, line()?];
        let [cpus, cores, rdma] = [line()?, line()?, line()?];
        let [prices, evidence, tcp] = [line()?, line()?, line()?];
        if lines.next().is_some() {
            return Err(UnreadablePeerInfo);
        }
        let tcp = tcp.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        Ok(Self {
            host_id: host_id.to_owned(),
            host: host.to_owned(),
            shm: shm.to_owned(),
            settings: Settings::parse(settings).ok_or(UnreadablePeerInfo)?,
            cpus: cpus.parse().map_err(|_| UnreadablePeerInfo)?,
            cores: cores.parse().ok().filter(|it| *it < CORES_END).ok_or(UnreadablePeerInfo)?,
            rdma: rdma.trim_start_matches(WITHOUT_TCP).to_owned(),
            may_use_tcp: !rdma.starts_with(WITHOUT_TCP),
            prices: PriceSummary::parse(prices).ok_or(UnreadablePeerInfo)?,
            evidence: EvidenceSummary::parse(evidence)?,
            tcp: tcp.map_err(|_| UnreadablePeerInfo)?,
        })
    }
}

/// The text that `parse` reads. A character of the interface that is not printable ASCII is a
/// question mark.
impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |it: char| if it.is_ascii_graphic() { it } else { '?' };
        let interface: String = self.interface.chars().map(plain).take(INTERFACE_BYTES).collect();
        write!(f, "{}%{interface}", self.at)
    }
}

impl FromStr for TcpAddress {
    type Err = UnreadablePeerInfo;

    fn from_str(text: &str) -> Result<Self, UnreadablePeerInfo> {
        let (at, interface) = text.rsplit_once('%').ok_or(UnreadablePeerInfo)?;
        let is_name = interface.len() <= INTERFACE_BYTES
            && interface.chars().all(|character| character.is_ascii_graphic());
        let at = at.parse().ok().filter(|_| is_name).ok_or(UnreadablePeerInfo)?;
        Ok(Self { at, interface: interface.to_owned() })
    }
}

impl PriceSummary {
    fn parse(text: &str) -> Option<Self> {
        let [tcp_mbps, rdma_gbps, socket, cache, profile_bytes] =
            text.split(':').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let place = |word: &str| match word {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(Self {
            rates: Rates { tcp_mbps: tcp_mbps.parse().ok()?, rdma_gbps: rdma_gbps.parse().ok()? },
            seat: Seat { socket: place(socket)?, cache: place(cache)? },
            profile_bytes: profile_bytes.parse().ok().filter(|it| *it <= PRICES_BYTES_MAX)?,
        })
    }
}

/// The text that `parse` reads.
impl fmt::Display for PriceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rates: Rates { tcp_mbps, rdma_gbps }, seat, profile_bytes } = self;
        let place = |number: Option<u16>| number.map_or_else(String::new, |it| it.to_string());
        let Seat { socket, cache } = *seat;
        let [socket, cache] = [socket, cache].map(place);
        write!(f, "{tcp_mbps}:{rdma_gbps}:{socket}:{cache}:{profile_bytes}")
    }
}

impl EvidenceSummary {
    /// The summary of a rank's evidence, if it has any. `addresses` is the number of addresses in
    /// its statement.
    pub(super) fn of(local: &LocalEvidence, addresses: usize) -> Option<Self> {
        let bytes = statement::encode(&local.evidence);
        let has_some = !local.evidence.ports.is_empty() || local.evidence.path.is_some();
        has_some.then(|| Self {
            digest: digest(&bytes),
            bytes: Statement::bytes(addresses) + bytes.len(),
            is_of_use: local.is_of_use,
        })
    }

    fn parse(text: &str) -> Result<Option<Self>, UnreadablePeerInfo> {
        if text.is_empty() {
            return Ok(None);
        }
        let (digest, bytes) = text.split_once(':').ok_or(UnreadablePeerInfo)?;
        let digest = u64::from_str_radix(digest, 16).map_err(|_| UnreadablePeerInfo)?;
        let is_of_use = bytes.ends_with('+');
        let bytes = bytes.strip_suffix('+').unwrap_or(bytes).parse().ok();
        let bytes = bytes.filter(|bytes| *bytes <= EVIDENCE_BYTES_MAX).ok_or(UnreadablePeerInfo)?;
        Ok(Some(Self { digest, bytes, is_of_use }))
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
                seat: Seat { socket: Some(1), cache: None },
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
        for bytes in [
            &b""[..],
            b"\xff",
            b"b\na\nb",
            b"b\na\nh\nb\nc d\n",
            b"b\na\nh\nb\nc\n",
            b"b\na\nh\nb\n0: 0: 0:\n\n1\ne\n0:0:::0\n\n1.2.3.4",
            b"b\na\nh\nb\n0: 0: 0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n0:0:::0\n1\n1.2.3.4:1%e",
            b"b\na\nh\nb\n0: 0: 0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n0:0:::0\n1:9999\n1.2.3.4:1%e",
            b"b\na\nh\nb\n0: 0: 0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n\n1:8192\n1.2.3.4:1%e",
            b"b\na\nh\nb\n0: 0: 0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n0:0:::8193\n1:8192\n1.2.3.4:1%e",
            b"b\na\nh\nb\n0: 0: 0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n0:0:x::0\n1:8192\n1.2.3.4:1%e",
            b"b\na\nh\nb\n0: 0: 0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n0:0:::0:0\n1:8192\n1.2.3.4:1%e",
        ] {
            assert_eq!(PeerInfo::decode(bytes), Err(UnreadablePeerInfo), "{bytes:?}");
        }
        let good = b"b\na\nh\nb\n0: 0: 0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n0:0:::0\n1:8192\n1.2.3.4:1%e";
        assert!(PeerInfo::decode(good).is_ok(), "the others lack one thing each");
    }
}
