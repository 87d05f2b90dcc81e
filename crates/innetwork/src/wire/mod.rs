//! The messages between a member and an aggregator.
//!
//! * `header`: the 24 bytes before each message;
//! * `messages`: the messages of one link;
//! * `links`: the links of a group, over TCP or over the RDMA of `devices`;
//! * `end`: one end of a link for tests, behind the feature `testing`.

pub(crate) mod devices;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod end;
pub mod header;
pub mod links;
pub mod messages;
