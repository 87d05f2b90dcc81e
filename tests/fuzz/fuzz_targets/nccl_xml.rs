//! Topologies in NCCL's XML format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_topology::discover::{from_nccl_xml, to_nccl_xml};

fuzz_target!(|text: &str| {
    if let Ok(machine) = from_nccl_xml(text) {
        let again = from_nccl_xml(&to_nccl_xml(&machine));
        assert_eq!(again, Ok(machine));
    }
});
