//! NCCL's XML format for the topology of one host.
//!
//! The format has CPUs by NUMA node, a tree of PCI devices, GPUs with their links, and NICs. It has
//! no caches, GIDs, LIDs, addresses or interfaces.

mod read;
mod write;

use crate::machine::Machine;

pub use read::NcclXmlError;

/// Reads a host from NCCL's XML format, as in the files that `NCCL_TOPO_DUMP_FILE` and
/// `NCCL_TOPO_FILE` name. Unknown elements and attributes are ignored, as NCCL does.
///
/// Each CPU counts as a core. Ports count as active. NICs, GPUs and devices are in the order of
/// `discover::machine`.
///
/// # Errors
/// The text is too long, cut off or not XML, or it has an impossible value. The error has the line.
pub fn from_nccl_xml(text: &str) -> Result<Machine, NcclXmlError> {
    read::machine(text)
}

/// Writes a host in NCCL's XML format, as far as the format allows. Only active ports are written.
///
/// Reading the result gives equal devices, GPUs, NICs with ports, and CPUs of each NUMA node.
/// NVLink and xGMI links are not written, because a `Machine` has groups of GPUs and not their
/// links. NCCL detects links itself if a file has none. The groups are in an attribute that NCCL
/// ignores.
#[must_use]
pub fn to_nccl_xml(machine: &Machine) -> String {
    write::machine(machine)
}
