//! A host as its kernel would show it, written to a folder of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ringfold_harness::Folder;
use ringfold_topology::discover;
use ringfold_topology::machine::Machine;

/// A root folder with `sys` and `proc`.
pub(crate) struct Sysfs {
    pub(crate) root: Folder,
    routes: String,
    trie: String,
    v6: String,
}

impl Sysfs {
    /// A host with this name and nothing else.
    pub(crate) fn new(name: &str) -> Self {
        let sysfs = Self {
            root: Folder::new(),
            routes: "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n".to_owned(),
            trie: "Local:\n".to_owned(),
            v6: String::new(),
        };
        sysfs.file("proc/sys/kernel/hostname", name);
        sysfs
    }

    /// The machine according to the reader.
    pub(crate) fn machine(&self) -> Machine {
        discover::machine(self.root.path())
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(crate) fn files(&self, folder: &str, files: &[(&str, &str)]) {
        files.iter().for_each(|(name, text)| self.file(&format!("{folder}/{name}"), text));
    }

    /// A link at `path` to `target`. Both are from the root; the link is relative, as the kernel
    /// writes it.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let up = "../".repeat(path.matches('/').count());
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(format!("{up}{target}"), path).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.root.path().join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    /// Sockets with `nodes` NUMA nodes each, cores for each node, and two CPUs for each core. The
    /// first CPUs of all cores come first, then the second ones, as on x86. A NUMA node has one
    /// last-level cache.
    pub(crate) fn cpus(&self, sockets: usize, nodes: usize, cores: usize) {
        let all = sockets * nodes * cores;
        let range = |first: usize, count: usize| format!("{first}-{}", first + count - 1);
        let both = |first, count| format!("{},{}", range(first, count), range(first + all, count));
        self.file("sys/devices/system/cpu/online", &range(0, 2 * all));
        for cpu in 0..2 * all {
            let core = cpu % all;
            let (node, socket) = (core / cores, core / cores / nodes);
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            let package = both(socket * nodes * cores, nodes * cores);
            self.files(
                &format!("{folder}/topology"),
                &[
                    ("core_cpus_list", &format!("{core},{}", core + all)),
                    ("physical_package_id", &socket.to_string()),
                    ("package_cpus_list", &package),
                ],
            );
            for (index, level, list) in
                [(0, 1, format!("{core},{}", core + all)), (3, 3, both(node * cores, cores))]
            {
                let index = format!("{folder}/cache/index{index}");
                self.files(&index, &[("level", &level.to_string()), ("shared_cpu_list", &list)]);
            }
        }
        for node in 0..sockets * nodes {
            let folder = format!("sys/devices/system/node/node{node}");
            self.file(&format!("{folder}/cpulist"), &both(node * cores, cores));
        }
    }

    /// A PCI device below the path `above`, of `class`, `vendor` and NUMA node. Returns its path.
    pub(crate) fn pci(
        &self,
        above: &str,
        address: &str,
        class: u32,
        vendor: u16,
        node: i32,
    ) -> String {
        let path = format!("{above}/{address}");
        self.files(
            &path,
            &[
                ("class", &format!("0x{class:06x}")),
                ("vendor", &format!("0x{vendor:04x}")),
                ("device", "0x1021"),
                ("numa_node", &node.to_string()),
                ("max_link_speed", "32.0 GT/s PCIe"),
                ("max_link_width", "16"),
            ],
        );
        self.link(&format!("sys/bus/pci/devices/{address}"), &path);
        path
    }

    /// An RDMA device with one active port of `gbps` below a path. Returns the port's path.
    pub(crate) fn nic(&self, above: &str, name: &str, layer: &str, rate: &str) -> String {
        let path = format!("{above}/infiniband/{name}");
        self.link(&format!("sys/class/infiniband/{name}"), &path);
        self.file(&format!("{path}/node_type"), "1: CA");
        self.file(&format!("{path}/sys_image_guid"), "b8ce:f603:0012:3400");
        let port = format!("{path}/ports/1");
        self.files(
            &port,
            &[("state", "4: ACTIVE"), ("rate", rate), ("lid", "0x0"), ("link_layer", layer)],
        );
        port
    }

    /// An entry of a port's table.
    pub(crate) fn gid(&self, port: &str, index: u16, gid: &str, kind: &str, interface: &str) {
        self.file(&format!("{port}/gids/{index}"), gid);
        self.file(&format!("{port}/gid_attrs/types/{index}"), kind);
        if !interface.is_empty() {
            self.file(&format!("{port}/gid_attrs/ndevs/{index}"), interface);
        }
    }

    /// An interface that is up, below a path. Returns its own path.
    pub(crate) fn interface(&self, above: &str, name: &str, mac: &str, megabits: i32) -> String {
        let path = format!("{above}/net/{name}");
        self.link(&format!("sys/class/net/{name}"), &path);
        self.files(
            &path,
            &[
                ("address", mac),
                ("carrier", "1"),
                ("flags", "0x1003"),
                ("mtu", "9000"),
                ("speed", &megabits.to_string()),
            ],
        );
        path
    }

    /// An IPv4 address of an interface with its network.
    pub(crate) fn v4(&mut self, interface: &str, address: [u8; 4], bits: u32) {
        let mask = u32::MAX << (32 - bits);
        let network = u32::from(std::net::Ipv4Addr::from(address)) & mask;
        let (network, mask) = (network.to_be(), mask.to_be());
        let route = format!("{interface}\t{network:08X}\t00000000\t0001\t0\t0\t0\t{mask:08X}\n");
        self.routes += &route;
        let [a, b, c, d] = address;
        self.trie += &format!("        |-- {a}.{b}.{c}.{d}\n           /32 host LOCAL\n");
        self.tables();
    }

    /// An IPv6 address of an interface, as 32 digits.
    pub(crate) fn v6(&mut self, interface: &str, digits: &str, bits: u8) {
        self.v6 += &format!("{digits} 02 {bits:02x} 00 80 {interface:>8}\n");
        self.tables();
    }

    fn tables(&self) {
        let files = [("route", &self.routes), ("fib_trie", &self.trie), ("if_inet6", &self.v6)];
        files.iter().for_each(|(name, text)| self.file(&format!("proc/net/{name}"), text));
    }
}

/// Records `root`, and returns the machine that the recording describes.
pub(crate) fn recorded(root: &Path) -> Machine {
    let folder = Folder::new();
    let seen = discover::record(root, folder.path()).unwrap();
    let again = discover::machine(folder.path());
    assert_eq!(seen, again);
    again
}
