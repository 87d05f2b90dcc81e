//! Machines with the shapes of cluster nodes.

use std::path::Path;

use ringfold_harness::Folder;
use ringfold_topology::discover;
use ringfold_topology::machine::{Affinity, Distance, Machine, Network, gpu_of, share, storage};

use crate::sysfs::{Sysfs, recorded};

const BRIDGE: u32 = 0x06_0400;
const GPU: u32 = 0x03_0200;
const INFINIBAND: u32 = 0x02_0700;
const ETHERNET: u32 = 0x02_0000;
const NVIDIA: u16 = 0x10de;
const MELLANOX: u16 = 0x15b3;

/// Two sockets with two NUMA nodes each. Eight PCI switches have a GPU and a NIC each. Two more
/// NICs, one for each socket, are at root ports of their own. There are a console and a disk.
pub(crate) fn eight_and_two() -> Sysfs {
    let sysfs = Sysfs::new("n17");
    sysfs.cpus(2, 2, 4);
    for group in 0..8 {
        let (node, bus) = (group / 2, 0x10 * (group + 1));
        let root = format!("sys/devices/pci0000:{bus:02x}");
        let port = sysfs.pci(&root, &format!("0000:{bus:02x}:01.0"), BRIDGE, 0x8086, node);
        let up = sysfs.pci(&port, &format!("0000:{:02x}:00.0", bus + 1), BRIDGE, 0x1000, node);
        let [gpu, nic] = [0, 1].map(|slot| {
            let address = format!("0000:{:02x}:{slot:02x}.0", bus + 2);
            sysfs.pci(&up, &address, BRIDGE, 0x1000, node)
        });
        sysfs.pci(&gpu, &format!("0000:{:02x}:00.0", bus + 3), GPU, NVIDIA, node);
        let nic =
            sysfs.pci(&nic, &format!("0000:{:02x}:00.0", bus + 4), INFINIBAND, MELLANOX, node);
        // Names are in another order than addresses, and one has two digits.
        let port =
            sysfs.nic(&nic, &format!("mlx5_{}", 10 - group), "InfiniBand", "400 Gb/sec (4X NDR)");
        sysfs.file(&format!("{port}/lid"), &format!("0x{:x}", 26 + group));
        sysfs.gid(
            &port,
            0,
            &format!("fe80:0000:0000:0000:b8ce:f603:0012:{group:04x}"),
            "IB/RoCE v1",
            "",
        );
        sysfs.gid(&port, 1, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
    }
    for (at, bus) in [0xc0, 0xe0].into_iter().enumerate() {
        let node = 2 * i32::try_from(at).unwrap();
        let root = format!("sys/devices/pci0000:{bus:02x}");
        let port = sysfs.pci(&root, &format!("0000:{bus:02x}:01.0"), BRIDGE, 0x8086, node);
        let nic = sysfs.pci(&port, &format!("0000:{:02x}:00.0", bus + 1), ETHERNET, MELLANOX, node);
        sysfs.nic(&nic, &format!("mlx5_{at}"), "Ethernet", "100 Gb/sec (4X EDR)");
    }
    sysfs.pci("sys/devices/pci0000:00", "0000:00:02.0", 0x03_0000, 0x1a03, 0);
    sysfs.pci("sys/devices/pci0000:00", "0000:00:03.0", 0x01_0802, 0x144d, 0);
    sysfs
}

fn names(machine: &Machine) -> Vec<&str> {
    machine.nics.iter().map(|nic| nic.name.as_str()).collect()
}

#[test]
fn two_sockets_with_switches() {
    let sysfs = eight_and_two();
    let machine = sysfs.machine();
    assert_eq!(machine.name, "n17");
    assert_eq!(machine.remarks, Vec::<String>::new());
    // 8 switches of 4 bridges and 2 ends, and 2 root ports with their NICs.
    assert_eq!((machine.devices.len(), machine.gpus.len()), (8 * 6 + 2 * 2, 8));
    assert_eq!((machine.cores.len(), machine.cores[4].cpus.clone()), (16, vec![4, 20]));
    let core = &machine.cores[13];
    assert_eq!((core.node, core.socket, core.cache), (Some(3), Some(1), Some(3)));
    let counted = ["mlx5_0", "mlx5_1", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"];
    assert_eq!(names(&machine)[..7], counted);
    let nic = &machine.nics[9];
    let port = &nic.ports[0];
    assert_eq!(
        (nic.name.as_str(), nic.node, nic.card),
        ("mlx5_10", Some(0), 0xb8ce_f603_0012_3400)
    );
    assert_eq!((port.number, port.network, port.gbps, port.lid), (1, Network::InfiniBand, 400, 26));
    assert_eq!((port.is_active, port.guid, port.gids.len()), (true, 0xb8ce_f603_0012_0000, 1));
    let device = machine.devices.iter().find(|device| Some(device.address) == nic.pci).unwrap();
    assert_eq!((device.megabytes, device.ids), (63_008, (MELLANOX, 0x1021)));
    assert_eq!(device.parent.unwrap().to_string(), "0000:12:01.0");
    assert_eq!(machine.distance(machine.gpus[0].pci, nic.pci.unwrap()), Distance::Switch(2));
    assert_eq!(recorded(sysfs.root.path()), machine);
}

#[test]
fn ranks_get_the_nics_of_their_gpus_and_storage_is_apart() {
    let machine = eight_and_two().machine();
    let names = names(&machine);
    assert_eq!(storage(&machine, &names), [0, 1]);
    let affinities: Vec<Affinity> =
        (0..8).map(|rank| Affinity::new(&machine, gpu_of(&machine, None, rank, 8), &[])).collect();
    let got: Vec<String> = share(&machine, &affinities, &names[2..])
        .iter()
        .map(|ports| ports.iter().map(|port| names[2 + port]).collect())
        .collect();
    let nics: Vec<String> = (0..8).map(|rank| format!("mlx5_{}", 10 - rank)).collect();
    assert_eq!(got, nics);
}

#[test]
fn gpus_are_joined_by_switches_and_hives() {
    let sysfs = eight_and_two();
    assert!(sysfs.machine().gpus.iter().all(|gpu| gpu.domain.is_none()));
    sysfs.pci("sys/devices/pci0000:00", "0000:00:07.0", 0x06_8000, NVIDIA, 0);
    assert!(sysfs.machine().gpus.iter().all(|gpu| gpu.domain == Some(0)));

    let sysfs = Sysfs::new("amd");
    let root = "sys/devices/pci0000:00";
    for slot in 1..=4 {
        let gpu = sysfs.pci(root, &format!("0000:00:{slot:02x}.0"), 0x12_0000, 0x1002, 0);
        // The driver keeps a group below its first GPU, and links to it from the others.
        match slot {
            1 | 3 => sysfs.file(&format!("{gpu}/xgmi_hive_info/xgmi_hive_id"), &format!("7{slot}")),
            _ => {
                let first = format!("{root}/0000:00:{:02x}.0/xgmi_hive_info", slot - 1);
                sysfs.link(&format!("{gpu}/xgmi_hive_info"), &first);
            }
        }
    }
    let machine = sysfs.machine();
    let domains: Vec<_> = machine.gpus.iter().map(|gpu| gpu.domain).collect();
    assert_eq!(domains, [Some(0), Some(0), Some(1), Some(1)]);
    assert_eq!(recorded(sysfs.root.path()), machine);
}

#[test]
fn no_nic_and_nothing_at_all() {
    let sysfs = Sysfs::new("n1");
    sysfs.cpus(1, 1, 2);
    let machine = sysfs.machine();
    assert_eq!((machine.cores.len(), machine.nics.len(), machine.remarks.len()), (2, 0, 0));
    let machine = discover::machine(Path::new("/there/is/none"));
    let hidden = "The kernel hides its CPUs, so ranks cannot be placed near them.".to_owned();
    assert_eq!(machine, Machine { remarks: vec![hidden], ..Machine::default() });
}

/// All devices are at the root bus, and some have NUMA nodes that do not exist.
#[test]
fn a_virtual_machine_with_a_flat_lying_tree() {
    let sysfs = Sysfs::new("vm");
    sysfs.cpus(1, 2, 2);
    let root = "sys/devices/pci0000:00";
    for slot in 0..4 {
        let node = [-1, 0, 7, 1][slot];
        sysfs.pci(root, &format!("0000:00:{:02x}.0", 4 + slot), GPU, NVIDIA, node);
        let nic =
            sysfs.pci(root, &format!("0000:00:{:02x}.0", 8 + slot), INFINIBAND, MELLANOX, 70_000);
        sysfs.nic(&nic, &format!("mlx5_{slot}"), "InfiniBand", "800 Gb/sec (4X XDR)");
    }
    let machine = sysfs.machine();
    let nodes: Vec<_> = machine.gpus.iter().map(|gpu| gpu.node).collect();
    assert_eq!(nodes, [None, Some(0), None, Some(1)]);
    assert!(machine.nics.iter().all(|nic| nic.node.is_none() && nic.ports[0].gbps == 800));
    let said = machine.remarks.join(" ");
    assert!(
        said.contains("The kernel gives NUMA nodes that do not exist for 0000:00:06.0."),
        "{said}"
    );
    assert!(said.contains("no usable NUMA node for 0000:00:08.0"), "{said}");
    assert!(said.contains("no bridge is above 8 NICs and GPUs"), "{said}");
    // No device is known to be near, so distance does not affect the choice.
    let (gpu, nic) = (machine.gpus[0].pci, machine.nics[0].pci.unwrap());
    assert_eq!(machine.distance(gpu, nic), Distance::Elsewhere);
    assert_eq!(storage(&machine, &names(&machine)), Vec::<usize>::new());
    let affinities = vec![Affinity::new(&machine, None, &[0, 1, 2, 3]); 2];
    assert_eq!(share(&machine, &affinities, &names(&machine)), [[0, 1], [2, 3]]);
    assert_eq!(recorded(sysfs.root.path()), machine);
}

#[test]
fn a_container_that_hides_parts() {
    let sysfs = eight_and_two();
    sysfs.remove("sys/bus");
    let machine = sysfs.machine();
    // NICs still lead to their PCI devices, with the bridges above. GPUs are not visible.
    assert_eq!((machine.devices.len(), machine.gpus.len()), (8 * 4 + 2 * 2, 0));
    assert_eq!(machine.nics[9].node, Some(0));
    assert_eq!(
        machine.remarks,
        ["The list of PCI devices is hidden, as in containers. Only NICs are known."]
    );
    sysfs.remove("sys/devices/system");
    let machine = sysfs.machine();
    assert_eq!((machine.cores.len(), machine.nics[9].node), (0, None));
    assert!(machine.remarks[0].contains("hides its CPUs"), "{:?}", machine.remarks);
    assert_eq!(recorded(sysfs.root.path()), machine);
    // A copy in place of a link: the device's own link leads to its PCI address, if there is one.
    let sysfs = Sysfs::new("copy");
    let nic = "sys/class/infiniband/mlx5_0";
    sysfs.file(&format!("{nic}/ports/1/lid"), "0x2a");
    assert_eq!(sysfs.machine().nics[0].ports[0].network, Network::InfiniBand);
    assert!(sysfs.machine().remarks.join(" ").contains("No PCI address is visible for mlx5_0"));
    sysfs.link(&format!("{nic}/device"), "sys/devices/pci0000:00/0000:00:05.0");
    let address = sysfs.machine().nics[0].pci.map(|address| address.to_string());
    assert_eq!(address.as_deref(), Some("0000:00:05.0"));
}

#[test]
fn bonds_and_virtual_functions() {
    let mut sysfs = Sysfs::new("n2");
    sysfs.cpus(1, 1, 2);
    let root = "sys/devices/pci0000:00";
    let port = sysfs.pci(root, "0000:00:01.0", BRIDGE, 0x8086, 0);
    let [first, second, function] = ["0000:01:00.0", "0000:01:00.1", "0000:01:00.2"]
        .map(|address| sysfs.pci(&port, address, ETHERNET, MELLANOX, 0));
    sysfs.link(&format!("{function}/physfn"), &first);
    let bond = sysfs.interface("sys/devices/virtual", "bond0", "b8:ce:f6:12:34:56", 200_000);
    for (above, name) in [(&first, "eth0"), (&second, "eth1")] {
        let path = sysfs.interface(above, name, "b8:ce:f6:12:34:56", 100_000);
        sysfs.link(&format!("{path}/master"), &bond);
    }
    let virtual_one = sysfs.interface(&function, "eth2", "02:00:00:00:00:01", -1);
    sysfs.file(&format!("{virtual_one}/carrier"), "0");
    sysfs.v4("bond0", [10, 7, 3, 9], 22);
    sysfs.v6("bond0", "fd00000000000000000000000000aaaa", 64);
    let port = sysfs.nic(&first, "mlx5_bond_0", "Ethernet", "200 Gb/sec (4X HDR)");
    sysfs.gid(&port, 0, "fe80:0000:0000:0000:bace:f6ff:fe12:3456", "RoCE v2", "bond0");
    sysfs.gid(&port, 3, "0000:0000:0000:0000:0000:ffff:0a07:0309", "RoCE v2", "bond0");
    sysfs.gid(&port, 5, "fd00:0000:0000:0000:0000:0000:0000:aaaa", "RoCE v2", "bond0");
    sysfs.nic(&function, "mlx5_2", "Ethernet", "25 Gb/sec (1X EDR)");
    let soft = sysfs.nic("sys/devices/virtual", "siw0", "Ethernet", "1 Gb/sec (1X)");
    sysfs.file(&format!("{}/node_type", soft.strip_suffix("/ports/1").unwrap()), "4: RNIC");

    let machine = sysfs.machine();
    let nic = |name| machine.nics.iter().find(|nic| nic.name == name).unwrap();
    let interface = |name| machine.interfaces.iter().find(|it| it.name == name).unwrap();
    assert_eq!(
        nic("mlx5_2").virtual_of,
        machine.nics.iter().find(|it| it.name == "mlx5_bond_0").unwrap().pci
    );
    assert_eq!(nic("mlx5_bond_0").virtual_of, None);
    let port = &nic("mlx5_bond_0").ports[0];
    let prefixes: Vec<_> = port.gids.iter().map(|gid| (gid.index, gid.prefix)).collect();
    assert_eq!(prefixes, [(0, None), (3, Some(96 + 22)), (5, Some(64))]);
    assert_eq!((port.network, port.interfaces.clone()), (Network::Roce, vec!["bond0".to_owned()]));
    assert_eq!(nic("siw0").ports[0].network, Network::Iwarp);
    // No GID names an interface, so PCI does.
    assert_eq!(nic("mlx5_2").ports[0].interfaces, ["eth2"]);
    let bond = interface("bond0");
    assert_eq!((bond.gbps, bond.mtu, bond.is_up, bond.mac), (200, 9000, true, 0xb8ce_f612_3456));
    assert_eq!(bond.addresses.iter().map(|(_, bits)| *bits).collect::<Vec<_>>(), [96 + 22, 64]);
    assert_eq!(interface("eth1").master.as_deref(), Some("bond0"));
    assert_eq!((interface("eth2").gbps, interface("eth2").is_up), (0, false));
    assert_eq!(recorded(sysfs.root.path()), machine);
}

#[test]
fn an_address_that_two_interfaces_could_have_is_neithers() {
    let mut sysfs = Sysfs::new("n3");
    for (name, last) in [("eth0", 1), ("eth1", 2)] {
        sysfs.interface("sys/devices/virtual", name, "b8:ce:f6:12:34:56", 25_000);
        sysfs.v4(name, [10, 0, 0, last], 24);
    }
    sysfs.v4("eth1", [10, 9, 0, 1], 16);
    let machine = sysfs.machine();
    let counts = machine.interfaces.iter().map(|it| it.addresses.len()).collect::<Vec<_>>();
    assert_eq!(counts, [0, 1]);
    let said = machine.remarks.join(" ");
    assert!(said.contains("no known interface: 10.0.0.1, 10.0.0.2."), "{said}");
}

/// Nonsense in every file, one at a time: the reader still returns a machine.
#[test]
fn nonsense_in_any_file_is_survived() {
    let sysfs = eight_and_two();
    let before = sysfs.machine();
    let mut files = Vec::new();
    walk(sysfs.root.path(), &mut files);
    assert!(files.len() > 500);
    for (at, file) in files.iter().enumerate().step_by(7) {
        let text = std::fs::read(file).unwrap();
        let nonsense: &[u8] =
            [&b""[..], b"\xff\xfe", b"-99999999999999999999", b"0-8191,9,9-", b":::"][at % 5];
        std::fs::write(file, nonsense).unwrap();
        let machine = sysfs.machine();
        assert_eq!(machine.nics.len(), before.nics.len());
        std::fs::write(file, text).unwrap();
    }
    assert_eq!(sysfs.machine(), before);
    // A pipe in place of a file has no text, and the reader does not wait for one. A link to itself
    // ends.
    let state = sysfs.root.path().join("sys/devices/system/cpu/online");
    std::fs::remove_file(&state).unwrap();
    make_pipe(&state);
    sysfs.link("sys/class/infiniband/loop", "sys/class/infiniband/loop");
    let machine = sysfs.machine();
    assert_eq!((machine.cores.len(), machine.nics.len()), (16, 11));
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn walk(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}

#[test]
fn this_machine_is_recorded() {
    let machine = discover::machine(Path::new("/"));
    assert!(!machine.cores.is_empty() && !machine.interfaces.is_empty());
    // `recorded` compares the values that were read live with the recording. Interfaces may come
    // and go between that and another reading.
    assert_eq!(recorded(Path::new("/")).cores, machine.cores);
    // A recording needs an empty folder.
    let folder = Folder::new();
    discover::record(Path::new("/"), folder.path()).unwrap();
    let refused = discover::record(Path::new("/"), folder.path()).unwrap_err().to_string();
    assert!(refused.contains("not empty"), "{refused}");
}

#[test]
fn the_rate_of_an_interface_is_that_of_the_wires_below() {
    let sysfs = Sysfs::new("n1");
    let device = sysfs.pci("sys/devices/pci0000:10", "0000:10:00.0", ETHERNET, MELLANOX, 0);
    let hidden = sysfs.pci("sys/devices/pci0000:10", "0000:11:00.0", ETHERNET, MELLANOX, 0);
    for (above, name, megabits) in [(&device, "eth0", 25_000), (&hidden, "eth1", -1)] {
        let path = sysfs.interface(above, name, "02:00:00:00:00:01", megabits);
        sysfs.link(&format!("{path}/device"), above);
    }
    for (name, below, megabits) in
        [("bond0", "eth0", 50_000), ("bond0.7", "bond0", 50_000), ("veth0", "eth9", 10_000)]
    {
        let path = "sys/devices/virtual";
        let path = sysfs.interface(path, name, "02:00:00:00:00:02", megabits);
        sysfs.link(&format!("{path}/lower_{below}"), &format!("sys/class/net/{below}"));
    }
    let rates = ["eth0", "bond0", "bond0.7", "eth1", "veth0", "none"];
    let rates = rates.map(|name| discover::wire_mbps(sysfs.root.path(), name));
    assert_eq!(rates, [25_000, 50_000, 50_000, 0, 0, 0]);
}

#[test]
fn a_locality_is_the_socket_and_the_cache_of_all_cpus() {
    let sysfs = Sysfs::new("n2");
    sysfs.cpus(2, 2, 4);
    let locality = |cpus: &str| {
        let locality = discover::locality(sysfs.root.path(), &cpus.parse().unwrap());
        (locality.socket, locality.cache)
    };
    assert_eq!(locality("0-3,16-19"), (Some(0), Some(0)));
    assert_eq!(locality("5"), (Some(0), Some(4)));
    assert_eq!(locality("0-7"), (Some(0), None));
    assert_eq!(locality("8-15"), (Some(1), None));
    assert_eq!([locality("0-15"), locality(""), locality("99")], [(None, None); 3]);
}
