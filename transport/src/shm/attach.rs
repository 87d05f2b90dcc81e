//! Peers whose memory this process may read where it lies (cross-memory attach).
//!
//! Every rank keeps a random token in its segment, and says there at which address of its own the
//! token lies. A process that has the token at this address is that rank, and no other: so whoever
//! reads a peer's memory reads the token after it, in one system call. It then knows that the
//! process number, which the kernel gave when the ranks met, was the peer's all the while.

use std::io;
use std::os::fd::AsFd;

use crate::sys::{process_behind, read_process};

/// A number that a rank draws, and where it lies in the rank's own memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) value: [u8; 16],
}

/// A peer's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    number: libc::pid_t,
    token: Token,
}

impl Process {
    /// The process at the other end of `socket`, whose token is `token`, if its memory may be read.
    pub(super) fn find(socket: impl AsFd, token: Token) -> io::Result<Self> {
        let process = Self { number: process_behind(socket)?, token };
        if process.number == 0 {
            return Err(io::Error::other("it is in another PID namespace"));
        }
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

#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn only_who_has_the_token_is_read() {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, _other) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let (token, secret) = ([7; 16], [1, 2, 3]);
        let at = token.as_ptr().expose_provenance();
        let process = Process::find(&socket, Token { at, value: token }).unwrap();
        let mut into = [0; 3];
        process.read(secret.as_ptr().expose_provenance(), &mut into).unwrap();
        assert_eq!(into, secret);
        assert!(Process::find(&socket, Token { at, value: [8; 16] }).is_err(), "another token");
        for nowhere in [0, 8, usize::MAX, usize::MAX - 15] {
            assert!(Process::find(&socket, Token { at: nowhere, value: token }).is_err());
        }
    }
}
