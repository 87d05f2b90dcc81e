//! Every source of a secret, on real files and descriptors.

use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use super::*;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringfold-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

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
    assert!(matches!(find("RINGFOLD_SECRET_FD", "987654"), Err(SecretError::Unreadable { .. })));
    assert!(matches!(find("RINGFOLD_SECRET_FD", "x"), Err(SecretError::Malformed { .. })));
}

#[test]
fn an_inherited_file_is_read_whole_wherever_another_reader_left_its_offset() {
    let folder = Folder::new("secret-offset");
    let secret = Secret::generate().unwrap();
    let path = folder.0.join("s");
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
    let folder = Folder::new("secret-file");
    let path = folder.0.join("s");
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
    let folder = Folder::new("secret-home");
    let home = folder.0.to_str().unwrap();
    let secrets: Vec<Secret> = thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| find("HOME", home).unwrap())).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(secrets.iter().all(|s| *s == secrets[0]));
    let files: Vec<_> = fs::read_dir(folder.0.join(".ringfold")).unwrap().collect();
    assert_eq!(files.len(), 1, "drafts are cleared away");
    let mode = files[0].as_ref().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(find("OTHER", "x"), Err(SecretError::NoHome)));
}
