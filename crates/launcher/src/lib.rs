//! The mpirun-style launcher: starts the ranks of a job on this host and on others, passes their
//! output on, and leaves no process behind, whatever dies. `ringrun` is its command line.
//!
//! * [`Job`] is what to run, [`run`] runs it, [`Outcome`] is what became of it; a program that
//!   calls `run` calls [`intercept`] first in its `main`.
//! * `plan`, `hosts`: which rank runs where. `conduct`: when to stop whom. Both are pure.
//! * `keeper`: the process that holds the ranks of one host. `guardian`: the process above it.
//!   `trampoline`: a rank before it is the program. `family`: the process tree. `affinity`: cores.
//!   `descriptors`: open files.
//! * `host`: the launcher's line to a keeper. `message`, `frame`: the words on it. `admit`: the
//!   reports that a host may make. `silence`: how either end notices that the line was cut.
//! * `output`, `printer`, `feed`: the ranks' lines and rank 0's input.
//! * `rendezvous`: where the ranks meet.
//!
//! # Processes
//! ```text
//! ringrun ----- guardian --- keeper ----- rank 0 ----- whatever it starts
//!    |                          `-------- rank 1
//!    `--- ssh --- guardian --- keeper --- rank 2
//! ```
//! A keeper whose input ends kills everything below it, as a subreaper that nothing below can
//! leave. The same happens when a keeper on another host has heard nothing from ringrun for
//! `Job::host_timeout`. The kernel kills a rank whose keeper dies. The guardian, a subreaper too,
//! kills what ranks have started. A keeper whose guardian dies ends the job on its host. If both
//! are killed in the same moment, ringrun ends what they leave on its own host. On another host
//! processes that ranks have started may then stay behind, but no ranks.
//!
//! # What a rank finds in its environment
//! `RINGFOLD_RANK`, `RINGFOLD_SIZE`, `RINGFOLD_LOCAL_RANK`, `RINGFOLD_LOCAL_SIZE`, `RINGFOLD_JOB`
//! (16 hexadecimal digits, of this launch alone), `RINGFOLD_RENDEZVOUS` (address:port) and
//! `RINGFOLD_SECRET_FD`, the number of an open file that holds the 32 bytes of the job's secret.
#![forbid(unsafe_code)]

mod admit;
mod affinity;
mod conduct;
mod descriptors;
mod family;
mod feed;
mod frame;
mod guardian;
mod host;
mod hosts;
mod intercept;
mod job;
mod keeper;
mod launch;
mod message;
mod outcome;
mod output;
mod plan;
mod printer;
mod rendezvous;
mod silence;
mod trampoline;

pub use host::AGENT_HELP;
pub use hosts::{Host, HostsError, Place, parse_file, parse_list};
pub use intercept::intercept;
pub use job::Job;
pub use launch::{LaunchError, run};
pub use message::{Bind, Refusal, Status};
pub use outcome::{End, Outcome, RankOutcome, Verdict};
pub use plan::{Plan, PlanError, Share};
pub use rendezvous::RendezvousError;
pub use ringfold_bootstrap::started_as_rank;

/// Decodes whatever these bytes are, as a launcher and as a keeper would. For fuzzing.
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
