//! The part of a rank that answers inquiries of other ranks.

use std::fmt;

/// The part of a rank that answers inquiries. Its methods run on the control thread and must not
/// block.
pub trait Respondent: fmt::Debug + Send + Sync {
    /// Answers a question. The same question may come again.
    fn answer(&self, question: &[u8]) -> Vec<u8>;

    /// Takes the answers to a question. A question to all ranks has the answers of all in rank
    /// order, on every rank; that of a rank without a respondent, or one that has left, is empty. A
    /// question to one rank has that rank's answer, on the rank that asked. They may come again.
    fn conclude(&self, question: &[u8], answers: &[Vec<u8>]);
}
