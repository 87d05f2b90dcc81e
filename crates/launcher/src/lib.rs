//! A launcher in the style of mpirun. It starts the ranks of a job on this host and on others, and
//! passes on their output. It leaves no process behind, even if any of its processes dies.
//! `ringrun` is its command line.
//!
//! * [`Job`] describes a job, [`run`] runs it, and [`Outcome`] is its result. A program that calls
//!   `run` must call [`intercept`] first in its `main`.
//! * `placement`, `hosts`: the host of each rank. `supervisor`: when to stop which ranks. These
//!   modules do no I/O.
//! * `node_agent`: the process that runs the ranks of one host. `guardian`: its parent process.
//!   `sentinel`: the last process to end leftovers. `trampoline`: a rank's process before it
//!   executes the program. `process_tree`: descendants. `affinity`: cores. `descriptors`: limits of
//!   files and processes. `dumps`: the records of killed ranks.
//! * `host`: the launcher's link to a node agent. `message`, `frame`: its protocol. `admit`: the
//!   reports that a host may make. `heartbeat`: how either end detects a broken link.
//! * `output`, `printer`, `stdin`: the ranks' output and rank 0's input. [`Stream`]: this process's
//!   standard output and error. [`parsed`] and [`failed`] end a program that prints. [`Progress`]:
//!   its line on standard error.
//! * `signals`: the signals that stop a job, and the mask of its processes.
//! * `rendezvous`: the port where the ranks find each other. `this_host`: the names of this host.
//! * [`generate`]: man pages and shell completions.
//!
//! # Processes
//! ```text
//! ringrun ----- guardian --- node agent ----- rank 0 ----- whatever it starts
//!    |                          |-------- rank 1
//!    |                          `-------- sentinel
//!    `--- ssh --- guardian --- node agent --- rank 2
//! ```
//! A node agent whose input ends kills all its descendants. It is a subreaper, which no descendant
//! can leave. A node agent on another host does the same when it has received nothing from ringrun
//! for `Job::host_timeout`. The kernel kills a rank whose node agent dies. The guardian, a
//! subreaper too, kills the processes that ranks have started. A node agent whose guardian dies
//! ends the job on its host. If both are killed in the same moment, ringrun kills the processes
//! that they leave on its own host. A sentinel on each host kills them even if ringrun is gone. It
//! finds all processes that have their node agent in their environment, and spares those of other
//! node agents.
//!
//! # The environment of a rank
//! Each rank has `RINGFOLD_RANK`, `RINGFOLD_SIZE`, `RINGFOLD_LOCAL_RANK`, `RINGFOLD_LOCAL_SIZE`,
//! `RINGFOLD_JOB` (16 hexadecimal digits, unique to this launch), `RINGFOLD_AGENT` (the job and the
//! number of the node agent), `RINGFOLD_RENDEZVOUS` (address:port) and `RINGFOLD_SECRET_FD`,
//! the number of an open file that holds the 32 bytes of the job's secret.
#![forbid(unsafe_code)]

mod admit;
mod affinity;
mod descriptors;
mod dumps;
mod frame;
mod generate;
mod guardian;
mod heartbeat;
mod host;
mod hosts;
mod intercept;
mod job;
mod launch;
mod message;
mod node_agent;
mod outcome;
mod output;
mod placement;
mod printer;
mod process_tree;
mod progress;
mod rendezvous;
mod sentinel;
mod signals;
mod stdin;
mod stream;
mod supervisor;
mod this_host;
mod trampoline;

pub use generate::generate;
pub use host::AGENT_HELP;
pub use hosts::{Host, HostsError, Place, parse_file, parse_list};
pub use intercept::intercept;
pub use job::Job;
pub use launch::{LaunchError, run};
pub use message::{Bind, Refusal, Status};
pub use outcome::{End, JobResult, Outcome, RankOutcome};
pub use placement::{Placement, PlacementError, Share};
pub use progress::Progress;
pub use rendezvous::RendezvousError;
pub use ringfold_bootstrap::started_as_rank;
pub use signals::Signals;
pub use stream::{Stream, failed, parsed};

/// Decodes arbitrary bytes as a launcher and as a node agent would, for fuzzing.
#[doc(hidden)]
pub fn decode_anything(bytes: &[u8]) {
    let mut decoder = frame::Decoder::plain();
    let mut host = admit::Admission::of(&[0, 7]);
    decoder.push(bytes);
    while let Ok(Some(report)) = decoder.next::<message::Up>() {
        drop(host.admit(report));
    }
    let mut decoder = frame::Decoder::after_greeting();
    for piece in bytes.chunks(7) {
        decoder.push(piece);
        while let Ok(Some(_)) = decoder.next::<message::Down>() {}
    }
}
