//! The description of a job: its program, ranks, hosts and limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ringfold_types::limits::HOST_SILENCE_MS;

use crate::hosts::Host;
use crate::message::Bind;

/// The job that [`run`](crate::run()) runs. Make one with [`Job::new`], then change fields.
#[derive(Clone, Debug)]
pub struct Job {
    /// The name of this process in the lines that it adds to standard error, as in `ringrun: ...`.
    pub name: String,
    /// The program of every rank: a path, or a name that each host looks up in its PATH.
    pub program: OsString,
    /// The arguments of the program.
    pub args: Vec<OsString>,
    /// The number of ranks. `None` means one per slot of `hosts`, or one per core of this host.
    pub ranks: Option<usize>,
    /// The hosts. An empty list means this host, which then takes any number of ranks.
    pub hosts: Vec<Host>,
    /// Whether there may be more ranks than slots.
    pub oversubscribe: bool,
    /// Environment variables of the ranks, beyond those that they inherit. On this host they
    /// inherit all, and on others those that the agent passes on.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory on every host. `None` means this process's.
    pub wdir: Option<PathBuf>,
    /// How ranks are bound to cores. `None` means [`Bind::Share`] on hosts that allow it, and a
    /// warning on others.
    pub bind: Option<Bind>,
    /// Whether each line of output begins with `[rank]`.
    pub tag_output: bool,
    /// Whether rank 0 reads this process's standard input. No other rank ever does.
    pub forward_input: bool,
    /// The time after which the job is stopped.
    pub time_limit: Option<Duration>,
    /// How long the other ranks may go on after a rank has failed, to notice it and to report it.
    /// `None`: as long as they want, since they recover.
    pub grace: Option<Duration>,
    /// How many new processes may be started for each rank, one after the other, when its process
    /// has failed. `None`: none, and `grace` holds. With any number the other ranks go on as with
    /// `grace` of `None`.
    pub restarts: Option<u32>,
    /// Hosts without ranks at the start. Each takes as many new processes as it has slots, for
    /// ranks whose host is lost or cannot start them again. They need `restarts` of 1 or more, and
    /// none of them is one of `hosts`. [`run`](crate::run()) checks that all of them can be
    /// reached before it starts any rank.
    pub spares: Vec<Host>,
    /// How long another host may be silent before it counts as lost, and how long it goes on when
    /// it receives nothing from this process. Time in which the waiting process itself is stopped
    /// does not count. At least `limits::HOST_SILENCE_MIN_MS`.
    pub host_timeout: Duration,
    /// The command that starts a command on another host, in words. An empty list means ssh. See
    /// [`crate::AGENT_HELP`].
    pub agent: Vec<String>,
    /// The path of `ringrun` on other hosts, or of another program that calls
    /// [`intercept`](crate::intercept()). `None` means this program's own path.
    pub remote_node_agent: Option<PathBuf>,
    /// The path of such a program on this host. `None` means this program itself.
    pub local_node_agent: Option<PathBuf>,
    /// The address at which other hosts reach this one, as `address` or `address:port`. `None`
    /// means an address of `interfaces`, or else the source address toward the first other host.
    pub rendezvous: Option<String>,
    /// The interfaces at which other hosts reach this one, in the grammar of
    /// `RINGFOLD_SOCKET_IFNAME`.
    pub interfaces: Option<String>,
}

impl Job {
    /// A job of `program` on every core of this host, without arguments or input.
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            name: "ringrun".to_owned(),
            program: program.into(),
            args: Vec::new(),
            ranks: None,
            hosts: Vec::new(),
            oversubscribe: false,
            env: Vec::new(),
            wdir: None,
            bind: None,
            tag_output: false,
            forward_input: false,
            time_limit: None,
            grace: Some(Duration::from_secs(5)),
            restarts: None,
            spares: Vec::new(),
            host_timeout: Duration::from_millis(HOST_SILENCE_MS),
            agent: Vec::new(),
            remote_node_agent: None,
            local_node_agent: None,
            rendezvous: None,
            interfaces: None,
        }
    }
}
