//! The questions about the groups, and their answers.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A question to all ranks, or to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Question {
    /// How far has each member come? The answer is a `Position`, and nothing moves after it.
    Positions,
    /// Asks for the result of this chunk. The answer is 1 and its bytes.
    Result(u64),
    /// How far has each member come? The answer is a `Position`, and everything goes on. The number
    /// tells such questions apart.
    Progress(u64),
}

/// A question, with the group that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) group: u8,
    pub(super) question: Question,
}

/// How far a rank has come in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Chunks handed over, if the rank is a member.
    pub(super) posted: u64,
    /// Results that have arrived, if it is one.
    pub(super) arrived: u64,
    /// The latest call that uses groups.
    pub(super) seq: u64,
}

impl About {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

impl Position {
    /// Encodes a position, and the reason why its rank gives the group up.
    pub(super) fn encode(self, reason: &str) -> Vec<u8> {
        encode(&(self, reason))
    }

    /// Decodes a position, and the reason why its rank gives the group up.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, String)> {
        decode(bytes).filter(|(position, _): &(Self, String)| position.arrived <= position.posted)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).unwrap_or_default()
}

/// Decodes a message that takes all bytes.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(it, _)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_travel_and_nonsense_is_refused() {
        let about = |question| About { group: 7, question };
        for question in
            [Question::Positions, Question::Result(1 << 40), Question::Progress(1 << 50)]
        {
            let about = about(question);
            assert_eq!(About::decode(&about.encode()), Some(about));
        }
        let plain = about(Question::Positions).encode();
        for len in 0..plain.len() {
            assert_eq!(About::decode(&plain[..len]), None, "{len} bytes");
        }
        assert_eq!(About::decode(&[&plain[..], &[0]].concat()), None);
        assert_eq!(About::decode(&[7, 9]), None);
    }

    #[test]
    fn answers_travel_and_nonsense_is_refused() {
        let position = Position { posted: 9, arrived: 7, seq: 1 << 33 };
        for reason in ["", "it is gone"] {
            assert_eq!(
                Position::decode(&position.encode(reason)),
                Some((position, reason.to_owned()))
            );
        }
        assert_eq!(Position::decode(&Position { arrived: 10, ..position }.encode("")), None);
        assert_eq!(Position::decode(&[0; 23]), None);
    }
}
