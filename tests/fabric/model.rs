//! Definitions of fabrics: switches, ports of hosts, cables. Shares no code with the readers and
//! the classifier.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A port: its node's name and its number.
pub(crate) type Port = (String, u16);

/// A fabric.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Switches, each with its subnet. No cable joins two subnets.
    pub(crate) switches: BTreeMap<String, usize>,
    /// Devices, as in `host0 mlx5_1`.
    pub(crate) devices: BTreeSet<String>,
    /// Working cables.
    pub(crate) cables: Vec<[Port; 2]>,
    /// Number of used ports of each node, including ports with a pulled cable.
    used: BTreeMap<String, u16>,
    /// Speed of all links, in the notation of `ibsim`.
    pub(crate) speed: &'static str,
    /// Gigabits per second of all links.
    pub(crate) gbps: u32,
}

/// The node where a tool runs.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) node: String,
    pub(crate) is_switch: bool,
}

/// The numbers of groups, hosts of each group, rails, and spines that join the leaf switches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rails {
    pub(crate) groups: usize,
    pub(crate) hosts: usize,
    pub(crate) rails: usize,
    pub(crate) spines: usize,
}

impl Model {
    fn new(speed: &'static str, gbps: u32) -> Self {
        Self { speed, gbps, ..Self::default() }
    }

    /// Connects device k of every host to leaf switch k of its group.
    pub(crate) fn rails(Rails { groups, hosts, rails, spines }: Rails) -> Self {
        let mut model = Self::new("EDR", 100);
        for group in 0..groups {
            for rail in 0..rails {
                let leaf = model.switch(&format!("leaf{group}-{rail}"), 0);
                for host in group * hosts..(group + 1) * hosts {
                    let device = model.device(&format!("host{host} mlx5_{rail}"));
                    model.cable(&device, &leaf);
                }
                for spine in 0..spines {
                    let spine = model.switch(&format!("spine{spine}"), 0);
                    model.cable(&leaf, &spine);
                }
            }
        }
        model
    }

    /// Makes separate rails, each with one switch and a subnet.
    pub(crate) fn rails_alone(hosts: usize, rails: usize) -> Self {
        let mut model = Self::new("HDR", 200);
        for rail in 0..rails {
            let leaf = model.switch(&format!("leaf{rail}"), rail);
            for host in 0..hosts {
                let device = model.device(&format!("host{host} mlx5_{rail}"));
                model.cable(&device, &leaf);
            }
        }
        model
    }

    /// Connects all devices of a host to one leaf switch, and each leaf switch to all spines.
    pub(crate) fn fat_tree(leaves: usize, hosts: usize, devices: usize, spines: usize) -> Self {
        let mut model = Self::new("EDR", 100);
        for leaf in 0..leaves {
            let name = model.switch(&format!("leaf{leaf}"), 0);
            for host in leaf * hosts..(leaf + 1) * hosts {
                for device in 0..devices {
                    let device = model.device(&format!("host{host} mlx5_{device}"));
                    model.cable(&device, &name);
                }
            }
            for spine in 0..spines {
                let spine = model.switch(&format!("spine{spine}"), 0);
                model.cable(&name, &spine);
            }
        }
        model
    }

    /// Makes a separate fat tree for each port of the hosts' devices.
    pub(crate) fn planes(leaves: usize, hosts: usize, planes: usize, spines: usize) -> Self {
        let mut model = Self::new("EDR", 100);
        for plane in 0..planes {
            for leaf in 0..leaves {
                let name = model.switch(&format!("leaf{plane}-{leaf}"), plane);
                for host in leaf * hosts..(leaf + 1) * hosts {
                    let device = model.device(&format!("host{host} mlx5_0"));
                    model.cable(&device, &name);
                }
                for spine in 0..spines {
                    let spine = model.switch(&format!("spine{plane}-{spine}"), plane);
                    model.cable(&name, &spine);
                }
            }
        }
        model
    }

    /// Connects all hosts to one switch.
    pub(crate) fn single(hosts: usize) -> Self {
        let mut model = Self::new("QDR", 40);
        let switch = model.switch("only", 0);
        for host in 0..hosts {
            let device = model.device(&format!("host{host} mlx5_0"));
            model.cable(&device, &switch);
        }
        model
    }

    fn switch(&mut self, name: &str, subnet: usize) -> String {
        self.switches.insert(name.to_owned(), subnet);
        name.to_owned()
    }

    fn device(&mut self, name: &str) -> String {
        self.devices.insert(name.to_owned());
        name.to_owned()
    }

    fn cable(&mut self, one: &str, other: &str) {
        let ends = [one, other].map(|name| {
            let used = self.used.entry(name.to_owned()).or_default();
            *used += 1;
            (name.to_owned(), *used)
        });
        self.cables.push(ends);
    }

    /// Pulls cable `number`, and returns its end at a switch.
    pub(crate) fn pull(&mut self, number: usize) -> Port {
        let [_, switch] = self.cables.remove(number);
        switch
    }

    /// Returns each node's ports with the other ends of their cables.
    fn ports(&self) -> BTreeMap<&str, BTreeMap<u16, &Port>> {
        let mut ports: BTreeMap<&str, BTreeMap<u16, &Port>> = BTreeMap::new();
        for [one, other] in &self.cables {
            for ((name, number), far) in [(one, other), (other, one)] {
                ports.entry(name).or_default().insert(*number, far);
            }
        }
        ports
    }

    /// Returns a node of each subnet where tools can run. `ibsim` runs them at port 1 of a device.
    /// In a subnet without such a port they run at a switch.
    pub(crate) fn starts(&self) -> Vec<Start> {
        let subnets: BTreeSet<usize> = self.switches.values().copied().collect();
        let start = |subnet: usize| {
            let mut cables = self.cables.iter();
            let first = cables.find(|[one, other]| {
                self.devices.contains(&one.0) && one.1 == 1 && self.switches[&other.0] == subnet
            });
            let mut switches = self.switches.iter().filter(|(_, of)| **of == subnet);
            match first {
                Some([(device, _), _]) => Start { node: device.clone(), is_switch: false },
                None => Start { node: switches.next().unwrap().0.clone(), is_switch: true },
            }
        };
        subnets.into_iter().map(start).collect()
    }

    /// Returns the GUID of a node. `ibsim` gives its ports the next GUIDs.
    fn guid(&self, name: &str) -> u64 {
        let names = self.switches.keys().chain(&self.devices);
        let number = names.take_while(|other| *other != name).count() + 1;
        0x9803_9b00_0000_0000 | u64::try_from(number).unwrap() << 8
    }

    /// Returns the fabric as input of `ibsim`.
    pub(crate) fn net(&self) -> String {
        let mut text = String::new();
        let ports = self.ports();
        let nodes = self.switches.keys().map(|name| ("Switch", "switchguid", name));
        let nodes = nodes.chain(self.devices.iter().map(|name| ("Hca", "caguid", name)));
        for (kind, key, name) in nodes {
            let guid = self.guid(name);
            let count = self.used[name];
            let _ = writeln!(text, "{key}={guid:#x}\n{kind} {count} \"{name}\"\t# \"{name}\"");
            for (near, (far, number)) in ports.get(name.as_str()).into_iter().flatten() {
                let speed = self.speed;
                let _ = writeln!(text, "[{near}] \"{far}\"[{number}]\t# \"{far}\" lid 0 4x{speed}");
            }
            text.push('\n');
        }
        text
    }

    /// Returns all cables as sorted lines: `host0 mlx5_0[1] leaf0[3] 100`.
    pub(crate) fn shown(&self) -> Vec<String> {
        let line = |ends: &[Port; 2]| {
            let mut names = ends.clone().map(|(name, number)| format!("{name}[{number}]"));
            names.sort();
            format!("{} {} {}", names[0], names[1], self.gbps)
        };
        let mut lines: Vec<String> = self.cables.iter().map(line).collect();
        lines.sort();
        lines
    }
}
