//! A temporary folder of a test.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder that every user may enter. Dropping it removes it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty folder.
    ///
    /// # Panics
    /// If there is no room.
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringfold-{}-{count}", std::process::id()));
        // A dead process of the same number may have left one.
        fs::remove_dir_all(&path).ok();
        fs::create_dir(&path).expect("there is room");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, whether or not there is one.
    ///
    /// # Panics
    /// If the path is not UTF-8.
    #[must_use]
    pub fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path of UTF-8").to_owned()
    }

    /// Writes a file, with its folders, and returns its path.
    ///
    /// # Panics
    /// If there is no room.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("there is room");
        fs::write(path, text).expect("there is room");
        self.at(name)
    }

    /// Writes a program of text, and returns its path.
    ///
    /// # Panics
    /// If there is no room.
    pub fn program(&self, name: &str, text: &str) -> String {
        let path = self.at(name);
        // Another process writes it. A file that is open for writing cannot be executed, and
        // processes that this one forks meanwhile would keep it open.
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\"", &path]).stdin(Stdio::piped());
        let mut shell = shell.spawn().expect("there is a shell");
        let written = shell.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
        let status = shell.wait().expect("it is our child");
        assert!(matches!(written, Some(Ok(()))) && status.success(), "{path}: {status}");
        path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
