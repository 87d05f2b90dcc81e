//! The phases of a path's life, and the pause before the next life. This module knows no device.

use std::time::{Duration, Instant};

use ringfold_types::limits::HANDSHAKE_MS;

/// Time in milliseconds that a device has to report the end of all work of a failed queue pair.
const RDMA_FLUSH_MS: u64 = 500;
/// Time in milliseconds after which a lost queue pair is made again. It doubles after each failure.
const RDMA_RETRY_MS: u64 = 1_000;
/// Longest such time in milliseconds.
const RDMA_RETRY_MAX_MS: u64 = 60_000;
/// Bytes that have arrived in one life when its earlier failures are forgotten.
const RDMA_TRUST_BYTES: u64 = 64 * 1024 * 1024;
/// The age in milliseconds at which a life that still brings something is trusted likewise.
const RDMA_TRUST_MS: u64 = 60_000;

/// The phase of a path's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Phase {
    /// The peer has been offered the queue pair.
    Offered,
    /// Both ends know of the queue pair, and iWARP is connecting it.
    Connecting,
    /// Both ends can be written to, and a first packet is under way.
    Proving,
    /// The path carries data.
    Proven,
    /// The path has ended, or was never made.
    Ended,
}

/// A path's life. A life that has ended is *settled* once both ends have reported their arrivals.
/// The next life begins after that.
#[derive(Debug)]
pub(super) struct Life {
    phase: Phase,
    /// The time when the phase began, if it has a deadline.
    since: Instant,
    /// The time that the first packet may take.
    proof: Duration,
    /// The number of lives that have ended since one was trusted.
    failures: u32,
    /// The time when this end begins the next life, if this end does.
    retry_at: Option<Instant>,
    /// After the end: this end has reported its arrivals.
    has_reported: bool,
    /// After the end: the peer has reported its arrivals.
    peer_has_reported: bool,
}

impl Life {
    /// The state before the first life: settled.
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Ended,
            since: Instant::now(),
            proof: Duration::ZERO,
            failures: 0,
            retry_at: None,
            has_reported: true,
            peer_has_reported: true,
        }
    }

    /// Begins another life, which counts as ended until it is offered.
    pub(super) fn begin(&mut self) {
        debug_assert!(self.is_settled(), "{self:?}");
        let failures = self.failures;
        *self = Self { failures, has_reported: false, peer_has_reported: false, ..Self::new() };
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.since) = (phase, Instant::now());
    }

    /// Notes that the queue pair was made, and is offered to the peer. The first packet may take as
    /// long as `proof`.
    pub(super) const fn offer(&mut self, proof: Duration) {
        (self.phase, self.proof) = (Phase::Offered, proof);
    }

    /// Notes that both ends know of the queue pair.
    pub(super) fn connect(&mut self) {
        if self.phase == Phase::Offered {
            self.enter(Phase::Connecting);
        }
    }

    /// Notes that both ends can be written to.
    pub(super) fn prove(&mut self) {
        self.enter(Phase::Proving);
    }

    /// Notes that packets pass. Returns whether that is new.
    pub(super) fn proven(&mut self) -> bool {
        let is_new = self.phase == Phase::Proving;
        if is_new {
            self.enter(Phase::Proven);
        }
        is_new
    }

    /// Notes that so many bytes have arrived in this life. Earlier failures are forgotten once the
    /// life can be trusted: a path may pass every proof and lose the data after it.
    pub(super) fn acknowledge(&mut self, bytes: u64) {
        let has_lasted = || self.since.elapsed() >= Duration::from_millis(RDMA_TRUST_MS);
        if self.failures > 0 && (bytes >= RDMA_TRUST_BYTES || has_lasted()) {
            self.failures = 0;
        }
    }

    pub(super) fn end(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.enter(Phase::Ended);
    }

    /// Settles a life that came to nothing and is unknown to the peer.
    pub(super) const fn forget(&mut self) {
        (self.has_reported, self.peer_has_reported) = (true, true);
    }

    /// Notes that this end reports its arrivals. Later arrivals of this life are ignored.
    pub(super) const fn report(&mut self) {
        self.has_reported = true;
    }

    /// Notes that the peer reports its arrivals. Returns whether the peer may do so now.
    pub(super) fn peer_reports(&mut self) -> bool {
        let may = self.has_ended() && !self.peer_has_reported;
        self.peer_has_reported = true;
        may
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) const fn proof(&self) -> Duration {
        self.proof
    }

    pub(super) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Returns whether the path carries data.
    pub(super) fn is_usable(&self) -> bool {
        self.phase == Phase::Proven
    }

    /// Returns whether the path is still to be connected.
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Offered | Phase::Connecting)
    }

    pub(super) const fn has_reported(&self) -> bool {
        self.has_reported
    }

    /// Returns whether the life is over and both ends know all arrivals.
    pub(super) fn is_settled(&self) -> bool {
        self.has_ended() && self.has_reported && self.peer_has_reported
    }

    /// Lets the phase count from `last`, if that is later. Returns whether it was.
    pub(super) fn extend(&mut self, last: Instant) -> bool {
        let is_later = last > self.since;
        self.since = self.since.max(last);
        is_later
    }

    /// The deadline of the phase, or the begin of the next life.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connecting => Some(self.since + Duration::from_millis(HANDSHAKE_MS)),
            Phase::Proving => Some(self.since + self.proof),
            Phase::Ended if self.is_settled() => self.retry_at,
            _ => None,
        }
    }

    /// After the end: the deadline for the device to flush the queue pair.
    pub(super) fn flush_deadline(&self) -> Instant {
        self.since + Duration::from_millis(RDMA_FLUSH_MS)
    }

    /// Begins the next life at `at` instead of any other time.
    pub(super) const fn retry_at(&mut self, at: Instant) {
        self.retry_at = Some(at);
    }

    /// Begins the next life after a pause, unless a time is set already. The pause doubles with
    /// every life that has ended untrusted.
    pub(super) fn retry_later(&mut self, now: Instant) {
        let doubled = self.failures.saturating_sub(1).min(16);
        let pause = Duration::from_millis(RDMA_RETRY_MS) * (1 << doubled);
        let pause = pause.min(Duration::from_millis(RDMA_RETRY_MAX_MS));
        self.retry_at.get_or_insert(now + pause);
    }

    /// Notes that the next life begins now, or that the peer begins it.
    pub(super) const fn retried(&mut self) {
        self.retry_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(mut life: Life) -> Life {
        life.end();
        life.forget();
        life
    }

    #[test]
    fn a_life_goes_through_its_stages_once() {
        let mut life = Life::new();
        assert!(life.is_settled() && !life.peer_reports(), "nothing to be told of");
        life.begin();
        assert!(life.has_ended() && !life.is_settled());
        life.offer(Duration::from_secs(3));
        assert!(life.is_connecting() && life.deadline().is_none());
        life.connect();
        assert_eq!(life.phase(), Phase::Connecting);
        assert!(!life.proven(), "both ends cannot be written to yet");
        life.prove();
        assert_eq!(life.deadline(), Some(life.since + Duration::from_secs(3)));
        assert!(life.proven() && life.is_usable() && !life.proven());
        life.connect();
        assert!(life.is_usable(), "a late word changes nothing");
        life.end();
        assert!(life.peer_reports() && !life.peer_reports(), "the peer says so once");
        assert!(!life.is_settled());
        life.report();
        assert!(life.is_settled());
    }

    #[test]
    fn pauses_grow_until_a_life_is_trusted() {
        let now = Instant::now();
        let pause = |life: &mut Life| {
            life.retried();
            life.retry_later(now);
            life.deadline().unwrap() - now
        };
        let mut life = Life::new();
        let first = pause(&mut life);
        for _ in 0..20 {
            life.begin();
            life = ended(life);
        }
        assert_eq!(pause(&mut life), Duration::from_millis(RDMA_RETRY_MAX_MS));
        life.retry_at(now);
        life.retry_later(now);
        assert_eq!(life.deadline(), Some(now), "what was planned stays");
        life.begin();
        assert!(life.retry_at.is_none());
        life.prove();
        assert!(life.proven());
        life.acknowledge(RDMA_TRUST_BYTES - 1);
        life = ended(life);
        let longest = Duration::from_millis(RDMA_RETRY_MAX_MS);
        assert_eq!(pause(&mut life), longest, "a proof is not enough");
        for by_age in [false, true] {
            life.begin();
            life.prove();
            assert!(life.proven());
            life.since -= Duration::from_millis(if by_age { RDMA_TRUST_MS } else { 0 });
            life.acknowledge(if by_age { 0 } else { RDMA_TRUST_BYTES });
            life = ended(life);
            assert_eq!(pause(&mut life), first);
            life.begin();
            life = ended(life);
            assert_eq!(pause(&mut life), 2 * first);
        }
    }

    #[test]
    fn a_path_behind_others_has_longer() {
        let (mut life, second) = (Life::new(), Duration::from_secs(1));
        assert!(!life.extend(life.since - second));
        let last = life.since + second;
        assert!(life.extend(last) && life.since == last);
        assert!(!life.extend(last), "nobody came after that one");
    }
}
