//! The parent process of a node agent. It ends the processes that the node agent leaves behind,
//! however the node agent dies.
//!
//! A guardian only waits. It is a subreaper, so every process of the job on its host descends from
//! it, even after the node agent was killed with SIGKILL. If the guardian dies, its node agent ends
//! the job on its host. Both share standard input and output, which the guardian neither reads nor
//! writes.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, getpid, pidfd_open, set_child_subreaper};

use crate::message::Status;
use crate::node_agent::NODE_AGENT;
use crate::stream::Stream;
use crate::{descriptors, dumps, process_tree, signals};

/// The argument that makes a program the guardian of a host, which starts a node agent.
pub(crate) const GUARDIAN: &str = "--ringfold-guardian";

/// The time for a node agent to end the job after the launcher is gone. The guardian kills a node
/// agent that needs longer, such as a stopped one.
pub(crate) const HANGUP_GRACE: Duration = Duration::from_secs(4);

/// Starts a node agent and waits until no process of the job is left on this host.
pub(crate) fn guard() -> ExitCode {
    let code = signals::unblock().and_then(|()| {
        set_child_subreaper(Some(getpid()))?;
        let node_agent = Command::new("/proc/self/exe")
            .arg(NODE_AGENT)
            .arg(std::process::id().to_string())
            // A signal to the guardian's process group spares the node agent, which then ends the
            // job.
            .process_group(0)
            .spawn()?;
        until_the_end(&node_agent)?;
        let code = end_of(&node_agent);
        dumps::complete();
        Ok(code)
    });
    match code {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            print_error(&format!("guardian{}: {error}", descriptors::remedy(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Blocks until the node agent has ended, or until it has outlived the launcher by `HANGUP_GRACE`.
fn until_the_end(node_agent: &Child) -> io::Result<()> {
    let pid = process_tree::pid_of(node_agent.id())
        .ok_or_else(|| io::Error::other("no process number"))?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let stdin = io::stdin();
    let mut until = None;
    loop {
        // The system always reports an end of the input. This call asks for nothing else.
        let hangup = PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::RDHUP);
        let mut fds = [PollFd::new(&handle, PollFlags::IN), hangup];
        let watched = if until.is_none() { 2 } else { 1 };
        let rest = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
        let timeout = rest.and_then(|rest| Timespec::try_from(rest).ok());
        match poll(&mut fds[..watched], timeout.as_ref()) {
            Ok(0) => return Ok(()),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) => until = Some(Instant::now() + HANGUP_GRACE),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills every descendant, and returns the node agent's exit status like a shell.
fn end_of(node_agent: &Child) -> u8 {
    let dead = process_tree::kill_all_descendants();
    let status = dead.iter().find(|(pid, _)| Some(*pid) == process_tree::pid_of(node_agent.id()));
    let code = match status {
        Some((_, Status::Exited(code))) => *code,
        Some((_, Status::Killed(signal))) => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            print_error(&format!("the node agent of host {host} was killed by signal {signal}"));
            128 + signal
        }
        None => 1,
    };
    u8::try_from(code & 0xff).unwrap_or(1)
}

fn print_error(text: &str) {
    // Without a standard error there is nobody to tell.
    Stream::Err.put(format!("ringrun: {text}\n").as_bytes()).unwrap_or_default();
}
