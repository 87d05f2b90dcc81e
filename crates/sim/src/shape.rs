//! Fabrics by a short text: kind, hosts, ports and rate.

use std::error;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use ringfold_topology::fabric::{Cable, EndPort, Fabric, PortId, Switch};
use ringfold_types::limits::RANKS_MAX;
use ringfold_types::same_name;

/// Ports of the switches, unless the text says otherwise: those of a switch of 2023.
const RADIX: usize = 64;
/// The same in a dragonfly+, whose groups have the square of half of it as ports.
const RADIX_OF_GROUPS: usize = 16;
/// Most ports of a switch.
const RADIX_MAX: usize = 1024;
/// Most ports of a host.
const PORTS_MAX: usize = 16;

/// A fabric of a known shape, as in `rail:1024x8:400G`: kind, hosts x ports of a host, and rate.
///
/// | Text | Fabric |
/// |---|---|
/// | `switch:8x1:100G` | All ports on one switch |
/// | `fat:512x2:400G` | The ports of a host on one leaf switch; 2 levels of switches, or 3 |
/// | `rail:1024x8:400G` | Port i of each host of a group on leaf switch i of the group |
/// | `rail-only:1024x8:400G` | The same, with a network of its own for each rail |
/// | `dragonfly:1024x1:200G` | Groups of leaf and spine switches, each group with cables to all |
/// | `torus:8x8x8:100G` | A host on each switch of a grid that closes on itself |
///
/// `:radix=K` after that sets the ports of a switch, and `:over=K` has K times as many ports down
/// as up on each leaf switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    kind: Kind,
    /// Hosts and ports of each, or the switches along each dimension.
    numbers: Vec<usize>,
    gbps: u32,
    radix: usize,
    over: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Switch,
    Fat,
    Rail,
    RailOnly,
    Dragonfly,
    Torus,
}

const KINDS: [(&str, Kind); 6] = [
    ("switch", Kind::Switch),
    ("fat", Kind::Fat),
    ("rail", Kind::Rail),
    ("rail-only", Kind::RailOnly),
    ("dragonfly", Kind::Dragonfly),
    ("torus", Kind::Torus),
];

/// A text that is no [`Shape`], with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidShape(String);

impl fmt::Display for InvalidShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for InvalidShape {}

fn refused<T>(why: impl Into<String>) -> Result<T, InvalidShape> {
    Err(InvalidShape(why.into()))
}

impl FromStr for Shape {
    type Err = InvalidShape;

    fn from_str(text: &str) -> Result<Self, InvalidShape> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let Some((_, kind)) = KINDS.iter().find(|(known, _)| same_name(known, name)) else {
            let known: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            return refused(format!(
                "'{name}' is no kind of fabric; use one of {}",
                known.join(" ")
            ));
        };
        let numbers = words.next().unwrap_or_default();
        let parsed: Option<Vec<usize>> = numbers.split('x').map(|it| it.parse().ok()).collect();
        let Some(numbers) = parsed.filter(|all| !all.contains(&0)) else {
            return refused(format!("'{numbers}': give numbers above 0, as in 1024x8"));
        };
        let rate = words.next().unwrap_or_default();
        let digits = rate.trim_end_matches(['g', 'G']);
        let Some(gbps) = digits.parse().ok().filter(|gbps| (1..=100_000).contains(gbps)) else {
            return refused(format!("'{rate}' is no rate; give Gbit/s of a port, as in 400G"));
        };
        let radix = if *kind == Kind::Dragonfly { RADIX_OF_GROUPS } else { RADIX };
        let mut shape = Self { kind: *kind, numbers, gbps, radix, over: 1 };
        for option in words {
            shape.set(option)?;
        }
        shape.check()?;
        Ok(shape)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        let numbers: Vec<String> = self.numbers.iter().map(usize::to_string).collect();
        write!(f, "{}:{}:{}G", named.map_or("", |it| it.0), numbers.join("x"), self.gbps)?;
        let usual = if self.kind == Kind::Dragonfly { RADIX_OF_GROUPS } else { RADIX };
        if self.radix != usual {
            write!(f, ":radix={}", self.radix)?;
        }
        if self.over != 1 {
            write!(f, ":over={}", self.over)?;
        }
        Ok(())
    }
}

impl Shape {
    fn set(&mut self, option: &str) -> Result<(), InvalidShape> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let number = |range: Range<usize>| match value.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => refused(format!("'{option}': {} to {}", range.start, range.end - 1)),
        };
        match name {
            "radix" => self.radix = number(2..RADIX_MAX + 1)?,
            "over" => self.over = number(1..RADIX_MAX)?,
            _ => return refused(format!("'{option}': give radix=PORTS or over=RATIO")),
        }
        Ok(())
    }

    /// Refuses shapes that are too large, before they take memory, and those that cannot be built.
    fn check(&self) -> Result<(), InvalidShape> {
        let Self { kind, ref numbers, radix, .. } = *self;
        if kind == Kind::Torus {
            let hosts = numbers.iter().try_fold(1_usize, |all, it| all.checked_mul(*it));
            return match (numbers.len(), hosts) {
                (1..=6, Some(..=RANKS_MAX)) => Ok(()),
                (1..=6, _) => refused(format!("more than {RANKS_MAX} hosts")),
                _ => refused("a torus has 1 to 6 dimensions, as in torus:8x8x8:100G"),
            };
        }
        let &[hosts, ports] = &numbers[..] else {
            return refused("give hosts x ports of a host, as in 1024x8");
        };
        if ports > PORTS_MAX {
            return refused(format!("{ports} ports of a host; at most {PORTS_MAX}"));
        }
        if hosts.checked_mul(ports).is_none_or(|all| all > RANKS_MAX) {
            return refused(format!("{hosts} x {ports} ports are more than {RANKS_MAX}"));
        }
        if kind == Kind::Switch {
            return Ok(());
        }
        let (down, up) = self.halves();
        if down == 0 || up == 0 || ports > down {
            return refused(format!(
                "a leaf switch of {radix} ports has {down} down and {up} up; {ports} ports of a \
                 host do not fit"
            ));
        }
        if kind == Kind::Rail && ports > up {
            return refused(format!("{ports} rails, and a pod has {up} leaf switches"));
        }
        // A group has a cable to each other one at least, and a core switch one to each pod.
        let most = if kind == Kind::Dragonfly { (up * up + 1) * up } else { radix * self.pod() };
        let leaves = self.leaves();
        if leaves > most {
            return refused(format!(
                "{leaves} leaf switches; with {radix} ports each, {most} can be joined"
            ));
        }
        Ok(())
    }

    /// Leaf switches of the fabric, or of each rail that has a network of its own.
    fn leaves(&self) -> usize {
        let ((down, _), hosts, ports) = (self.halves(), self.numbers[0], self.ports_per_host());
        match self.kind {
            Kind::Rail => hosts.div_ceil(down) * ports,
            Kind::RailOnly => hosts.div_ceil(down),
            _ => hosts.div_ceil(down / ports),
        }
    }

    /// Leaf switches of a pod: as many as ports up, in whole groups of rails.
    fn pod(&self) -> usize {
        let (_, up) = self.halves();
        if self.kind == Kind::Rail { up / self.numbers[1] * self.numbers[1] } else { up }
    }

    /// Ports of a leaf switch to hosts, and to other switches.
    const fn halves(&self) -> (usize, usize) {
        let up = self.radix / (self.over + 1);
        (self.radix - up, up)
    }

    /// Ports of a host.
    #[must_use]
    pub fn ports_per_host(&self) -> usize {
        if self.kind == Kind::Torus { 1 } else { self.numbers[1] }
    }

    /// The switches, the ports and the cables.
    #[must_use]
    pub fn fabric(&self) -> Fabric {
        let mut build = Build { fabric: Fabric::default(), gbps: self.gbps };
        let (down, up) = self.halves();
        let (hosts, ports) = (self.numbers[0], self.ports_per_host());
        match self.kind {
            Kind::Torus => self.torus(&mut build),
            Kind::Switch => {
                let switch = build.switch("leaf", 0);
                build.hosts(hosts, ports, |_, _| switch);
            }
            Kind::Fat => {
                let each = down / ports;
                let leaves = build.clos([self.leaves(), self.pod(), up], "");
                build.hosts(hosts, ports, |host, _| leaves[host / each]);
            }
            Kind::Rail => {
                let leaves = build.clos([self.leaves(), self.pod(), up], "");
                build.hosts(hosts, ports, |host, port| leaves[host / down * ports + port]);
            }
            Kind::RailOnly => {
                let sizes = [self.leaves(), self.pod(), up];
                let of_rail = |rail| build.clos(sizes, &format!("{rail}."));
                let leaves: Vec<_> = (0..ports).map(of_rail).collect();
                build.hosts(hosts, ports, |host, port| leaves[port][host / down]);
            }
            Kind::Dragonfly => {
                let each = down / ports;
                let leaves = build.dragonfly(self.leaves(), up);
                build.hosts(hosts, ports, |host, _| leaves[host / each]);
            }
        }
        build.fabric
    }

    fn torus(&self, build: &mut Build) {
        let count: usize = self.numbers.iter().product();
        for number in 0..count {
            build.switch("leaf", number);
        }
        let mut stride = 1;
        for along in &self.numbers {
            for number in 0..count {
                let at = number / stride % along;
                let next = number - at * stride + (at + 1) % along * stride;
                // Of two switches along a dimension, one cable joins both.
                if *along > 2 || (*along == 2 && at == 0) {
                    build.cable(number, next);
                }
            }
            stride *= along;
        }
        build.hosts(count, 1, |host, _| host);
    }
}

struct Build {
    fabric: Fabric,
    gbps: u32,
}

impl Build {
    fn switch(&mut self, kind: &str, number: impl fmt::Display) -> usize {
        let at = self.fabric.switches.len();
        let (id, name) = (at as u64 + 1, format!("{kind}{number}"));
        self.fabric.switches.push(Switch { id, name, is_router: false });
        at
    }

    fn cable(&mut self, from: usize, to: usize) {
        let number = u16::try_from(self.fabric.cables.len() % 0x1_0000).unwrap_or(0);
        self.fabric.cables.push(Cable { ends: [(from, number), (to, number)], gbps: self.gbps });
    }

    fn hosts(&mut self, hosts: usize, ports: usize, leaf: impl Fn(usize, usize) -> usize) {
        for number in 0..hosts {
            let host = format!("host{number}");
            for port in 0..ports {
                let device = format!("nic{port}");
                self.fabric.ports.push(EndPort {
                    id: PortId::named(&host, &device),
                    host: host.clone(),
                    device,
                    number: 1,
                    gbps: self.gbps,
                    attached: Some((leaf(number, port), 1)),
                });
            }
        }
    }

    /// A folded Clos network (C. Clos, 1953; C. Leiserson, 1985). A pod has `pod` leaf switches and
    /// `up` spine switches, and core switch j * `up` + i joins spine switch j of all pods.
    fn clos(&mut self, [leaves, pod, up]: [usize; 3], name: &str) -> Vec<usize> {
        if leaves == 1 {
            return vec![self.switch("leaf", format!("{name}0"))];
        }
        let named = |number| format!("{name}{number}");
        let all: Vec<_> = (0..leaves).map(|number| self.switch("leaf", named(number))).collect();
        let pods: Vec<&[usize]> = all.chunks(pod).collect();
        let mut spines = Vec::new();
        for (pod, leaves) in pods.iter().enumerate() {
            let of_pod: Vec<_> =
                (0..up).map(|at| self.switch("spine", named(pod * up + at))).collect();
            for leaf in *leaves {
                of_pod.iter().for_each(|spine| self.cable(*leaf, *spine));
            }
            spines.push(of_pod);
        }
        if pods.len() > 1 {
            for plane in 0..up {
                for at in 0..up {
                    let core = self.switch("core", named(plane * up + at));
                    spines.iter().for_each(|spines| self.cable(spines[plane], core));
                }
            }
        }
        all
    }

    /// A dragonfly+ (A. Shpiner et al., "Dragonfly+: low cost topology for scaling datacenters",
    /// 2017): groups of `up` leaf and `up` spine switches. The ports up of a group's spine switches
    /// go to the other groups in turn.
    fn dragonfly(&mut self, leaves: usize, up: usize) -> Vec<usize> {
        let all: Vec<_> = (0..leaves).map(|number| self.switch("leaf", number)).collect();
        let mut spines = Vec::new();
        for (group, leaves) in all.chunks(up).enumerate() {
            let of_group: Vec<_> =
                (0..up).map(|at| self.switch("spine", group * up + at)).collect();
            for leaf in leaves {
                of_group.iter().for_each(|spine| self.cable(*leaf, *spine));
            }
            spines.push(of_group);
        }
        let groups = spines.len();
        let each = if groups > 1 { up * up / (groups - 1) } else { 0 };
        // The next port up of each group.
        let mut next = vec![0; groups];
        for _ in 0..each {
            for one in 0..groups {
                for other in one + 1..groups {
                    let port = |group: usize, next: &mut Vec<usize>| {
                        next[group] += 1;
                        spines[group][(next[group] - 1) % up]
                    };
                    let (from, to) = (port(one, &mut next), port(other, &mut next));
                    self.cable(from, to);
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use ringfold_topology::fabric::{Kind, classify};

    use super::*;

    fn kind(text: &str) -> Kind {
        let shape: Shape = text.parse().unwrap();
        classify(&shape.fabric()).kind.value
    }

    #[test]
    fn shapes_are_what_they_are_called() {
        assert_eq!(kind("switch:8x1:100G"), Kind::SingleSwitch);
        assert_eq!(kind("rail:32x4:400G:radix=8"), Kind::RailOptimized);
        assert_eq!(kind("rail:24x3:400G:radix=8"), Kind::RailOptimized);
        assert_eq!(kind("rail-only:16x4:400G:radix=8"), Kind::RailOnly);
        assert_eq!(kind("dragonfly:64x1:100G:radix=8"), Kind::DragonflyPlus);
        assert_eq!(kind("torus:4x3x5:100G"), Kind::Torus { dims: vec![3, 4, 5] });
        assert!(matches!(kind("fat:16x1:100G:radix=8"), Kind::FatTree { levels: 2, .. }));
        assert!(matches!(kind("fat:64x1:100G:radix=8"), Kind::FatTree { levels: 3, .. }));
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        for (text, reason) in [
            ("ring:8x1:100G", "no kind of fabric"),
            ("rail:8:100G", "hosts x ports"),
            ("rail:0x8:100G", "numbers above 0"),
            ("rail:8x8", "no rate"),
            ("rail:8x8:0G", "no rate"),
            ("rail:8x99:1G", "at most 16"),
            ("rail:99999x8:1G", "more than 65536"),
            ("rail:18446744073709551615x8:1G", "more than 65536"),
            ("torus:9999x9999x9999:1G", "more than 65536"),
            ("torus:2x2x2x2x2x2x2:1G", "dimensions"),
            ("fat:1024x1:1G:radix=8", "256 leaf switches"),
            ("rail:9x3:1G:radix=8:over=3", "3 rails"),
            ("fat:8x1:1G:radix=1", "2 to 1024"),
            ("fat:8x1:1G:over=0", "1 to 1023"),
            ("fat:8x1:1G:colour=red", "radix=PORTS"),
        ] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_largest_fabric_can_be_built() {
        let fabric = "fat:48895x1:400G".parse::<Shape>().unwrap().fabric();
        assert_eq!(fabric.ports.len(), 48_895);
        assert_eq!(fabric.switches.len(), 1528 + 48 * 32 + 32 * 32);
    }
}
