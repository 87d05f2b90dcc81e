//! Statements: the bytes in which ranks exchange evidence of the fabric. The first is a version.
//! The decoder refuses too many bytes before it reads them.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;

use ringfold_types::limits::{
    EVIDENCE_BYTES_MAX, EVIDENCE_NAME_BYTES_MAX, EVIDENCE_PORTS_MAX, EVIDENCE_SOURCES_MAX,
    FABRIC_LEVELS_MAX,
};
use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, HostPath, PortEvidence};
use crate::machine::PciAddress;

const VERSION: u8 = 2;

/// These bytes are not the evidence of a rank of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableEvidence;

impl fmt::Display for UnreadableEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the bytes are not of this version; start every rank with the same version of ringfold",
        )
    }
}

impl Error for UnreadableEvidence {}

/// The evidence that one rank sends to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The rank's GPU.
    pub gpu: Option<PciAddress>,
    /// The addresses on which the rank listens for TCP, each with the index of its port in the
    /// evidence.
    pub tcp: Vec<(u8, SocketAddr)>,
    /// The rank's evidence. `None` if another rank of its host sends the same.
    pub evidence: Option<Evidence>,
}

impl Statement {
    /// The most bytes of a statement with this number of addresses, without those of its evidence.
    #[must_use]
    pub const fn bytes(addresses: usize) -> usize {
        12 + 21 * addresses
    }

    /// Encodes the statement.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    /// Decodes a statement. An empty one is that of a rank without evidence.
    ///
    /// # Errors
    /// The bytes are not a statement of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, UnreadableEvidence> {
        let body = match bytes {
            [] => return Ok(Self::default()),
            [VERSION, body @ ..] if bytes.len() <= EVIDENCE_BYTES_MAX => body,
            _ => return Err(UnreadableEvidence),
        };
        match postcard::take_from_bytes::<Self>(body) {
            Ok((statement, [])) if statement.is_sound() => Ok(statement),
            _ => Err(UnreadableEvidence),
        }
    }

    /// Whether every list and name is within its limit.
    fn is_sound(&self) -> bool {
        let is_name = |name: &String| name.len() <= EVIDENCE_NAME_BYTES_MAX;
        let is_path = |path: &HostPath| {
            path.groups.len() <= FABRIC_LEVELS_MAX && path.groups.iter().all(is_name)
        };
        let is_port = |port: &PortEvidence| {
            is_name(&port.name) && port.attached.len() <= EVIDENCE_SOURCES_MAX
        };
        let is_evidence = |evidence: &Evidence| {
            evidence.path.iter().all(is_path)
                && evidence.ports.len() <= EVIDENCE_PORTS_MAX
                && evidence.ports.iter().all(is_port)
        };
        self.tcp.len() <= EVIDENCE_PORTS_MAX && self.evidence.iter().all(is_evidence)
    }
}

/// Encodes evidence. Ranks of a host whose evidence has equal bytes send it once.
#[must_use]
pub fn encode(evidence: &Evidence) -> Vec<u8> {
    postcard::to_stdvec(evidence).unwrap_or_default()
}

/// Whether the bytes are a statement of evidence, for fuzzing.
///
/// # Panics
/// If a decoded statement does not survive encoding and decoding.
#[doc(hidden)]
#[must_use]
pub fn is_evidence(bytes: &[u8]) -> bool {
    let Ok(statement) = Statement::decode(bytes) else { return false };
    let again = Statement::decode(&statement.encode());
    assert_eq!(again.as_ref(), Ok(&statement), "{bytes:?}");
    true
}

#[cfg(test)]
mod tests {
    use ringfold_types::limits::LANES_MAX;

    use super::*;
    use crate::evidence::{Attached, Source};
    use crate::fabric::Place;
    use crate::machine::Network;

    fn statement() -> Statement {
        let place = Place { rail: 300, plane: 2 };
        let port = |name: &str, network, attached| PortEvidence {
            name: name.to_owned(),
            network,
            gbps: 400,
            attached,
        };
        let subnet = Attached::Subnet { network: u64::MAX, address: 1 };
        let evidence = Evidence {
            path: Some(HostPath {
                groups: vec!["pod 1".to_owned(), String::new()],
                order: Some(7),
                source: Source::Site,
            }),
            crosses: Some(false),
            ports: vec![
                port("mlx5_0:1", Network::Roce, vec![subnet, Attached::Switch(5)]),
                port("eth0", Network::Tcp, vec![Attached::Rail(place, Source::Declared)]),
            ],
        };
        let tcp = ["10.0.0.1:80", "[2001:db8::1]:65535"].map(|at| at.parse().unwrap());
        Statement {
            gpu: Some(PciAddress { domain: 1 << 20, bus: 0xc1, device: 31, function: 7 }),
            tcp: vec![(0, tcp[0]), (31, tcp[1])],
            evidence: Some(evidence),
        }
    }

    #[test]
    fn statements_survive_encoding() {
        let full = statement();
        let bare = Statement { evidence: None, ..full.clone() };
        let plain = Statement { evidence: Some(Evidence::default()), ..Statement::default() };
        for statement in [full, bare, plain, Statement::default()] {
            assert_eq!(Statement::decode(&statement.encode()), Ok(statement));
        }
        assert_eq!(Statement::decode(&[]), Ok(Statement::default()));
        let far = SocketAddr::from(([u16::MAX; 8], u16::MAX));
        let most = PciAddress { domain: u32::MAX, bus: 1, device: 1, function: 1 };
        for addresses in [0, EVIDENCE_PORTS_MAX] {
            let (gpu, tcp) = (Some(most), vec![(31, far); addresses]);
            let longest = Statement { gpu, tcp, evidence: Some(Evidence::default()) };
            let without = longest.encode().len() - encode(&Evidence::default()).len();
            assert_eq!(without, Statement::bytes(addresses));
        }
        let name = "n".repeat(EVIDENCE_NAME_BYTES_MAX);
        let attached =
            vec![Attached::Subnet { network: u64::MAX, address: u64::MAX }; EVIDENCE_SOURCES_MAX];
        let (network, gbps) = (Network::Roce, u32::MAX);
        let port = PortEvidence { name: name.clone(), network, gbps, attached };
        let groups = vec![name; FABRIC_LEVELS_MAX];
        let evidence = Evidence {
            path: Some(HostPath { groups, order: Some(u32::MAX), source: Source::Site }),
            crosses: Some(true),
            ports: vec![port; EVIDENCE_PORTS_MAX],
        };
        let tcp = vec![(31, far); LANES_MAX];
        let longest = Statement { gpu: Some(most), tcp, evidence: Some(evidence) };
        assert!(longest.encode().len() <= EVIDENCE_BYTES_MAX);
        assert_eq!(Statement::decode(&longest.encode()), Ok(longest));
    }

    #[test]
    fn truncated_and_lengthened_statements_are_refused() {
        let bytes = statement().encode();
        for end in 1..bytes.len() {
            assert_eq!(Statement::decode(&bytes[..end]), Err(UnreadableEvidence), "{end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Statement::decode(&longer), Err(UnreadableEvidence));
        let mut other = bytes;
        other[0] = VERSION + 1;
        assert_eq!(Statement::decode(&other), Err(UnreadableEvidence));
        let long = vec![VERSION; EVIDENCE_BYTES_MAX + 1];
        assert_eq!(Statement::decode(&long), Err(UnreadableEvidence));
    }

    /// Every byte takes every value: nothing panics, and each decoded statement survives encoding.
    #[test]
    fn changed_bytes_are_read_or_refused() {
        let bytes = statement().encode();
        let mut read = 0;
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                read += usize::from(is_evidence(&changed));
            }
        }
        assert!(read > bytes.len(), "{read}");
    }

    #[test]
    fn more_than_the_limits_is_refused() {
        let with = |change: &dyn Fn(&mut Evidence)| {
            let mut statement = statement();
            change(statement.evidence.as_mut().unwrap());
            Statement::decode(&statement.encode()).is_ok()
        };
        let port = statement().evidence.unwrap().ports.remove(0);
        assert!(with(&|it| it.ports = vec![port.clone(); EVIDENCE_PORTS_MAX]));
        assert!(!with(&|it| it.ports = vec![port.clone(); EVIDENCE_PORTS_MAX + 1]));
        let sources = |count| vec![Attached::Switch(1); count];
        assert!(with(&|it| it.ports[0].attached = sources(EVIDENCE_SOURCES_MAX)));
        assert!(!with(&|it| it.ports[0].attached = sources(EVIDENCE_SOURCES_MAX + 1)));
        assert!(with(&|it| it.ports[0].name = "x".repeat(EVIDENCE_NAME_BYTES_MAX)));
        assert!(!with(&|it| it.ports[0].name = "x".repeat(EVIDENCE_NAME_BYTES_MAX + 1)));
        let levels = |count| vec![String::new(); count];
        assert!(with(&|it| it.path.as_mut().unwrap().groups = levels(FABRIC_LEVELS_MAX)));
        assert!(!with(&|it| it.path.as_mut().unwrap().groups = levels(FABRIC_LEVELS_MAX + 1)));
    }
}
