//! The administrator's site file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_topology::site::Site;

/// The usual beginning of a file.
const START: &str = "{\"ringfold-site\": 1,";

fuzz_target!(|rest: &str| {
    for text in [rest, &format!("{START}{rest}")] {
        if let Ok(site) = Site::parse("fuzz", text) {
            let again = Site::parse("fuzz", &site.write()).unwrap();
            assert_eq!((again.digest(), &again), (site.digest(), &site));
        }
    }
});
