//! RDMA devices, and the hosts that the ranks of a test play with them.

use std::collections::BTreeSet;
use std::fs;

use ringfold_transport::rdma::{Rails, Settings};

use crate::needed;

/// What of the devices belongs to each host, as in `RINGFOLD_IB_HCA`; nothing where there are no
/// devices.
///
/// Hosts can be told apart where devices have names like `rxe_h0r1`, of host 0's on rail 1. Else
/// there is one that has all.
///
/// # Panics
/// As [`needed::skipped`], if there is none.
#[must_use]
pub fn hosts() -> Vec<String> {
    if let Err(why) = Rails::open(&Settings::default(), None) {
        let _ = needed::skipped("rdma", &why.to_string());
        return Vec::new();
    }
    let entries = fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let hosts: Option<BTreeSet<String>> = names.map(|name| host(&name).map(String::from)).collect();
    hosts.unwrap_or_else(|| BTreeSet::from([String::new()])).into_iter().collect()
}

/// `rxe_h0r` of `rxe_h0r1`.
fn host(device: &str) -> Option<&str> {
    let host = device.trim_end_matches(|c: char| c.is_ascii_digit());
    let (_, number) = host.strip_suffix('r')?.rsplit_once("_h")?;
    (host != device && number.parse::<u8>().is_ok()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_say_whose_they_are_are_told_apart() {
        assert_eq!(host("rxe_h0r1"), Some("rxe_h0r"));
        assert_eq!(host("siw_h12r10"), Some("siw_h12r"));
        assert!(["mlx5_0", "rxe_h0r", "rxe_hr1", "rocep1s0"].iter().all(|it| host(it).is_none()));
    }
}
