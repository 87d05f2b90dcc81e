//! `ringfold aggregate`: serves in-network reduction, or prints the numbers of a running server.

use std::io::{IsTerminal as _, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ringfold_bootstrap::Secret;
use ringfold_innetwork::RdmaDevices;
use ringfold_innetwork::server::{Config, Server};
use ringfold_innetwork::trees::{self, Trees};
use ringfold_launcher::Stream;
use ringfold_topology::discover::machine;
use ringfold_types::Amount;
use tracing_subscriber::filter::LevelFilter;

/// The longest wait for the numbers of a running server.
const STATS_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address of the control port; groups get ports of their own at the same address
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Memory for the slots of all groups
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    memory: Amount,
    /// Control port of the parent, to which sums go on for groups with several levels
    #[arg(long, value_name = "HOST:PORT")]
    parent: Option<String>,
    /// Tree file that names this server, as given to --listen, and its parent
    #[arg(long, value_name = "FILE", conflicts_with = "parent")]
    tree: Option<PathBuf>,
    /// Rate of all links of this server together in Gbit/s, as in 800 or 1.6; jobs use the server
    /// where it is faster than their own steps [default: that of one host]
    #[arg(long, value_name = "RATE", value_parser = mbps)]
    gbps: Option<u32>,
    /// Threads for groups and for long chunks; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print groups, slots, bytes and memory of the server at that address, for each job
    #[arg(long)]
    stats: bool,
    /// File of the site's secret; by default site-secret in ~/.ringfold, made on first use
    #[arg(long, value_name = "FILE", env = "RINGFOLD_SITE_SECRET_FILE")]
    site_secret_file: Option<PathBuf>,
    #[arg(long, env = "HOME", hide = true)]
    home: Option<PathBuf>,
    /// Level of the log on standard error
    #[arg(long, value_name = "LEVEL", env = "RINGFOLD_DEBUG", default_value = "WARN")]
    log: LevelFilter,
}

pub(crate) fn answer(args: &Args) -> Result<String> {
    let site = Secret::site(args.site_secret_file.as_deref(), args.home.as_deref())?;
    if args.stats {
        return Ok(table(&trees::stats(&args.listen, &site, STATS_TIMEOUT)?));
    }
    tracing_subscriber::fmt()
        .with_max_level(args.log)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(|| Stream::Err)
        .init();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build()?;
    let listen = resolve(&args.listen)?;
    let parent = match above(args)? {
        Some(name) => Some((name.clone(), resolve(&name)?)),
        None => None,
    };
    let ringfold = ringfold::Config::from_env()?;
    let devices = devices(&ringfold, listen.ip())?;
    let by = match &devices {
        Ok(_) => "rdma".to_owned(),
        Err(lack) => format!("tcp ({lack})"),
    };
    let devices = devices.ok().map(Arc::new);
    runtime.block_on(async {
        let (memory, mbps) = (args.memory.0, args.gbps.unwrap_or(0));
        let config = Config { listen, site, memory, threads, mbps, parent, devices };
        let server = Server::bind(config).with_context(|| format!("cannot listen at {listen}"))?;
        let line = format!(
            "aggregator at {}: a pool of {} bytes, {threads} threads, chunks by {by}\n",
            server.address()?,
            args.memory,
        );
        Stream::Out.write_all(line.as_bytes())?;
        if let Some(metrics) = &ringfold.metrics {
            let at = server.address()?.to_string();
            ringfold::serve_aggregator(metrics, at, server.stats())?;
        }
        server.run().await;
        Ok(String::new())
    })
}

/// The RDMA devices, by the variables with which ranks choose theirs, or the reason why chunks go
/// by TCP. `at` is the address of the control port.
fn devices(config: &ringfold::Config, at: IpAddr) -> Result<Result<RdmaDevices, String>> {
    if !config.transports.rdma {
        return Ok(Err("RINGFOLD_TRANSPORT allows no rdma".to_owned()));
    }
    let near = Some(at).filter(|at| !at.is_unspecified());
    match RdmaDevices::find(config.rdma(), near, machine(Path::new("/"))) {
        Err(lack) if lack.is_unknown() => Err(lack.into()),
        found => Ok(found.map_err(|lack| lack.to_string())),
    }
}

/// The control port of the parent, if there is one.
fn above(args: &Args) -> Result<Option<String>> {
    let Some(path) = &args.tree else { return Ok(args.parent.clone()) };
    let trees = Trees::read(path)?;
    let node = trees.find(&args.listen);
    let node = node.with_context(|| format!("{} names no {}", path.display(), args.listen))?;
    Ok(trees.parent_of(node).map(str::to_owned))
}

/// Mbit/s of a rate in Gbit/s.
pub(crate) fn mbps(gbps: &str) -> Result<u32, String> {
    const MOST: f64 = 1e6;
    let rate: Option<f64> = gbps.parse().ok().filter(|it| (0.001..=MOST).contains(it));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    rate.map(|gbps| (gbps * 1000.0).round() as u32).ok_or_else(|| format!("give 0.001 to {MOST}"))
}

fn resolve(place: &str) -> Result<SocketAddr> {
    let mut found = place.to_socket_addrs().with_context(|| format!("no address: {place}"))?;
    found.next().with_context(|| format!("{place} has no address"))
}

fn table(stats: &trees::Stats) -> String {
    let (all, used) = stats.memory;
    let mut text = format!(
        "pool: {used} of {all} bytes\n\
         {:<24} {:>8} {:>9} {:>9} {:>7} {:>7} {:>14} {:>12} {:>16}  parent\n",
        "job", "group", "children", "connected", "linked", "slots", "memory", "chunks", "bytes"
    );
    let mut groups: Vec<_> = stats.groups.iter().collect();
    groups.sort_by_key(|group| (&group.job, group.group));
    for group in groups {
        let (children, connected) = group.children;
        let job: String = group.job.chars().filter(|c| !c.is_control()).collect();
        let parent = group.parent.as_ref().map_or_else(
            || "-".to_owned(),
            |parent| {
                let state = if parent.is_connected { "" } else { ", not connected" };
                format!("group {} at {}{state}", parent.group, parent.at)
            },
        );
        text += &format!(
            "{job:<24} {:>8} {children:>9} {connected:>9} {:>7} {:>7} {:>14} {:>12} {:>16}  \
             {parent}\n",
            group.group, group.linked, group.slots, group.memory, group.chunks, group.bytes
        );
    }
    text
}
