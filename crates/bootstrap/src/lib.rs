//! How ranks find each other, trust each other, and agree on what went wrong.
//!
//! `discover` reads a launcher's variables into an `Identity`. The job's `Secret` makes a process a
//! member of the job. `Control::join` connects the ranks and returns every rank's peer information.
//! `Control` then runs beside the data path until there is a `FailureCause`, which is the same for
//! every survivor.
//!
//! # Rooms
//! Each room uses only those before it in this order:
//! 1. `discover`: the knowledge of a process alone: its rank, the secret, the host's addresses;
//! 2. `channel`: an authenticated connection between two processes;
//! 3. `service`: requests to a server of several jobs, such as an aggregator;
//! 4. `record`: the recent calls and failures of a process, in words that other processes may read;
//! 5. `look`: looks at the records of a group on all of its hosts;
//! 6. `arbiter`: the failure cause, found from reports and call logs without I/O;
//! 7. `regroup`: the agreement of survivors on the members of the next group;
//! 8. `control`: a rank's end of the control plane;
//! 9. `rendezvous`: the launcher, where ranks learn of the coordinator;
//! 10. `coordinator`: the centre, in the process of rank 0;
//! 11. `join`: the way of a rank from its identity to a `Control`;
//! 12. `door`: the way of newcomers into a group that runs.
//!
//! # Shape
//! The control plane is a star: rank 0's process runs the coordinator, and every rank keeps one
//! encrypted TCP connection to it (Noise NNpsk0 with the job secret). One control thread per
//! process serves the connections of all its communicators. So a rank that computes still answers,
//! and a stopped rank does not.
//!
//! # Limits of the star
//! - Joining costs rank 0 one handshake and one connection per rank, with which threads help. Rank
//!   0 also sends the peer information of all ranks to each of a few ranks, which forward them.
//!   Results of exchanges take the same way.
//! - A failure cause takes one message to rank 0 and one back, at any number of ranks. Ranks that
//!   wait for the failure cause take one more message each way.
//! - If rank 0 dies, every rank notices, and the survivors may `regroup`. If it dies while it
//!   announces a failure cause, some ranks may get that failure cause and others may find rank 0
//!   dead.
//! - A rank that cannot reach rank 0 names rank 0. Ranks that reach rank 0 get one failure cause.
//! - A rank whose connection breaks reconnects to a second port of rank 0. If a firewall or an
//!   address translation hides that port, rank 0 declares the rank dead.
//! - A break that only rank 0 notices counts as the rank's death. The rank itself learns of the
//!   break only from its next message, or from its next keepalive after at most 10 s.
//! - Every process that holds the secret can pose as any rank. Only the control plane is encrypted.
//! - A stopped process and a disconnected one look the same: both are `Silent`.
#![forbid(unsafe_code)]

mod arbiter;
mod channel;
mod control;
mod coordinator;
#[doc(hidden)]
pub mod decode;
mod discover;
mod door;
mod http;
mod join;
mod look;
mod record;
mod regroup;
pub mod rendezvous;
mod runs;
pub mod service;

pub use arbiter::call_log::{CallLog, CallName, CallWindows, Finished, History, Logged};
pub use arbiter::failure_cause::{
    AbsentRank, CallPosition, DifferingCall, FailureCause, Listed, RankList, RankOnHost,
};
pub use arbiter::{Action, Arbiter, FailureReport};
pub use channel::socket::{listen_at, show_connections};
pub use control::aborter::Aborter;
pub use control::exchange::ExchangeError;
pub use control::inquiry::Inquirer;
pub use control::respondent::Respondent;
pub use control::{Control, local};
pub use discover::address::{default_source, loopback, source_toward};
pub use discover::identity::{Identity, Launcher, Rendezvous, SecretSource};
pub use discover::secret::{Secret, SecretError};
pub use discover::torch_store::TorchStore;
pub use discover::vars::DiscoverError;
pub use discover::{discover, interface, pmi, started_as_rank};
pub use door::{Admission, Door, NotAdmitted, knock};
pub use http::serve;
pub use join::error::JoinError;
pub use join::joiner::{Options, Parent, ParentGroup};
pub use look::{FarGroup, FarHost, FarHosts, HostLook, look_around};
pub use record::copy::dump_ended;
pub use record::count::{CallKind, is_traced};
pub use record::counters::{CountedCalls, Counters, open_counters};
pub use record::folder::digest as record_folder_digest;
pub use record::read::{
    AwaitedMessage, InvalidRecord, LookPort, Record, RecordedCall, RecordedEvent, RecordedGroup,
    open_record, process_stat, read_record, state_of,
};
pub use record::tracer::{TracedGroup, Tracer};
pub use record::{
    KEEP_WORD, RECORD_WORDS, RecordFacts, TRAFFIC_AT, has_record, record_event, start_record,
};
pub use regroup::witness::Witness;
pub use regroup::{Doorkeeper, RegroupError, Regrouped, Seat, Wish};
pub use rendezvous::sign::{DoorSign, LauncherPlace};

/// The digest of this crate's sources.
#[doc(hidden)]
pub const SOURCES: &str = env!("SOURCES_DIGEST");
