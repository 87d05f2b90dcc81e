//! `ringfold topo` from the command line: files read, files written, and refused input.

use std::fs;
use std::path::Path;

use ringfold_harness::Folder;

use crate::ringfold;

/// Returns the output of `ibnetdiscover` for two leaf switches below a spine, and two hosts with a
/// port on each leaf. The second port of `node1` runs at half the rate of the others.
fn ibnetdiscover() -> String {
    let leaves = [
        [("10", "node0 mlx5_0", 11, "HDR"), ("20", "node1 mlx5_0", 13, "HDR")],
        [("30", "node0 mlx5_1", 12, "HDR"), ("40", "node1 mlx5_1", 14, "EDR")],
    ];
    let switch = |guid: &str, name: &str, lid: usize| {
        format!(
            "vendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0x{guid}\nswitchguid=0x{guid}({guid})\n\
             Switch\t4 \"S-00000000000000{guid}\"\t\t# \"{name}\" enhanced port 0 lid {lid} lmc 0\n"
        )
    };
    let (mut spine, mut nodes, mut adapters) = (switch("b0", "spine0", 3), Vec::new(), Vec::new());
    for (leaf, ports) in leaves.iter().enumerate() {
        let at = leaf + 1;
        spine +=
            &format!("[{at}]\t\"S-00000000000000a{leaf}\"[4]\t\t# \"leaf{leaf}\" lid {at} 4xHDR\n");
        let mut node = switch(&format!("a{leaf}"), &format!("leaf{leaf}"), at);
        for (on, (guid, name, lid, rate)) in (1..).zip(ports) {
            let port = guid.replace('0', "1");
            node += &format!(
                "[{on}]\t\"H-00000000000000{guid}\"[1]({port}) \t\t\
                 # \"{name}\" lid {lid} 4x{rate}\n"
            );
            adapters.push(format!(
                "vendid=0x2c9\ndevid=0x101b\nsysimgguid=0x{guid}\ncaguid=0x{guid}\n\
                 Ca\t1 \"H-00000000000000{guid}\"\t\t# \"{name}\"\n\
                 [1]({port}) \t\"S-00000000000000a{leaf}\"[{on}]\t\t\
                 # lid {lid} lmc 0 \"leaf{leaf}\" lid {at} 4x{rate}\n"
            ));
        }
        nodes.push(
            node + &format!("[4]\t\"S-00000000000000b0\"[{at}]\t\t# \"spine0\" lid 3 4xHDR\n"),
        );
    }
    [vec![spine], nodes, adapters].concat().join("\n")
}

#[test]
fn a_fabric_is_printed_drawn_and_written_as_a_site() {
    let folder = Folder::new();
    let [fabric, site, svg, again] =
        ["fabric.txt", "site.json", "fabric.svg", "again.json"].map(|name| folder.at(name));
    let [fabric, site, svg, again] = [&fabric, &site, &svg, &again].map(String::as_str);
    folder.file("fabric.txt", ibnetdiscover());
    let text = printed(&["--from", fabric, "--svg", svg, "--write", site]);
    assert_eq!(line(&text, "kind")[..3], ["kind", "rail-optimized", "certain"]);
    assert_eq!(line(&text, "rails")[..3], ["rails", "2", "certain"]);
    assert_eq!(line(&text, "node0"), ["node0", "mlx5_0", "mlx5_1"]);
    assert!(text.ends_with(&format!("wrote {svg}\nwrote {site}\n")), "{text}");
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg "));
    // The site file has the same answers, without the switches.
    let told = printed(&["--from", site]);
    for start in ["kind", "rails", "planes", "crosses"] {
        assert_eq!(line(&told, start), line(&text, start));
    }
    assert_eq!(line(&told, "node0"), ["node0", "mlx5_0", "mlx5_1"]);
    printed(&["--from", site, "--write", again]);
    assert_eq!(fs::read_to_string(site).unwrap(), fs::read_to_string(again).unwrap());
    // An existing file stays, and no other file is written.
    let other = &folder.at("other.svg");
    let error = refused(&["--from", fabric, "--svg", other, "--write", site]);
    assert_eq!(error, format!("ringfold: {site} exists; --force replaces it\n"));
    assert!(!Path::new(other).exists());
    printed(&["--from", fabric, "--write", site, "--force"]);
    let json = printed(&["--from", fabric, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["fabric"]["kind"]["value"], "rail_optimized");
    assert_eq!(json["fabric"]["ports"].as_array().unwrap().len(), 4);
}

#[test]
fn a_recording_tells_the_same_as_the_machine() {
    let folder = Folder::new();
    let copy = &*folder.at("copy");
    let now = printed(&["--record", copy]);
    let then = printed(&["--root", copy]);
    let machine = |text: &str| {
        let lines = text.lines().take_while(|line| !line.is_empty() && !line.starts_with("wrote"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(machine(&now), machine(&then));
    assert!(now.ends_with(&format!("wrote {copy}\n")), "{now}");
    assert!(refused(&["--record", copy]).contains("not empty"));
    let xml = &*folder.at("machine.xml");
    printed(&["--root", copy, "--nccl-xml", xml]);
    // If one file is refused, nothing is recorded.
    let other = folder.path().join("other");
    let error = refused(&["--record", other.to_str().unwrap(), "--nccl-xml", xml]);
    assert_eq!(error, format!("ringfold: {xml} exists; --force replaces it\n"));
    assert!(!other.exists());
    let nodes = |text: &str| {
        let title = text.lines().next().unwrap_or_default();
        title.split([',', ':']).find(|it| it.contains("NUMA")).map(str::to_owned)
    };
    assert!(nodes(&then).is_some(), "{then}");
    assert_eq!(nodes(&printed(&["--from", xml])), nodes(&then));
}

#[test]
fn files_that_cannot_be_read_are_named_with_the_reason() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| folder.file(name, text);
    let whole = ibnetdiscover();
    let fabric = file("fabric.txt", &whole);
    let cut = file("cut.txt", &whole[..whole.len() / 2]);
    let xml = file("cut.xml", "<system>\n<cpu numaid=");
    let slurm = file("topology.conf", "SwitchName=s1 Nodes=n[1-2]\n");
    let recording = folder.path().to_str().unwrap();
    let none = folder.path().join("none");
    let lost = none.join("fabric.svg");
    let lost = lost.to_str().unwrap();
    for (arguments, parts) in [
        (vec!["--from", &cut], vec![cut.as_str(), "cut off"]),
        (vec!["--from", &xml], vec![xml.as_str(), "line"]),
        (vec!["--from", none.to_str().unwrap()], vec!["none"]),
        (vec!["--from", &fabric, &slurm], vec![fabric.as_str(), "one at a time"]),
        (vec!["--from", &fabric, "--nccl-xml", "x"], vec!["describe no machine"]),
        (vec!["--root", recording], vec![recording, "is not a recording"]),
        (vec!["--from", &fabric, "--svg", "x", "--write", "x"], vec!["x: two options name"]),
        (vec!["--from", &fabric, "--svg", lost], vec![lost, "its folder does not exist"]),
    ] {
        let error = refused(&arguments);
        assert!(error.starts_with("ringfold: ") && error.lines().count() == 1, "{error}");
        for part in parts {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
    }
    let told = printed(&["--from", &slurm]);
    assert_eq!(line(&told, "group"), ["group 0", "[s1]"]);
    assert_eq!(line(&told, "kind")[2], "unknown");
}

/// Returns the cells of the line that begins with `start`.
fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let is_it = |line: &&str| line.trim_start().starts_with(start);
    let Some(line) = text.lines().find(is_it) else { panic!("no line `{start}` in:\n{text}") };
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

fn printed(arguments: &[&str]) -> String {
    ringfold(&[&["topo"], arguments].concat()).printed()
}

fn refused(arguments: &[&str]) -> String {
    crate::refused(&[&["topo"], arguments].concat())
}
