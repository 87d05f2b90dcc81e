//! Files that commands write after a measurement.

use std::fs;
use std::io::{Seek as _, Write as _};

use anyhow::Context;

/// Bytes that a new file reserves before the measurement begins.
const RESERVED: usize = 1 << 20;

/// A file that is written whole: a reader sees the old or the new contents, never a part. It is
/// made before the measurement, which ends at once if the results have no place.
pub(crate) struct NewFile {
    flag: &'static str,
    path: String,
    file: fs::File,
    is_done: bool,
}

impl NewFile {
    /// Makes a file beside that of `path`, which `flag` names, with blanks that reserve room.
    pub(crate) fn create(flag: &'static str, path: &str) -> anyhow::Result<Self> {
        if path.is_empty() || path.ends_with('/') || fs::metadata(path).is_ok_and(|it| it.is_dir())
        {
            anyhow::bail!("{flag} {path:?}: it is no file; give the name of one");
        }
        let file = fs::File::create(beside(path)).with_context(|| cannot_write(flag, path))?;
        let mut new = Self { flag, path: path.to_owned(), file, is_done: false };
        new.file
            .write_all(" ".repeat(RESERVED).as_bytes())
            .with_context(|| cannot_write(flag, path))?;
        Ok(new)
    }

    /// Puts the file with this text in the place of the old one.
    pub(crate) fn finish(mut self, text: &str) -> anyhow::Result<()> {
        let about = || cannot_write(self.flag, &self.path);
        self.file.rewind().with_context(about)?;
        self.file.write_all(text.as_bytes()).with_context(about)?;
        self.file.set_len(text.len() as u64).with_context(about)?;
        fs::rename(beside(&self.path), &self.path).with_context(about)?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_done {
            fs::remove_file(beside(&self.path)).ok();
        }
    }
}

fn beside(path: &str) -> String {
    format!("{path}.new")
}

fn cannot_write(flag: &str, path: &str) -> String {
    format!(
        "{flag} {path}: cannot write it; name a file in a folder with room that you may write to"
    )
}
