//! Statements: the bytes in which ranks exchange evidence of the fabric. They are little-endian, of
//! fixed widths and versioned. The decoder checks every count against its limit before it
//! allocates.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringfold_topology::evidence::{Attached, Evidence, HostPath, PortEvidence, Source};
use ringfold_topology::fabric::Place;
use ringfold_topology::machine::{Network, PciAddress};
use ringfold_types::limits::{
    EVIDENCE_BYTES_MAX, EVIDENCE_NAME_BYTES_MAX, EVIDENCE_PORTS_MAX, EVIDENCE_SOURCES_MAX,
    FABRIC_LEVELS_MAX,
};

use super::error::UnreadableEvidence;

const VERSION: u8 = 1;

/// The sources, each at its number in a statement.
const SOURCES: [Source; 7] = [
    Source::Nothing,
    Source::Subnets,
    Source::Slurm,
    Source::Lldp,
    Source::Fabric,
    Source::Site,
    Source::Declared,
];

/// The networks, each at its number in a statement.
const NETWORKS: [Network; 4] = [Network::InfiniBand, Network::Roce, Network::Iwarp, Network::Tcp];

/// The evidence that one rank sends to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The rank's GPU.
    pub(crate) gpu: Option<PciAddress>,
    /// The addresses on which the rank listens for TCP, each with the index of its port in the
    /// evidence.
    pub(crate) tcp: Vec<(u8, SocketAddr)>,
    /// The rank's evidence. `None` if another rank of its host sends the same.
    pub(crate) evidence: Option<Evidence>,
}

impl Statement {
    /// The bytes of a statement with this number of addresses and without evidence.
    pub(crate) const fn bytes(addresses: usize) -> usize {
        10 + 19 * addresses
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.push(u8::from(self.gpu.is_some()));
        let PciAddress { domain, bus, device, function } = self.gpu.unwrap_or_default();
        bytes.extend(domain.to_le_bytes());
        bytes.extend([bus, device, function]);
        bytes.push(count(self.tcp.len()));
        for (port, address) in &self.tcp {
            bytes.push(*port);
            bytes.extend(v6(address.ip()).octets());
            bytes.extend(address.port().to_le_bytes());
        }
        if let Some(evidence) = &self.evidence {
            bytes.extend(encode(evidence));
        }
        bytes
    }

    /// Decodes a statement. An empty one is that of a rank without evidence.
    ///
    /// # Errors
    /// The bytes are not a statement of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, UnreadableEvidence> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        if bytes.len() > EVIDENCE_BYTES_MAX {
            return Err(UnreadableEvidence);
        }
        let mut input = Input(bytes);
        if input.byte()? != VERSION {
            return Err(UnreadableEvidence);
        }
        let has_gpu = input.of(&[false, true])?;
        let (domain, [bus, device, function]) = (input.word()?, input.take()?);
        let gpu = has_gpu.then_some(PciAddress { domain, bus, device, function });
        let tcp = input.list(EVIDENCE_PORTS_MAX, |input| {
            let (port, ip, number) = (input.byte()?, Ipv6Addr::from(input.take()?), input.half()?);
            Ok((port, SocketAddr::new(IpAddr::V6(ip).to_canonical(), number)))
        })?;
        let evidence = if input.0.is_empty() { None } else { Some(input.evidence()?) };
        if input.0.is_empty() { Ok(Self { gpu, tcp, evidence }) } else { Err(UnreadableEvidence) }
    }
}

/// Encodes evidence. Ranks of a host whose evidence has equal bytes send it once.
pub(crate) fn encode(evidence: &Evidence) -> Vec<u8> {
    let Evidence { path, crosses, ports } = evidence;
    let crosses = match crosses {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    };
    let mut bytes = vec![crosses];
    match path {
        None => bytes.push(0),
        Some(HostPath { groups, order, source }) => {
            bytes.push(1 + u8::from(order.is_some()));
            bytes.push(number(&SOURCES, *source));
            bytes.extend(order.unwrap_or(0).to_le_bytes());
            bytes.push(count(groups.len()));
            groups.iter().for_each(|group| name(&mut bytes, group));
        }
    }
    bytes.push(count(ports.len()));
    for PortEvidence { name: title, network, gbps, attached } in ports {
        name(&mut bytes, title);
        bytes.push(number(&NETWORKS, *network));
        bytes.extend(gbps.to_le_bytes());
        bytes.push(count(attached.len()));
        attached.iter().for_each(|attached| encode_attached(&mut bytes, *attached));
    }
    bytes
}

fn encode_attached(bytes: &mut Vec<u8>, attached: Attached) {
    match attached {
        Attached::Subnet { network, address } => {
            bytes.push(0);
            bytes.extend(network.to_le_bytes());
            bytes.extend(address.to_le_bytes());
        }
        Attached::Switch(switch) => {
            bytes.push(1);
            bytes.extend(switch.to_le_bytes());
        }
        Attached::Rail(Place { rail, plane }, source) => {
            bytes.push(2);
            bytes.extend(rail.to_le_bytes());
            bytes.push(plane);
            bytes.push(number(&SOURCES, source));
        }
    }
}

fn name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(count(name.len()));
    bytes.extend(name.as_bytes());
}

/// Encodes a length. The caller keeps to the limits, which are all below 256.
fn count(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(u8::MAX)
}

fn number<T: PartialEq>(table: &[T], value: T) -> u8 {
    count(table.iter().position(|it| *it == value).unwrap_or(0))
}

const fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The bytes that are not decoded yet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], UnreadableEvidence> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(UnreadableEvidence)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, UnreadableEvidence> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn half(&mut self) -> Result<u16, UnreadableEvidence> {
        self.take().map(u16::from_le_bytes)
    }

    fn word(&mut self) -> Result<u32, UnreadableEvidence> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, UnreadableEvidence> {
        self.take().map(u64::from_le_bytes)
    }

    fn of<T: Copy>(&mut self, table: &[T]) -> Result<T, UnreadableEvidence> {
        table.get(usize::from(self.byte()?)).copied().ok_or(UnreadableEvidence)
    }

    fn list<T>(
        &mut self,
        max: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, UnreadableEvidence>,
    ) -> Result<Vec<T>, UnreadableEvidence> {
        let count = usize::from(self.byte()?);
        if count > max {
            return Err(UnreadableEvidence);
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn name(&mut self) -> Result<String, UnreadableEvidence> {
        let length = usize::from(self.byte()?);
        let fits = length <= EVIDENCE_NAME_BYTES_MAX;
        let (name, rest) =
            self.0.split_at_checked(length).filter(|_| fits).ok_or(UnreadableEvidence)?;
        self.0 = rest;
        str::from_utf8(name).map(str::to_owned).map_err(|_| UnreadableEvidence)
    }

    fn evidence(&mut self) -> Result<Evidence, UnreadableEvidence> {
        let crosses = self.of(&[None, Some(false), Some(true)])?;
        let path = match self.byte()? {
            0 => None,
            has_order @ 1..=2 => {
                let (source, order) = (self.of(&SOURCES)?, self.word()?);
                let groups = self.list(FABRIC_LEVELS_MAX, Self::name)?;
                Some(HostPath { groups, order: (has_order == 2).then_some(order), source })
            }
            _ => return Err(UnreadableEvidence),
        };
        let ports = self.list(EVIDENCE_PORTS_MAX, |input| {
            let (name, network, gbps) = (input.name()?, input.of(&NETWORKS)?, input.word()?);
            let attached = input.list(EVIDENCE_SOURCES_MAX, Self::attached)?;
            Ok(PortEvidence { name, network, gbps, attached })
        })?;
        Ok(Evidence { path, crosses, ports })
    }

    fn attached(&mut self) -> Result<Attached, UnreadableEvidence> {
        match self.byte()? {
            0 => Ok(Attached::Subnet { network: self.long()?, address: self.long()? }),
            1 => Ok(Attached::Switch(self.long()?)),
            2 => {
                let place = Place { rail: self.half()?, plane: self.byte()? };
                Ok(Attached::Rail(place, self.of(&SOURCES)?))
            }
            _ => Err(UnreadableEvidence),
        }
    }
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
    use super::*;

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
        let bare = Statement { evidence: None, ..statement() };
        assert_eq!(bare.encode().len(), Statement::bytes(bare.tcp.len()));
    }

    #[test]
    fn truncated_and_lengthened_statements_are_refused() {
        let bytes = statement().encode();
        let has_evidence = |end: usize| Statement::decode(&bytes[..end]).map(|it| it.evidence);
        for end in 1..bytes.len() {
            // A statement ends where its evidence would begin, or with it.
            assert!(matches!(has_evidence(end), Err(_) | Ok(None)), "{end}");
        }
        assert_eq!((1..bytes.len()).filter(|end| has_evidence(*end).is_ok()).count(), 1);
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
