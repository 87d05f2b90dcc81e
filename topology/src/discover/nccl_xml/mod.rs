//! NCCL's XML format for the topology of one host.
//!
//! The format has CPUs by NUMA node, PCI devices below each other, GPUs with their links, and NICs.
//! It has no caches, GIDs, LIDs, addresses or interfaces.

mod read;
mod write;

use crate::machine::Machine;

pub use read::NcclXmlError;

/// Reads a host from NCCL's XML format, as `NCCL_TOPO_DUMP_FILE` writes it and `NCCL_TOPO_FILE`
/// names it. Unknown elements and attributes are left out, as NCCL does.
///
/// Each CPU counts as a core. Ports count as active. NICs, GPUs and devices are in the order that
/// `discover::machine` gives them.
///
/// # Errors
/// The text is too long, cut off or no XML, or a value in it cannot be. The error has the line.
pub fn from_nccl_xml(text: &str) -> Result<Machine, NcclXmlError> {
    read::machine(text)
}

/// Writes a host in NCCL's XML format, as far as the format goes. Only active ports are written.
///
/// Reading the result gives what the format has: equal devices, GPUs, NICs with ports, and the CPUs
/// of each NUMA node. NVLink and xGMI links are not written, since a `Machine` knows groups of GPUs
/// and not their links; NCCL looks for links itself where a file has none. The groups are in an
/// attribute that NCCL leaves out.
#[must_use]
pub fn to_nccl_xml(machine: &Machine) -> String {
    write::machine(machine)
}
