//! The certainty of an answer, and its reason.

use std::fmt;

/// How certain an answer about the machine or the fabric is. Only `Certain` answers change how data
/// moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// The evidence does not answer the question.
    #[default]
    Unknown,
    /// The evidence fits, but another answer would fit as well.
    Likely,
    /// The evidence leaves no other answer.
    Certain,
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::Likely => "likely",
            Self::Certain => "certain",
        })
    }
}

/// An answer with its certainty and its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<T> {
    /// The answer.
    pub value: T,
    /// Its certainty.
    pub certainty: Certainty,
    /// The evidence, as one sentence for people.
    pub because: String,
}
