//! Locks between the processes of this user on this host.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use ringfold_transport::open_private_folder;
use rustix::fs::{Mode, OFlags, openat};

/// Opens the file of this name in the `folder` of records, for `fcntl_lock`. A child made by `fork`
/// does not inherit its locks.
pub(crate) fn open_lock(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let folder = open_private_folder(folder)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?)
}
