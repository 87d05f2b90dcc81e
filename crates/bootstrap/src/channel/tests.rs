//! Handshakes and messages over an in-memory stream, and arbitrary bytes into the decoders.

use std::future::Future;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex, split};
use tokio::runtime::Builder as Runtime;

use super::frames::{Assembler, Reader, Writer};
use super::greeting::{BUILD, GREETING_BYTES, Purpose, VERSION};
use super::*;

const SECRET: Secret = Secret::new([1; 32]);

fn job(name: &str, size: usize) -> Greeting {
    Greeting::new(Purpose::Control, name, size)
}

type Ended = Result<(StatelessTransportState, DuplexStream), HandshakeError>;

/// Runs the handshake on both sides and returns both results.
async fn meet(a: Greeting, secret_a: Secret, b: Greeting, secret_b: Secret) -> (Ended, Ended) {
    let (mut ours, mut theirs) = duplex(1024);
    let initiating = async move {
        let session = initiate(&mut ours, &a, &secret_a).await?;
        Ok((session, ours))
    };
    let greeting = async move {
        let session = respond(&mut theirs, &b, &secret_b).await?;
        Ok((session, theirs))
    };
    tokio::join!(initiating, greeting)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn every_mismatch_has_its_own_error() {
    let other = Secret::new([2; 32]);
    let meet = |b: Greeting, secret: Secret| run(meet(job("j", 4), SECRET, b, secret));
    assert!(matches!(meet(job("j", 4), SECRET), (Ok(_), Ok(_))));
    assert!(matches!(
        meet(job("j", 4), other),
        (Err(HandshakeError::WrongSecret), Err(HandshakeError::WrongSecret))
    ));
    assert!(matches!(
        meet(job("k", 4), SECRET),
        (Err(HandshakeError::OtherJob), Err(HandshakeError::OtherJob))
    ));
    assert!(matches!(
        meet(job("j", 5), SECRET),
        (Err(HandshakeError::Size(5)), Err(HandshakeError::Size(4)))
    ));
    assert!(matches!(
        meet(job("j", 4).with_version(VERSION + 1), SECRET),
        (Err(HandshakeError::Version(theirs)), Err(HandshakeError::Version(VERSION)))
            if theirs == VERSION + 1
    ));
    assert!(matches!(
        meet(job("j", 4).with_build(!*BUILD), SECRET),
        (Err(HandshakeError::Build { theirs, .. }), Err(HandshakeError::Build { theirs: ours, .. }))
            if (theirs, ours) == (!*BUILD, *BUILD)
    ));
    // Both sides report a foreign job, even if its version and size differ too.
    assert!(matches!(
        meet(job("k", 5).with_version(VERSION + 1), SECRET),
        (Err(HandshakeError::OtherJob), Err(HandshakeError::OtherJob))
    ));
}

#[test]
fn an_echo_is_no_answer() {
    run(async {
        let (mut ours, mut theirs) = duplex(1024);
        let echo = async move {
            let mut bytes = [0; GREETING_BYTES];
            theirs.read_exact(&mut bytes).await.unwrap();
            theirs.write_all(&bytes).await.unwrap();
        };
        let us = job("j", 2);
        let secret = SECRET;
        let (ended, ()) = tokio::join!(initiate(&mut ours, &us, &secret), echo);
        assert!(matches!(ended, Err(HandshakeError::NotRingfold)));
    });
}

#[test]
fn a_recorded_handshake_is_of_no_use_on_another_connection() {
    run(async {
        // A proxy forwards the bytes, and records those of the connecting side.
        let (mut ours, mut near) = duplex(1024);
        let (mut far, mut theirs) = duplex(1024);
        let between = async {
            let mut recorded = [0; GREETING_BYTES + HANDSHAKE_BYTES];
            let (greeting, first) = recorded.split_at_mut(GREETING_BYTES);
            near.read_exact(greeting).await.unwrap();
            far.write_all(greeting).await.unwrap();
            let mut answer = [0; GREETING_BYTES + CHALLENGE_BYTES];
            far.read_exact(&mut answer).await.unwrap();
            near.write_all(&answer).await.unwrap();
            near.read_exact(first).await.unwrap();
            far.write_all(first).await.unwrap();
            let mut welcome = [0; 1 + HANDSHAKE_BYTES];
            far.read_exact(&mut welcome).await.unwrap();
            near.write_all(&welcome).await.unwrap();
            recorded
        };
        let (us, secret) = (job("j", 2), SECRET);
        let (initiated, responded, recorded) = tokio::join!(
            initiate(&mut ours, &us, &secret),
            respond(&mut theirs, &us, &secret),
            between
        );
        assert!(initiated.is_ok() && responded.is_ok());
        let (mut replayer, mut listener) = duplex(1024);
        replayer.write_all(&recorded).await.unwrap();
        let responded = respond(&mut listener, &us, &secret).await;
        assert!(matches!(responded, Err(HandshakeError::WrongSecret)));
    });
}

#[test]
fn messages_of_every_size_arrive() {
    run(async {
        let (ours, theirs) = meet(job("j", 2), SECRET, job("j", 2), SECRET).await;
        let ((session, from), (other, to)) = (ours.unwrap(), theirs.unwrap());
        let (_read, write) = split(from);
        let (read, _write) = split(to);
        let sizes = [0, 1, 65_514, 65_515, 65_516, 131_034, 131_035, 1_000_000];
        let sending = async {
            let mut writer = Writer::new(write, Arc::new(session));
            for size in sizes {
                writer.send(&vec![size as u8; size]).await.unwrap();
            }
            writer.close().await.unwrap();
        };
        let receiving = async {
            let mut reader = Reader::new(read, Arc::new(other), 1_000_000);
            for size in sizes {
                assert_eq!(reader.next().await.unwrap().unwrap(), vec![size as u8; size]);
            }
            assert_eq!(reader.next().await.unwrap(), None);
        };
        tokio::join!(sending, receiving);
    });
}

#[test]
fn a_message_beyond_the_cap_and_one_that_was_altered_are_errors() {
    run(async {
        let (ours, theirs) = meet(job("j", 2), SECRET, job("j", 2), SECRET).await;
        let ((session, mut from), (other, to)) = (ours.unwrap(), theirs.unwrap());
        let (session, other) = (Arc::new(session), Arc::new(other));
        let mut wire = Vec::new();
        Writer::new(&mut wire, Arc::clone(&session)).send(&[7; 100]).await.unwrap();
        let read = |bytes: Vec<u8>, max| {
            let other = Arc::clone(&other);
            async move { Reader::new(&bytes[..], other, max).next().await }
        };
        assert_eq!(read(wire.clone(), 100).await.unwrap(), Some(vec![7; 100]));
        let kind = |e: io::Result<_>| e.unwrap_err().kind();
        assert_eq!(kind(read(wire.clone(), 99).await), io::ErrorKind::InvalidData);
        for at in 2..wire.len() {
            let mut altered = wire.clone();
            altered[at] ^= 1;
            assert_eq!(kind(read(altered, 100).await), io::ErrorKind::InvalidData, "byte {at}");
        }
        let half = wire[..wire.len() / 2].to_vec();
        assert_eq!(kind(read(half, 100).await), io::ErrorKind::UnexpectedEof);
        from.shutdown().await.unwrap();
        drop(to);
    });
}

proptest! {
    #[test]
    fn any_bytes_are_a_greeting_or_not(bytes: [u8; GREETING_BYTES], magic: bool) {
        let mut bytes = bytes;
        if magic {
            bytes[..8].copy_from_slice(b"ringfold");
        }
        let greeting = Greeting::decode(&bytes);
        prop_assert_eq!(greeting.is_some(), bytes.starts_with(b"ringfold"));
    }

    #[test]
    fn any_opening_is_turned_away(bytes in vec(any::<u8>(), 0..200), magic: bool) {
        let mut opening = bytes;
        if magic {
            let mut real = job("j", 2).encode().to_vec();
            real.append(&mut opening);
            opening = real;
        }
        run(async {
            let (mut ours, mut theirs) = duplex(1024);
            ours.write_all(&opening).await.unwrap();
            ours.shutdown().await.unwrap();
            assert!(respond(&mut theirs, &job("j", 2), &SECRET).await.is_err());
        });
    }

    #[test]
    fn fragments_never_make_more_than_the_cap(
        fragments in vec(vec(any::<u8>(), 0..40), 0..20),
        announced in 0..200_u32,
    ) {
        let mut assembler = Assembler::new(100);
        let first = announced.to_le_bytes().to_vec();
        for fragment in std::iter::once(first).chain(fragments) {
            match assembler.push(&fragment) {
                Ok(Some(message)) => prop_assert!(message.len() <= 100),
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }

    #[test]
    fn any_bytes_into_every_decoder(bytes in vec(any::<u8>(), 0..300)) {
        use crate::decode;
        let _ = (decode::is_rank_message(&bytes), decode::is_coordinator_message(&bytes));
        let _ = (decode::is_launcher_message(&bytes), decode::is_launcher_answer(&bytes));
        let _ = decode::is_relay_message(&bytes);
        prop_assert!(decode::addresses(&String::from_utf8_lossy(&bytes)).len() <= 16);
        if let Some(history) = decode::history(&bytes) {
            prop_assert!(decode::cause_on(history.clone(), history).is_some());
        }
    }
}
