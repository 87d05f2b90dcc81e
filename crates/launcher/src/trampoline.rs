//! The moment between a keeper and a rank: a process that prepares itself, then becomes the program.
//!
//! What must be set in the child after the fork and before the program (death signal, core, secret)
//! would need `unsafe` in the parent. Instead the child is this same executable, which does it to
//! itself in peace and then executes the program in its place.
//!
//! The order comes over standard input, so that the secret is in no argument list and in no
//! environment. The program gets it as a descriptor of its own: an anonymous file, not a pipe, so
//! that whatever wraps the rank may read it too.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use ringfold_types::limits::CONTROL_BYTES_MAX;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::message::{Bind, RankOrder};

/// Shells keep the small descriptors for themselves.
const SECRET_FD_MIN: i32 = 64;

/// What a shell returns when a file cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// Becomes the rank that standard input orders. Returns only if it could not.
pub(crate) fn jump() -> ExitCode {
    let failure = match read_order() {
        Ok(order) => become_rank(order),
        Err(error) => format!("no order: {error}"),
    };
    // Nobody is left to tell if standard error is gone too.
    writeln!(io::stderr(), "ringrun: {failure}").unwrap_or_default();
    ExitCode::from(CANNOT_EXECUTE)
}

/// Reads exactly the order: what follows it is the rank's input.
fn read_order() -> io::Result<RankOrder> {
    let mut input = Unbuffered;
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > CONTROL_BYTES_MAX {
        return Err(io::Error::other("the order is too long"));
    }
    let mut body = zeroize::Zeroizing::new(vec![0; length]);
    input.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}

/// Standard input without a buffer that would swallow what is not ours.
struct Unbuffered;

impl Read for Unbuffered {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), into)?)
    }
}

fn become_rank(order: RankOrder) -> String {
    if let Err(error) = die_with(order.keeper) {
        return error.to_string();
    }
    let local_rank = usize::try_from(order.local_rank).unwrap_or_default();
    if order.bind == Bind::Core
        && let Err(error) = crate::affinity::bind(local_rank)
    {
        return format!("cannot bind to a core: {error}; say --bind-to none");
    }
    let secret = match share_secret(&*order.secret) {
        Ok(secret) => secret,
        Err(error) => return format!("cannot hand over the secret: {error}"),
    };
    let program = OsString::from_vec(order.program);
    let mut command = Command::new(&program);
    command
        .args(order.args.into_iter().map(OsString::from_vec))
        .env("RINGFOLD_SECRET_FD", secret.as_raw_fd().to_string());
    if !order.input {
        command.stdin(Stdio::null());
    }
    format!("cannot execute '{}': {}", program.display(), command.exec())
}

/// Asks to be killed when the keeper dies, and makes sure that it has not died before.
fn die_with(keeper: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent.and_then(|parent| u32::try_from(parent).ok()) == Some(keeper) {
        Ok(())
    } else {
        Err(io::Error::other("the keeper is gone"))
    }
}

/// An open, inheritable file that holds the secret and nothing else, read from its beginning.
fn share_secret(secret: &[u8]) -> io::Result<impl AsRawFd + use<>> {
    let mut file = File::from(memfd_create("ringfold-secret", MemfdFlags::CLOEXEC)?);
    file.write_all(secret)?;
    file.rewind()?;
    let shared = fcntl_dupfd_cloexec(&file, SECRET_FD_MIN)?;
    fcntl_setfd(&shared, FdFlags::empty())?;
    Ok(shared)
}
