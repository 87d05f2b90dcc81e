//! What the machine and the fabric look like, as far as it decides which schedule is best.
//!
//! * `layout`: where the ranks are; the value that schedules take;
//! * `machine`: one host; `fabric`: the network between hosts, and what kind it is;
//! * `evidence`: the words that ranks exchange about both; `agree`: the answer of all ranks to it;
//! * `site`: what an administrator wrote down of a fabric; `subnet`: what addresses tell of it;
//! * `discover`: the only part that touches the operating system, and the readers of
//!   files; behind the feature of that name.
#![forbid(unsafe_code)]

pub mod agree;
pub mod certainty;
mod digest;
#[cfg(feature = "discover")]
pub mod discover;
pub mod evidence;
pub mod fabric;
mod layout;
pub mod machine;
mod order;
pub mod site;
pub mod subnet;

pub use layout::{Crowd, Layout, Level, Path, PeerMemory, RankReach, Reach};
pub use order::Order;
