//! Ranks as processes without a launcher, which would end them all.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::{Job, Outcome, program};

/// Ports below those that Linux gives to sockets that name none: nothing but a test takes them.
const PORTS: std::ops::Range<u16> = 10_240..32_768;

/// Returns a port of the loopback interface that no process uses, another one at each call.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Processes with adjacent numbers begin far from each other.
    let first = std::process::id().wrapping_mul(509);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = PORTS.map(|_| {
        let taken = u32::from(TAKEN.fetch_add(1, Ordering::Relaxed));
        PORTS.start + u16::try_from(first.wrapping_add(taken) % PORTS.len() as u32).unwrap()
    });
    port.into_iter().find(is_free).expect("a free port")
}

/// Returns a secret for `RINGFOLD_SECRET`.
#[must_use]
pub fn secret() -> String {
    "5ec2e7".repeat(11)[..64].to_owned()
}

/// The processes of one job, by rank. Dropping them kills them.
#[derive(Debug)]
pub struct Ranks(pub Vec<Job>);

impl Ranks {
    /// Starts `size` ranks of the program `rank`, as [`of`](Self::of).
    ///
    /// # Panics
    /// If they cannot be started.
    #[must_use]
    pub fn start(size: usize, prepare: impl Fn(usize, &mut Command)) -> Self {
        Self::of(program::own("rank"), size, prepare)
    }

    /// Starts `size` processes of a program with torch's variables and a secret, and with what
    /// `prepare` adds to the command of each.
    ///
    /// # Panics
    /// If they cannot be started.
    #[must_use]
    pub fn of(
        program: impl AsRef<OsStr>,
        size: usize,
        prepare: impl Fn(usize, &mut Command),
    ) -> Self {
        let port = free_port();
        let start = |rank: usize| {
            let mut command = Command::new(&program);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            command.env("RINGFOLD_SECRET", secret());
            prepare(rank, &mut command);
            Job::start(&mut command)
        };
        Self((0..size).map(start).collect())
    }

    /// Waits until every rank has printed `word`.
    pub fn wait_for(&self, word: &str) {
        self.lines(word);
    }

    /// Waits until every rank has printed a line that begins with `word`, and returns the rests.
    pub fn lines(&self, word: &str) -> Vec<String> {
        self.0.iter().map(|rank| rank.line(word)).collect()
    }

    /// Returns the failure causes of all ranks but `except`, and the time of the last.
    #[must_use]
    pub fn causes(&self, except: usize) -> (Vec<String>, Instant) {
        let others = self.0.iter().enumerate().filter(|(rank, _)| *rank != except);
        let causes = others.map(|(_, rank)| rank.line("cause ")).collect();
        (causes, Instant::now())
    }

    /// Waits for the end of all processes.
    ///
    /// # Panics
    /// If that takes longer than `limit`.
    #[must_use]
    pub fn finish(self, limit: Duration) -> Vec<Outcome> {
        let until = Instant::now() + limit;
        let left = || until.saturating_duration_since(Instant::now());
        self.0.into_iter().map(|rank| rank.finish(left())).collect()
    }
}
