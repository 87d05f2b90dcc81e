//! Assembles lines from pieces of a stream, so that the lines of two ranks do not mix. This module
//! does no I/O.
//!
//! It adds, removes and changes no byte, except for tags with the rank before each line.

use ringfold_types::limits::LINE_BYTES_MAX;

/// Collects one stream of one rank until it has whole lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes of the stream and returns the lines that they complete. A line longer
    /// than `LINE_BYTES_MAX` comes in unchanged pieces of that length.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(bytes.len() + self.partial.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = LINE_BYTES_MAX - self.partial.len();
            let within = &rest[..rest.len().min(room)];
            let taken = match within.iter().position(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None => within.len(),
            };
            self.partial.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if self.partial.ends_with(b"\n") || self.partial.len() == LINE_BYTES_MAX {
                whole.append(&mut self.partial);
            }
        }
        whole
    }

    /// The unfinished line at the end of the stream, unchanged.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }
}

/// Marks each line of one stream of this process with the rank that wrote it.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// The rank whose line has not ended yet.
    unfinished: Option<u32>,
}

impl Tags {
    /// Ends the unfinished line, if there is one: something else has ended it.
    pub(crate) fn end_line(&mut self) {
        self.unfinished = None;
    }

    /// Returns `bytes` of `rank` with `[rank] ` before each line. It ends an unfinished line of
    /// another rank first, so that every tag stands at the beginning of a line.
    pub(crate) fn mark(&mut self, rank: u32, bytes: &[u8]) -> Vec<u8> {
        let tag = format!("[{rank}] ");
        let count = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
        let mut marked = Vec::with_capacity(bytes.len() + count * tag.len() + 1);
        let mut at_start = self.unfinished != Some(rank);
        if at_start && self.unfinished.is_some() && !bytes.is_empty() {
            marked.push(b'\n');
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if at_start {
                marked.extend_from_slice(tag.as_bytes());
            }
            marked.extend_from_slice(line);
            at_start = line.ends_with(b"\n");
            self.unfinished = (!at_start).then_some(rank);
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use proptest::sample::select;
    use ringfold_types::limits::LINE_BYTES_MAX;

    use super::{Lines, Tags};

    #[test]
    fn lines_come_whole() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"one"), b"");
        assert_eq!(lines.push(b" more\n\ntwo\nthr"), b"one more\n\ntwo\n");
        assert_eq!(lines.finish(), b"thr");
        assert_eq!(lines.finish(), b"");
    }

    #[test]
    fn endless_lines_come_in_pieces_without_a_newline_of_ours() {
        let mut lines = Lines::default();
        let whole = lines.push(&vec![b'x'; 2 * LINE_BYTES_MAX + 5]);
        assert_eq!(whole, vec![b'x'; 2 * LINE_BYTES_MAX]);
        assert_eq!(lines.finish(), b"xxxxx");
    }

    #[test]
    fn every_line_is_tagged() {
        let mut tags = Tags::default();
        assert_eq!(tags.mark(3, b"a\n\nb\n"), b"[3] a\n[3] \n[3] b\n");
        assert_eq!(tags.mark(3, b""), b"");
    }

    #[test]
    fn a_tag_begins_a_line_and_pieces_of_one_line_have_one_tag() {
        let mut tags = Tags::default();
        assert_eq!(tags.mark(0, b"a"), b"[0] a");
        assert_eq!(tags.mark(1, b""), b"");
        assert_eq!(tags.mark(0, b"b\nc"), b"b\n[0] c");
        assert_eq!(tags.mark(1, b"d\n"), b"\n[1] d\n");
        assert_eq!(tags.mark(0, b"e\n"), b"[0] e\n");
    }

    proptest! {
        #[test]
        fn no_byte_is_added_or_lost(pieces in vec(vec(select(b"ab\n\0".to_vec()), 0..9), 0..30)) {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for piece in &pieces {
                let whole = lines.push(piece);
                prop_assert!(whole.is_empty() || whole.ends_with(b"\n"));
                seen.extend(whole);
            }
            seen.extend(lines.finish());
            prop_assert_eq!(seen, pieces.concat());
        }

        #[test]
        fn any_bytes_arrive_and_stay_bounded(pieces in vec(vec(any::<u8>(), 0..200_000), 0..4)) {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for piece in &pieces {
                seen.extend(lines.push(piece));
                prop_assert!(lines.partial.len() < LINE_BYTES_MAX);
            }
            seen.extend(lines.finish());
            prop_assert!(seen == pieces.concat(), "bytes differ");
        }
    }
}
