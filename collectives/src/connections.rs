//! The price of connections: a bound on the ranks on other hosts that a rank has links to.
//!
//! A connection takes its time once, and memory and descriptors of both ends, and of their NICs,
//! for as long as the job runs. No call is long enough to pay for that, so the price is a bound and
//! not a time.

/// Ranks up to which each may have links to all others, and hosts up to which a rank of each may.
pub(crate) const DIRECT_MAX: usize = 64;

/// The most ranks on other hosts that a rank has links to in the choices of ringfold: up to 64
/// hosts all, and beyond that four for each doubling of the number of hosts.
pub(crate) const fn most_away(hosts: usize) -> usize {
    if hosts <= DIRECT_MAX { DIRECT_MAX } else { 4 * hosts.ilog2() as usize }
}
