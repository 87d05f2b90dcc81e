//! A layer that makes a transport as slow as another network.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::limits::{FRAGMENT_ALIGN, LINK_BYTES_MIN};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::contract::{Fragment, Link, LinkError, Received, Transport};

/// The rate of each link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second, at least 1.
    pub bytes_per_second: u64,
    /// Bytes that may go at once after a pause; at least `limits::LINK_BYTES_MIN` are allowed.
    pub burst_bytes: usize,
}

/// A transport with a limited rate per link. Each link has a bucket that fills at that rate, and
/// sends take their bytes from it.
pub struct Throttle {
    inner: Box<dyn Transport>,
    rate: Rate,
    /// Time since an arbitrary origin.
    clock: Box<dyn Fn() -> Duration + Send>,
    buckets: BTreeMap<Link, Bucket>,
    /// Readable when that of `inner` is, or when a refused link may send again.
    wake: OwnedFd,
    timer: OwnedFd,
}

#[derive(Debug)]
struct Bucket {
    bytes: f64,
    filled_at: Duration,
}

impl Throttle {
    /// Wraps `inner`, with the system's clock.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(inner: Box<dyn Transport>, rate: Rate) -> io::Result<Self> {
        let start = Instant::now();
        Self::with_clock(inner, rate, Box::new(move || start.elapsed()))
    }

    /// Wraps `inner`, with `clock`: the time since an arbitrary origin, which never goes back. The
    /// system's clock still wakes parked callers.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn with_clock(
        inner: Box<dyn Transport>,
        rate: Rate,
        clock: Box<dyn Fn() -> Duration + Send>,
    ) -> io::Result<Self> {
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        for fd in [inner.wake_fd(), timer.as_fd()] {
            epoll::add(&wake, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let burst_bytes = rate.burst_bytes.max(LINK_BYTES_MIN);
        let rate = Rate { bytes_per_second: rate.bytes_per_second.max(1), burst_bytes };
        Ok(Self { inner, rate, clock, buckets: BTreeMap::new(), wake, timer })
    }

    /// Sets the timer; zero stops it.
    fn wake_in(&self, delay: Duration) {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Timespec::try_from(delay).unwrap_or(never);
        let times = Itimerspec { it_interval: never, it_value: once };
        // Fails only for invalid times.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times).ok();
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates and bursts need no more than 52 bits")]
impl Transport for Throttle {
    pass_on!(name readable withdraw poll is_flushed arm rendezvous expect registered_memory);
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        let now = (self.clock)();
        let (rate, burst) = (self.rate.bytes_per_second as f64, self.rate.burst_bytes as f64);
        let bucket = self.buckets.entry(link).or_insert(Bucket { bytes: burst, filled_at: now });
        let since = now.saturating_sub(bucket.filled_at).as_secs_f64();
        bucket.bytes = (bucket.bytes + since * rate).min(burst);
        bucket.filled_at = now;
        #[expect(clippy::cast_possible_truncation, reason = "at most the burst")]
        #[expect(clippy::cast_sign_loss, reason = "never below zero")]
        let allowed = match bucket.bytes as usize {
            enough if enough >= bytes.len() => bytes.len(),
            part => part - part % FRAGMENT_ALIGN,
        };
        if allowed == 0 {
            let missing = bytes.len().min(FRAGMENT_ALIGN) as f64 - bucket.bytes;
            let delay = Duration::from_secs_f64((missing / rate).max(1e-6));
            self.wake_in(delay);
            return Ok(0);
        }
        let accepted = self.inner.send(link, tag, &bytes[..allowed])?;
        bucket.bytes -= accepted as f64;
        Ok(accepted)
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        self.inner.consume(link, bytes);
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        self.inner.recv(link, tag, dst)
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn disarm(&mut self) {
        self.wake_in(Duration::ZERO);
        self.inner.disarm();
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("inner", &self.inner)
            .field("rate", &self.rate)
            .field("buckets", &self.buckets)
            .finish_non_exhaustive()
    }
}
