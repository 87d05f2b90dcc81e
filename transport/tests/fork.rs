//! A child process made by `fork` and its parent's connections. In a program of its own, since the
//! child inherits everything that the parent has.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use ringfold_transport::{Process, close_in_children, fork_for_test};

#[test]
fn a_child_closes_registered_connections() {
    let (kept, mut peer) = UnixStream::pair().unwrap();
    let (hidden, mut other) = UnixStream::pair().unwrap();
    close_in_children(kept.as_fd());
    let here = Process::this();
    fork_for_test(move || {
        assert!(!here.is_this());
        sleep(Duration::from_secs(5));
    })
    .unwrap();
    assert!(here.is_this());
    drop((kept, hidden));
    peer.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    other.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the end of the connection");
    assert!(other.read(&mut [0]).is_err(), "the child has the other one");
}
