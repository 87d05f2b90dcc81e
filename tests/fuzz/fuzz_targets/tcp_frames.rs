//! Frames of a data connection that arrive in pieces, against a decoder of the whole stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfold_transport::tcp::frame::{HEADER_BYTES, Header};
use ringfold_transport::tcp::staging::Staging;

fuzz_target!(|input: (Vec<u8>, &[u8])| {
    let (pieces, stream) = input;
    let mut staging = Staging::new(256);
    let mut decoded = Vec::new();
    let mut rest = stream;
    let mut pieces = pieces.iter().map(|piece| usize::from(*piece).max(1)).cycle();
    let mut cut = || pieces.next().unwrap_or(64);
    while !rest.is_empty() && staging.bad().is_none() {
        let free = staging.free();
        let piece = cut().min(free.len()).min(rest.len());
        let (now, later) = rest.split_at(piece);
        free[..piece].copy_from_slice(now);
        staging.filled(piece);
        rest = later;
        // Sometimes only a part of the lent bytes is taken.
        while let Some(fragment) = staging.lent() {
            let taken = cut().min(fragment.bytes.len());
            decoded.extend(fragment.bytes[..taken].iter().map(|byte| (fragment.tag, *byte)));
            staging.take(taken);
            if taken == 1 {
                break;
            }
        }
    }
    while let Some(fragment) = staging.lent() {
        decoded.extend(fragment.bytes.iter().map(|byte| (fragment.tag, *byte)));
        let all = fragment.bytes.len();
        staging.take(all);
    }
    let (expected, complete) = at_once(stream);
    assert!(expected.starts_with(&decoded));
    // An incomplete element is held back.
    assert!(!complete || expected.len() == decoded.len() || !rest.is_empty());
});

/// Returns every byte of payload with its frame's tag, and whether the stream ends with a frame.
fn at_once(mut stream: &[u8]) -> (Vec<(u32, u8)>, bool) {
    let mut bytes = Vec::new();
    while let Some((header, after)) = stream.split_first_chunk::<HEADER_BYTES>() {
        let Ok(Header { tag, len }) = Header::decode(*header) else { return (bytes, false) };
        let (payload, after) = after.split_at(len.min(after.len()));
        bytes.extend(payload.iter().map(|byte| (tag, *byte)));
        if payload.len() < len {
            return (bytes, false);
        }
        stream = after;
    }
    (bytes, stream.is_empty())
}
