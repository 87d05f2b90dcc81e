//! The connections that an acceptor rejected: their number, addresses and causes.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::greeting::{BUILD, HandshakeError};
use crate::discover::secret::WAYS_TO_SHARE;

/// The most addresses that are named for one cause. Further ones are only counted.
const ADDRESSES_MAX: usize = 4;

/// The rejected connections. Its size is fixed: unauthenticated peers cannot make it grow.
#[derive(Debug, Default)]
pub(crate) struct TurnedAway(Mutex<Tally>);

#[derive(Debug, Default)]
struct Tally {
    all: u32,
    wrong_secret: Cause,
    version: Cause,
    build: Cause,
    size: Cause,
    duplicate: Cause,
}

/// One cause that explains a missing rank.
#[derive(Debug, Default)]
struct Cause {
    attempts: u32,
    from: Vec<IpAddr>,
    /// The version, build, size or rank of the latest attempt; 0 for a wrong secret.
    theirs: u64,
}

impl TurnedAway {
    /// Counts a rejected connection. A port scan adds a few lines to the log, not one per
    /// connection.
    pub(crate) fn note(&self, from: SocketAddr, cause: &HandshakeError) {
        let mut tally = self.tally();
        match cause {
            HandshakeError::WrongSecret => tally.wrong_secret.add(from, 0),
            HandshakeError::Version(theirs) => tally.version.add(from, u64::from(*theirs)),
            HandshakeError::Build { theirs, .. } => tally.build.add(from, *theirs),
            HandshakeError::Size(theirs) => tally.size.add(from, u64::from(*theirs)),
            HandshakeError::Io(_)
            | HandshakeError::NotRingfold
            | HandshakeError::OtherJob
            | HandshakeError::Evicted => {}
        }
        tally.all = tally.all.saturating_add(1);
        let count = tally.all;
        // Warns at the first, the 16th, the 256th connection.
        if count.is_power_of_two() && count.trailing_zeros().is_multiple_of(4) {
            tracing::warn!("turned away a connection from {from}: {cause} ({count} so far)");
        } else {
            tracing::debug!("turned away a connection from {from}: {cause}");
        }
    }

    /// Counts a process that came as a rank which another process is.
    pub(crate) fn note_duplicate(&self, from: SocketAddr, rank: u32) {
        self.tally().duplicate.add(from, u64::from(rank));
    }

    /// An explanation of missing ranks, with advice. Empty if no rejected connection explains them.
    pub(crate) fn explanation(&self) -> String {
        let tally = self.tally();
        let mut text = String::new();
        let mut add = |cause: &Cause, what: String| {
            if cause.attempts > 0 {
                let separator = if text.is_empty() { "" } else { "; " };
                let plural = if cause.attempts == 1 { "" } else { "s" };
                let (n, from) = (cause.attempts, cause.addresses());
                write!(text, "{separator}{n} connection{plural} from {from} {what}")
                    .unwrap_or_default();
            }
        };
        add(&tally.wrong_secret, format!("held another secret: {WAYS_TO_SHARE}"));
        let version = tally.version.theirs;
        add(
            &tally.version,
            format!(
                "spoke version {version} of the control protocol: start every rank with the same \
                 ringfold"
            ),
        );
        let (build, own) = (tally.build.theirs, *BUILD);
        add(
            &tally.build,
            format!(
                "had build {build:016x} of ringfold, not {own:016x}: start every rank with the \
                 same build"
            ),
        );
        let size = tally.size.theirs;
        add(&tally.size, format!("belonged to a job of {size} ranks with the same name"));
        let rank = tally.duplicate.theirs;
        add(
            &tally.duplicate,
            format!(
                "came as rank {rank}, which another process is: give each process its own rank"
            ),
        );
        text
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.tally().all
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cause {
    fn add(&mut self, from: SocketAddr, theirs: u64) {
        self.attempts = self.attempts.saturating_add(1);
        self.theirs = theirs;
        let ip = from.ip().to_canonical();
        // Keeps one more address than is named, so that the text can mention others.
        if self.from.len() <= ADDRESSES_MAX && !self.from.contains(&ip) {
            self.from.push(ip);
        }
    }

    fn addresses(&self) -> String {
        let named: Vec<String> =
            self.from.iter().take(ADDRESSES_MAX).map(ToString::to_string).collect();
        let others = if self.from.len() > ADDRESSES_MAX { " and others" } else { "" };
        named.join(", ") + others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_explanation_names_addresses_counts_and_remedies() {
        let turned_away = TurnedAway::default();
        let from = |last| SocketAddr::from(([10, 0, 0, last], 9));
        turned_away.note(from(9), &HandshakeError::NotRingfold);
        assert_eq!(turned_away.explanation(), "");
        for last in 1..=7 {
            turned_away.note(from(last), &HandshakeError::WrongSecret);
        }
        turned_away.note(from(1), &HandshakeError::Size(3));
        let text = turned_away.explanation();
        let secret = "7 connections from 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4 and others held \
                      another secret: ";
        assert!(text.starts_with(secret) && text.contains("RINGFOLD_SECRET_FILE"), "{text}");
        let size = "; 1 connection from 10.0.0.1 belonged to a job of 3 ranks with the same name";
        assert!(text.ends_with(size), "{text}");
    }
}
