//! A running `ringfold aggregate`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Folder, Job, Outcome, program};

/// The deadline of an aggregator's start, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// `RINGFOLD_ALGO` for calls over aggregators.
pub const IN_NETWORK: &str = "allreduce:in_network;reduce:in_network;barrier:in_network";

/// A home directory, whose site secret aggregators and ranks share. It ends with the test.
#[derive(Debug, Default)]
pub struct Home(Folder);

/// A running aggregator, which ends with the test.
#[derive(Debug)]
pub struct Aggregator {
    /// The process, with its log.
    pub job: Job,
    /// The address of its control port.
    pub at: String,
}

impl Home {
    /// Makes an empty one.
    ///
    /// # Panics
    /// If there is no room.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Starts an aggregator at a free port, or at that of `--listen`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn aggregator(&self, arguments: &[&str]) -> Aggregator {
        self.aggregator_with(arguments, |_| ())
    }

    /// Starts an aggregator as `aggregator` does, with what `prepare` adds to the command.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn aggregator_with(
        &self,
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Aggregator {
        let mut command = self.command();
        prepare(&mut command);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let job = Job::start(command.args(arguments).env_remove("RINGFOLD_DEBUG"));
        let line = job.wait_for_line(DEADLINE, |line| line.starts_with("aggregator at "));
        let at = line["aggregator at ".len()..].split_once(": ");
        let at = at.unwrap_or_else(|| panic!("{line:?}")).0.to_owned();
        Aggregator { job, at }
    }

    /// A command that runs ranks with some task, each on a host of its own, for which this machine
    /// stands. They use these aggregators, as in `RINGFOLD_AGGREGATORS`.
    #[must_use]
    pub fn ranks(&self, hosts: usize, aggregators: &str, task: &[&str]) -> Command {
        let mut command = Command::new(program::binary("ringrun"));
        let script = "RINGFOLD_HOSTID=host-$RINGFOLD_RANK exec \"$@\"";
        command.args(["-n", &hosts.to_string(), "--timeout", "110", "sh", "-c", script, "sh"]);
        command.arg(program::binary("rank")).args(task);
        command.env("RINGFOLD_TRANSPORT", "tcp").env("RINGFOLD_TIMEOUT", "30");
        command.env("HOME", self.path()).env_remove("RINGFOLD_SITE_SECRET_FILE");
        command.env("RINGFOLD_ALGO", IN_NETWORK);
        command.env("RINGFOLD_AGGREGATORS", aggregators).env("RINGFOLD_INNETWORK", "require");
        command
    }

    /// Asks the aggregator at `at` about its pool and its groups.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn stats(&self, at: &str) -> String {
        Outcome::of(self.command().args(["--listen", at, "--stats"])).printed()
    }

    /// The chunks that the groups of the aggregator at `at` have combined: one number for each
    /// group.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn chunks(&self, at: &str) -> Vec<u64> {
        self.groups(at).into_iter().map(|(_, chunks)| chunks).collect()
    }

    /// The members and the chunks of each group of the aggregator at `at`.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn groups(&self, at: &str) -> Vec<(usize, u64)> {
        // The name of the job, which may have spaces, takes 24 columns.
        let group = |line: &str| {
            let words: Vec<&str> = line.get(24..)?.split_whitespace().collect();
            Some((words.get(1)?.parse().ok()?, words.get(6)?.parse().ok()?))
        };
        self.stats(at).lines().skip(2).filter_map(group).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program::binary("ringfold"));
        command.arg("aggregate").env("HOME", self.path()).env_remove("RINGFOLD_SITE_SECRET_FILE");
        command
    }
}

impl Aggregator {
    /// Kills it, and returns the address that is free now.
    #[must_use]
    pub fn kill(self) -> String {
        self.at
    }
}
