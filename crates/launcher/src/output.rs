//! Whole lines from pieces of a stream, so that the lines of two ranks never mix. Pure.

use ringfold_types::limits::LINE_BYTES_MAX;

/// Collects one stream of one rank until it has whole lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes of the stream and returns the lines that they complete, each ended by a
    /// newline. A line longer than `LINE_BYTES_MAX` is cut there as if it ended.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(bytes.len() + self.partial.len() + 1);
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
            if self.partial.ends_with(b"\n") {
                whole.append(&mut self.partial);
            } else if self.partial.len() == LINE_BYTES_MAX {
                whole.append(&mut self.partial);
                whole.push(b'\n');
            }
        }
        whole
    }

    /// What is left when the stream ends, ended by a newline; nothing if nothing is.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        rest
    }
}

/// `lines` with `tag` before each of them.
#[must_use]
pub(crate) fn tag_lines(tag: &str, lines: &[u8]) -> Vec<u8> {
    let count = lines.iter().filter(|byte| **byte == b'\n').count() + 1;
    let mut tagged = Vec::with_capacity(lines.len() + count * tag.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        tagged.extend_from_slice(tag.as_bytes());
        tagged.extend_from_slice(line);
    }
    tagged
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use proptest::sample::select;
    use ringfold_types::limits::LINE_BYTES_MAX;

    use super::{Lines, tag_lines};

    #[test]
    fn lines_come_whole() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"one"), b"");
        assert_eq!(lines.push(b" more\n\ntwo\nthr"), b"one more\n\ntwo\n");
        assert_eq!(lines.finish(), b"thr\n");
        assert_eq!(lines.finish(), b"");
    }

    #[test]
    fn endless_lines_are_cut() {
        let mut lines = Lines::default();
        let whole = lines.push(&vec![b'x'; 2 * LINE_BYTES_MAX + 5]);
        assert_eq!(whole.len(), 2 * LINE_BYTES_MAX + 2);
        assert_eq!(whole.split(|b| *b == b'\n').next().unwrap().len(), LINE_BYTES_MAX);
        assert_eq!(lines.finish(), b"xxxxx\n");
    }

    #[test]
    fn every_line_is_tagged() {
        assert_eq!(tag_lines("[3] ", b"a\n\nb\n"), b"[3] a\n[3] \n[3] b\n");
        assert_eq!(tag_lines("[3] ", b""), b"");
    }

    proptest! {
        #[test]
        fn nothing_is_lost(pieces in vec(vec(select(b"ab\n".to_vec()), 0..9), 0..30)) {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for piece in &pieces {
                let whole = lines.push(piece);
                prop_assert!(whole.is_empty() || whole.ends_with(b"\n"));
                seen.extend(whole);
            }
            seen.extend(lines.finish());
            let mut sent = pieces.concat();
            if sent.last().is_some_and(|last| *last != b'\n') {
                sent.push(b'\n');
            }
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn any_bytes_stay_bounded(pieces in vec(vec(any::<u8>(), 0..200_000), 0..4)) {
            let mut lines = Lines::default();
            for piece in &pieces {
                for line in lines.push(piece).split(|byte| *byte == b'\n') {
                    prop_assert!(line.len() <= LINE_BYTES_MAX);
                }
            }
        }
    }
}
