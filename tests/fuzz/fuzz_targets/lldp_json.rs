//! The output of `lldpctl -f json`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_topology::discover::files::{Read, lldp, read};

/// The beginning that selects this format.
const START: &[u8] = b"{\"lldp\":";

fuzz_target!(|rest: &[u8]| {
    let bytes = [START, rest].concat();
    if let Ok(Read::Lldp(host)) = read("fuzz.json", &bytes) {
        let fabric = lldp::fabric(std::slice::from_ref(&host));
        assert!(fabric.ports.len() <= host.neighbours.len());
        for port in &fabric.ports {
            assert!(port.attached.is_none_or(|(switch, _)| switch < fabric.switches.len()));
            assert_eq!(port.attached.is_some(), host.switch(&port.device).is_some());
        }
    }
});
