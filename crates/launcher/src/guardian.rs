//! The process above a keeper. It ends the processes that the keeper leaves behind, however the
//! keeper dies.
//!
//! A guardian does nothing but wait. It is a subreaper, so every process of the job on its host
//! descends from it, even after the keeper was killed with SIGKILL. A keeper whose guardian dies
//! ends the job on its host by itself. Both share standard input and output, of which the guardian
//! reads and writes nothing.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, getpid, pidfd_open, set_child_subreaper};

use crate::family;
use crate::keeper::KEEPER;
use crate::message::Status;

/// The argument that makes a program the guardian of a host, which starts a keeper.
pub(crate) const GUARDIAN: &str = "--ringfold-guardian";

/// Time for a keeper to end the job once the launcher is gone. A keeper that is stopped needs more,
/// and is killed.
pub(crate) const HANGUP_GRACE: Duration = Duration::from_secs(4);

/// Starts a keeper and stays until no process of the job is left on this host.
pub(crate) fn guard() -> ExitCode {
    let code = set_child_subreaper(Some(getpid())).map_err(io::Error::from).and_then(|()| {
        let keeper = Command::new("/proc/self/exe")
            .arg(KEEPER)
            .arg(std::process::id().to_string())
            // A signal to the guardian's group spares the keeper, which then ends the job.
            .process_group(0)
            .spawn()?;
        until_the_end(&keeper)?;
        Ok(end_of(&keeper))
    });
    match code {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("guardian: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Blocks until the keeper has ended, or until it has outlived the launcher by `HANGUP_GRACE`.
fn until_the_end(keeper: &Child) -> io::Result<()> {
    let pid = family::pid_of(keeper.id()).ok_or_else(|| io::Error::other("no process number"))?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let stdin = io::stdin();
    let mut until = None;
    loop {
        // An end of the input is always reported; this one asks for nothing else.
        let hangup = PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::RDHUP);
        let mut fds = [PollFd::new(&handle, PollFlags::IN), hangup];
        let watched = if until.is_none() { 2 } else { 1 };
        let patience = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
        let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
        match poll(&mut fds[..watched], timeout.as_ref()) {
            Ok(0) => return Ok(()),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) => until = Some(Instant::now() + HANGUP_GRACE),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends every process below, and returns the keeper's exit status as a shell would.
fn end_of(keeper: &Child) -> u8 {
    let dead = family::exterminate();
    let status = dead.iter().find(|(pid, _)| Some(*pid) == family::pid_of(keeper.id()));
    let code = match status {
        Some((_, Status::Exited(code))) => *code,
        Some((_, Status::Killed(signal))) => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            say(&format!("the keeper of host {host} was killed by signal {signal}"));
            128 + signal
        }
        None => 1,
    };
    u8::try_from(code & 0xff).unwrap_or(1)
}

fn say(words: &str) {
    // Without a standard error there is nobody to tell.
    writeln!(io::stderr(), "ringrun: {words}").unwrap_or_default();
}
