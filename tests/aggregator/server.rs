//! A running `ringfold aggregate`, and requests to its control port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use std::{fs, thread};

use ringfold_bootstrap::Secret;
use ringfold_bootstrap::aggregators::{self, Ask, AskError, Stats};
use ringfold_tests::{Job, program};

use crate::DEADLINE;
use crate::member::{Endpoint, KEY};

/// A running server, which ends with the test.
pub(crate) struct Server {
    pub(crate) at: String,
    pub(crate) job: Job,
    pub(crate) home: PathBuf,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringfold-aggregator-{}-{number}", std::process::id());
        let home = std::env::temp_dir().join(name);
        fs::create_dir_all(&home).unwrap();
        let mut command = Command::new(program::binary("ringfold"));
        command.args(["aggregate", "--listen", "127.0.0.1:0"]).args(arguments);
        command.env("HOME", &home).env_remove("RINGFOLD_SITE_SECRET_FILE");
        let job = Job::start(command.env_remove("RINGFOLD_DEBUG"));
        let line = job.wait_for_line(DEADLINE, |line| line.starts_with("aggregator at "));
        let at = line["aggregator at ".len()..].split_once(": ").unwrap().0.to_owned();
        Self { at, job, home }
    }

    /// Waits for a line of the log that has all these parts.
    pub(crate) fn wait_for_log(&self, parts: &[&str]) {
        self.job.wait_for_log(DEADLINE, |line| parts.iter().all(|part| line.contains(part)));
    }

    pub(crate) fn site(&self) -> Secret {
        Secret::site(None, Some(&self.home)).unwrap()
    }

    /// Asks for a group of members with chunks of at most `chunk_bytes`.
    pub(crate) fn ask(
        &self,
        members: usize,
        window: u8,
        chunk_bytes: usize,
    ) -> Result<Endpoint, AskError> {
        let ask = ask(members, window, chunk_bytes);
        let (granted, at) = aggregators::ask(&self.at, &self.site(), ask, DEADLINE)?;
        Ok(Endpoint { at, group: granted.group, key: KEY, window: window.into(), chunk_bytes })
    }

    pub(crate) fn stats(&self) -> Stats {
        aggregators::stats(&self.at, &self.site(), DEADLINE).unwrap()
    }

    /// Waits until no group has memory.
    pub(crate) fn wait_until_free(&self) {
        let start = Instant::now();
        while self.stats().memory.1 > 0 {
            assert!(start.elapsed() < DEADLINE, "memory stays in use: {:?}", self.stats());
            thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.at.parse().unwrap()
    }

    /// A field of the process's status in bytes, as in `VmRSS`.
    pub(crate) fn memory(&self, field: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.job.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.job.id())).unwrap().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.home).ok();
    }
}

pub(crate) fn ask(members: usize, window: u8, chunk_bytes: usize) -> Ask {
    Ask {
        job: "test".into(),
        key: KEY,
        ranks: u32::try_from(members).unwrap(),
        first: 0,
        members: vec![1; members],
        window,
        chunk_bytes: u32::try_from(chunk_bytes).unwrap(),
        above: None,
    }
}
