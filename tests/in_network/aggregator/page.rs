//! The quick start of `docs/in-network.md`, run as it stands there in namespaces of other names.

use std::process::Command;

use ringfold_harness::{Home, Namespaces, Outcome, program};

/// The page.
const PAGE: &str = include_str!("../../../docs/in-network.md");

/// The lines of shell of the quick start.
fn script() -> String {
    let section = PAGE.split("\n## ").find(|text| text.starts_with("Quick start\n")).unwrap();
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The namespaces of a run, which end with the test.
struct Hosts(String);

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in ["switch", "a", "b", "c"] {
            let name = format!("{}{host}", self.0);
            Command::new("ip").args(["netns", "del", &name]).output().ok();
        }
    }
}

#[test]
fn the_quick_start_works_as_it_stands() {
    let Some(probe) = Namespaces::new(&["probe"]) else { return };
    if !probe.can("ip -n @probe link add br0 type bridge") {
        return;
    }
    // Names of interfaces are short.
    let prefix = format!("r{}-", std::process::id());
    let _hosts = Hosts(prefix.clone());
    let home = Home::new();
    let programs = program::binary("ringfold");
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.parent().unwrap().display());
    let script = format!("set -eu\n{}", script().replace("rf-", &prefix));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("HOME", home.path()).env("PATH", path);
    shell.env_remove("RINGFOLD_SITE_SECRET_FILE").env_remove("RINGFOLD_DEBUG");
    let outcome = Outcome::of(&mut shell);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.contains("# Out of bounds values : 0 OK"), "{outcome:?}");
    assert!(outcome.stdout.contains("pool: 0 of 1073741824 bytes\n"), "{outcome:?}");
}
