//! Reads of a peer's memory by system calls (cross-memory attach, CMA), and the detection of a
//! peer's end.
//!
//! Every rank publishes in its slot its process number, a random token, and the token's address in
//! its own memory. A process with the token at this address is that rank, and no other. So each
//! read of a peer's memory also reads the token, in the same system call. This proves that the
//! process number belonged to the peer during the read.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::slot::{Namespace, Slot, Token};
use crate::sys::{copy, read_process};

/// A peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerMemory {
    number: libc::pid_t,
    token: Token,
}

impl PeerMemory {
    /// Returns the memory of the process that signed `slot`, if this process, in namespace `own`,
    /// can read it. Returns `None` if no process has signed the slot yet.
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

    /// Returns this process's own memory.
    #[cfg(test)]
    pub(super) fn own(token: Token) -> Self {
        Self { number: std::process::id().cast_signed(), token }
    }

    /// Copies the peer's memory at address `at` into `into`. On an error some of `into` may be
    /// overwritten.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> io::Result<()> {
        let mut seen = [0; 16];
        read_process(self.number, [into, &mut seen], [at, self.token.at])?;
        if seen == self.token.value {
            Ok(())
        } else {
            Err(io::Error::other("its process number belongs to another process"))
        }
    }
}

/// Bytes of a timed copy. They fit a core's second-level cache.
const TIMED_BYTES: usize = 256 * 1024;

/// Measurements of each kind of copy. The shortest time counts.
const TIMES: usize = 4;

/// Whether the kernel copies between processes in at most one and a half times the time of two
/// copies by this process. A link needs two copies. The factor allows for copies from another
/// core's cache, which take longer than the copies measured here.
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

/// Memory of a timed copy. All its pages are written, since untouched pages share one zero page.
struct Timed(Vec<u8>);

impl Timed {
    fn new() -> Self {
        Self(vec![1; TIMED_BYTES])
    }
}

/// Returns a descriptor that becomes readable when the process that signed `slot` ends. Returns
/// `None` if no process has signed it, if the rank is in another PID namespace, or if it is a
/// thread of this process: such a rank ends by leaving.
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
        let process = PeerMemory::try_out(own, Token { at, value: token }, true).unwrap();
        let mut into = [0; 3];
        process.read(secret.as_ptr().expose_provenance(), &mut into).unwrap();
        assert_eq!(into, secret);
        let is_refused = |at, value, is_near| {
            assert!(PeerMemory::try_out(own, Token { at, value }, is_near).is_err());
        };
        is_refused(at, [8; 16], true);
        is_refused(at, token, false);
        for nowhere in [0, 8, usize::MAX, usize::MAX - 15] {
            is_refused(nowhere, token, true);
        }
    }
}
