//! The questions about the groups, as bytes, little-endian.
//!
//! ```text
//! 0 kind   1 group   2 a number (u64)
//! ```

/// Bytes of a position.
const POSITION_BYTES: usize = 24;

/// A question to all ranks, or to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) group: u8,
    pub(super) question: Question,
}

/// How far a rank has come in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let (kind, number): (u8, u64) = match self.question {
            Question::Positions => (1, 0),
            Question::Result(number) => (2, number),
            Question::Progress(number) => (3, number),
        };
        [&[kind, self.group][..], &number.to_le_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([kind, group], number) = bytes.split_first_chunk()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        let question = match kind {
            1 if number == 0 => Question::Positions,
            2 => Question::Result(number),
            3 => Question::Progress(number),
            _ => return None,
        };
        Some(Self { group: *group, question })
    }
}

impl Position {
    pub(super) fn encode(self, reason: &str) -> Vec<u8> {
        let [posted, arrived, seq] = [self.posted, self.arrived, self.seq].map(u64::to_le_bytes);
        [&posted, &arrived, &seq, reason.as_bytes()].concat()
    }

    /// Decodes a position. The text after it is the reason why its rank gives the group up.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &str)> {
        let (position, reason) = bytes.split_at_checked(POSITION_BYTES)?;
        let ([posted, arrived, seq], []) = position.as_chunks::<8>() else { return None };
        let [posted, arrived, seq] = [posted, arrived, seq].map(|it| u64::from_le_bytes(*it));
        let reason = str::from_utf8(reason).ok()?;
        (arrived <= posted).then_some((Self { posted, arrived, seq }, reason))
    }
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
        assert_eq!(About::decode(&[&[9], &plain[1..]].concat()), None);
    }

    #[test]
    fn answers_travel_and_nonsense_is_refused() {
        let position = Position { posted: 9, arrived: 7, seq: 1 << 33 };
        for reason in ["", "it is gone"] {
            assert_eq!(Position::decode(&position.encode(reason)), Some((position, reason)));
        }
        assert_eq!(Position::decode(&Position { arrived: 10, ..position }.encode("")), None);
        assert_eq!(Position::decode(&[0; 23]), None);
    }
}
