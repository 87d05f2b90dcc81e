//! The content of a file of any format: its text and its lines.

use ringfold_types::limits::FABRIC_FILE_BYTES_MAX;

use super::error::Reason;

/// Refuses a file that exceeds the size limit.
pub(super) fn limit(bytes: &[u8]) -> Result<(), Reason> {
    if bytes.len() > FABRIC_FILE_BYTES_MAX {
        let text = format!("the file has more than {FABRIC_FILE_BYTES_MAX} bytes, the limit");
        return Err(Reason::new(1, text));
    }
    Ok(())
}

/// The text of a file.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Reason> {
    limit(bytes)?;
    str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        Reason::new(line, "the file is not UTF-8")
    })
}

/// Lines with their numbers, without blanks at their ends. A file is cut off if its last line has
/// no end.
pub(super) fn lines(text: &str) -> Result<impl Iterator<Item = (usize, &str)>, Reason> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
    if text.ends_with('\n') || text.is_empty() {
        return Ok(lines);
    }
    Err(Reason::new(text.lines().count(), "the last line has no end: the file is cut off"))
}
