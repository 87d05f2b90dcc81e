//! The job's secret: 32 bytes that make a process a member of the job.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use super::inherited;
use super::pmi::error::PmiError;

/// The job's secret. It is never printed, and is overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

const SECRET_BYTES: usize = 32;
/// The most bytes to read: more than a secret in hex and a newline. A longer text is no secret.
const TEXT_BYTES_MAX: usize = 128;

/// Advice for ranks that hold different secrets.
pub(crate) const WAYS_TO_SHARE: &str = "give every rank the same one, by RINGFOLD_SECRET_FILE (a \
    file that each host can read), by RINGFOLD_SECRET (its 64 hexadecimal digits), or by a \
    launcher that carries one (ringrun, torchrun, mpiexec of MPICH, mpirun of Open MPI 4); \
    without those it is ~/.ringfold/secret, which hosts share only if they share the home \
    directory";

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The source does not hold a secret.
    #[error("{place} does not hold a secret: 64 hexadecimal digits are expected")]
    Malformed {
        /// The source of the secret.
        place: String,
    },
    /// The source cannot be read.
    #[error("cannot read the secret from {place}")]
    Unreadable {
        /// The source of the secret.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// Other users may read the file.
    #[error("{} may be read by others (mode {mode:o}): chmod 600 {}",
        path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file belongs to another user.
    #[error("{} belongs to user {uid}, not to you: make your own, or chown it", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// The file in the home directory cannot be made.
    #[error("cannot make {} (set RINGFOLD_SECRET_FILE to a file that every rank can read)",
        path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The launcher's key-value space, which carries the secret, failed.
    #[error("cannot share a secret by the launcher's key-value space (PMI-1)")]
    Pmi(#[from] PmiError),
    /// Neither a secret nor a home directory is set.
    #[error("no secret: set RINGFOLD_SECRET_FILE (or HOME, to keep one in ~/.ringfold/secret)")]
    NoHome,
}

impl Secret {
    /// Makes a secret of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// The secret derived from a key which a launcher has given to the ranks of a job alone.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        Self(
            Sha256::new()
                .chain_update(b"ringfold launcher key")
                .chain_update(key)
                .finalize()
                .into(),
        )
    }

    /// Generates a fresh random secret.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    /// The secret that the user or `ringrun` names: the first of these variables that is set.
    /// `RINGFOLD_SECRET_FD` is an inherited file descriptor, read to its end. `RINGFOLD_SECRET`
    /// holds the secret in hex. `RINGFOLD_SECRET_FILE` names a file in hex that belongs to this
    /// user and is closed to others. Returns `None` if no variable is set.
    ///
    /// # Errors
    /// The named source does not hold a secret, or others can read it.
    pub fn given(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, SecretError> {
        if let Some(number) = variable("RINGFOLD_SECRET_FD") {
            return Self::from_fd(&number).map(Some);
        }
        if let Some(hex) = variable("RINGFOLD_SECRET").map(Zeroizing::new) {
            let malformed = || SecretError::Malformed { place: "RINGFOLD_SECRET".into() };
            return Self::parse(hex.as_bytes()).ok_or_else(malformed).map(Some);
        }
        variable("RINGFOLD_SECRET_FILE").map(|path| Self::from_file(Path::new(&path))).transpose()
    }

    /// The secret in `.ringfold/secret` below `HOME`, made on first use.
    ///
    /// # Errors
    /// `HOME` is not set, or the file cannot be made, or others can read it.
    pub fn at_home(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, SecretError> {
        let home = variable("HOME").filter(|h| !h.is_empty()).ok_or(SecretError::NoHome)?;
        Self::from_home(Path::new(&home), "secret")
    }

    /// The site's secret, which opens the control port of aggregators: in `file`, or else in
    /// `.ringfold/site-secret` below `home`, made on first use.
    ///
    /// # Errors
    /// The file holds no secret, or others can read it, or there is no home directory.
    pub fn site(file: Option<&Path>, home: Option<&Path>) -> Result<Self, SecretError> {
        match (file, home) {
            (Some(file), _) => Self::from_file(file),
            (None, Some(home)) => Self::from_home(home, "site-secret"),
            (None, None) => Err(SecretError::NoHome),
        }
    }

    /// The secret in hex, to pass on by file, descriptor or environment, never by argument.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0');
        Zeroizing::new(self.0.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect())
    }

    /// Parses a secret: 64 hexadecimal digits, or 32 raw bytes. A newline may follow.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if let Ok(bytes) = <[u8; SECRET_BYTES]>::try_from(text) {
            return Some(Self(bytes));
        }
        let text = text.trim_ascii();
        if text.len() != 2 * SECRET_BYTES {
            return None;
        }
        let digit = |d: u8| char::from(d).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let mut bytes = [0; SECRET_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let &[high, low] = pair else { return None };
            *byte = digit(high)? << 4 | digit(low)?;
        }
        Some(Self(bytes))
    }

    /// The key that authenticates the data connections of `job`.
    #[must_use]
    pub fn data_key(&self, job: &str) -> [u8; SECRET_BYTES] {
        self.derive(&["data", job])
    }

    /// Derives a key for one purpose, named by labels: HMAC-SHA256 over the labels, each with its
    /// length.
    #[must_use]
    pub fn derive(&self, labels: &[&str]) -> [u8; SECRET_BYTES] {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = <Hmac<Sha256>>::new_from_slice(&self.0).expect("any key will do");
        mac.update(b"ringfold 1");
        for label in labels {
            mac.update(&(label.len() as u64).to_le_bytes());
            mac.update(label.as_bytes());
        }
        mac.finalize().into_bytes().into()
    }

    fn from_fd(number: &str) -> Result<Self, SecretError> {
        let place = || format!("file descriptor {number} (RINGFOLD_SECRET_FD)");
        let malformed = || SecretError::Malformed { place: place() };
        let number = number.trim().parse().map_err(|_| malformed())?;
        let text = inherited::duplicate(number).and_then(|fd| contents(File::from(fd)));
        let text = text.map_err(|source| SecretError::Unreadable { place: place(), source })?;
        Self::parse(&text).ok_or_else(malformed)
    }

    fn from_file(path: &Path) -> Result<Self, SecretError> {
        let place = || path.display().to_string();
        let unreadable = |source| SecretError::Unreadable { place: place(), source };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let (uid, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if uid != rustix::process::geteuid().as_raw() {
            return Err(SecretError::NotOurs { path: path.into(), uid });
        }
        if mode & 0o077 != 0 {
            return Err(SecretError::Exposed { path: path.into(), mode });
        }
        let text = contents(file).map_err(unreadable)?;
        Self::parse(&text).ok_or_else(|| SecretError::Malformed { place: place() })
    }

    /// Reads the file in the home directory, or makes it. Ranks that start together on a fresh home
    /// directory agree: each writes its own draft, and the draft linked first becomes the secret of
    /// all.
    fn from_home(home: &Path, name: &str) -> Result<Self, SecretError> {
        let folder = home.join(".ringfold");
        let path = folder.join(name);
        if !path.exists() {
            let unwritable = |source| SecretError::Unwritable { path: path.clone(), source };
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.and_then(|()| Self::generate())
                .and_then(|fresh| fresh.publish(&path))
                .map_err(unwritable)?;
        }
        Self::from_file(&path)
    }

    fn publish(&self, path: &Path) -> io::Result<()> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let draft = path.with_extension(format!("{:016x}", u64::from_le_bytes(nonce)));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let written = file.write_all(self.to_hex().as_bytes()).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&draft, path));
        fs::remove_file(&draft)?;
        match linked {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Reads the beginning of `file`, up to `TEXT_BYTES_MAX`.
///
/// An inherited descriptor shares its offset with other readers, such as another program or
/// communicator of the same rank. So a file is read by position. A pipe has no positions and is
/// read once.
pub(crate) fn contents(mut file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(vec![0; TEXT_BYTES_MAX]);
    let mut filled = 0;
    while filled < text.len() {
        let rest = &mut text[filled..];
        let read = match file.read_at(rest, filled as u64) {
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => file.read(rest),
            read => read,
        };
        match read {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    text.truncate(filled);
    Ok(text)
}

#[cfg(test)]
mod tests {
    //! Every source of a secret, on real files and descriptors.

    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use ringfold_harness::Folder;

    use super::*;

    fn find(name: &str, value: &str) -> Result<Secret, SecretError> {
        let variable = |n: &str| (n == name).then(|| value.to_owned());
        Secret::given(&variable)?.map_or_else(|| Secret::at_home(&variable), Ok)
    }

    #[test]
    fn hex_there_and_back() {
        let secret = Secret::generate().unwrap();
        assert_ne!(secret, Secret::generate().unwrap());
        let hex = secret.to_hex();
        assert_eq!(Secret::parse(hex.as_bytes()), Some(secret.clone()));
        assert_eq!(Secret::parse(format!("{}\n", hex.as_str()).as_bytes()), Some(secret.clone()));
        assert_eq!(find("RINGFOLD_SECRET", &hex).unwrap(), secret);
        for text in ["", "00", &format!("{}0", hex.as_str()), &"zz".repeat(32)] {
            let error = find("RINGFOLD_SECRET", text).unwrap_err();
            assert!(matches!(error, SecretError::Malformed { .. }));
            assert!(text.is_empty() || !error.to_string().contains(text), "{error}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn keys_differ_by_label_and_by_where_labels_end() {
        let secret = Secret::new([7; 32]);
        let keys = [
            secret.data_key("a"),
            secret.data_key("b"),
            secret.derive(&["dat", "aa"]),
            Secret::new([8; 32]).data_key("a"),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|other| other != key));
        }
    }

    #[test]
    fn an_inherited_pipe() {
        let secret = Secret::generate().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(secret.to_hex().as_bytes()).unwrap();
        drop(writer);
        assert_eq!(find("RINGFOLD_SECRET_FD", &reader.as_raw_fd().to_string()).unwrap(), secret);
        assert!(matches!(
            find("RINGFOLD_SECRET_FD", "987654"),
            Err(SecretError::Unreadable { .. })
        ));
        assert!(matches!(find("RINGFOLD_SECRET_FD", "x"), Err(SecretError::Malformed { .. })));
    }

    #[test]
    fn an_inherited_file_is_read_whole_wherever_another_reader_left_its_offset() {
        let folder = Folder::new();
        let secret = Secret::generate().unwrap();
        let path = folder.path().join("s");
        fs::write(&path, secret.to_hex().as_bytes()).unwrap();
        let mut file = File::open(&path).unwrap();
        let number = file.as_raw_fd().to_string();
        file.seek(io::SeekFrom::Start(10)).unwrap();
        assert_eq!(find("RINGFOLD_SECRET_FD", &number).unwrap(), secret);
        assert_eq!(file.stream_position().unwrap(), 10, "the offset belongs to all readers");
        thread::scope(|scope| {
            let read = || (0..500).all(|_| find("RINGFOLD_SECRET_FD", &number).unwrap() == secret);
            let readers = [(); 4].map(|()| scope.spawn(read));
            assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
        });
    }

    #[test]
    fn a_file_must_be_closed_to_others() {
        let folder = Folder::new();
        let path = folder.path().join("s");
        let secret = Secret::generate().unwrap();
        fs::write(&path, secret.to_hex().as_bytes()).unwrap();
        let name = path.to_str().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = find("RINGFOLD_SECRET_FILE", name).unwrap_err().to_string();
        assert!(error.contains("(mode 640): chmod 600 "), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(find("RINGFOLD_SECRET_FILE", name).unwrap(), secret);
    }

    #[test]
    fn ranks_that_start_at_once_in_a_fresh_home_agree() {
        let folder = Folder::new();
        let home = folder.path().to_str().unwrap();
        let secrets: Vec<Secret> = thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| find("HOME", home).unwrap())).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|s| *s == secrets[0]));
        let files: Vec<_> = fs::read_dir(folder.path().join(".ringfold")).unwrap().collect();
        assert_eq!(files.len(), 1, "drafts are cleared away");
        let mode = files[0].as_ref().unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(find("OTHER", "x"), Err(SecretError::NoHome)));
    }
}
