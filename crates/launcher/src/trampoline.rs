//! The step between node agent and rank: a process that prepares itself, then executes the program.
//!
//! Some settings must be made in the child after the fork and before the program: death signal,
//! core, secret. This would need `unsafe` in the parent. Instead the child is this same executable,
//! which makes the settings itself and then executes the program.
//!
//! The order comes over standard input, so that the secret is in no argument list and in no
//! environment. The program gets it as a descriptor of an anonymous file. Unlike a pipe, a wrapper
//! of the rank can read it too.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use ringfold_types::limits::CONTROL_BYTES_MAX;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, Signal, getrlimit};

use crate::frame::encode;
use crate::message::{REFUSAL_MARK, RankOrder, Refusal};
use crate::{descriptors, process_tree};

/// The argument that makes a program a trampoline.
pub(crate) const TRAMPOLINE: &str = "--ringfold-trampoline";

/// The smallest descriptor for the secret, because shells use the small ones. Under a low limit of
/// open files it lies in the upper half of the allowed ones.
const SECRET_FD_MIN: i32 = 64;

/// The longest text in a refusal, which must fit into a pipe in one write.
const TEXT_BYTES_MAX: usize = 1024;

/// The bytes of a file in which the system looks for the name of an interpreter.
const HEAD_BYTES: u64 = 256;

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
        Err(error) => {
            let remedy = descriptors::remedy(&error);
            return Refusal::System(format!("cannot pass on the secret{remedy}: {error}"));
        }
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
    let interpreter = find(&program).and_then(|file| missing_interpreter(&file));
    let mut program = program.to_string_lossy().into_owned();
    program.truncate(program.floor_char_boundary(TEXT_BYTES_MAX));
    match (error.kind(), interpreter) {
        (io::ErrorKind::NotFound, None) => Refusal::NotFound(program),
        (io::ErrorKind::NotFound, Some(error)) => Refusal::NotExecutable { program, error },
        _ => Refusal::NotExecutable { program, error: error.to_string() },
    }
}

/// The file that the system executes for a program.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = match program.as_bytes().contains(&b'/') {
        true => vec![PathBuf::new()],
        false => {
            let path = OsString::from_vec(process_tree::inherited_value("PATH")?);
            std::env::split_paths(&path).collect()
        }
    };
    path.into_iter().map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Why the system finds nothing to execute a file that exists.
fn missing_interpreter(file: &Path) -> Option<String> {
    let mut head = Vec::new();
    File::open(file).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head)).ok()?;
    let Some(line) = head.strip_prefix(b"#!") else {
        return Some(
            "its interpreter, the dynamic loader of another system, is missing".to_owned(),
        );
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let name = line.split(is_blank).find(|word| !word.is_empty()).unwrap_or_default();
    let remedy = match name.ends_with(b"\r") {
        true => "end its lines without carriage returns",
        false => "install it, or correct the first line",
    };
    let name = String::from_utf8_lossy(name);
    Some(format!("its interpreter '{}' does not exist: {remedy}", name.escape_debug()))
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
    let allowed = getrlimit(Resource::Nofile).current.and_then(|limit| i32::try_from(limit).ok());
    let least = allowed.map_or(SECRET_FD_MIN, |allowed| SECRET_FD_MIN.min(allowed / 2));
    let shared = fcntl_dupfd_cloexec(&file, least)?;
    fcntl_setfd(&shared, FdFlags::empty())?;
    Ok(shared)
}
