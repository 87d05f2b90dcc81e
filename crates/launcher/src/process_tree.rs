//! Finds every descendant of a process in /proc, and kills it without hitting a foreign process.
//!
//! A node agent is a subreaper: processes that its ranks leave behind become its children, however
//! often they fork or change their session. So a walk from the node agent finds all of them.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getppid, pidfd_open,
    pidfd_send_signal, set_parent_process_death_signal, waitid,
};

use crate::message::Status;

/// How long a killed process may take to die. A process that takes longer is stuck in the kernel.
pub(crate) const DYING: Duration = Duration::from_secs(2);

/// One process, as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: Pid,
    parent: i32,
    zombie: bool,
    started: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(Pid::from_raw(pid)?, &String::from_utf8_lossy(&stat))
    }

    /// Parses the line of /proc/PID/stat: `pid (any name) state parent group ... start ...`.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(") ")?;
        let fields = after_name.split(' ').collect::<Vec<_>>();
        let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
        Some(Self {
            pid,
            parent: number(1)?,
            zombie: matches!(*fields.first()?, "Z" | "X"),
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it was started with this `NAME=VALUE` in its environment.
    pub(crate) fn inherited(&self, variable: &str) -> bool {
        let path = format!("/proc/{}/environ", self.pid.as_raw_nonzero());
        let environment = std::fs::read(path).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == variable.as_bytes())
    }

    /// Kills this process, and no other that has reused its number.
    fn kill(self) {
        let Ok(handle) = pidfd_open(self.pid, PidfdFlags::empty()) else { return };
        let now = Self::read(self.pid.as_raw_nonzero().get());
        if now.is_some_and(|now| now.started == self.started) {
            // The process may have died between the two lines, which is the goal.
            pidfd_send_signal(handle, Signal::KILL).unwrap_or_default();
        }
    }
}

/// The value of a variable in the environment with which this process was started.
pub(crate) fn inherited_value(name: &str) -> Option<Vec<u8>> {
    let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
    let value = |it: &[u8]| Some(it.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    environment.split(|byte| *byte == 0).find_map(value)
}

/// All processes of this host.
fn processes() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read)
}

/// All living descendants of this process.
pub(crate) fn descendants() -> Vec<Process> {
    let mut children = HashMap::<i32, Vec<Process>>::new();
    processes().for_each(|process| children.entry(process.parent).or_default().push(process));
    let mut found = Vec::new();
    let mut parents = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid.as_raw_nonzero().get());
            found.push(child);
        }
    }
    found.retain(|process| !process.zombie);
    found
}

/// Kills the living descendants of this process that `chosen` picks, once. Returns their number.
pub(crate) fn kill_descendants(chosen: impl Fn(&Process) -> bool) -> usize {
    kill_each(descendants().into_iter().filter(chosen))
}

/// Kills the living processes of this host that `chosen` picks, once.
pub(crate) fn kill_all(chosen: impl Fn(&Process) -> bool) {
    kill_each(processes().filter(|process| !process.zombie && chosen(process)));
}

fn kill_each(doomed: impl Iterator<Item = Process>) -> usize {
    let doomed = doomed.collect::<Vec<_>>();
    doomed.iter().for_each(|process| process.kill());
    doomed.len()
}

/// Kills descendants until none is left or they refuse to die, and returns the statuses of the
/// children among them. Blocks for at most `DYING`. This process must be a subreaper: then it has a
/// child as long as it has a descendant.
pub(crate) fn kill_all_descendants() -> Vec<(Pid, Status)> {
    let until = Instant::now() + DYING;
    let mut dead = reap();
    while has_children() && Instant::now() < until {
        kill_descendants(|_| true);
        std::thread::sleep(Duration::from_millis(1));
        dead.append(&mut reap());
    }
    dead
}

/// Whether there is any child, dead or alive. Takes no status.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}

/// Asks the kernel for `signal` when the parent dies, and checks that `parent` is the parent and
/// lives.
///
/// # Errors
/// The parent is another process, because the expected one is gone.
pub(crate) fn die_with(parent: u32, signal: Signal) -> io::Result<()> {
    die_with_parent(signal)?;
    if is_child_of(parent) { Ok(()) } else { Err(io::Error::other("the parent is gone")) }
}

/// Asks the kernel for `signal` when the parent dies. The parent may have died before, which
/// `is_child_of` tells afterwards.
///
/// # Errors
/// The system refuses.
pub(crate) fn die_with_parent(signal: Signal) -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(signal))?)
}

/// Whether `parent` is this process's parent.
pub(crate) fn is_child_of(parent: u32) -> bool {
    getppid() == pid_of(parent)
}

/// The process with this number, if it can be one.
pub(crate) fn pid_of(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// Takes the statuses of all children that have died.
pub(crate) fn reap() -> Vec<(Pid, Status)> {
    let mut dead = Vec::new();
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        let status = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, Some(signal)) => Status::Killed(signal),
            (None, None) => continue,
        };
        dead.push((pid, status));
    }
    dead
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::{Process, descendants};

    #[test]
    fn names_may_contain_anything() {
        let tail = "S 5 6 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let pid = Pid::from_raw(9).unwrap();
        let process = Process::parse(pid, &format!("9 (a) R 1 (b) {tail}")).unwrap();
        let expected = Process { pid, parent: 5, zombie: false, started: 4242 };
        assert_eq!(process, expected);
        assert_eq!(Process::parse(pid, "9 (x) Z"), None);
        assert_eq!(Process::parse(pid, ""), None);
    }

    #[test]
    fn a_child_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = descendants().iter().any(|p| p.pid.as_raw_nonzero().get() as u32 == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
    }
}
