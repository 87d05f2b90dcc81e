//! Times an all-reduce of 8 bytes by the shared library for C and by the methods of Rust, in turn,
//! over communicators of the same ranks. Rank 0 prints the medians and their difference.
//! `bench/compare/run c` builds and runs it.
//!
//! ```text
//! ringrun -n 2 target/release/examples/latency target/release/libringfold_capi.so
//! ```
#![allow(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the program prints its result")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::time::Instant;

use ringfold::{Communicator, Error, Rank, ReduceOp};
use ringfold_capi::types::{
    RINGFOLD_VERSION, ringfold_comm_t, ringfold_op, ringfold_op_t, ringfold_result, ringfold_type,
};

/// Calls of a batch, and batches of each kind.
const CALLS: u32 = 20_000;
const BATCHES: usize = 101;

/// All symbols of a library are bound when it is loaded.
const RTLD_NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Init = unsafe extern "C" fn(u32, *mut ringfold_comm_t) -> ringfold_result;
type AllReduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    u32,
    ringfold_op_t,
    ringfold_comm_t,
) -> ringfold_result;
type Free = extern "C" fn(ringfold_comm_t) -> ringfold_result;

/// The functions of the shared library, as a program in C calls them.
struct Library {
    init: Init,
    all_reduce: AllReduce,
    free: Free,
}

impl Library {
    fn load(path: &str) -> Self {
        let text = CString::new(path).expect("a path has no zero");
        // SAFETY: the text has a zero at its end.
        let library = unsafe { dlopen(text.as_ptr(), RTLD_NOW) };
        assert!(!library.is_null(), "{path} is no library");
        let find = |name: &CStr| {
            // SAFETY: the library is open, and the name has a zero at its end.
            let function = unsafe { dlsym(library, name.as_ptr()) };
            assert!(!function.is_null(), "{path} has no {name:?}");
            function
        };
        // SAFETY: the functions have these types in the header.
        unsafe {
            Self {
                init: transmute::<*mut c_void, Init>(find(c"ringfold_init")),
                all_reduce: transmute::<*mut c_void, AllReduce>(find(c"ringfold_all_reduce")),
                free: transmute::<*mut c_void, Free>(find(c"ringfold_comm_free")),
            }
        }
    }
}

/// Nanoseconds of a call, in a batch.
fn batch(mut call: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let began = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).expect("usage: latency LIBRARY");
    let library = Library::load(&path);
    let mut comm = Communicator::init()?;
    let mut handle = null_mut();
    // SAFETY: it points to memory of a handle.
    let made = unsafe { (library.init)(RINGFOLD_VERSION, &raw mut handle) };
    assert_eq!(made, ringfold_result::RINGFOLD_SUCCESS);
    let (float64, sum) = (ringfold_type::RINGFOLD_FLOAT64 as u32, ringfold_op::RINGFOLD_SUM as u64);
    let (mut rust, mut c, mut value) = (Vec::new(), Vec::new(), [0.0_f64]);
    for _ in 0..BATCHES {
        rust.push(batch(|| comm.all_reduce(&mut value, ReduceOp::Sum))?);
        c.push(batch(|| {
            let pointer = value.as_mut_ptr().cast();
            // SAFETY: it points to one element, which nobody else uses.
            let result = unsafe { (library.all_reduce)(null(), pointer, 1, float64, sum, handle) };
            assert_eq!(result, ringfold_result::RINGFOLD_SUCCESS);
            Ok(())
        })?);
    }
    if comm.rank() == Rank(0) {
        let (rust, c) = (median(rust), median(c));
        println!("8 bytes: Rust {rust:.1} ns, C {c:.1} ns, C over Rust {:.1} ns", c - rust);
    }
    assert_eq!((library.free)(handle), ringfold_result::RINGFOLD_SUCCESS);
    comm.leave()
}
