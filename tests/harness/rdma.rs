//! RDMA devices, and the hosts that they stand for in a test.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;

use crate::needed;

/// Returns the devices of each host, as values for `RINGFOLD_IB_HCA`. Empty without devices, which
/// `opened` tells.
///
/// A name such as `rxe_h0r1` stands for host 0 and rail 1. With other names, one host has all
/// devices.
///
/// # Panics
/// As [`needed::skipped`], if there is no device.
#[must_use]
pub fn hosts<T>(opened: Result<T, impl Display>) -> Vec<String> {
    if let Err(why) = opened {
        let _ = needed::skipped("rdma", &why.to_string());
        return Vec::new();
    }
    let entries = fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let hosts: Option<BTreeSet<String>> = names.map(|name| host(&name).map(String::from)).collect();
    hosts.unwrap_or_else(|| BTreeSet::from([String::new()])).into_iter().collect()
}

/// Returns the host's prefix of a device name: `rxe_h0r` for `rxe_h0r1`.
fn host(device: &str) -> Option<&str> {
    let host = device.trim_end_matches(|c: char| c.is_ascii_digit());
    let (_, number) = host.strip_suffix('r')?.rsplit_once("_h")?;
    (host != device && number.parse::<u8>().is_ok()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_named_by_host_are_distinguished() {
        assert_eq!(host("rxe_h0r1"), Some("rxe_h0r"));
        assert_eq!(host("siw_h12r10"), Some("siw_h12r"));
        assert!(["mlx5_0", "rxe_h0r", "rxe_hr1", "rocep1s0"].iter().all(|it| host(it).is_none()));
    }
}
