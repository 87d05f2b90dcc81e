//! Reads another process's memory by one system call (cross-memory attach, CMA).
#![allow(unsafe_code)]

use std::io;

/// Copies the memory at addresses `from` of `process` into the two parts of `into`, in order. Fails
/// if some of that memory is absent or not readable; some of `into` may be overwritten by then.
pub(crate) fn read_process(
    process: libc::pid_t,
    into: [&mut [u8]; 2],
    from: [usize; 2],
) -> io::Result<()> {
    let lens = into.each_ref().map(|part| part.len());
    let local =
        into.map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    let remote = [0, 1].map(|at| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(from[at]),
        iov_len: lens[at],
    });
    // SAFETY: the kernel writes to the local parts only, which are borrowed uniquely; the remote
    // addresses mean nothing in this process, and the kernel checks them.
    let read = unsafe { libc::process_vm_readv(process, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
    match usize::try_from(read) {
        Ok(read) if read == lens[0] + lens[1] => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Returns whether this process can read the first and the last of some bytes (not empty). Memory
/// of a GPU often has an address and cannot be read. Where the system forbids the question, the
/// answer is yes.
#[must_use]
pub fn is_readable(begin: usize, bytes: usize) -> bool {
    let last = begin.saturating_add(bytes.saturating_sub(1));
    // SAFETY: takes nothing, and cannot fail.
    let own = unsafe { libc::getpid() };
    match read_process(own, [&mut [0], &mut [0]], [begin, last]) {
        Ok(()) => true,
        Err(error) => error.raw_os_error() != Some(libc::EFAULT),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn all_is_read_or_nothing_counts() {
        let own = libc::pid_t::try_from(std::process::id()).unwrap();
        let (from, more) = (vec![7_u8; 10_000], [9_u8; 16]);
        let (mut into, mut rest) = (vec![0; 10_000], [0; 16]);
        let places = [from.as_ptr().addr(), more.as_ptr().addr()];
        read_process(own, [&mut into, &mut rest], places).unwrap();
        assert_eq!((into, rest), (from, more));
        for places in [[8, places[1]], [places[0], 8], [usize::MAX - 8, places[1]]] {
            assert!(read_process(own, [&mut [0; 64], &mut [0; 16]], places).is_err());
        }
        assert!(read_process(libc::pid_t::MAX, [&mut [0; 64], &mut [0; 16]], places).is_err());
    }

    #[test]
    fn memory_that_the_process_has_can_be_read() {
        let own = vec![7_u8; 10_000];
        let begin = own.as_ptr().addr();
        assert!(is_readable(begin, own.len()) && is_readable(begin, 1));
        assert!(!is_readable(8, 1) && !is_readable(begin, usize::MAX / 2));
    }
}
