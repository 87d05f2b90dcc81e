//! Ranks as processes without a launcher, which would end them all.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Job, Outcome, program};

/// Ports below those that Linux gives to sockets that name none: nothing but a test takes them.
const PORTS: RangeInclusive<u16> = 10_240..=32_767;

/// Returns a port of the loopback interface that no process uses, another one at each call.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    // Processes with adjacent numbers begin far from each other.
    let first = 509 * std::process::id() as usize;
    let next = |_| {
        let number = (first + TAKEN.fetch_add(1, Ordering::Relaxed)) % PORTS.len();
        PORTS.start() + u16::try_from(number).expect("fewer ports")
    };
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    PORTS.map(next).find(is_free).expect("a free port")
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
