//! What devices report, for people.

use std::io;
use std::time::Duration;

/// The status of work that was flushed because its queue pair had failed before.
pub(super) const FLUSHED: u32 = 5;

/// What it means that work for `peer` completed with a status other than success. `silence` is how
/// long the device tries before it gives up.
pub(super) fn status(status: u32, vendor: u32, peer: &str, silence: Duration) -> String {
    let what = match status {
        1 | 9 => "it was longer than what the receiver has; this is a bug of ringfold",
        2 => "the port or device went down, or broke its queue pair; see `rdma link` and `dmesg`",
        4 | 8 => "memory that is not registered was used; this is a bug of ringfold",
        FLUSHED => "the connection was ended by a device or the peer; see `dmesg` on both hosts",
        7 => "the answer makes no sense; firmware or cable",
        10 => "the peer refused access to its memory; this is a bug of ringfold",
        11 => "the peer's device could not do it; see `dmesg` there",
        12 => return silent(peer, silence),
        13 => "the peer had nothing posted to receive into; this is a bug of ringfold",
        19 => "the device is broken; see `dmesg`",
        _ => "an error of the device; see `dmesg`",
    };
    format!("work for {peer} failed with status {status} (vendor's {vendor:#x}): {what}")
}

/// What it means that nothing has come from `peer` for that long.
pub(super) fn silent(peer: &str, silence: Duration) -> String {
    let seconds = silence.as_secs_f64();
    format!(
        "retries exhausted: {peer} did not answer for {seconds:.1} s; cable, port or process \
         (RINGFOLD_IB_TIMEOUT and RINGFOLD_IB_RETRY_CNT say how long to try)"
    )
}

/// How long a device tries: so many times a wait of that encoded length.
pub(super) fn silence(timeout: u8, retries: u8) -> Duration {
    Duration::from_nanos(4096 << timeout.min(31)) * (u32::from(retries) + 1)
}

/// Why memory cannot be registered.
pub(super) fn registration(error: &io::Error, bytes: usize) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
            "; too little memory may be locked: `ulimit -l` says how much, \
             /etc/security/limits.conf (memlock) or LimitMEMLOCK= raises it"
        }
        _ => "",
    };
    format!("cannot register {bytes} bytes of memory: {error}{advice}")
}

/// Why a connection cannot be set up.
pub(super) fn connection(error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            "; no route from this port to the peer's: check addresses and cable"
        }
        Some(libc::ETIMEDOUT) => {
            "; nobody answers for the peer's address: check cable, VLAN and RINGFOLD_IB_GID_INDEX"
        }
        Some(libc::ENOMEM) => "; too little memory, or `ulimit -l` too small",
        _ => "",
    };
    format!("{error}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_retries_are_told_in_words() {
        let text = status(12, 0x81, "rank 5 (10.1.0.2)", silence(14, 3));
        assert!(text.starts_with(
            "retries exhausted: rank 5 (10.1.0.2) did not answer for 0.3 s; cable, port or process"
        ));
        assert!(status(2, 0, "rank 5", silence(14, 3)).contains("went down"));
    }
}
