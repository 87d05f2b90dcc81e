//! A ports report of `ibnetdiscover -p`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_topology::discover::files::{Read, read};
use ringfold_topology::fabric::classify;
use ringfold_topology::site::Site;

/// What makes the text one of this format.
const START: &[u8] = b"CA ";

fuzz_target!(|rest: &[u8]| {
    let bytes = [START, rest].concat();
    if let Ok(Read::Fabric(fabric)) = read("fuzz", &bytes) {
        for port in &fabric.ports {
            assert!(port.attached.is_none_or(|(switch, _)| switch < fabric.switches.len()));
        }
        for cable in &fabric.cables {
            assert!(cable.ends.iter().all(|(switch, _)| *switch < fabric.switches.len()));
        }
        let site = Site::of(&fabric, &classify(&fabric));
        let again = Site::parse("fuzz", &site.write()).unwrap();
        assert_eq!(again.digest(), site.digest());
    }
});
