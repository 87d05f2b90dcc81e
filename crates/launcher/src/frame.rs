//! Messages as frames: a length (u32, little-endian), then that many bytes of postcard. This module
//! does no I/O.
//!
//! A node agent's stream begins with a greeting, because the login shell or agent that starts it on
//! another host may print some text first. The decoder checks each length against
//! `limits::CONTROL_BYTES_MAX` before it allocates.

use ringfold_types::limits::CONTROL_BYTES_MAX;
use serde::{Serialize, de::DeserializeOwned};

/// The first bytes of a node agent's stream. The digit is the version of these messages.
pub(crate) const GREETING: &[u8] = b"\n\x01ringfold node agent 5\n";

/// The most bytes before the greeting.
const CHATTER_MAX: usize = 64 * 1024;

/// Why a stream is not a stream of frames.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The length exceeds `limits::CONTROL_BYTES_MAX`.
    #[error("a message of {0} bytes exceeds the limit")]
    TooLong(usize),
    /// The bytes are no message.
    #[error("not a message")]
    Malformed(#[from] postcard::Error),
    /// Much text came, but no greeting.
    #[error("no greeting: check that ringrun of the same version answers; the output was: {0:?}")]
    NoGreeting(String),
}

/// Encodes `message` as a frame.
///
/// # Errors
/// The message is longer than `limits::CONTROL_BYTES_MAX`.
pub(crate) fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, FrameError> {
    let mut frame = postcard::to_extend(message, vec![0; 4])?;
    let length = frame.len() - 4;
    match u32::try_from(length) {
        Ok(short) if length <= CONTROL_BYTES_MAX => {
            frame[..4].copy_from_slice(&short.to_le_bytes());
            Ok(frame)
        }
        _ => Err(FrameError::TooLong(length)),
    }
}

/// Decodes the bytes of a stream into messages, in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    start: usize,
    greeted: bool,
    /// No greeting begins before this byte of `bytes`.
    searched: usize,
}

impl Decoder {
    /// Makes a decoder of a stream that begins with a greeting.
    #[must_use]
    pub(crate) fn after_greeting() -> Self {
        Self::default()
    }

    /// Makes a decoder of a stream of frames alone.
    #[must_use]
    pub(crate) fn plain() -> Self {
        Self { greeted: true, ..Self::default() }
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of its bytes are here.
    ///
    /// # Errors
    /// The stream is broken. No further message can be read from it.
    pub(crate) fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        if !self.greeted && !self.find_greeting()? {
            return Ok(None);
        }
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let Some((head, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length > CONTROL_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = body.get(..length) else { return Ok(None) };
        let (message, trailing) = postcard::take_from_bytes(body)?;
        if !trailing.is_empty() {
            return Err(FrameError::Malformed(postcard::Error::DeserializeBadEncoding));
        }
        self.start += 4 + length;
        Ok(Some(message))
    }

    /// The text that came instead of a greeting, for an error message.
    #[must_use]
    pub(crate) fn chatter(&self) -> Option<String> {
        let said = &self.bytes[..self.bytes.len().min(200)];
        (!self.greeted).then(|| String::from_utf8_lossy(said).trim().to_owned())
    }

    fn find_greeting(&mut self) -> Result<bool, FrameError> {
        let rest = self.bytes.get(self.searched..).unwrap_or_default();
        let found = rest.windows(GREETING.len()).position(|window| window == GREETING);
        if let Some(at) = found {
            self.start = self.searched + at + GREETING.len();
            self.greeted = true;
            return Ok(true);
        }
        // Later bytes may complete a greeting that has begun, but none begins before it.
        self.searched = (self.bytes.len() + 1).saturating_sub(GREETING.len());
        if self.bytes.len() > CHATTER_MAX {
            return Err(FrameError::NoGreeting(self.chatter().unwrap_or_default()));
        }
        Ok(self.greeted)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{CONTROL_BYTES_MAX, Decoder, FrameError, GREETING, encode};
    use crate::message::{Down, Status, Up};
    use crate::stream::Stream;

    fn all(decoder: &mut Decoder) -> Vec<Up> {
        std::iter::from_fn(|| decoder.next().unwrap()).collect()
    }

    #[test]
    fn chatter_before_the_greeting_is_skipped() {
        let mut decoder = Decoder::after_greeting();
        decoder.push(b"Welcome to node1!\n\x01ringfold");
        assert!(all(&mut decoder).is_empty());
        assert!(decoder.chatter().is_some_and(|said| said.starts_with("Welcome")));
        decoder.push(GREETING);
        decoder.push(&encode(&Up::InputTaken).unwrap());
        assert_eq!(all(&mut decoder), [Up::InputTaken]);
        assert_eq!(decoder.chatter(), None);
    }

    #[test]
    fn a_greeting_may_come_byte_by_byte_after_much_chatter() {
        let chatter = GREETING[..5].repeat(10_000);
        let mut decoder = Decoder::after_greeting();
        for byte in [&chatter[..], GREETING, &encode(&Up::Heartbeat).unwrap()].concat() {
            assert!(decoder.chatter().is_some() || decoder.searched < chatter.len() + 1);
            decoder.push(&[byte]);
            if let Some(up) = decoder.next::<Up>().unwrap() {
                assert_eq!(up, Up::Heartbeat);
                return;
            }
        }
        panic!("the greeting was missed");
    }

    #[test]
    fn endless_chatter_and_lengths_are_refused() {
        let mut decoder = Decoder::after_greeting();
        decoder.push(&vec![b'x'; 70_000]);
        assert!(matches!(decoder.next::<Up>(), Err(FrameError::NoGreeting(_))));
        let mut decoder = Decoder::plain();
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.next::<Up>(), Err(FrameError::TooLong(_))));
        let long = Down::Input(vec![0; CONTROL_BYTES_MAX]);
        assert!(matches!(encode(&long), Err(FrameError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), greeted in any::<bool>()) {
            let mut decoder = if greeted { Decoder::plain() } else { Decoder::after_greeting() };
            // Small lengths let the decoder reach the bodies.
            decoder.push(&[7, 0, 0, 0]);
            for piece in bytes.chunks(11) {
                decoder.push(piece);
                while let Ok(Some(_)) = decoder.next::<Up>() {}
            }
            let mut decoder = Decoder::plain();
            decoder.push(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
            decoder.push(&bytes);
            let _down = decoder.next::<Down>();
        }

        #[test]
        fn any_cut_gives_the_same_messages(lines in vec(any::<u8>(), 0..50), cut in 1..40_usize) {
            let sent = || vec![
                Up::Started { rank: 1, pid: 70_000 },
                Up::Output { rank: 1, stream: Stream::Err, bytes: lines.clone() },
                Up::Exited { rank: 1, status: Status::Killed(9) },
            ];
            let bytes = sent().iter().flat_map(|up| encode(up).unwrap()).collect::<Vec<_>>();
            let mut decoder = Decoder::plain();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                seen.extend(all(&mut decoder));
            }
            prop_assert_eq!(seen, sent());
        }
    }
}
