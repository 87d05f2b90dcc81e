//! Errors of links.

use std::io;

use super::link::Link;

/// A link that can no longer be used, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{transport} link to rank {} (lane {}): {fault}", link.peer, link.lane)]
pub struct LinkError {
    /// The link that failed. Its lane is 0 if all lanes to the peer have failed.
    pub link: Link,
    /// The transport's name, as `Transport::name` returns it.
    pub transport: &'static str,
    /// The reason.
    pub fault: LinkFault,
}

/// The reason why a link has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFault {
    /// The peer closed the connection, or its process ended.
    #[error("the peer closed the connection or its process ended")]
    Closed,
    /// The peer's process has ended, and the peer had not left.
    #[error("the peer's process has ended")]
    Died,
    /// This rank cannot connect to the peer.
    #[error("cannot connect: {0}")]
    Unreachable(io::Error),
    /// The peer does not know the job's secret, or claims a rank that it does not have.
    #[error("the peer did not prove that it belongs to this job")]
    Unproven,
    /// The peer wrote bytes that no ringfold rank writes.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// The operating system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}
