//! The reason why a file is refused.

use std::fmt;

/// The reason why a file is refused, with its line and the value in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file's name, as the caller gave it.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The reason, and the remedy.
    pub reason: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

impl std::error::Error for Error {}

/// A line and a reason. A reader does not know the file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Reason {
    pub(super) fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }

    pub(super) fn of(self, file: &str) -> Error {
        Error { file: file.to_owned(), line: self.line, reason: self.text }
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self { line: error.line, text: error.reason }
    }
}

/// An error of the JSON parser in a text that begins on line `first`.
pub(super) fn syntax(first: usize, error: &serde_json::Error) -> Reason {
    let text = error.to_string();
    // The parser puts the place at the end of the text. Here it comes first.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let cut = if error.is_eof() { ": the file is cut off" } else { "" };
    let column = error.column();
    Reason::new(first + error.line().max(1) - 1, format!("column {column}: {text}{cut}"))
}
