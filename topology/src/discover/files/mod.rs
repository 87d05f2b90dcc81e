//! Readers of files that describe a fabric or a site. Each turns a text into a value, or into one
//! error with the line and the reason.

mod content;
mod error;
mod graph;
mod iblinkinfo;
mod ibnetdiscover;
pub mod lldp;
mod merge;
mod scan;
mod site;
pub mod slurm;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ringfold_types::limits::FABRIC_FILE_BYTES_MAX;

use self::error::Reason;
use self::graph::Graph;
use self::merge::Part;

use crate::evidence::HostPath;
use crate::fabric::Fabric;
use crate::site::Site;

pub use self::error::Error;
pub use self::lldp::Lldp;

/// The content of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// A site file.
    Site(Site),
    /// The graph in the output of `ibnetdiscover` or `iblinkinfo`.
    Fabric(Fabric),
    /// The LLDP neighbours of one host. `lldp::fabric` joins several hosts.
    Lldp(Lldp),
    /// By name of host: its place according to Slurm's `topology.conf`.
    Slurm(BTreeMap<String, HostPath>),
}

/// The formats that the content of a file can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Site,
    Lldp,
    Topology,
    PortsReport,
    LinkInfo,
    Slurm,
    SlurmYaml,
    Xml,
}

/// Reads a file of any known format, which it recognises by content. `file` is the name for errors,
/// and for hosts that the file does not name.
///
/// # Errors
/// The format is unknown, or the text has an error. The first one is reported.
pub fn read(file: &str, bytes: &[u8]) -> Result<Read, Error> {
    content::text(bytes).and_then(|text| read_text(file, text)).map_err(|reason| reason.of(file))
}

/// Reads several files, each a name and its bytes, that together describe one fabric: LLDP of
/// several hosts, or `ibnetdiscover` of several subnets. A single file is allowed.
///
/// # Errors
/// An error of `read`; files of different networks; a port that is in two files.
pub fn fabric(files: &[(String, Vec<u8>)]) -> Result<Fabric, Error> {
    let (mut graphs, mut hosts) = (Vec::new(), Vec::new());
    for (file, bytes) in files {
        match read(file, bytes)? {
            Read::Fabric(fabric) => graphs.push(Part { file, line: 1, fabric }),
            Read::Lldp(host) => hosts.push((file.as_str(), host)),
            Read::Site(_) | Read::Slurm(_) => {
                let text =
                    "the file describes no fabric: give ibnetdiscover, iblinkinfo or lldpctl files";
                return Err(Reason::new(1, text).of(file));
            }
        }
    }
    match (graphs.first(), hosts.first()) {
        (Some(_), Some((file, _))) => {
            let text = "the file is LLDP, and another is InfiniBand: read one network at a time";
            Err(Reason::new(1, text).of(file))
        }
        (_, Some(_)) => lldp::join(hosts),
        (_, None) => merge::fabrics(&graphs),
    }
}

/// Reads the bytes of a file, up to the size limit.
///
/// # Errors
/// The file cannot be read, or exceeds the limit.
pub fn load(path: &Path) -> Result<Vec<u8>, Error> {
    let wrong = |text: String| Reason::new(1, text).of(&path.display().to_string());
    let file =
        File::open(path).map_err(|error| wrong(format!("the file cannot be opened: {error}")))?;
    let mut bytes = Vec::new();
    let end = FABRIC_FILE_BYTES_MAX as u64 + 1;
    let read = file.take(end).read_to_end(&mut bytes);
    read.map_err(|error| wrong(format!("the file cannot be read: {error}")))?;
    content::limit(&bytes).map_err(|reason| reason.of(&path.display().to_string()))?;
    Ok(bytes)
}

fn read_text(file: &str, text: &str) -> Result<Read, Reason> {
    Ok(match format(text)? {
        Format::Site => Read::Site(site::parse(text)?),
        Format::Lldp => Read::Lldp(lldp::parse(file, text)?),
        Format::Topology => {
            let graphs = ibnetdiscover::topology(text)?;
            let part = |(line, graph): (_, Graph)| Ok(Part { file, line, fabric: graph.fabric()? });
            let parts = graphs.into_iter().map(part).collect::<Result<Vec<_>, Reason>>()?;
            Read::Fabric(merge::fabrics(&parts).map_err(Reason::from)?)
        }
        Format::PortsReport => Read::Fabric(ibnetdiscover::ports(text)?.fabric()?),
        Format::LinkInfo => Read::Fabric(iblinkinfo::links(text)?.fabric()?),
        Format::Slurm => Read::Slurm(slurm::parse(text)?),
        Format::SlurmYaml => {
            let text =
                "the file is YAML: give topology.conf, or the output of `scontrol show topology`";
            return Err(Reason::new(1, text));
        }
        Format::Xml => {
            return Err(Reason::new(
                1,
                "the file is XML, which describes a machine and not a fabric",
            ));
        }
    })
}

/// Recognises a format by its first line that is neither empty nor a comment.
fn format(text: &str) -> Result<Format, Reason> {
    let content = |(_, line): &(usize, &str)| !line.trim().is_empty() && !line.starts_with('#');
    let mut numbered = text.lines().enumerate();
    let Some((index, line)) = numbered.find(content) else {
        return Err(Reason::new(1, "the file has no content"));
    };
    let (line, whole) = (line.trim_end(), line);
    let starts = |starts: &[&str]| starts.iter().any(|start| line.starts_with(start));
    let lower = line.trim_start().to_ascii_lowercase();
    Ok(if line.trim_start().starts_with('{') {
        if text.contains("\"ringfold-site\"") { Format::Site } else { Format::Lldp }
    } else if line.trim_start().starts_with('<') {
        Format::Xml
    } else if starts(&["CA: ", "Switch: ", "Router: ", "0x"]) {
        Format::LinkInfo
    } else if starts(&["CA ", "SW ", "RT "]) {
        Format::PortsReport
    } else if ["switchname=", "blockname=", "blocksizes="].iter().any(|key| lower.starts_with(key))
    {
        Format::Slurm
    } else if starts(&["---", "- topology:"]) {
        Format::SlurmYaml
    } else if ibnetdiscover::is_topology(line) {
        Format::Topology
    } else {
        let text = format!(
            "{} begins no format that ringfold reads: a site file, ibnetdiscover, \
             iblinkinfo, `lldpctl -f json` or Slurm's topology.conf",
            scan::shown(whole)
        );
        return Err(Reason::new(index + 1, text));
    })
}
