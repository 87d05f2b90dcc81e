//! The label of a path's end: names for people, which nothing depends on.

/// Bytes of a name.
const NAME_BYTES: usize = 64;
/// Bytes of both names.
pub(super) const LABEL_BYTES: usize = 2 * NAME_BYTES;

/// The names of the host, and of the device and port. Longer names are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathLabel {
    pub(super) host: String,
    pub(super) port: String,
}

impl PathLabel {
    /// Writes the label to the front of `bytes`, which are zero.
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        let places = bytes.chunks_exact_mut(NAME_BYTES);
        for (name, into) in [&self.host, &self.port].into_iter().zip(places) {
            into.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        }
    }

    /// Reads the label from the front of `bytes`. Every byte that is not printable becomes `?`,
    /// because the names appear in logs and terminals.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let visible = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' };
        let name = |at: usize| {
            let bytes = bytes[at..at + NAME_BYTES].iter().take_while(|byte| **byte != 0);
            bytes.map(visible).collect()
        };
        Self { host: name(0), port: name(NAME_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_visible_and_short() {
        for (told, heard) in [
            ("h2", "h2"),
            ("", ""),
            ("two words", "two?words"),
            ("\u{1b}[2J\n\u{7f}", "?[2J??"),
            ("h\u{f6}", "h??"),
            ("ends\0here", "ends"),
            (&"long".repeat(20)[..], &"long".repeat(16)[..]),
        ] {
            let mut bytes = [0; LABEL_BYTES + 1];
            PathLabel { host: told.to_owned(), port: told.to_owned() }.encode(&mut bytes);
            let path_label = PathLabel::decode(&bytes);
            assert_eq!((&path_label.host[..], &path_label.port[..]), (heard, heard));
        }
    }
}
