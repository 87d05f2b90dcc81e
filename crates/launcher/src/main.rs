//! `ringrun`: turns the command line and the environment into a job, and its outcome into an exit
//! status and a last line.

mod args;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{CommandFactory, Parser};
use ringfold_launcher::{
    Bind, Job, Stream, failed, generate, intercept, parse_file, parse_list, parsed, run,
};
use ringfold_types::limits::HOST_FILE_BYTES_MAX;

use args::{Args, BindTo, StdinOf};

/// The exit status if no rank was started, and the program is not the cause.
const LAUNCH_FAILED: u8 = 125;

fn main() -> ExitCode {
    if let Some(status) = intercept().or_else(|| generate(Args::command())) {
        return status;
    }
    let args = match parsed(Args::try_parse_from(Args::normalize(std::env::args_os()))) {
        Ok(args) => args,
        Err(status) => return status,
    };
    log_to_stderr();
    match job(args).and_then(|job| Ok(run(&job)?)) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => failed("ringrun", &*error, LAUNCH_FAILED),
    }
}

/// Logs to standard error. Unauthenticated connections to the rendezvous are worth a line. The
/// ranks report an invalid variable themselves.
#[expect(clippy::disallowed_methods, reason = "a binary may read its environment")]
fn log_to_stderr() {
    let level = std::env::var("RINGFOLD_DEBUG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(tracing_subscriber::filter::LevelFilter::WARN))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(|| Stream::Err)
        .init();
}

/// The job that the arguments describe.
fn job(args: Args) -> anyhow::Result<Job> {
    let mut command = args.command.into_iter();
    let mut job = Job::new(command.next().context("no program")?);
    job.args = command.collect();
    job.ranks = args.ranks;
    job.hosts = match (&args.hostfile, &args.host) {
        (Some(file), _) => {
            let place = || format!("host file '{}'", file.display());
            let text = read_host_file(file).with_context(place)?;
            parse_file(&text).with_context(place)?
        }
        (None, Some(list)) => parse_list(list).context("--host")?,
        (None, None) => Vec::new(),
    };
    job.oversubscribe = args.oversubscribe;
    job.env = environment(&args.env)?;
    job.wdir = match args.wdir {
        Some(dir) => {
            let place = || format!("--wdir {}: no current directory to start from", dir.display());
            Some(std::path::absolute(&dir).with_context(place)?)
        }
        None => None,
    };
    job.bind = args.bind_to.map(|bind| match bind {
        BindTo::None => Bind::None,
        BindTo::Share => Bind::Share,
        BindTo::Core => Bind::Core,
    });
    job.tag_output = args.tag_output;
    job.forward_input = args.stdin == StdinOf::Rank0;
    job.time_limit = args.timeout;
    job.grace = (!args.enable_recovery && args.restart.is_none()).then_some(args.grace);
    job.restarts = args.restart;
    if let Some(list) = &args.spare {
        job.spares = parse_list(list).with_context(|| format!("--spare {list}"))?;
    }
    job.host_timeout = args.host_timeout;
    job.agent = words(args.agent.as_deref())?;
    job.remote_node_agent = args.remote_ringrun;
    job.rendezvous = args.rendezvous_addr;
    // The setting of the ranks holds for this process too.
    let interfaces = job.env.iter().rfind(|(name, _)| name == "RINGFOLD_SOCKET_IFNAME");
    let interfaces = interfaces.map(|(_, value)| value.to_string_lossy().into_owned());
    job.interfaces = interfaces.filter(|value| !value.is_empty());
    Ok(job)
}

fn read_host_file(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(HOST_FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > HOST_FILE_BYTES_MAX {
        bail!("longer than {HOST_FILE_BYTES_MAX} bytes: is it a list of hosts?");
    }
    Ok(text)
}

fn words(agent: Option<&str>) -> anyhow::Result<Vec<String>> {
    let Some(agent) = agent else { return Ok(Vec::new()) };
    let words = agent.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if words.is_empty() {
        bail!("--agent: no command");
    }
    Ok(words)
}

/// This process's own variables and those that `-x` names, which win.
#[expect(clippy::disallowed_methods, reason = "this binary hands its environment to the ranks")]
fn environment(named: &[OsString]) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let own = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"RINGFOLD_"));
    let mut pairs = own.collect::<Vec<_>>();
    for item in named {
        let equals = item.as_bytes().iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => {
                let (name, value) = item.as_bytes().split_at(at);
                (OsStr::from_bytes(name), Some(OsStr::from_bytes(&value[1..]).to_owned()))
            }
            None => (item.as_os_str(), std::env::var_os(item)),
        };
        if name.is_empty() {
            bail!("-x {}: no name", item.display());
        }
        let Some(value) = value else {
            bail!("-x {0}: not set here; pass -x {0}=VALUE", name.display());
        };
        pairs.push((name.to_owned(), value));
    }
    Ok(pairs)
}
