//! The questions about the terms of groups, as bytes, little-endian.
//!
//! ```text
//! 0 kind   1 group   2 term (u32)   6 a number (u64)   14 ticket
//! ```

use ringfold_types::limits::OFFLOAD_TICKET_BYTES_MAX;

/// Bytes before the ticket.
const HEAD_BYTES: usize = 14;

/// A question to all ranks, or to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// How far has each member come? The answer is a `Position`, and nothing moves after it.
    Positions,
    /// Asks for the result of this chunk. The answer is 1 and its bytes.
    Result(u64),
    /// Each member begins to connect to a new term. The answer is 1.
    Connect(Vec<u8>),
    /// Has each member connected, and in which call is it? The answer is a `Readiness`. The number
    /// is that of the attempt.
    Ready(u64),
    /// How far has each member come? The answer is a `Position`, and everything goes on. The number
    /// tells such questions apart.
    Progress(u64),
}

/// A question, with the group and the term that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) group: u8,
    pub(super) term: u32,
    pub(super) question: Question,
}

/// How far a rank has come in a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Chunks handed over, if the rank is a member.
    pub(super) posted: u64,
    /// Results that have arrived, if it is one.
    pub(super) arrived: u64,
    /// The latest call that uses groups.
    pub(super) seq: u64,
}

/// Whether a member can use a new term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Readiness {
    pub(super) is_ready: bool,
    /// Its latest call.
    pub(super) seq: u64,
}

impl About {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, number, ticket): (u8, u64, &[u8]) = match &self.question {
            Question::Positions => (1, 0, &[]),
            Question::Result(number) => (2, *number, &[]),
            Question::Connect(ticket) => (3, 0, ticket),
            Question::Ready(attempt) => (4, *attempt, &[]),
            Question::Progress(number) => (5, *number, &[]),
        };
        let mut bytes = vec![kind, self.group];
        bytes.extend(self.term.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(ticket);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, ticket) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, group, a, b, c, d, number @ ..] = *head;
        let number = u64::from_le_bytes(number);
        let question = match kind {
            1 if number == 0 => Question::Positions,
            2 => Question::Result(number),
            3 if ticket.len() <= OFFLOAD_TICKET_BYTES_MAX => Question::Connect(ticket.to_vec()),
            4 => Question::Ready(number),
            5 => Question::Progress(number),
            _ => return None,
        };
        let has_ticket = matches!(question, Question::Connect(_));
        let term = u32::from_le_bytes([a, b, c, d]);
        (has_ticket || ticket.is_empty()).then_some(Self { group, term, question })
    }
}

impl Position {
    pub(super) fn encode(self) -> Vec<u8> {
        [self.posted, self.arrived, self.seq].map(u64::to_le_bytes).concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([posted, arrived, seq], []) = bytes.as_chunks::<8>() else { return None };
        let [posted, arrived, seq] = [posted, arrived, seq].map(|it| u64::from_le_bytes(*it));
        (arrived <= posted).then_some(Self { posted, arrived, seq })
    }
}

impl Readiness {
    pub(super) fn encode(self) -> Vec<u8> {
        [&[u8::from(self.is_ready)][..], &self.seq.to_le_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (is_ready, seq) = bytes.split_first()?;
        let seq = u64::from_le_bytes(seq.try_into().ok()?);
        Some(Self { is_ready: *is_ready == 1, seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_travel_and_nonsense_is_refused() {
        let about = |question| About { group: 7, term: 70_000, question };
        for question in [
            Question::Positions,
            Question::Result(1 << 40),
            Question::Connect(vec![1, 2, 3]),
            Question::Ready(5),
            Question::Progress(1 << 50),
        ] {
            let about = about(question);
            assert_eq!(About::decode(&about.encode()), Some(about));
        }
        let plain = about(Question::Positions).encode();
        for len in 0..plain.len() {
            assert_eq!(About::decode(&plain[..len]), None, "{len} bytes");
        }
        assert_eq!(About::decode(&[&plain[..], &[0]].concat()), None);
        assert_eq!(About::decode(&[&[9], &plain[1..]].concat()), None);
        let long = about(Question::Connect(vec![0; OFFLOAD_TICKET_BYTES_MAX + 1]));
        assert_eq!(About::decode(&long.encode()), None);
    }

    #[test]
    fn answers_travel_and_nonsense_is_refused() {
        let position = Position { posted: 9, arrived: 7, seq: 1 << 33 };
        assert_eq!(Position::decode(&position.encode()), Some(position));
        assert_eq!(Position::decode(&Position { arrived: 10, ..position }.encode()), None);
        assert_eq!(Position::decode(&[0; 23]), None);
        let readiness = Readiness { is_ready: true, seq: 1 << 33 };
        assert_eq!(Readiness::decode(&readiness.encode()), Some(readiness));
        assert_eq!(Readiness::decode(&[1; 8]), None);
    }
}
