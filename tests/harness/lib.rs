//! The common code of all tests. Programs that a test runs cannot outlive it.
//!
//! * `random`: random numbers from a seed;
//! * `folder`: a temporary folder;
//! * `http`: pages of servers;
//! * `job`: a running program with its output and a deadline;
//! * `needed`: skips tests on machines that lack something;
//! * `namespaces`: network namespaces that stand for hosts and switches;
//! * `program`: finds and builds the programs of the workspace;
//! * `ranks`: ranks without a launcher;
//! * `aggregator`: a running `ringfold aggregate`;
//! * `torch_store`: a stand-in for torchrun's store;
//! * `rdma`: RDMA devices, and their hosts; `fake_verbs`: devices that exist only in a test.
#![forbid(unsafe_code)]

mod aggregator;
pub mod fake_verbs;
mod folder;
mod http;
mod job;
mod namespaces;
pub mod needed;
pub mod program;
pub mod random;
mod ranks;
pub mod rdma;
mod torch_store;

pub use aggregator::{Aggregator, Home, IN_NETWORK};
pub use folder::Folder;
pub use http::http_page;
pub use job::{Job, Outcome, kill};
pub use namespaces::Namespaces;
pub use random::Random;
pub use ranks::{Ranks, free_port, secret};
pub use torch_store::TorchStore;
