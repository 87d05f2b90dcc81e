//! A key-value store of the caller, by its functions.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::time::Duration;

use ringfold::{KeyValueStore, StoreError};

use crate::fault::Fault;
use crate::types::{RINGFOLD_STORE_NO_VALUE, ringfold_store};

/// The most bytes of a value. Values are numbers and unique ids.
const VALUE_BYTES_MAX: usize = 4096;

type Set = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_void, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void, usize, *mut usize) -> c_int;
type Wait =
    unsafe extern "C" fn(*mut c_void, *const c_char, u64, *mut c_void, usize, *mut usize) -> c_int;

/// The functions of a caller, none of which is NULL.
pub(crate) struct CallerStore {
    context: *mut c_void,
    set: Set,
    get: Get,
    wait: Wait,
}

impl CallerStore {
    /// Wraps a store for the time of one function call.
    ///
    /// # Safety
    /// The functions do what the header asks of them, with this context.
    pub(crate) unsafe fn new(store: &ringfold_store) -> Result<Self, Fault> {
        let &ringfold_store { context, set, get, wait } = store;
        let (Some(set), Some(get), Some(wait)) = (set, get, wait) else {
            return Err(Fault::argument("a function of the store is NULL: set, get or wait"));
        };
        Ok(Self { context, set, get, wait })
    }
}

/// Reads a value that `read` writes: it gets the memory, its bytes, and a place for the length.
fn value(
    read: impl FnOnce(*mut c_void, usize, *mut usize) -> c_int,
) -> Result<Option<Vec<u8>>, StoreError> {
    let (mut value, mut length) = (vec![0_u8; VALUE_BYTES_MAX], 0);
    match read(value.as_mut_ptr().cast(), value.len(), &raw mut length) {
        0 if length > value.len() => {
            Err(format!("a value of {length} bytes; at most {VALUE_BYTES_MAX} are valid").into())
        }
        0 => {
            value.truncate(length);
            Ok(Some(value))
        }
        RINGFOLD_STORE_NO_VALUE => Ok(None),
        code => Err(failed(code)),
    }
}

fn failed(code: c_int) -> StoreError {
    format!("the function of the store returned {code}").into()
}

impl KeyValueStore for CallerStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = CString::new(key)?;
        // SAFETY: by the contract of `new`; key and value outlive the call.
        let code =
            unsafe { (self.set)(self.context, key.as_ptr(), value.as_ptr().cast(), value.len()) };
        if code == 0 { Ok(()) } else { Err(failed(code)) }
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = CString::new(key)?;
        // SAFETY: by the contract of `new`; key, memory and length outlive the call.
        value(|memory, capacity, length| unsafe {
            (self.get)(self.context, key.as_ptr(), memory, capacity, length)
        })
    }

    fn wait(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError> {
        let key = CString::new(key)?;
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: by the contract of `new`; key, memory and length outlive the call.
        let value = value(|memory, capacity, length| unsafe {
            (self.wait)(self.context, key.as_ptr(), timeout, memory, capacity, length)
        })?;
        value.ok_or_else(|| format!("no value within {timeout} ms").into())
    }
}
