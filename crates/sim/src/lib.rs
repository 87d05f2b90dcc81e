//! Runs the programs of all ranks of one call in virtual time, over a simulated fabric.
//!
//! The programs are those that ranks run, and the stepper of `collectives` runs them. Only its
//! ports are others: a send becomes a flow over the links of a [`Network`], a reduction takes time
//! of the rank's CPU by the [`Prices`](ringfold_topology::prices::Prices), and nothing is computed.
//! So a result says how long a call takes, and never what its sums are.
//!
//! * `shape`: fabrics by a short text, such as `rail:1024x8:400G`;
//! * `network`: the directed links of a fabric, and the ways between two ports;
//! * `flows`: the share of each link that each message gets;
//! * `job`: the places and the prices of the ranks; `programs`: the programs that ranks run;
//! * `colours`: finds equal ranks, of which one is simulated; `fold`: the ranks that stand for all;
//! * `aggregators`: the aggregators on switches; `combine`: the turn of one;
//! * `event`: the events; `queue`: those that are to come; `wires`: the connections;
//! * `rank`: the ports of one rank's stepper;
//! * `run`: the loop of events; `progress`: the part that is done; `outcome`: the result;
//! * `whole`: whole numbers, of measures and of lists.
//!
//! # The model
//!
//! * **Links** carry messages at the same time. Their rates are max-min fair: no message could be
//!   faster unless one that is not faster became slower (Bertsekas and Gallager, "Data Networks",
//!   1992, section 6.5.2).
//! * **A message** takes the latency of its class of links, a hop latency for each switch after the
//!   first, and its bytes over the rate that it gets. Messages of one connection follow each other.
//!   A long one arrives in pieces.
//! * **A CPU** makes one message at a time, and combines bytes, by the prices of `cost`.
//! * **A way** is a shortest one. `Routing` says which of several.
//!
//! Time is an integer of picoseconds. Without a seed nothing is random, and the same job gives the
//! same outcome.
#![forbid(unsafe_code)]

mod aggregators;
mod colours;
mod combine;
mod event;
mod flows;
mod fold;
mod job;
mod network;
mod outcome;
mod programs;
mod progress;
mod queue;
mod rank;
mod run;
mod shape;
mod whole;
mod wires;

pub use event::NoEnd;
pub use job::{Job, UnfitJob};
pub use network::{Link, Network, Routing, UnknownLink};
pub use outcome::{LinkUse, Outcome};
pub use programs::{Limits, Programs, TooMany};
pub use progress::Progress;
pub use run::simulate;
pub use shape::{InvalidShape, Shape};
