//! Readers of the operating system and of files. No other module of this crate accesses them.
//!
//! * `machine`: one host, from `/sys` and `/proc`, live or recorded; `record` makes recordings;
//! * `root` reads their files; `cores`, `pci`, `nic`, `net` and `gpu` read a part each;
//! * `nccl_xml`: one host in NCCL's XML format;
//! * `cpus`, `host`: the calling process.

mod cores;
mod cpus;
pub mod files;
mod gpu;
mod host;
mod machine;
mod nccl_xml;
mod net;
mod nic;
mod pci;
mod record;
mod root;

pub use cpus::{Cpus, InvalidCpus};
pub use host::{Host, cores};
pub use machine::{locality, machine, machine_cores, wire_mbps};
pub use nccl_xml::{NcclXmlError, from_nccl_xml, to_nccl_xml};
pub use record::{RecordError, record};

/// A key by which names sort naturally: `mlx5_2` before `mlx5_10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        let digits = &rest[word..];
        let end = digits.find(|it: char| !it.is_ascii_digit()).unwrap_or(digits.len());
        key.push((0, rest[..word].to_owned()));
        key.push((digits[..end].parse().unwrap_or_default(), digits[..end].to_owned()));
        rest = &digits[end..];
    }
    key
}
