//! Detects ranks in another call, by their messages and signals.

use ringfold_collectives::{Op, Program, Source};
use ringfold_transport::Link;
use ringfold_types::Rank;
use ringfold_types::limits::CHANNELS_MAX;

use super::ports::link;
use crate::error::CallError;
use crate::router::Router;

/// Checks whether the peer for which this rank waits at `at` is in another call. Tags show this for
/// most calls. The check is for a message in place of a signal, and for the reverse.
///
/// # Errors
/// `CallError::Foreign` with the peer.
pub(super) fn check(
    router: &Router,
    tag: u32,
    program: &Program,
    lane: usize,
    at: usize,
) -> Result<(), CallError> {
    match program.lanes()[lane].get(at) {
        Some(Op::Wait { from }) => sends_foreign(router, tag, *from),
        Some(Op::Receive { from, .. }) => signals_foreign(router, tag, link(*from, lane)),
        Some(Op::Reduce { sources, .. }) => {
            program.sources(sources).iter().try_for_each(|source| match *source {
                Source::Wire(from, _) => signals_foreign(router, tag, link(from, lane)),
                Source::Local(_) | Source::Peer(..) => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

/// Fails if a peer whose signal this rank awaits has sent bytes of another call instead.
fn sends_foreign(router: &Router, tag: u32, from: Rank) -> Result<(), CallError> {
    let is_other = |lane| {
        let sent = router.readable(link(from, lane));
        matches!(sent, Ok(Some(fragment)) if fragment.tag != tag)
    };
    // If the peer has signalled after all, the bytes are of its next call. A peer that is gone is
    // reported by the operations, once they have consumed its earlier messages.
    if (0..CHANNELS_MAX.into()).any(is_other) && matches!(router.signalled(from), Ok(None)) {
        return Err(CallError::Foreign(from));
    }
    Ok(())
}

/// Fails if a peer whose bytes this rank awaits has signalled in another call instead.
pub(crate) fn signals_foreign(router: &Router, tag: u32, link: Link) -> Result<(), CallError> {
    let is_other = matches!(router.signalled(link.peer), Ok(Some(other)) if other != tag);
    // If the peer has sent after all, the signal is of its next call.
    if is_other && matches!(router.readable(link), Ok(None)) {
        return Err(CallError::Foreign(link.peer));
    }
    Ok(())
}
