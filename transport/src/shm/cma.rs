//! Peers whose memory this process may read where it lies (cross-memory attach), and whose end it
//! notices.
//!
//! Every rank signs its slot with its process number, a random token, and at which address of its
//! own the token lies. A process that has the token at this address is that rank, and no other: so
//! a reader of a peer's memory reads the token after it, in one system call. It then knows that
//! the process number was the peer's all the while.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::slot::{Namespace, Slot, Token};
use crate::sys::{copy, read_process};

/// A peer's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    number: libc::pid_t,
    token: Token,
}

impl Process {
    /// The process that signed `slot`, if its memory may be read from namespace `own`; `None` if
    /// no process has signed it yet.
    pub(super) fn find(slot: &Slot, own: Namespace) -> Option<io::Result<Self>> {
        let signature = slot.signed()?;
        Some(Self::try_out(signature.process, signature.token, signature.is_of(own)))
    }

    fn try_out(number: u32, token: Token, is_near: bool) -> io::Result<Self> {
        if !is_near {
            return Err(io::Error::other("it is in another PID namespace"));
        }
        let process = Self { number: number.cast_signed(), token };
        process.read(token.at, &mut [])?;
        Ok(process)
    }

    /// This very process.
    #[cfg(test)]
    pub(super) fn own(token: Token) -> Self {
        Self { number: std::process::id().cast_signed(), token }
    }

    /// Copies what lies at address `at` there into `into`. On an error some of that may have been
    /// overwritten.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> io::Result<()> {
        let mut seen = [0; 16];
        read_process(self.number, [into, &mut seen], [at, self.token.at])?;
        if seen == self.token.value {
            Ok(())
        } else {
            Err(io::Error::other("it is another process"))
        }
    }
}

/// Bytes of a copy that is timed: they fit a core's second cache.
const TIMED_BYTES: usize = 256 * 1024;

/// So many times each kind of copy is timed. The shortest time counts.
const TIMES: usize = 4;

/// Whether the kernel copies between processes about as fast as two copies of a process's own, as
/// through a link: it takes at most one and a half times as long. Copies from another core's cache
/// take longer than these, and a link needs two of them.
///
/// On Sapphire Rapids the kernel takes 0.9 times as long, and on Zen 3 in a virtual machine two to
/// three times.
pub(super) fn copies_fast() -> bool {
    let own = std::process::id().cast_signed();
    let (from, mut through, mut into) = (Timed::new(), Timed::new(), Timed::new());
    let (mut by_kernel, mut by_self) = (Duration::MAX, Duration::MAX);
    for _ in 0..TIMES {
        let begin = Instant::now();
        if read_process(own, [&mut into.0, &mut []], [from.0.as_ptr().addr(), 0]).is_err() {
            return false;
        }
        let middle = Instant::now();
        copy(&mut through.0, &from.0);
        copy(&mut into.0, &through.0);
        by_kernel = by_kernel.min(middle - begin);
        by_self = by_self.min(middle.elapsed());
    }
    by_kernel * 2 <= by_self * 3
}

/// Memory of a copy that is timed. It is written, since all untouched pages are one.
struct Timed(Vec<u8>);

impl Timed {
    fn new() -> Self {
        Self(vec![1; TIMED_BYTES])
    }
}

/// A descriptor that becomes readable when the process that signed `slot` ends; `None` where this
/// cannot be had: another namespace, no descriptor left, an old system. It is this process for
/// ranks that are threads of one, which end by leaving.
pub(super) fn watch(slot: &Slot, own: Namespace) -> Option<io::Result<OwnedFd>> {
    let signature = slot.signed()?;
    let is_near = signature.is_of(own) && signature.process != std::process::id();
    let number = Pid::from_raw(signature.process.cast_signed()).filter(|_| is_near)?;
    Some(pidfd_open(number, PidfdFlags::empty()).map_err(io::Error::from))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_token_is_read() {
        let (token, secret) = ([7; 16], [1, 2, 3]);
        let at = token.as_ptr().expose_provenance();
        let own = std::process::id();
        let process = Process::try_out(own, Token { at, value: token }, true).unwrap();
        let mut into = [0; 3];
        process.read(secret.as_ptr().expose_provenance(), &mut into).unwrap();
        assert_eq!(into, secret);
        let is_refused = |at, value, is_near| {
            assert!(Process::try_out(own, Token { at, value }, is_near).is_err());
        };
        is_refused(at, [8; 16], true);
        is_refused(at, token, false);
        for nowhere in [0, 8, usize::MAX, usize::MAX - 15] {
            is_refused(nowhere, token, true);
        }
    }
}
