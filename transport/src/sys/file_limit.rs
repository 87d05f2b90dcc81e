//! The limit on the length of files, beyond which the system kills a process that writes.

use std::io;

use rustix::process::{Resource, getrlimit};

/// Checks that this process may write a file of so many bytes.
///
/// # Errors
/// The limit is lower. The error names it.
pub fn may_write(bytes: u64) -> io::Result<()> {
    let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    if bytes > most {
        let why = format!("it has {bytes} bytes, and files may have {most}; raise `ulimit -f`");
        return Err(io::Error::other(why));
    }
    Ok(())
}
