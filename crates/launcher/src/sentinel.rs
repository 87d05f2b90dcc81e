//! A process beside the ranks of a host. It ends the processes that they have started, if ringrun,
//! guardian and node agent are killed in the same moment.
//!
//! It is no ancestor of these processes, so it finds them by the node agent in their environment.
//! Other node agents of the job may run on the same host. As a descendant of the node agent it ends
//! with the job.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::dumps;
use crate::message::HostOrder;
use crate::process_tree::{self, DYING};
use crate::stream::failed;

/// The argument that makes a program a sentinel. The process number of its node agent and the value
/// of `AGENT` follow.
pub(crate) const SENTINEL: &str = "--ringfold-sentinel";

/// The variable that names the node agent of a rank, in the environment of the rank.
pub(crate) const AGENT: &str = "RINGFOLD_AGENT";

/// The time between two looks at all processes of the host.
const PAUSE: Duration = Duration::from_millis(5);

/// The value of `AGENT` for the ranks of `order`.
pub(crate) fn agent_of(order: &HostOrder) -> String {
    format!("{}-{}", order.job, order.agent)
}

/// Starts the sentinel of this node agent.
///
/// # Errors
/// There is no process to have.
pub(crate) fn start(order: &HostOrder) -> io::Result<()> {
    let pid = std::process::id().to_string();
    let mut command = Command::new("/proc/self/exe");
    command.args([SENTINEL, &pid, &agent_of(order)]).env_remove("RINGFOLD_JOB").env_remove(AGENT);
    // It holds no end of a pipe. A signal to the node agent's process group spares it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().map(drop)
}

/// Waits until the node agent with this process number has ended. Then kills every process that its
/// ranks have started.
pub(crate) fn watch(pid: Option<u32>, agent: &str) -> ExitCode {
    if let Err(error) = until_the_end(pid.unwrap_or_default()) {
        return failed("ringrun: sentinel", &error, 1);
    }
    let variable = format!("{AGENT}={agent}");
    // A look misses a process that forks or executes a program meanwhile: its environment reads as
    // empty. So a look that finds nothing is not the last one.
    let until = Instant::now() + DYING;
    while Instant::now() < until {
        process_tree::kill_all(|process| process.inherited(&variable));
        std::thread::sleep(PAUSE);
    }
    dumps::complete();
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
