//! A connection between two processes of a job that trust nobody else. A greeting in the clear
//! comes first, then a Noise handshake with the job's secret, then encrypted messages.
//!
//! The greeting holds version, purpose, job, size and build, so that an error can name a mismatch.
//! The listener appends a fresh random number (the challenge) to its own. The handshake binds both:
//! nobody can alter them, and a recorded handshake fails on another connection. Until the handshake
//! ends, both sides read a fixed number of bytes into fixed memory.
//!
//! Read `greeting`, then the handshake below, `frames`, and both ends: `connect` and `acceptor`,
//! which notes its rejections in `turned_away`. `socket`, `blocking` and `descriptors` make the
//! system calls.

use std::io;

use ringfold_types::limits;
use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::discover::secret::Secret;

pub(crate) mod acceptor;
pub(crate) mod blocking;
pub(crate) mod connect;
pub(crate) mod descriptors;
pub(crate) mod frames;
pub(crate) mod greeting;
pub(crate) mod socket;
pub(crate) mod turned_away;

use greeting::{Greeting, HandshakeError};

const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The size of a handshake message: an ephemeral key and an authentication tag, both ways.
const HANDSHAKE_BYTES: usize = 48;
/// The size of the listener's random number, which is new for each connection.
const CHALLENGE_BYTES: usize = 16;
const WELCOME: u8 = 1;
const WRONG_SECRET: u8 = 2;
const _: () = assert!(limits::CONTROL_BYTES_MAX < u32::MAX as usize);

/// Performs the handshake of the side that connected.
pub(crate) async fn initiate<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    us: &Greeting,
    secret: &Secret,
) -> Result<StatelessTransportState, HandshakeError> {
    stream.write_all(&us.encode()).await?;
    us.check_answer(&Greeting::read(stream).await?)?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge).await?;

    let key = us.key(secret);
    let mut noise = begin(us, &challenge, &key, true)?;
    let mut first = [0; HANDSHAKE_BYTES];
    noise.write_message(&[], &mut first).map_err(internal)?;
    stream.write_all(&first).await?;
    if stream.read_u8().await? != WELCOME {
        return Err(HandshakeError::WrongSecret);
    }
    let mut second = [0; HANDSHAKE_BYTES];
    stream.read_exact(&mut second).await?;
    finish(noise, &second)
}

/// Performs the handshake of the side that listened.
#[cfg(test)]
pub(crate) async fn respond<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    us: &Greeting,
    secret: &Secret,
) -> Result<StatelessTransportState, HandshakeError> {
    let only = [(us.clone(), secret.clone())];
    respond_as_any(stream, &only).await.map(|(_, session)| session)
}

/// Performs the handshake of the side that listened, by that one of `ours` that the other side
/// wants, or by the first. Returns its index.
pub(crate) async fn respond_as_any<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    ours: &[(Greeting, Secret)],
) -> Result<(usize, StatelessTransportState), HandshakeError> {
    let them = Greeting::read(stream).await?;
    let index = ours.iter().position(|(us, _)| us.is_wanted_by(&them)).unwrap_or(0);
    let (us, secret) = &ours[index];
    let mut challenge = [0; CHALLENGE_BYTES];
    getrandom::fill(&mut challenge).map_err(io::Error::other)?;
    stream.write_all(&[&us.answer().encode()[..], &challenge].concat()).await?;
    let mut first = [0; HANDSHAKE_BYTES];
    // Read before closing: unread bytes would turn our answer into a reset.
    let read = stream.read_exact(&mut first).await;
    us.check_call(&them)?;
    read?;

    let key = us.key(secret);
    let mut noise = begin(us, &challenge, &key, false)?;
    if noise.read_message(&first, &mut []).is_err() {
        stream.write_u8(WRONG_SECRET).await?;
        return Err(HandshakeError::WrongSecret);
    }
    let mut answer = [0; 1 + HANDSHAKE_BYTES];
    answer[0] = WELCOME;
    noise.write_message(&[], &mut answer[1..]).map_err(internal)?;
    stream.write_all(&answer).await?;
    noise.into_stateless_transport_mode().map(|session| (index, session)).map_err(internal)
}

fn begin(
    us: &Greeting,
    challenge: &[u8; CHALLENGE_BYTES],
    key: &[u8; 32],
    initiator: bool,
) -> Result<HandshakeState, HandshakeError> {
    let prologue = [&us.encode()[..], challenge].concat();
    let builder = Builder::new(NOISE.parse().map_err(internal)?);
    let builder = builder.prologue(&prologue).and_then(|b| b.psk(0, key));
    let builder = builder.map_err(internal)?;
    let built = if initiator { builder.build_initiator() } else { builder.build_responder() };
    built.map_err(internal)
}

fn finish(
    mut noise: HandshakeState,
    second: &[u8],
) -> Result<StatelessTransportState, HandshakeError> {
    noise.read_message(second, &mut []).map_err(|_| HandshakeError::WrongSecret)?;
    noise.into_stateless_transport_mode().map_err(internal)
}

/// Converts an internal error: the build lacks the cipher suite, or the system has no randomness.
fn internal(e: snow::Error) -> HandshakeError {
    HandshakeError::Io(io::Error::other(e))
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]
mod tests;
