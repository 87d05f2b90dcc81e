//! `ringfold topo`: describes a machine and its fabric, with certainty and evidence.
//!
//! * `source`: reads this machine, a recording, or files of another site;
//! * `here`: the network as ranks on this host know it;
//! * `machine`: a machine as a tree; `text`: a fabric as text; `json`, `svg`: other formats;
//! * `measure`: a job that probes every pair of NICs;
//! * `picture`: the rows and columns for text and SVG; `names`, `switches`: their labels;
//! * `trees`: tree files of aggregators; `save`: writes files.

mod here;
mod json;
mod machine;
mod measure;
mod names;
mod picture;
#[cfg(test)]
mod sample;
mod save;
mod source;
mod svg;
mod switches;
#[cfg(test)]
mod tests;
mod text;
mod trees;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use ringfold::Config;
use ringfold_topology::discover::{self, to_nccl_xml};
use ringfold_topology::fabric::Fabric;
use ringfold_topology::machine::Machine;
use ringfold_topology::site::Site;

use self::save::save;
use self::source::{Network, Seen};

/// The command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Read a recording of a machine in place of this machine
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    root: Option<PathBuf>,
    /// Read another site's files in place of this machine: ibnetdiscover, iblinkinfo,
    /// `lldpctl -f json` of several hosts, Slurm's topology.conf, a site file, NCCL's XML of
    /// machines. The contents show the format
    #[arg(long, value_name = "FILE", num_args = 1.., group = "network")]
    from: Vec<PathBuf>,
    /// Copy the files that describe this machine to a new or empty folder, for --root
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    record: Option<PathBuf>,
    /// Measure every pair of NICs, in a job with one rank on each host: ringrun --host a,b ringfold
    /// topo --measure
    #[arg(long, group = "network", conflicts_with_all = ["root", "record"])]
    measure: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw the fabric of --from or --measure to a file
    #[arg(long, value_name = "FILE", requires = "network")]
    svg: Option<PathBuf>,
    /// Write a site file, for RINGFOLD_TOPO_FILE of jobs
    #[arg(long, value_name = "FILE", requires = "network")]
    write: Option<PathBuf>,
    /// Write a tree file of aggregators, for `ringfold aggregate --tree` and RINGFOLD_AGGREGATORS
    #[arg(long, value_name = "FILE", requires_all = ["network", "aggregators"])]
    tree: Option<PathBuf>,
    /// Control ports of the aggregators that --tree names. Number g is on rail g modulo the rails
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', requires = "tree")]
    aggregators: Vec<String>,
    /// Write the machine as NCCL's topology XML, for NCCL_TOPO_FILE
    #[arg(long, value_name = "FILE", conflicts_with = "measure")]
    nccl_xml: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
}

/// Examines the machine or fabric, writes the requested files, and returns the text to print.
pub(crate) fn answer(args: &Args) -> anyhow::Result<String> {
    let Some(seen) = examine(args)? else { return Ok(String::new()) };
    let mut files: Vec<(&Path, String)> = Vec::new();
    if let Some(path) = &args.svg {
        let Network { fabric, found, .. } = network(&seen, "--svg")?;
        files.push((path, svg::fabric(fabric, found)));
    }
    if let Some(path) = &args.write {
        let Network { fabric, found, site } = network(&seen, "--write")?;
        let site = site.clone().unwrap_or_else(|| Site::of(fabric, found));
        files.push((path, site.write()));
    }
    if let Some(path) = &args.tree {
        let Network { found, .. } = network(&seen, "--tree")?;
        files.push((path, trees::text(found, &args.aggregators)?));
    }
    if let Some(path) = &args.nccl_xml {
        files.push((path, to_nccl_xml(one_machine(&seen)?)));
    }
    for (path, text) in &files {
        save(path, text, args.force)?;
    }
    if args.json {
        return in_json(&seen);
    }
    let mut text = in_words(&seen);
    let written = args.record.as_deref().into_iter().chain(files.iter().map(|(path, _)| *path));
    for path in written {
        writeln!(text, "wrote {}", path.display())?;
    }
    Ok(text)
}

/// Reads the fabric of a site from its files.
pub(crate) fn fabric(paths: &[PathBuf]) -> anyhow::Result<Fabric> {
    let seen = source::files(paths)?;
    let network = seen.network.context("--from: these files describe no network between hosts")?;
    Ok(network.fabric)
}

/// Checks that all requested files can be written. Runs first, because `examine` may take minutes
/// and writes a recording.
fn may_write(args: &Args) -> anyhow::Result<()> {
    let files = [&args.svg, &args.write, &args.tree, &args.nccl_xml];
    let mut paths = BTreeSet::new();
    for path in files.into_iter().flatten() {
        let shown = path.display();
        ensure!(paths.insert(path), "{shown}: two options name this file");
        // A dangling link counts as a file.
        let exists = path.symlink_metadata().is_ok();
        ensure!(args.force || !exists, "{shown} exists; --force replaces it");
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // The file's folder may be the recording, which does not exist yet.
        let has_folder = args.record.is_some() || folder.is_none_or(Path::is_dir);
        ensure!(has_folder, "cannot write {shown}: its folder does not exist");
    }
    Ok(())
}

/// Reads the requested source, or measures. Returns `None` on ranks other than 0 of a measurement.
fn examine(args: &Args) -> anyhow::Result<Option<Seen>> {
    if args.measure {
        let seen = |network| Seen { network: Some(network), ..Seen::default() };
        return Ok(measure::measure(|| may_write(args))?.map(seen));
    }
    may_write(args)?;
    if !args.from.is_empty() {
        return source::files(&args.from).map(Some);
    }
    let root = args.root.as_deref().unwrap_or_else(|| Path::new("/"));
    ensure!(root.join("sys").is_dir(), "{} is not a recording: it has no `sys`", root.display());
    let machine = match &args.record {
        Some(folder) => discover::record(root, folder)?,
        None => discover::machine(root),
    };
    // A recording holds neither settings nor files about the network.
    let evidence = match args.root {
        Some(_) => None,
        None => Some(ringfold::evidence(&Config::from_env()?)?),
    };
    Ok(Some(Seen { machines: vec![machine], evidence, network: None }))
}

fn network<'a>(seen: &'a Seen, option: &str) -> anyhow::Result<&'a Network> {
    let network = seen.network.as_ref();
    network
        .with_context(|| format!("{option}: the files of --from describe machines and no fabric"))
}

fn one_machine(seen: &Seen) -> anyhow::Result<&Machine> {
    match &seen.machines[..] {
        [machine] => Ok(machine),
        [] => bail!("--nccl-xml: the files of --from describe no machine"),
        more => bail!("--nccl-xml: give the file of one machine, not of {}", more.len()),
    }
}

fn in_words(seen: &Seen) -> String {
    let mut parts: Vec<String> = seen.machines.iter().map(machine::machine).collect();
    parts.extend(seen.evidence.as_ref().map(here::text));
    if let Some(Network { fabric, found, site }) = &seen.network {
        let measured = site.as_ref().map(text::measured).unwrap_or_default();
        parts.push(text::fabric(fabric, found) + &measured);
    }
    parts.join("\n")
}

fn in_json(seen: &Seen) -> anyhow::Result<String> {
    let machines: Vec<_> = seen.machines.iter().map(json::machine).collect();
    let network = seen.network.as_ref();
    let fabric = network.map(json::described);
    let here = seen.evidence.as_ref().map(here::json);
    let all = serde_json::json!({ "machines": machines, "here": here, "fabric": fabric });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
