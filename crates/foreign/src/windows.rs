//! Calls in windows.

use std::sync::{Mutex, MutexGuard, TryLockError};

use ringfold::{Call, Communicator, Error, Window, Windows};

/// The reason why a call in windows has no result.
#[derive(Debug)]
pub enum WindowError {
    /// Another communicator uses a window at this time.
    InUse,
    /// The error of the call.
    Call(Error),
}

/// Locks a window. The calls of its communicator follow one another, so only a call of another
/// communicator can use it.
fn unused(window: &Mutex<Window<u8>>) -> Result<MutexGuard<'_, Window<u8>>, WindowError> {
    match window.try_lock() {
        Ok(window) => Ok(window),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(WindowError::InUse),
    }
}

/// Performs an all-reduce in windows, from byte `at`. Without an input it works in place.
///
/// # Errors
/// See [`WindowError`].
pub fn all_reduce_windows(
    communicator: &mut Communicator,
    call: &Call,
    input: Option<&Mutex<Window<u8>>>,
    output: &Mutex<Window<u8>>,
    at: usize,
) -> Result<(), WindowError> {
    let mut output = unused(output)?;
    let input = input.map(unused).transpose()?;
    let windows = match &input {
        None => Windows::InPlace(&mut output),
        Some(input) => Windows::Apart { input, output: &mut output },
    };
    communicator.perform_in_windows(call, windows, at).map_err(WindowError::Call)
}
