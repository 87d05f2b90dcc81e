//! Common bodies of fuzz targets.

use ringfold_topology::discover::files::{Read, read};
use ringfold_topology::fabric::classify;
use ringfold_topology::site::Site;

/// Reads a file that begins with `start`, which selects its format. If the file is a fabric, checks
/// its indices, classifies it, and checks that its site file can be read back.
///
/// # Panics
/// If a check fails.
pub fn fabric(start: &str, rest: &[u8]) {
    let bytes = [start.as_bytes(), rest].concat();
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
}
