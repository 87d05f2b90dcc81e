//! The decoder against streams that are cut at random points, and against noise.

use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

fn frames() -> impl Strategy<Value = Vec<(u32, Vec<u8>)>> {
    prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 1..300)), 1..20)
}

fn encode(frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let frame = |(tag, bytes): &(u32, Vec<u8>)| {
        [&Header { tag: *tag, len: bytes.len() }.encode()[..], bytes].concat()
    };
    frames.iter().flat_map(frame).collect()
}

/// Appends as much of `wire` as fits, up to `limit`.
fn feed(staging: &mut Staging, wire: &mut &[u8], limit: usize) {
    let free = staging.free();
    let count = free.len().min(wire.len()).min(limit);
    free[..count].copy_from_slice(&wire[..count]);
    *wire = &wire[count..];
    staging.filled(count);
}

proptest! {
    #[test]
    fn frames_survive_any_cut(
        frames in frames(),
        capacity in 64_usize..1024,
        reads in prop::collection::vec(1_usize..200, 1..50),
        takes in prop::collection::vec(1_usize..20, 1..50),
    ) {
        let wire = encode(&frames);
        let mut wire = &wire[..];
        let mut staging = Staging::new(capacity);
        let (mut reads, mut takes) = (reads.iter().cycle(), takes.iter().cycle());
        let mut fruitless = 0;
        for (tag, payload) in &frames {
            let mut got = Vec::new();
            while got.len() < payload.len() {
                feed(&mut staging, &mut wire, *reads.next().unwrap());
                let Some(lent) = staging.lent() else {
                    fruitless += 1;
                    prop_assert!(fruitless < 10_000, "stuck with {} bytes", staging.live());
                    continue;
                };
                prop_assert_eq!(lent.tag, *tag);
                let end = got.len() + lent.bytes.len();
                prop_assert!(end == payload.len() || end % FRAGMENT_ALIGN == 0);
                let count = lent.bytes.len().min(takes.next().unwrap() * 16);
                got.extend_from_slice(&lent.bytes[..count]);
                staging.take(count);
            }
            prop_assert_eq!(&got, payload);
        }
        prop_assert_eq!(staging.live(), 0);
    }

    #[test]
    fn noise_is_refused_or_understood_but_never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        read in 1_usize..200,
    ) {
        let mut wire = &noise[..];
        let mut staging = Staging::new(256);
        while !wire.is_empty() && staging.bad().is_none() {
            feed(&mut staging, &mut wire, read);
            let count = staging.lent().map_or(0, |lent| lent.bytes.len());
            staging.take(count);
        }
    }

    #[test]
    fn bytes_after_a_bad_header_are_not_lent(frames in frames(), noise in any::<[u8; 40]>()) {
        let mut wire = encode(&frames);
        wire.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        wire.extend_from_slice(&noise);
        let mut wire = &wire[..];
        let mut staging = Staging::new(512);
        let mut seen = 0;
        while staging.bad().is_none() {
            feed(&mut staging, &mut wire, 100);
            let count = staging.lent().map_or(0, |lent| lent.bytes.len());
            staging.take(count);
            seen += count;
        }
        prop_assert_eq!(staging.bad(), Some(BadHeader::Empty));
        prop_assert_eq!(staging.lent(), None);
        prop_assert_eq!(seen, frames.iter().map(|(_, bytes)| bytes.len()).sum::<usize>());
    }
}

#[test]
fn a_full_staging_always_lends() {
    let payload = vec![1; 5000];
    let wire = encode(&[(9, payload)]);
    let mut staging = Staging::new(64);
    let mut wire = &wire[..];
    feed(&mut staging, &mut wire, 20);
    while !wire.is_empty() {
        feed(&mut staging, &mut wire, usize::MAX);
        let before = wire.len();
        feed(&mut staging, &mut wire, usize::MAX);
        if before == wire.len() {
            let lent = staging.lent().expect("a full buffer has whole elements").bytes.len();
            staging.take(lent.min(16));
        }
    }
}

#[test]
fn lengths_beyond_the_limit_are_refused() {
    let header = [0, 0, 0, 0, 1, 0xf8, 1, 0];
    assert_eq!(Header::decode(header), Err(BadHeader::TooLong));
    let header = [1, 2, 3, 4, 0, 0xf8, 1, 0];
    assert_eq!(Header::decode(header), Ok(Header { tag: 0x0403_0201, len: 126 * 1024 }));
    assert_eq!(Header { tag: 0x0403_0201, len: 126 * 1024 }.encode(), header);
}
