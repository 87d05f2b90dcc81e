//! Writes the files of `ringfold topo`, and replaces existing files only with `--force`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Writes a file. An existing file is an error without `force`. With `force` it is replaced whole:
/// if writing fails, the old file stays.
pub(super) fn save(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if force {
        let beside = beside(path);
        return fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, path))
            .inspect_err(|_| fs::remove_file(&beside).unwrap_or_default())
            .with_context(failed);
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).with_context(failed),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} exists; --force replaces it", path.display())
        }
        Err(error) => Err(error).with_context(failed),
    }
}

/// Returns a temporary name in the same folder, because a rename cannot cross file systems.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use ringfold_harness::Folder;

    use super::*;

    #[test]
    fn a_file_is_replaced_only_by_force() {
        let folder = Folder::new();
        let path = folder.path().join("site.json");
        save(&path, "one", false).unwrap();
        let error = save(&path, "two", false).unwrap_err().to_string();
        assert!(error.ends_with("site.json exists; --force replaces it"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        save(&path, "two", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let lost = folder.path().join("none").join("site.json");
        for force in [false, true] {
            let error = save(&lost, "x", force).unwrap_err().to_string();
            assert!(error.starts_with("cannot write "), "{error}");
        }
    }
}
