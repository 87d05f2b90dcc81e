//! Tests the client against a launcher thread that speaks the protocol.

use std::io::{BufRead, BufReader, Write};
use std::thread;

use proptest::prelude::*;

use super::*;

/// Answers each line as the script says, and checks that it is the expected line.
pub(crate) fn launcher(
    mut socket: UnixStream,
    script: &'static [(&str, &str)],
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
        for (expected, answer) in script {
            assert_eq!(lines.next().unwrap().unwrap(), *expected);
            // Sends two pieces, because a line need not arrive at once.
            let (a, b) = answer.split_at(answer.len() / 2);
            socket.write_all(a.as_bytes()).unwrap();
            socket.write_all(b.as_bytes()).unwrap();
        }
    })
}

pub(crate) const OPENING: [(&str, &str); 4] = [
    (
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    ),
    ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=20\n"),
    ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_77_0\n"),
    (
        "cmd=get kvsname=kvs_77_0 key=PMI_process_mapping",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n",
    ),
];

fn open(socket: UnixStream) -> Result<Client, PmiError> {
    Client::open(socket.into(), Duration::from_secs(10))
}

#[test]
fn a_whole_session() {
    const SCRIPT: [(&str, &str); 8] = [
        OPENING[0],
        OPENING[1],
        OPENING[2],
        OPENING[3],
        (
            "cmd=put kvsname=kvs_77_0 key=coordinator value=127.0.0.1:5",
            "cmd=put_result rc=0 msg=success\n",
        ),
        ("cmd=barrier_in", "cmd=barrier_out\n"),
        (
            "cmd=get kvsname=kvs_77_0 key=coordinator",
            "cmd=get_result rc=0 msg=success value=10.0.0.1:5\n",
        ),
        ("cmd=finalize", "cmd=finalize_ack\n"),
    ];
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = launcher(theirs, &SCRIPT);
    let mut client = open(ours).unwrap();
    assert_eq!((client.space(), client.is_one_host()), ("kvs_77_0", true));
    client.put("coordinator", "127.0.0.1:5").unwrap();
    assert!(matches!(
        client.put("coordinator", "a value of more than twenty bytes"),
        Err(PmiError::ValueTooLong { max: 20, .. })
    ));
    client.barrier().unwrap();
    assert_eq!(client.get("coordinator").unwrap(), "10.0.0.1:5");
    client.finalize().unwrap();
    server.join().unwrap();
}

#[test]
fn a_missing_key_a_foreign_answer_and_an_end_are_errors() {
    const NO_KEY: [(&str, &str); 5] = [
        OPENING[0],
        OPENING[1],
        OPENING[2],
        OPENING[3],
        (
            "cmd=get kvsname=kvs_77_0 key=coordinator",
            "cmd=get_result rc=-1 msg=key_coordinator_not_found\n",
        ),
    ];
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = launcher(theirs, &NO_KEY);
    let missing = open(ours).unwrap().get("coordinator").unwrap_err().to_string();
    assert!(missing.contains("key_coordinator_not_found"), "{missing}");
    server.join().unwrap();

    const FOREIGN: [(&str, &str); 1] = [(OPENING[0].0, "HTTP/1.1 400 Bad Request\n")];
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = launcher(theirs, &FOREIGN);
    assert!(matches!(open(ours), Err(PmiError::Unexpected { .. })));
    server.join().unwrap();

    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    assert!(matches!(open(ours), Err(PmiError::Io { .. })));
}

#[test]
fn mappings() {
    assert!(is_one_host("(vector,(0,1,4))"));
    assert!(is_one_host("(vector,(0,1,4),(0,1,1))"));
    assert!(!is_one_host("(vector,(0,2,4))"));
    assert!(!is_one_host("(vector,(0,1,4),(1,1,4))"));
    assert!(!is_one_host(""));
}

proptest! {
    #[test]
    fn any_bytes_give_lines_or_an_error(pieces in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..2000), 0..8)
    ) {
        let mut unread = Vec::new();
        'all: for piece in pieces {
            unread.extend(piece);
            loop {
                match next_line(&mut unread) {
                    Ok(Some(line)) => {
                        let _ = (field(&line, "cmd"), is_one_host(&line));
                    }
                    Ok(None) => {
                        prop_assert!(unread.len() <= limits::PMI_LINE_BYTES_MAX);
                        break;
                    }
                    Err(_) => break 'all,
                }
            }
        }
    }
}
