//! The digest of a crate's sources, for its build script. Ranks compare it when they join, so that
//! only builds of the same sources meet.
//!
//! It depends on the names and the contents of the files alone: not on the place of the checkout,
//! its version control, the target, the profile, or the ends of lines.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Has cargo define `SOURCES_DIGEST` for the crate whose build script calls this.
///
/// # Panics
/// If the sources cannot be read.
#[expect(clippy::print_stdout, reason = "cargo reads the output of build scripts")]
pub fn emit() {
    // Cargo runs a build script in the folder of its crate.
    let digest = digest(Path::new("src")).unwrap_or_else(|e| panic!("cannot read src: {e}"));
    println!("cargo::rustc-env=SOURCES_DIGEST={digest:016x}");
    println!("cargo::rerun-if-changed=src");
}

/// The FNV-1a digest of all files of Rust below `folder`.
///
/// # Errors
/// A file or folder cannot be read.
pub fn digest(folder: &Path) -> io::Result<u64> {
    let mut files = BTreeMap::new();
    collect(folder, "", &mut files)?;
    let parts = files.iter().flat_map(|(name, text)| [name.as_bytes(), &[0], text, &[0]]);
    let bytes = parts.flatten().filter(|byte| **byte != b'\r');
    Ok(bytes.fold(0xcbf2_9ce4_8422_2325, |digest: u64, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// Reads all files of Rust below `folder`, by their names from the top.
fn collect(folder: &Path, name: &str, files: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        if path.is_dir() {
            collect(&path, &name, files)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.insert(name, fs::read(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ringfold_harness::Folder;

    use super::*;

    fn of(files: &[(&str, &str)]) -> u64 {
        let folder = Folder::new();
        files.iter().for_each(|(name, text)| drop(folder.file(name, text)));
        digest(folder.path()).unwrap()
    }

    #[test]
    fn a_digest_depends_on_the_sources_alone() {
        let (lib, part) = (("lib.rs", "mod part;\n"), ("part/mod.rs", "fn f() {}\n"));
        let known = of(&[lib, part]);
        assert_eq!(of(&[part, lib]), known, "the place and the order");
        let ends = [("lib.rs", "mod part;\r\n"), part, ("notes.md", "text")];
        assert_eq!(of(&ends), known, "the ends of lines, and other files");
        for (title, files) in [
            ("change", vec![lib, ("part/mod.rs", "fn f() { }\n")]),
            ("name", vec![lib, ("part.rs", "fn f() {}\n")]),
            ("less", vec![lib]),
            ("more", vec![lib, part, ("more.rs", "")]),
            ("border", vec![("lib.rs", "mod part;\nf"), ("part/mod.rs", "n f() {}\n")]),
        ] {
            assert_ne!(of(&files), known, "{title}");
        }
        assert!(digest(Path::new("no such folder")).is_err());
    }
}
