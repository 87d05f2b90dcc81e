//! Counts the bytes that this process sends, and the ways that it loses, in words that other
//! processes may read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfold_types::Way;

/// The words that count traffic: for each way its bytes, and then for each way its losses.
pub const TRAFFIC_WORDS: usize = 2 * Way::COUNT;

static WORDS: OnceLock<&'static [AtomicU64]> = OnceLock::new();

/// Counts the traffic of this process from now on in these `TRAFFIC_WORDS` words. Only the first
/// call counts.
pub fn count_traffic(words: &'static [AtomicU64]) {
    WORDS.get_or_init(|| words);
}

/// Counts bytes that this process has sent. It takes a few nanoseconds.
#[inline]
pub fn sent(way: Way, bytes: usize) {
    add(way.index(), bytes as u64);
}

/// Counts a way that is lost while others carry its bytes on.
pub(crate) fn failed_over(way: Way) {
    add(Way::COUNT + way.index(), 1);
}

#[inline]
fn add(index: usize, more: u64) {
    if let Some(word) = WORDS.get().and_then(|words| words.get(index)) {
        word.fetch_add(more, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_counted_by_way() {
        let words: Vec<AtomicU64> = (0..TRAFFIC_WORDS).map(|_| AtomicU64::new(0)).collect();
        let words: &'static [AtomicU64] = Box::leak(words.into_boxed_slice());
        count_traffic(words);
        // Other tests of this process may send meanwhile, but by none of these ways.
        let (way, other) = (Way::Tcp(Some(14)), Way::Rdma(15));
        sent(way, 70);
        sent(way, 7);
        failed_over(other);
        let of = |index: usize| words[index].load(Ordering::Relaxed);
        assert_eq!((of(way.index()), of(Way::COUNT + way.index())), (77, 0));
        assert_eq!((of(other.index()), of(Way::COUNT + other.index())), (0, 1));
    }
}
