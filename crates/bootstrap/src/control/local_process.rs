//! The process of a rank, as the other processes of its host know it. They see at once that it has
//! ended.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process of this host or of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct LocalProcess {
    number: u32,
    /// The digest of the host and the PID namespace in which the number has its meaning.
    space: [u8; 16],
}

impl LocalProcess {
    /// This process. Its number is 0 where the system does not tell the PID namespace.
    pub(crate) fn own() -> Self {
        let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
        let uname = rustix::system::uname();
        let mut digest = Sha256::new();
        for part in [&boot[..], uname.nodename().to_bytes(), &namespace.to_le_bytes()] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let digest = digest.finalize();
        let number = if namespace == 0 { 0 } else { std::process::id() };
        Self { number, space: std::array::from_fn(|at| digest[at]) }
    }

    /// A process of this host and PID namespace.
    #[cfg(test)]
    pub(crate) fn numbered(number: u32) -> Self {
        Self { number, ..Self::own() }
    }

    /// Waits until the process has ended. Waits for ever if it is this process, or one whose end
    /// this process cannot see.
    pub(crate) async fn ended(self) {
        if !self.has_ended().await {
            std::future::pending().await
        }
    }

    /// Whether the process has ended. `None` if this one, `here`, cannot see that. Does not block.
    pub(crate) fn is_over(self, here: &Self) -> Option<bool> {
        match pidfd_open(self.near(here)?, PidfdFlags::empty()) {
            Ok(process) => {
                let mut ended = [PollFd::new(&process, PollFlags::IN)];
                Some(poll(&mut ended, Some(&Timespec::default())) == Ok(1))
            }
            Err(error) => (error == Errno::SRCH).then_some(true),
        }
    }

    /// The number of another process of this host and PID namespace.
    fn near(self, own: &Self) -> Option<Pid> {
        let is_near = self.space == own.space && self.number != own.number;
        let number = i32::try_from(self.number).ok().and_then(Pid::from_raw);
        number.filter(|_| is_near)
    }

    /// Waits until the process has ended. Returns `false` if this process cannot see that.
    async fn has_ended(self) -> bool {
        let Some(number) = self.near(&Self::own()) else { return false };
        let process = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => return error == Errno::SRCH,
        };
        #[expect(deprecated, reason = "an owned descriptor stays open while it is registered")]
        let watched = AsyncFd::with_interest(process, Interest::READABLE);
        match watched {
            Ok(process) => process.readable().await.is_ok(),
            Err(error) => {
                tracing::debug!("cannot watch process {number:?}: {error}");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn sleeper() -> (Child, LocalProcess) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = LocalProcess::numbered(child.id());
        (child, process)
    }

    #[test]
    fn the_end_of_a_process_of_this_host_is_seen() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sees = async |process: LocalProcess, limit| {
                timeout(Duration::from_millis(limit), process.ended()).await.is_ok()
            };
            let (mut child, process) = sleeper();
            let elsewhere = LocalProcess { space: [7; 16], ..process };
            assert!(!sees(process, 100).await, "it lives");
            assert_eq!(process.is_over(&LocalProcess::own()), Some(false));
            child.kill().unwrap();
            // It is a zombie now, and unknown after that.
            assert!(sees(process, 60_000).await);
            assert_eq!(process.is_over(&LocalProcess::own()), Some(true));
            child.wait().unwrap();
            assert!(sees(process, 60_000).await);
            for unknown in [elsewhere, LocalProcess::own(), LocalProcess { number: 0, ..process }] {
                assert!(!sees(unknown, 50).await, "{unknown:?}");
                assert_eq!(unknown.is_over(&LocalProcess::own()), None, "{unknown:?}");
            }
        });
    }
}
