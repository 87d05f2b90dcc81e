//! The fields of a site file, and the values that they stand for.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::super::scan::mac_address;
use crate::certainty::{Certainty, Finding};
use crate::fabric::{Kind, Place, PortId, Ratio};
use crate::site::{Measured, Position, Reach, Site, SiteHost, SitePort};

/// The version that ringfold writes, and the only one that it reads.
pub(super) const VERSION: u32 = 1;

/// The JSON of a value. Texts and numbers always have one.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A site file whose lists are not parsed yet, so that errors in them have their line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head<'a> {
    #[serde(rename = "ringfold-site", deserialize_with = "version")]
    _version: (),
    kind: KindText,
    rails: Answer<u16>,
    planes: Answer<u8>,
    crosses: Answer<bool>,
    #[serde(borrow, default)]
    pub(super) measured: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) hosts: Vec<&'a RawValue>,
}

fn version<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    let version = u64::deserialize(from)?;
    if version == u64::from(VERSION) {
        return Ok(());
    }
    let text = format!("version {version} is not supported; this ringfold reads version {VERSION}");
    Err(serde::de::Error::custom(text))
}

impl Head<'_> {
    /// The site without the content of the lists.
    pub(super) fn site(&self) -> Site {
        Site {
            kind: self.kind.finding(),
            rails: self.rails.finding(),
            planes: self.planes.finding(),
            crosses: self.crosses.finding(),
            measured: Vec::new(),
            hosts: Vec::with_capacity(self.hosts.len()),
        }
    }
}

/// The fields before the lists.
pub(super) fn head(site: &Site) -> [(&'static str, String); 4] {
    [
        ("kind", json(&KindText::of(&site.kind))),
        ("rails", json(&Answer::of(&site.rails))),
        ("planes", json(&Answer::of(&site.planes))),
        ("crosses", json(&Answer::of(&site.crosses))),
    ]
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CertaintyText {
    #[default]
    Unknown,
    Likely,
    Certain,
}

impl From<Certainty> for CertaintyText {
    fn from(certainty: Certainty) -> Self {
        match certainty {
            Certainty::Unknown => Self::Unknown,
            Certainty::Likely => Self::Likely,
            Certainty::Certain => Self::Certain,
        }
    }
}

impl From<CertaintyText> for Certainty {
    fn from(text: CertaintyText) -> Self {
        match text {
            CertaintyText::Unknown => Self::Unknown,
            CertaintyText::Likely => Self::Likely,
            CertaintyText::Certain => Self::Certain,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<T> {
    value: T,
    certainty: CertaintyText,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    because: String,
}

impl<T: Copy> Answer<T> {
    fn of(finding: &Finding<T>) -> Self {
        let (value, certainty) = (finding.value, finding.certainty.into());
        Self { value, certainty, because: finding.because.clone() }
    }

    fn finding(&self) -> Finding<T> {
        let (value, certainty) = (self.value, self.certainty.into());
        Finding { value, certainty, because: self.because.clone() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindName {
    SingleSwitch,
    RailOptimized,
    RailOnly,
    FatTree,
    DragonflyPlus,
    Torus,
    #[serde(rename = "hyperx")]
    HyperX,
    Other,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "KindFields", into = "KindFields")]
struct KindText(Finding<Kind>);

/// The fields of a kind. Of the optional ones, each kind has its own.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindFields {
    name: KindName,
    #[serde(skip_serializing_if = "Option::is_none")]
    levels: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oversubscription: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dims: Option<Vec<u32>>,
    certainty: CertaintyText,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    because: String,
}

impl Clone for KindText {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl KindText {
    fn of(finding: &Finding<Kind>) -> Self {
        Self(finding.clone())
    }

    fn finding(&self) -> Finding<Kind> {
        self.0.clone()
    }
}

impl From<KindText> for KindFields {
    fn from(KindText(finding): KindText) -> Self {
        let (mut levels, mut oversubscription, mut dims) = (None, None, None);
        let name = match finding.value {
            Kind::SingleSwitch => KindName::SingleSwitch,
            Kind::RailOptimized => KindName::RailOptimized,
            Kind::RailOnly => KindName::RailOnly,
            Kind::DragonflyPlus => KindName::DragonflyPlus,
            Kind::FatTree { levels: of, oversubscription: Ratio(down, up) } => {
                (levels, oversubscription) = (Some(of), Some((down, up)));
                KindName::FatTree
            }
            Kind::Torus { dims: of } => {
                dims = Some(of);
                KindName::Torus
            }
            Kind::HyperX { dims: of } => {
                dims = Some(of);
                KindName::HyperX
            }
            Kind::Other { levels: of } => {
                levels = Some(of);
                KindName::Other
            }
        };
        let (certainty, because) = (finding.certainty.into(), finding.because);
        Self { name, levels, oversubscription, dims, certainty, because }
    }
}

impl TryFrom<KindFields> for KindText {
    type Error = &'static str;

    fn try_from(fields: KindFields) -> Result<Self, &'static str> {
        let KindFields { name, levels, oversubscription, dims, certainty, because } = fields;
        let value = match (name, levels, oversubscription, dims) {
            (KindName::SingleSwitch, None, None, None) => Kind::SingleSwitch,
            (KindName::RailOptimized, None, None, None) => Kind::RailOptimized,
            (KindName::RailOnly, None, None, None) => Kind::RailOnly,
            (KindName::DragonflyPlus, None, None, None) => Kind::DragonflyPlus,
            (KindName::FatTree, Some(levels), Some((down, up)), None) => {
                Kind::FatTree { levels, oversubscription: Ratio(down, up) }
            }
            (KindName::Torus, None, None, Some(dims)) => Kind::Torus { dims },
            (KindName::HyperX, None, None, Some(dims)) => Kind::HyperX { dims },
            (KindName::Other, Some(levels), None, None) => Kind::Other { levels },
            _ => {
                return Err("a kind needs exactly its own fields: a fat-tree levels and \
                            oversubscription, a torus and a hyperx dims, other levels");
            }
        };
        Ok(Self(Finding { value, certainty: certainty.into(), because }))
    }
}

/// A rail and a plane.
type Pair = (u16, u8);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasuredText {
    between: (Pair, Pair),
    reach: ReachText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    apart: Option<bool>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReachText {
    All,
    Some,
    None,
}

impl MeasuredText {
    pub(super) fn of(measured: &Measured) -> Self {
        let [one, other] = measured.between.map(|place| (place.rail, place.plane));
        let reach = match measured.reach {
            Reach::All => ReachText::All,
            Reach::Some => ReachText::Some,
            Reach::None => ReachText::None,
        };
        Self { between: (one, other), reach, apart: measured.are_apart }
    }

    pub(super) fn measured(&self) -> Measured {
        let place = |(rail, plane)| Place { rail, plane };
        let mut between = [place(self.between.0), place(self.between.1)];
        between.sort_unstable();
        let reach = match self.reach {
            ReachText::All => Reach::All,
            ReachText::Some => Reach::Some,
            ReachText::None => Reach::None,
        };
        Measured { between, reach, are_apart: self.apart }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostText {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<u32>,
    ports: Vec<PortText>,
}

impl HostText {
    pub(super) fn of(host: &SiteHost) -> Self {
        Self {
            name: host.name.clone(),
            pod: host.position.map(|position| position.pod),
            group: host.position.map(|position| position.group),
            order: host.position.map(|position| position.order),
            ports: host.ports.iter().map(PortText::of).collect(),
        }
    }

    pub(super) fn host(self) -> Result<SiteHost, String> {
        let position = match (self.pod, self.group, self.order) {
            (Some(pod), Some(group), Some(order)) => Some(Position { pod, group, order }),
            (None, None, None) => None,
            _ => {
                return Err(
                    "the host has only some of pod, group and order: give all or none".to_owned()
                );
            }
        };
        let ports = self.ports.into_iter().map(|port| port.port(&self.name));
        Ok(SiteHost { position, ports: ports.collect::<Result<_, _>>()?, name: self.name })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    device: String,
    #[serde(default = "one")]
    port: u8,
    #[serde(default)]
    gbps: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rail: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plane: Option<u8>,
    #[serde(default)]
    certainty: CertaintyText,
}

const fn one() -> u8 {
    1
}

impl PortText {
    fn of(port: &SitePort) -> Self {
        let (mut guid, mut mac, mut address) = (None, None, None);
        match port.id {
            PortId::Guid(of) => guid = Some(format!("{of:#018x}")),
            PortId::Mac(of) => mac = Some(mac_text(of)),
            PortId::Address(of) => {
                address = Some(IpAddr::V6(of.into()).to_canonical().to_string());
            }
            PortId::Named(_) => (),
        }
        Self {
            guid,
            mac,
            address,
            device: port.device.clone(),
            port: port.number,
            gbps: port.gbps,
            rail: port.place.map(|place| place.rail),
            plane: port.place.map(|place| place.plane),
            certainty: port.certainty.into(),
        }
    }

    fn port(self, host: &str) -> Result<SitePort, String> {
        let id = match (&self.guid, &self.mac, &self.address) {
            (Some(guid), None, None) => PortId::Guid(
                guid.strip_prefix("0x")
                    .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                    .filter(|guid| *guid != 0)
                    .ok_or_else(|| {
                        format!("guid {guid:?} is not valid: write 0x and its digits")
                    })?,
            ),
            (None, Some(mac), None) => PortId::Mac(mac_address(mac).ok_or_else(|| {
                format!("mac {mac:?} is not valid: write it as 02:00:00:00:00:01")
            })?),
            (None, None, Some(address)) => PortId::Address(
                address
                    .parse()
                    .map(mapped)
                    .map_err(|_| format!("address {address:?} is not an IP address"))?,
            ),
            (None, None, None) if !self.device.is_empty() => PortId::named(host, &self.device),
            _ => {
                return Err(
                    "a port needs exactly one of guid, mac and address, or a device".to_owned()
                );
            }
        };
        let place = match (self.rail, self.plane) {
            (Some(rail), plane) => Some(Place { rail, plane: plane.unwrap_or_default() }),
            (None, None) => None,
            (None, Some(_)) => {
                return Err("a port has a plane and no rail: give its rail".to_owned());
            }
        };
        let certainty = Certainty::from(self.certainty);
        if place.is_none() && certainty != Certainty::Unknown {
            return Err(format!("a port has certainty {certainty} and no rail: give its rail"));
        }
        let (number, gbps) = (self.port, self.gbps);
        Ok(SitePort { id, device: self.device, number, gbps, place, certainty })
    }
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

fn mac_text(mac: u64) -> String {
    let byte = |at: u32| format!("{:02x}", mac >> (8 * at) & 0xff);
    (0..6).rev().map(byte).collect::<Vec<_>>().join(":")
}
