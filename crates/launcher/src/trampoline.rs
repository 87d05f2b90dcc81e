//! The step between node agent and rank: a process that prepares itself, then executes the program.
//!
//! Some settings must be made in the child after the fork and before the program: death signal,
//! core, secret. This would need `unsafe` in the parent. Instead the child is this same executable,
//! which makes the settings itself and then executes the program.
//!
//! The order comes over standard input, so that the secret is in no argument list and in no
//! environment. The program gets it as a descriptor of an anonymous file. Unlike a pipe, a wrapper
//! of the rank can read it too.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use ringfold_types::limits::CONTROL_BYTES_MAX;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::Signal;

use crate::frame::encode;
use crate::message::{REFUSAL_MARK, RankOrder, Refusal};
use crate::process_tree;

/// The argument that makes a program a trampoline.
pub(crate) const TRAMPOLINE: &str = "--ringfold-trampoline";

/// The smallest descriptor for the secret, because shells use the small ones.
const SECRET_FD_MIN: i32 = 64;

/// The longest text in a refusal, which must fit into a pipe in one write.
const TEXT_BYTES_MAX: usize = 1024;

/// Becomes the rank that standard input orders. If it cannot, it tells its node agent, which kills
/// it.
pub(crate) fn jump() -> ExitCode {
    // Set before waiting for the order, which may never come.
    if process_tree::die_with_parent(Signal::KILL).is_err() {
        return ExitCode::FAILURE;
    }
    let refusal = match read_order() {
        // The node agent died before the signal was set.
        Ok(order) if !process_tree::is_child_of(order.node_agent) => return ExitCode::FAILURE,
        Ok(order) => become_rank(order),
        Err(error) => Refusal::System(format!("no order: {error}")),
    };
    let mut report = REFUSAL_MARK.to_vec();
    report.extend(encode(&refusal).unwrap_or_default());
    // One write, so that the node agent reads it in one piece.
    if rustix::io::write(rustix::stdio::stdout(), &report).is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        // An exit status could arrive before the report. The death signal has been set.
        std::thread::park();
    }
}

/// Reads exactly the order. Later bytes are the rank's input.
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

/// Standard input without a buffer, which would swallow bytes of the rank's input.
struct Unbuffered;

impl Read for Unbuffered {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), into)?)
    }
}

fn become_rank(order: RankOrder) -> Refusal {
    if let Err(error) = crate::affinity::bind(&order.cpus) {
        return Refusal::System(format!("cannot bind to cores: {error}; pass --bind-to none"));
    }
    let secret = match share_secret(&*order.secret) {
        Ok(secret) => secret,
        Err(error) => return Refusal::System(format!("cannot pass on the secret: {error}")),
    };
    let program = OsString::from_vec(order.program);
    let mut command = Command::new(&program);
    command
        .args(order.args.into_iter().map(OsString::from_vec))
        .env("RINGFOLD_SECRET_FD", secret.as_raw_fd().to_string());
    if !order.input {
        command.stdin(Stdio::null());
    }
    let error = command.exec();
    let mut program = program.to_string_lossy().into_owned();
    program.truncate(program.floor_char_boundary(TEXT_BYTES_MAX));
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::NotFound(program),
        _ => Refusal::NotExecutable { program, error: error.to_string() },
    }
}

/// Makes an open, inheritable file that holds the secret and nothing else. It is sealed: no process
/// that inherits it can change it for the others.
fn share_secret(secret: &[u8]) -> io::Result<impl AsRawFd + use<>> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("ringfold-secret", flags)?);
    // By position, so that the offset stays at the beginning for readers that read by offset.
    file.write_all_at(secret, 0)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    let shared = fcntl_dupfd_cloexec(&file, SECRET_FD_MIN)?;
    fcntl_setfd(&shared, FdFlags::empty())?;
    Ok(shared)
}
