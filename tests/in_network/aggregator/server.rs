//! A running `ringfold aggregate`, and requests to its control port.

use std::net::SocketAddr;
use std::time::Instant;
use std::{fs, thread};

use ringfold_bootstrap::Secret;
use ringfold_harness::{Aggregator, Home};
use ringfold_innetwork::trees::{self, Ask, AskError, Stats, Terms};
use ringfold_innetwork::wire::links::Endpoints;

use super::DEADLINE;
use super::member::{Endpoint, KEY};

/// A running server with a home of its own. Both end with the test.
pub(crate) struct Server {
    pub(crate) aggregator: Aggregator,
    pub(crate) home: Home,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let home = Home::new();
        Self { aggregator: home.aggregator(arguments), home }
    }

    /// Waits for a line of the log that has all these parts.
    pub(crate) fn wait_for_log(&self, parts: &[&str]) {
        self.aggregator
            .job
            .wait_for_log(DEADLINE, |line| parts.iter().all(|part| line.contains(part)));
    }

    pub(crate) fn site(&self) -> Secret {
        Secret::site(None, Some(self.home.path())).unwrap()
    }

    /// Asks for a group of members with chunks of at most `chunk_bytes`.
    pub(crate) fn ask(
        &self,
        members: usize,
        window: u8,
        chunk_bytes: usize,
    ) -> Result<Endpoint, AskError> {
        let ask = ask(members, window, chunk_bytes);
        let (granted, tcp) = trees::ask(&self.aggregator.at, &self.site(), ask, DEADLINE)?;
        let at = Endpoints { tcp, rdma_port: 0 };
        Ok(Endpoint { at, group: granted.group, key: KEY, window: window.into(), chunk_bytes })
    }

    pub(crate) fn stats(&self) -> Stats {
        trees::stats(&self.aggregator.at, &self.site(), DEADLINE).unwrap()
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
        self.aggregator.at.parse().unwrap()
    }

    /// A field of the process's status in bytes, as in `VmRSS`.
    pub(crate) fn memory(&self, field: &str) -> usize {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.aggregator.job.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.aggregator.job.id())).unwrap().count()
    }
}

pub(crate) fn ask(members: usize, window: u8, chunk_bytes: usize) -> Ask {
    let (job, ranks) = ("test".into(), u32::try_from(members).unwrap());
    let chunk_bytes = u32::try_from(chunk_bytes).unwrap();
    let terms = Terms { job, key: KEY, ranks, window, chunk_bytes };
    Ask { terms, first: 0, members: vec![1; members], above: None }
}
