//! Results, their messages, and panics, which end here.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringfold::{Error, Failed};
use ringfold_foreign::text_of;

use crate::callback;
use crate::types::{RawResult, ringfold_result};

use ringfold_result::{
    RINGFOLD_ERROR_ARGUMENT, RINGFOLD_ERROR_CONFIG, RINGFOLD_ERROR_FAILED, RINGFOLD_ERROR_FORKED,
    RINGFOLD_ERROR_GROUP, RINGFOLD_ERROR_HANDLE, RINGFOLD_ERROR_INIT, RINGFOLD_ERROR_INTERNAL,
    RINGFOLD_ERROR_LEAVE, RINGFOLD_ERROR_REGROUP, RINGFOLD_ERROR_TRUNCATED, RINGFOLD_SUCCESS,
};

thread_local! {
    /// The message of this thread's latest error.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// An error on its way to C.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) result: ringfold_result,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { result: RINGFOLD_ERROR_ARGUMENT, message: message.into() }
    }

    /// The error of a handle, as in `communicator`.
    #[cold]
    pub(crate) fn handle(name: &str, handle: u64) -> Self {
        let message = match handle {
            0 => format!("the {name} is NULL"),
            _ => format!("{handle:#x} is no {name}: it was freed, or never made"),
        };
        Self { result: RINGFOLD_ERROR_HANDLE, message }
    }

    /// The error of a handle of the wrong kind.
    pub(crate) const fn misplaced(message: String) -> Self {
        Self { result: RINGFOLD_ERROR_HANDLE, message }
    }

    /// The error of a table without room for another `name`.
    pub(crate) fn full(name: &str) -> Self {
        Self::argument(format!("the process has too many {name}s; free some first"))
    }
}

impl From<Error> for Fault {
    #[cold]
    fn from(error: Error) -> Self {
        let result = match error {
            Error::Argument { .. } => RINGFOLD_ERROR_ARGUMENT,
            Error::Truncated { .. } => RINGFOLD_ERROR_TRUNCATED,
            Error::Failed(_) => RINGFOLD_ERROR_FAILED,
            Error::Leave { .. } => RINGFOLD_ERROR_LEAVE,
            Error::Forked { .. } => RINGFOLD_ERROR_FORKED,
            Error::Group { .. } => RINGFOLD_ERROR_GROUP,
            Error::Regroup { .. } => RINGFOLD_ERROR_REGROUP,
            Error::Config(_) => RINGFOLD_ERROR_CONFIG,
            Error::Init(_) => RINGFOLD_ERROR_INIT,
            _ => RINGFOLD_ERROR_INTERNAL,
        };
        Self { result, message: format!("{error:?}") }
    }
}

impl<B> From<Failed<B>> for Fault {
    #[cold]
    fn from(failed: Failed<B>) -> Self {
        failed.error.into()
    }
}

/// Performs the work of a function of the interface. Keeps the message of an error for this thread,
/// and turns a panic into an error.
#[inline]
pub(crate) fn reported(work: impl FnOnce() -> Result<(), Fault>) -> ringfold_result {
    if callback::runs_here() {
        return keep(Fault::argument(
            "an operation of the program must not call functions of ringfold",
        ));
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => RINGFOLD_SUCCESS,
        Ok(Err(fault)) => keep(fault),
        Err(panic) => keep_panic(panic),
    }
}

/// Keeps the message of an error for this thread, and returns its result.
#[cold]
pub(crate) fn keep(fault: Fault) -> ringfold_result {
    let mut message = fault.message;
    message.retain(|c| c != '\0');
    let message = CString::new(message).unwrap_or_default();
    // A thread that ends has no message any more.
    MESSAGE.try_with(|kept| *kept.borrow_mut() = message).unwrap_or_default();
    fault.result
}

#[cold]
fn keep_panic(panic: Box<dyn Any + Send>) -> ringfold_result {
    let text = text_of(&*panic).map(str::to_owned);
    if text.is_none() {
        // Dropping a value of an unknown type may panic again.
        std::mem::forget(panic);
    }
    let text = text.as_deref().unwrap_or("an unknown panic");
    let message = format!("a defect of ringfold: {text}; please report it with this message");
    keep(Fault { result: RINGFOLD_ERROR_INTERNAL, message })
}

/// The message of the latest error in this thread, or an empty text. It stays valid until the next
/// function of ringfold fails in this thread, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_last_error() -> *const c_char {
    MESSAGE.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of a result, as in "RINGFOLD_ERROR_HANDLE". The text is valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_result_name(result: RawResult) -> *const c_char {
    let known = NAMES.iter().find(|(known, _)| *known as RawResult == result);
    known.map_or(c"an unknown result", |(_, name)| name).as_ptr()
}

/// Each result with its name.
macro_rules! names {
    ($($name:ident)*) => {
        [$((ringfold_result::$name, named(concat!(stringify!($name), "\0"))),)*]
    };
}

const NAMES: [(ringfold_result, &CStr); 13] = names! {
    RINGFOLD_SUCCESS
    RINGFOLD_ERROR_ARGUMENT
    RINGFOLD_ERROR_HANDLE
    RINGFOLD_ERROR_FAILED
    RINGFOLD_ERROR_LEAVE
    RINGFOLD_ERROR_FORKED
    RINGFOLD_ERROR_GROUP
    RINGFOLD_ERROR_CONFIG
    RINGFOLD_ERROR_INIT
    RINGFOLD_ERROR_VERSION
    RINGFOLD_ERROR_INTERNAL
    RINGFOLD_ERROR_TRUNCATED
    RINGFOLD_ERROR_REGROUP
};

const fn named(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("it has one zero, at its end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the message ends with a zero and stays while this thread makes no other.
        unsafe { CStr::from_ptr(ringfold_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_result_with_its_text() {
        assert_eq!(reported(|| panic!("on {}", "purpose")), RINGFOLD_ERROR_INTERNAL);
        assert!(message().starts_with("a defect of ringfold: on purpose; "), "{}", message());
        assert_eq!(reported(|| panic!("static")), RINGFOLD_ERROR_INTERNAL);
        assert!(message().starts_with("a defect of ringfold: static; "), "{}", message());
        assert_eq!(reported(|| std::panic::panic_any(7)), RINGFOLD_ERROR_INTERNAL);
        assert!(message().contains("an unknown panic"), "{}", message());
    }

    #[test]
    fn each_thread_has_its_own_message() {
        assert_eq!(message(), "");
        assert_eq!(reported(|| Err(Fault::argument("a\0b"))), RINGFOLD_ERROR_ARGUMENT);
        assert_eq!(std::thread::spawn(message).join().unwrap(), "");
        assert_eq!((reported(|| Ok(())), message()), (RINGFOLD_SUCCESS, "ab".to_owned()));
    }

    #[test]
    fn every_result_has_its_name() {
        for (result, name) in NAMES {
            // SAFETY: the name is a static text with a zero at its end.
            let found = unsafe { CStr::from_ptr(ringfold_result_name(result as RawResult)) };
            assert_eq!((found, name.to_str().unwrap()), (name, &*format!("{result:?}")));
        }
        // SAFETY: as above.
        let unknown = unsafe { CStr::from_ptr(ringfold_result_name(99)) };
        assert_eq!(unknown, c"an unknown result");
    }
}
