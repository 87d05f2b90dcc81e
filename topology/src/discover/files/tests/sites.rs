//! Reading and writing the site file.

use super::*;
use crate::certainty::{Certainty, Finding};
use crate::fabric::{Kind, Place, PortId, Ratio};
use crate::site::{Measured, Position, Reach, SiteHost, SitePort};

fn finding<T>(value: T, certainty: Certainty) -> Finding<T> {
    Finding { value, certainty, because: "a \"reason\"".to_owned() }
}

fn port(id: PortId, device: &str, rail: Option<u16>) -> SitePort {
    let place = rail.map(|rail| Place { rail, plane: 1 });
    let certainty = if rail.is_some() { Certainty::Certain } else { Certainty::Unknown };
    SitePort { id, device: device.to_owned(), number: 1, gbps: 400, place, certainty }
}

/// A site with every field in use.
pub(super) fn site() -> Site {
    let hosts = vec![
        SiteHost {
            name: "a".to_owned(),
            position: Some(Position { pod: 1, group: 2, order: 3 }),
            ports: vec![
                port(PortId::Guid(0x9803_9b03_0000_0001), "mlx5_0", Some(0)),
                port(PortId::Mac(0x0200_0000_0001), "eth0", Some(1)),
            ],
        },
        SiteHost {
            name: "b".to_owned(),
            position: Some(Position { pod: 1, group: 2, order: 4 }),
            ports: vec![
                port(PortId::Address(0xffff_0a00_0001), "eth1", Some(1)),
                port(PortId::Address(0xfd00 << 112 | 1), "eth2", None),
                port(PortId::named("b", "eth3"), "eth3", Some(0)),
            ],
        },
        SiteHost { name: String::new(), position: None, ports: vec![] },
    ];
    let (down, up) = (Place { rail: 0, plane: 1 }, Place { rail: 1, plane: 1 });
    Site {
        kind: finding(
            Kind::FatTree { levels: 3, oversubscription: Ratio(2, 1) },
            Certainty::Likely,
        ),
        rails: finding(2, Certainty::Certain),
        planes: finding(2, Certainty::Certain),
        crosses: finding(true, Certainty::Unknown),
        measured: vec![
            Measured { between: [down, down], reach: Reach::All, are_apart: None },
            Measured { between: [down, up], reach: Reach::Some, are_apart: Some(false) },
        ],
        hosts,
    }
}

#[test]
fn a_site_is_written_and_read() {
    let site = site();
    let text = site.write();
    assert_eq!(Site::parse("s", &text).unwrap(), site, "{text}");
    assert_eq!(read("s", text.as_bytes()).unwrap(), Read::Site(site.clone()));
    for host in ["\n  {\"name\":\"a\"", "\n  {\"name\":\"b\""] {
        assert_eq!(text.matches(host).count(), 1, "{text}");
    }
    let dims = vec![2, 3];
    for kind in [
        Kind::SingleSwitch,
        Kind::RailOptimized,
        Kind::RailOnly,
        Kind::DragonflyPlus,
        Kind::Torus { dims: dims.clone() },
        Kind::HyperX { dims },
        Kind::Other { levels: 4 },
    ] {
        let site = Site { kind: finding(kind, Certainty::Certain), ..site.clone() };
        assert_eq!(Site::parse("s", &site.write()).unwrap(), site);
    }
}

#[test]
fn ports_and_hosts_are_found() {
    let site = site();
    let (host, port) = site.port(PortId::Mac(0x0200_0000_0001)).unwrap();
    assert_eq!((host.name.as_str(), port.device.as_str()), ("a", "eth0"));
    assert_eq!(site.port(PortId::Guid(7)), None);
    assert_eq!(site.ports().len(), 5);
    assert_eq!(site.ports()[&PortId::named("b", "eth3")].1.device, "eth3");
    assert_eq!(site.host("b").unwrap().ports.len(), 3);
    assert_eq!(site.host("c"), None);
    let (one, other) = (Place { rail: 1, plane: 1 }, Place { rail: 0, plane: 1 });
    assert_eq!(site.measured(one, other).unwrap().are_apart, Some(false));
    assert_eq!(site.measured(one, one), None);
}

#[test]
fn the_digest_is_of_the_content() {
    let site = site();
    let mut same = site.clone();
    same.hosts.reverse();
    same.hosts[2].ports.reverse();
    same.measured.reverse();
    same.kind.because = "another".to_owned();
    assert_eq!(same.digest(), site.digest());
    let spaced = site.write().replace(',', " ,\n").replace(':', ": ");
    let spaced = spaced.replace("02: 00: 00: 00: 00: 01", "02-00-00-00-00-01");
    let spaced = spaced.replace(": ffff: ", ":ffff:").replace("fd00: : 1", "fd00::1");
    assert_eq!(Site::parse("s", &spaced).unwrap().digest(), site.digest(), "{spaced}");
    let changes: [fn(&mut Site); 12] = [
        |site| site.kind.value = Kind::RailOnly,
        |site| site.kind.certainty = Certainty::Certain,
        |site| site.rails.value = 3,
        |site| site.planes.certainty = Certainty::Likely,
        |site| site.crosses.value = false,
        |site| site.measured[0].reach = Reach::None,
        |site| site.measured[1].are_apart = None,
        |site| site.hosts[0].name.push('x'),
        |site| site.hosts[0].position = None,
        |site| site.hosts[0].ports[0].place = None,
        |site| site.hosts[0].ports[0].id = PortId::Mac(0x9803_9b03_0000_0001),
        |site| drop(site.hosts[1].ports.pop()),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut other = site.clone();
        change(&mut other);
        assert_ne!(other.digest(), site.digest(), "change {index}");
    }
}

#[test]
fn a_site_that_is_wrong_is_refused_with_its_line() {
    let text = site().write();
    for (from, to, line, reason) in [
        ("\"ringfold-site\": 1", "\"ringfold-site\": 2", 1, "version 2 is not supported"),
        ("\"crosses\":", "\"croses\":", 5, "unknown field `croses`"),
        ("\"name\":\"b\"", "\"name\":\"a\"", 12, "host \"a\" occurs a second time, after line 11"),
        ("\"order\":4", "\"order\":3", 12, "order 3 is also that of the host on line 11"),
        ("\"pod\":1,\"group\":2,\"order\":4", "\"pod\":1", 12, "all or none"),
        ("\"rail\":1", "\"rail\":2", 11, "rail 2 is not in 0-1"),
        ("\"rail\":1", "\"rail\":65536", 11, "65536"),
        ("\"plane\":1", "\"plane\":2", 11, "plane 2 is not in 0-1"),
        ("0x98039b0300000001", "98039b0300000001", 11, "write 0x"),
        ("02:00:00:00:00:01", "02:00:00:00:01", 11, "write it as"),
        ("10.0.0.1", "10.0.0.256", 12, "not an IP address"),
        ("\"address\":\"10.0.0.1\"", "\"mac\":\"02:00:00:00:00:01\"", 12, "also on line 11"),
        ("\"device\":\"mlx5_0\"", "\"devise\":\"mlx5_0\"", 11, "unknown field `devise`"),
        ("\"rail\":0,\"plane\":1,\"cert", "\"cert", 11, "and no rail"),
        ("\"guid\":\"0x98039b0300000001\",\"device\":\"mlx5_0\",", "", 11, "exactly one of"),
        ("\"reach\":\"all\"", "\"reach\":\"most\"", 7, "most"),
        ("[[0,1],[1,1]]", "[[0,1],[0,1]]", 8, "measured before"),
        ("[[0,1],[1,1]]", "[[0,1],[2,1]]", 8, "rail 2"),
        ("\"levels\":3", "\"dims\":[3]", 2, "its own fields"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = Site::parse("s", &text.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.reason.contains(reason), "{error}");
    }
}

#[test]
fn a_fabric_becomes_a_site() {
    let fabric = fabric_of(TOPOLOGY);
    let mut classified = crate::fabric::classify(&fabric);
    classified.hosts =
        vec![crate::fabric::HostPlace { host: "host1".to_owned(), pod: 0, group: 4, order: 0 }];
    classified.rails.value = 2;
    for (port, place) in fabric.ports.iter().zip(&mut classified.places) {
        let rail = u16::from(port.device.ends_with('1'));
        *place = (Some(Place { rail, plane: 0 }), Certainty::Certain);
    }
    classified.places[0] = (None, Certainty::Certain);
    let site = Site::of(&fabric, &classified);
    assert_eq!(site.hosts.len(), 3);
    assert_eq!(site.host("host1").unwrap().position.unwrap().group, 4);
    assert_eq!(site.host("host1").unwrap().ports.len(), 1);
    assert_eq!(site.ports().len(), fabric.ports.len());
    let (_, unknown) = site.port(fabric.ports[0].id).unwrap();
    assert_eq!((unknown.place, unknown.certainty), (None, Certainty::Unknown));
    for port in &fabric.ports[1..] {
        let place = site.port(port.id).unwrap().1.place.unwrap();
        assert_eq!(place.rail, u16::from(port.device.ends_with('1')));
    }
    assert_eq!(Site::parse("s", &site.write()).unwrap(), site);
}
