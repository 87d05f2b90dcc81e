//! The ranks of one host as processes: started through the trampoline, each in a process group of
//! its own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::relay::{Reports, read_stream, write_input};
use crate::frame::encode;
use crate::message::{HostOrder, RankOrder, Refusal, Stream, Up};
use crate::trampoline::TRAMPOLINE;
use crate::{affinity, descriptors, family};

/// The ranks that run.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    running: HashMap<Pid, u32>,
    input: Option<mpsc::UnboundedSender<Vec<u8>>>,
}

impl Ranks {
    /// Starts every rank of `order`, or says which could not be started and why; the caller kills
    /// those that were.
    pub(super) async fn start(
        &mut self,
        order: &HostOrder,
        reports: &Reports,
    ) -> Result<(), (u32, Refusal)> {
        let first = order.ranks.first().copied().unwrap_or_default();
        check(order).map_err(|refusal| (first, refusal))?;
        // Three pipes each.
        descriptors::allow(3 * order.ranks.len());
        let cpus = affinity::plan(order).map_err(|error| {
            let why = format!("cannot bind to cores: {error}; say --bind-to none");
            (first, Refusal::System(why))
        })?;
        for ((rank, local_rank), cpus) in order.ranks.iter().zip(0..).zip(cpus) {
            let own = RankOrder { cpus, ..rank_order(order, *rank) };
            let pid = self.start_one(order, local_rank, own, *rank, reports).map_err(|error| {
                (*rank, Refusal::System(format!("cannot start a process: {error}")))
            })?;
            reports.event(Up::Started { rank: *rank, pid });
            // Many ranks take their time, in which the launcher must hear of this keeper.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn start_one(
        &mut self,
        order: &HostOrder,
        local_rank: u32,
        own: RankOrder,
        rank: u32,
        reports: &Reports,
    ) -> io::Result<u32> {
        let mut child = command(order, rank, local_rank).spawn()?;
        let pid = child.id();
        if let Some(raw) = family::pid_of(pid) {
            self.running.insert(raw, rank);
        }
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("no pipes"));
        };
        let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?;
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
        let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?;
        let jump = Zeroizing::new(encode(&own).map_err(io::Error::other)?);
        let (pieces, pieces_rx) = mpsc::unbounded_channel();
        if rank == 0 {
            self.input = Some(pieces);
        }
        tokio::spawn(write_input(stdin, jump, pieces_rx, reports.clone()));
        tokio::spawn(read_stream(stdout, rank, Stream::Out, reports.clone()));
        tokio::spawn(read_stream(stderr, rank, Stream::Err, reports.clone()));
        Ok(pid)
    }

    /// The rank whose process was `pid`; it does not run any more.
    pub(super) fn ended(&mut self, pid: Pid) -> Option<u32> {
        self.running.remove(&pid)
    }

    /// Sends a signal to the process groups of the ranks that run. Their leaders are not reaped
    /// yet, so that no stranger can have their numbers.
    pub(super) fn signal(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for pid in self.running.keys() {
            // A group may be gone in this moment; one that is stopped must wake to hear it.
            kill_process_group(*pid, signal).unwrap_or_default();
            kill_process_group(*pid, Signal::CONT).unwrap_or_default();
        }
    }

    /// Passes input to rank 0, if it is here and has not closed it.
    pub(super) fn input(&self, bytes: Vec<u8>) {
        if let Some(input) = &self.input {
            input.send(bytes).ok();
        }
    }

    /// Lets rank 0 see the end of its input.
    pub(super) fn end_input(&mut self) {
        self.input = None;
    }
}

fn command(order: &HostOrder, rank: u32, local_rank: u32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let pairs = order.env.iter().cloned();
    command
        .arg0(format!("ringrun-rank-{rank}"))
        .arg(TRAMPOLINE)
        .envs(pairs.map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value))))
        .env("RINGFOLD_JOB", &order.job)
        .env("RINGFOLD_RENDEZVOUS", &order.rendezvous)
        .env("RINGFOLD_RANK", rank.to_string())
        .env("RINGFOLD_SIZE", order.size.to_string())
        .env("RINGFOLD_LOCAL_RANK", local_rank.to_string())
        .env("RINGFOLD_LOCAL_SIZE", order.ranks.len().to_string())
        .current_dir(OsString::from_vec(order.wdir.clone()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

fn rank_order(order: &HostOrder, rank: u32) -> RankOrder {
    RankOrder {
        keeper: std::process::id(),
        secret: order.secret.clone(),
        cpus: Vec::new(),
        program: order.program.clone(),
        args: order.args.clone(),
        input: rank == 0,
    }
}

/// Refuses before any rank runs what could not run on any.
fn check(order: &HostOrder) -> Result<(), Refusal> {
    let wdir = PathBuf::from(OsString::from_vec(order.wdir.clone()));
    if wdir.is_dir() { Ok(()) } else { Err(Refusal::Directory(wdir.display().to_string())) }
}
