//! A process beside the ranks of a host. It ends the processes that they have started, if ringrun,
//! guardian and node agent are killed in the same moment.
//!
//! It is no ancestor of these processes, so it finds them by the job in their environment. As a
//! descendant of the node agent it ends with the job.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::process_tree::{self, DYING};
use crate::stream::failed;

/// The argument that makes a program a sentinel. The process number of its node agent and the name
/// of the job follow.
pub(crate) const SENTINEL: &str = "--ringfold-sentinel";

/// Starts the sentinel of this node agent.
///
/// # Errors
/// There is no process to have.
pub(crate) fn start(job: &str) -> io::Result<()> {
    let agent = std::process::id().to_string();
    let mut command = Command::new("/proc/self/exe");
    command.args([SENTINEL, &agent, job]).env_remove("RINGFOLD_JOB");
    // It holds no end of a pipe. A signal to the node agent's process group spares it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().map(drop)
}

/// Waits until the node agent has ended. Then kills every process of the job.
pub(crate) fn watch(agent: Option<u32>, job: &str) -> ExitCode {
    if let Err(error) = until_the_end(agent.unwrap_or_default()) {
        return failed("ringrun: sentinel", &error, 1);
    }
    let variable = format!("RINGFOLD_JOB={job}");
    let until = Instant::now() + DYING;
    // A process that forks in this moment has a child that the next round finds.
    while process_tree::kill_all(|process| process.inherited(&variable)) > 0
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    ExitCode::SUCCESS
}

fn until_the_end(agent: u32) -> io::Result<()> {
    let Some(pid) = process_tree::pid_of(agent) else {
        return Err(io::Error::other("only a node agent starts a sentinel, not a user"));
    };
    let handle = pidfd_open(pid, PidfdFlags::empty());
    // The node agent may be gone already. Then its number may belong to another process.
    while process_tree::is_child_of(agent)
        && let Ok(handle) = &handle
    {
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
