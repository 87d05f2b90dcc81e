//! Files in NCCL's XML format: real ones, written ones and broken ones.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringfold_harness::needed;
use ringfold_topology::discover::{from_nccl_xml, to_nccl_xml};
use ringfold_topology::machine::{Affinity, Core, Machine, Network, gpu_of, share, storage};
use ringfold_types::limits::{MACHINE_XML_BYTES_MAX, MACHINE_XML_NODES_MAX};

/// Real files by name. If their folder is missing, a message says so and there are none.
fn real() -> Vec<(String, String)> {
    #[expect(clippy::disallowed_methods, reason = "a test asks where its data are")]
    let folder = std::env::var("RINGFOLD_TEST_TOPOLOGIES");
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/topologies"));
    let folder = folder.map_or_else(|_| beside(), PathBuf::from);
    let paths = fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|it| it == "xml"));
    let mut files: Vec<(String, String)> = files
        .map(|path| {
            (path.file_stem().unwrap().to_string_lossy().into(), fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    if files.is_empty() {
        let why = format!("no XML file in {}", folder.display());
        let _ = needed::skipped("topologies", &why);
    }
    files
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn real_files_are_read_and_written() {
    for (name, text) in real() {
        let machine = from_nccl_xml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(machine.devices.len(), count(&text, "<pci "), "{name}");
        let ports: usize = machine.nics.iter().map(|nic| nic.ports.len()).sum();
        assert_eq!(ports, count(&text, "<net "), "{name}");
        let gpus = count(&text, "<gpu ").max(count(&text, "class=\"0x030200\""));
        assert_eq!(machine.gpus.len(), gpus, "{name}");
        assert!(machine.cores.len() >= 24, "{name}");
        assert_eq!(
            machine.gpus.iter().any(|gpu| gpu.domain.is_some()),
            text.contains("<xgmi"),
            "{name}"
        );
        assert!(machine.devices.iter().all(|device| device.megabytes > 0 && device.node.is_some()));
        let written = to_nccl_xml(&machine);
        assert_eq!(from_nccl_xml(&written).as_ref(), Ok(&machine), "{name}");
    }
}

#[test]
fn real_machines_place_their_nics() {
    for (name, text) in real() {
        let machine = from_nccl_xml(&text).unwrap();
        let names: Vec<&str> = machine.nics.iter().map(|nic| nic.name.as_str()).collect();
        let size = machine.gpus.len();
        let affinities: Vec<Affinity> = (0..size)
            .map(|rank| Affinity { gpu: gpu_of(&machine, None, rank, size), nodes: Vec::new() })
            .collect();
        let shares = share(&machine, &affinities, &names);
        for nic in 0..names.len() {
            let ranks = shares.iter().filter(|ports| ports.contains(&nic)).count();
            assert!((size / names.len()..=size.div_ceil(names.len())).contains(&ranks), "{name}");
        }
        assert!(storage(&machine, &names).len() < names.len().max(1), "{name}");
        if name == "rccl_topo_8p_940" {
            // One NIC at the switch of each GPU.
            let pairs: Vec<usize> = shares.iter().map(|ports| ports[0]).collect();
            let nodes = |at: usize| (machine.gpus[at].node, machine.nics[pairs[at]].node);
            assert!((0..8).all(|at| nodes(at).0 == nodes(at).1), "{pairs:?}");
        }
    }
}

const SMALL: &str = r#"<!-- a comment -->
<system version="1">
  <cpu numaid="1" affinity="00000001,0000000f" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:12:00.0" class="0x030200" vendor="0x10de" device="0x2330">
        <gpu dev="0" sm="90"><nvlink target="ffffffff:ffff:ff" count="18" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:13:00.0" class="0x030200" vendor="0x10de" device="0x2330">
        <gpu dev="1" sm="90"><nvlink target="ffffffff:ffff:ff" count="18" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:11:00.0" class="0x020700" vendor="0x15b3">
        <nic><net name="mlx5_0" dev="0" speed="800000" port="1" guid="0xf2bb2700034b6b50"/>
             <net name="mlx5_0" dev="1" speed="400000" port="2" guid="0xf2bb2700034b6b50"/></nic>
        <something new="1"/>
      </pci>
    </pci>
    <nic><net name="eth0" dev="2" speed="25000" port="0" guid="0x0"/></nic>
  </cpu>
</system>
"#;

#[test]
fn elements_become_values() {
    let machine = from_nccl_xml(SMALL).unwrap();
    assert_eq!(machine.gpus.iter().map(|gpu| gpu.domain).collect::<Vec<_>>(), [Some(0), Some(0)]);
    assert_eq!(
        machine.cores.iter().flat_map(|core| &core.cpus).copied().collect::<Vec<_>>(),
        [0, 1, 2, 3, 32]
    );
    let [eth, mlx] = &machine.nics[..] else { panic!("{:?}", machine.nics) };
    assert_eq!((eth.ports[0].network, eth.pci, eth.node), (Network::Tcp, None, Some(1)));
    assert_eq!((mlx.card, mlx.ports.len(), mlx.ports[0].gbps), (0x506b_4b03_0027_bbf2, 2, 800));
    assert_eq!(mlx.ports[1].network, Network::InfiniBand);
    let device = machine.devices.iter().find(|it| Some(it.address) == mlx.pci).unwrap();
    assert_eq!(device.parent.map(|it| it.to_string()).as_deref(), Some("0000:10:00.0"));
    assert_eq!(from_nccl_xml(&to_nccl_xml(&machine)), Ok(machine));
}

/// A machine from sysfs keeps everything that the format has.
#[test]
fn everything_in_the_format_stays() {
    let mut machine = crate::shapes::eight_and_two().machine();
    machine.nics[0].name = "a<\"b\">&amp;".to_owned();
    let again = from_nccl_xml(&to_nccl_xml(&machine)).unwrap();
    assert_eq!((&again.devices, &again.gpus), (&machine.devices, &machine.gpus));
    let nodes = |machine: &Machine| {
        let of = |core: &Core| core.cpus.iter().map(|cpu| (core.node, *cpu)).collect::<Vec<_>>();
        let mut nodes: Vec<_> = machine.cores.iter().flat_map(of).collect();
        nodes.sort_unstable();
        nodes
    };
    assert_eq!(nodes(&again), nodes(&machine));
    let nics = |machine: &Machine| {
        machine
            .nics
            .iter()
            .map(|nic| (nic.name.clone(), nic.pci, nic.node, nic.card))
            .collect::<Vec<_>>()
    };
    assert_eq!(nics(&again), nics(&machine));
}

#[test]
fn mistakes_are_refused_with_their_line() {
    let refused = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "{from}");
        from_nccl_xml(&SMALL.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert_eq!(refused("0000:12:00.0", "12:0"), "line 5: `busid=\"12:0\"` of <pci> is not valid");
    assert_eq!(
        refused("0000:12:00.0", "0000:10:00.0"),
        "line 5: the PCI device 0000:10:00.0 occurs twice"
    );
    assert_eq!(refused("busid=\"0000:13:00.0\" ", ""), "line 8: <pci> has no `busid`");
    assert_eq!(
        refused("0000000f", "00000000f"),
        "line 3: `affinity=\"00000001,00000000f\"` of <cpu> is not valid"
    );
    assert_eq!(refused("port=\"2\"", "port=\"1\""), "line 13: port 1 of mlx5_0 occurs twice");
    assert_eq!(
        refused("port=\"2\"", "port=\"256\""),
        "line 13: `port=\"256\"` of <net> is not valid"
    );
    assert_eq!(refused("name=\"eth0\"", ""), "line 17: <net> has no `name`");
    let unknown = "line 2: version 9 of the format is unknown; versions 1 and 2 are known";
    assert_eq!(refused("version=\"1\"", "version=\"9\""), unknown);
    assert!(refused("</cpu>", "").starts_with("line 19: "), "{}", refused("</cpu>", ""));
    assert_eq!(
        from_nccl_xml("<graphs/>").unwrap_err().to_string(),
        "line 1: <graphs> is not NCCL's <system>"
    );
}

/// A file that is cut off is refused. A changed byte never causes a panic.
#[test]
fn files_that_were_cut_or_changed() {
    let end = SMALL.trim_end().len();
    for at in 0..end {
        assert!(from_nccl_xml(&SMALL[..at]).is_err(), "cut at {at}");
    }
    for at in 0..end {
        for byte in [b'<', b'"', b'9', b'-', b' ', 0, b'&'] {
            let mut text = SMALL.as_bytes().to_vec();
            text[at] = byte;
            if let Ok(machine) = from_nccl_xml(std::str::from_utf8(&text).unwrap()) {
                assert_eq!(from_nccl_xml(&to_nccl_xml(&machine)), Ok(machine));
            }
        }
    }
}

#[test]
fn size_is_bounded() {
    let bytes = usize::try_from(MACHINE_XML_BYTES_MAX).unwrap();
    let nodes = usize::try_from(MACHINE_XML_NODES_MAX).unwrap();
    let begun = Instant::now();
    let refused = |text: String| from_nccl_xml(&text).unwrap_err().to_string();
    assert!(refused(" ".repeat(bytes + 1)).contains("more than the 4194304 allowed"));
    assert!(refused(format!("<system>{}</system>", "<a/>".repeat(nodes))).contains("nodes limit"));
    // The limits allow texts of this depth and with this number of attributes.
    let deep = format!("<system>{}{}</system>", "<pci>".repeat(100), "</pci>".repeat(100));
    assert!(refused(deep).contains("has no `busid`"));
    let deep = "<a>".repeat(nodes / 2) + &"</a>".repeat(nodes / 2);
    assert_eq!(from_nccl_xml(&format!("<system>{deep}</system>")), Ok(Machine::default()));
    let wide: String = (0..100_000).map(|at| format!(" a{at}=''")).collect();
    assert!(
        refused(format!("<system>\n<pci{wide}/></system>")).starts_with("line 2: a tag is longer")
    );
    assert!(
        refused("<system>\n<a xmlns:b='u'/></system>".into()).starts_with("line 2: NCCL's format")
    );
    let tags: String = (0..60_000).map(|_| "<pci busid=\"0000:00:00.0\">").collect();
    assert!(
        refused(format!("<system>{tags}{}</system>", "</pci>".repeat(60_000))).contains("twice")
    );
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
