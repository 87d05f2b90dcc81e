//! A job as it is meant: what to run, how often, where, and for how long.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ringfold_types::limits::HOST_SILENCE_MS;

use crate::hosts::Host;
use crate::message::Bind;

/// What [`run`](crate::run()) runs. Make one with [`Job::new`], then change what differs.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program of every rank: a path, or a name that each host looks up in its PATH.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// How many ranks; `None` for one per slot of `hosts`, or one per core of this host.
    pub ranks: Option<usize>,
    /// Where; empty for this host, which then takes any number of ranks.
    pub hosts: Vec<Host>,
    /// Whether more ranks than slots are meant.
    pub oversubscribe: bool,
    /// Environment of the ranks, beyond what they inherit: on this host everything, on others what
    /// the agent passes on.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory on every host; `None` for this process's.
    pub wdir: Option<PathBuf>,
    /// Whether ranks are tied to cores.
    pub bind: Bind,
    /// Whether each line of output begins with `[rank]`.
    pub tag_output: bool,
    /// Whether rank 0 reads this process's standard input. Nobody else ever does.
    pub forward_input: bool,
    /// After this time the job is stopped.
    pub time_limit: Option<Duration>,
    /// How long the others may go on when a rank has failed, to notice it and to report it.
    pub grace: Duration,
    /// How long another host may be silent before it counts as lost, and how long it goes on when
    /// it hears nothing from this process. The time in which the waiting process itself is stopped
    /// does not count. At least `limits::HOST_SILENCE_MIN_MS`.
    pub host_timeout: Duration,
    /// The command that starts another one on another host, in words; empty for ssh. See
    /// [`crate::AGENT_HELP`].
    pub agent: Vec<String>,
    /// Path of `ringrun`, or of another program that calls [`intercept`](crate::intercept()), on
    /// other hosts; `None` for this program's own path.
    pub remote_keeper: Option<PathBuf>,
    /// The same on this host; `None` for this program itself.
    pub local_keeper: Option<PathBuf>,
    /// Where other hosts reach this one, as `address` or `address:port`; `None` to use an address
    /// of `interfaces`, or else that from which the first of them is reached.
    pub rendezvous: Option<String>,
    /// Interfaces of this host by which others reach it, as `RINGFOLD_SOCKET_IFNAME` has it.
    pub interfaces: Option<String>,
}

impl Job {
    /// `program` on every core of this host, without arguments, with nothing as input.
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            ranks: None,
            hosts: Vec::new(),
            oversubscribe: false,
            env: Vec::new(),
            wdir: None,
            bind: Bind::default(),
            tag_output: false,
            forward_input: false,
            time_limit: None,
            grace: Duration::from_secs(5),
            host_timeout: Duration::from_millis(HOST_SILENCE_MS),
            agent: Vec::new(),
            remote_keeper: None,
            local_keeper: None,
            rendezvous: None,
            interfaces: None,
        }
    }
}
