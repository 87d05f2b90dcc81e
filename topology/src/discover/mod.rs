//! Readers of the operating system and of files. No other module of this crate accesses them.
//!
//! * `machine`: one host, from `/sys` and `/proc`, live or recorded; `record` makes recordings;
//! * `root` reads their files; `cores`, `pci`, `nic`, `net` and `gpu` read a part each;
//! * `nccl_xml`: one host in NCCL's XML format;
//! * `topology_file`: a user's file about the fabric, and the places of ports in it;
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
mod topology_file;

pub use cpus::{Cpus, InvalidCpus};
pub use host::{Host, cores};
pub use machine::{locality, machine, machine_cores, port_gbps, wire_mbps};
pub use nccl_xml::{NcclXmlError, from_nccl_xml, to_nccl_xml};
pub use record::{RecordError, record};
pub use topology_file::{PortQuery, TopologyFile};
