//! A link that fails, and why.

use std::io;

use super::link::Link;

/// A link that is unusable, and why.
#[derive(Debug, thiserror::Error)]
#[error("{transport} link to rank {} (lane {}): {fault}", link.peer, link.lane)]
pub struct LinkError {
    /// Which link; lane 0 where all lanes to the peer are concerned.
    pub link: Link,
    /// The transport's name.
    pub transport: &'static str,
    /// What happened.
    #[source]
    pub fault: LinkFault,
}

/// What can happen to a link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFault {
    /// The peer closed it, or its process ended.
    #[error("the peer closed the connection or its process ended")]
    Closed,
    /// The peer cannot be reached.
    #[error("cannot connect: {0}")]
    Unreachable(io::Error),
    /// The peer does not know the job's secret, or is not who it says.
    #[error("the peer did not prove that it belongs to this job")]
    Unproven,
    /// What the peer wrote is not what a ringfold rank writes.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// The operating system said so.
    #[error("{0}")]
    Io(#[from] io::Error),
}
