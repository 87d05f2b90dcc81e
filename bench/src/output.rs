//! The file of `-J`.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use serde_json::json;

use crate::args::Args;
use crate::timestamp::timestamp;

/// Bytes of the results that the file reserves for each row.
const ROW_BYTES: usize = 1024;

/// The most bytes that the file reserves.
const RESERVED_MAX: usize = 1 << 20;

/// The file of `-J`, open for the results.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
}

impl OutputFile {
    /// Opens the file if the command line names one. Writes a document without results, and blanks
    /// that reserve room for `rows` rows. So a run ends at its start if the results have no place.
    pub(crate) fn open(args: &Args, rows: usize) -> anyhow::Result<Option<Self>> {
        let Some(path) = args.output_file.clone() else { return Ok(None) };
        if path.extension().is_none_or(|extension| extension != "json") {
            bail!("-J {}: the name must end in .json", path.display());
        }
        let about = || format!("-J {}: cannot write the results there", path.display());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        // A pipe without a reader must not hold the run.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let mut file = options.custom_flags(flags).open(&path).with_context(about)?;
        let kind = file.metadata().with_context(about)?.file_type();
        if kind.is_fifo() || kind.is_socket() {
            bail!("-J {}: give a file, not a pipe", path.display());
        }
        let command: Vec<String> = std::env::args().collect();
        let begun = json!({
            "version": 3, "start_time": timestamp(), "args": command,
            "errors": ["the run has not ended"],
        });
        let room = " ".repeat(rows.saturating_mul(ROW_BYTES).min(RESERVED_MAX));
        writeln!(file, "{begun}{room}").with_context(about)?;
        Ok(Some(Self { path, file }))
    }

    /// Writes the results in place of all else.
    pub(crate) fn write(mut self, text: &str) -> anyhow::Result<()> {
        let mut write = || {
            self.file.rewind()?;
            self.file.write_all(text.as_bytes())?;
            // Devices have no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(text.len() as u64)?;
                self.file.sync_all()?;
            }
            std::io::Result::Ok(())
        };
        write().with_context(|| format!("-J {}: cannot write the results", self.path.display()))
    }
}
