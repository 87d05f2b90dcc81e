//! The readers, on complete and on damaged output of the real tools.

mod graph;
mod hosts;
mod sites;

use self::sites::site;
use super::*;

/// Three hosts on two leaf switches and a spine. The cable of host1's second port is pulled.
const TOPOLOGY: &str = include_str!("../samples/ibnetdiscover.txt");
const GROUPED: &str = include_str!("../samples/ibnetdiscover-gf.txt");
const PORTS: &str = include_str!("../samples/ibnetdiscover-p.txt");
const LIST: &str = include_str!("../samples/ibnetdiscover-l.txt");
const LINKS: &str = include_str!("../samples/iblinkinfo.txt");
const LINES: &str = include_str!("../samples/iblinkinfo-l.txt");
const SWITCHES: &str = include_str!("../samples/iblinkinfo-switches.txt");

/// Two interfaces with a neighbour each.
const LLDP: &str = include_str!("../samples/lldpctl.json");
const LLDP_VERBOSE: &str = include_str!("../samples/lldpctl.json0");
const LLDP_LOCAL: &str = include_str!("../samples/lldpcli-interfaces.json");

const SLURM: &str = "# Two pods\nSwitchName=s0 Nodes=n[00-02]\nswitchname=s1 nodes=n[03-05],x \\\n \
                     LinkSpeed=9\nSwitchName=s2 Nodes=n[06-08]\n\nSwitchName=p0 Switches=s[0-1]\n\
                     SwitchName=p1 Switches=s2 # one\nSwitchName=core Switches=p[0-1]\n";

fn fabric_of(text: &str) -> Fabric {
    match read("a.txt", text.as_bytes()) {
        Ok(Read::Fabric(fabric)) => fabric,
        other => panic!("{other:?}"),
    }
}

fn refused(text: &str) -> Error {
    read("a.txt", text.as_bytes()).expect_err("it is refused")
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let local = [LLDP, LLDP_LOCAL].concat();
    for whole in [TOPOLOGY, GROUPED, PORTS, LINKS, LINES, LLDP, LLDP_VERBOSE, &site().write()] {
        let content = whole.trim_end().len();
        for end in 0..content {
            assert!(read("a", &whole.as_bytes()[..end]).is_err(), "{:?}", &whole[..end]);
        }
    }
    assert!(read("a", local.as_bytes()).is_ok());
    for end in 0..SLURM.len() {
        // Slurm's format does not show its end, so only an incomplete last line shows a cut.
        let part = &SLURM[..end];
        assert!(part.ends_with('\n') || read("a", part.as_bytes()).is_err(), "{part:?}");
    }
}

#[test]
fn damage_is_an_error_or_another_value_and_no_panic() {
    let whole = site().write();
    let samples = [
        TOPOLOGY,
        GROUPED,
        PORTS,
        LINKS,
        LINES,
        SWITCHES,
        LIST,
        LLDP,
        LLDP_VERBOSE,
        LLDP_LOCAL,
        SLURM,
        &whole,
    ];
    let check = |bytes: &[u8]| {
        if let Err(error) = read("a", bytes) {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            assert!((1..=lines).contains(&error.line), "{error} of {lines}");
            assert!(!error.reason.is_empty());
        }
    };
    for sample in samples {
        let lines: Vec<&str> = sample.split_inclusive('\n').collect();
        for at in 0..lines.len() {
            let mut fewer = lines.clone();
            let line = fewer.remove(at);
            check(fewer.concat().as_bytes());
            fewer.splice(at..at, [line, line]);
            check(fewer.concat().as_bytes());
        }
        for at in 0..sample.len() {
            for byte in [b' ', b'9', b'"', b'[', b'x', b'\n', 0xff] {
                let mut bytes = sample.as_bytes().to_vec();
                bytes[at] = byte;
                check(&bytes);
            }
        }
    }
}
