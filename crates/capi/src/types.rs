//! The types, enumerations and constants of the header, under their names in C.
#![expect(non_camel_case_types, reason = "these are names in C")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use ringfold::Message;

/// The version of this header: `major`.
pub const RINGFOLD_VERSION_MAJOR: u32 = 0;
/// The version of this header: `minor`.
pub const RINGFOLD_VERSION_MINOR: u32 = 1;
/// The version of this header: `patch`.
pub const RINGFOLD_VERSION_PATCH: u32 = 0;

/// The version of this header as one number. Functions that begin something take it first, and
/// refuse the version of a header that does not fit the library.
pub const RINGFOLD_VERSION: u32 =
    RINGFOLD_VERSION_MAJOR * 1000000 + RINGFOLD_VERSION_MINOR * 1000 + RINGFOLD_VERSION_PATCH;

/// The color of a rank that takes no part in any group of ringfold_comm_split. Every negative color
/// means this.
pub const RINGFOLD_NO_COLOR: i64 = -1;

/// The bytes of a unique id, with the zero at its end.
pub const RINGFOLD_UNIQUE_ID_BYTES: usize = 256;

/// The bytes of the name of an operation or an algorithm, with the zero at its end.
pub const RINGFOLD_NAME_BYTES: usize = 32;

/// The result of the callback `get` of a key-value store for a key without a value.
pub const RINGFOLD_STORE_NO_VALUE: c_int = 1;

/// The source of a receive that takes a message of any other rank.
pub const RINGFOLD_ANY_SOURCE: u32 = u32::MAX;

/// The tag of a receive that takes a message with any tag.
pub const RINGFOLD_ANY_TAG: u32 = u32::MAX;

/// A message that was received, or that waits for its receive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ringfold_message {
    /// Its sender.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: usize,
}

/// Calls of one kind in a profile: of one operation and one algorithm, with sizes up to the same
/// power of two. All times are sums over the calls, in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ringfold_profiled_calls {
    /// The name of the operation, as in allreduce or allgatherv.
    pub operation: [c_char; RINGFOLD_NAME_BYTES],
    /// The name of the algorithm, as in ring.
    pub algorithm: [c_char; RINGFOLD_NAME_BYTES],
    /// The number of calls.
    pub calls: u64,
    /// The bytes of the larger of a rank's buffers, over all calls.
    pub bytes: u64,
    /// The time from the beginning of a call to its end: that of waiting, moving and combining.
    pub time_ns: u64,
    /// The time in which nothing moved: peers had sent nothing, or took nothing.
    pub waiting_ns: u64,
    /// The time in which the rank moved bytes and managed the call.
    pub moving_ns: u64,
    /// The time in which the rank combined elements.
    pub combining_ns: u64,
    /// The time by the prices of links and of combining, in which no rank is late; -1 if they do
    /// not tell it.
    pub expected_ns: i64,
}

impl From<Message> for ringfold_message {
    fn from(Message { peer, tag, bytes, .. }: Message) -> Self {
        Self { source: peer.0, tag, bytes }
    }
}

/// The result of a function.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ringfold_result {
    /// The function has done its work.
    RINGFOLD_SUCCESS = 0,
    /// An argument is invalid. Nothing was sent, and the communicator remains usable.
    RINGFOLD_ERROR_ARGUMENT = 1,
    /// A handle is NULL, was freed, or was never made.
    RINGFOLD_ERROR_HANDLE = 2,
    /// The job has failed. All surviving ranks get the same cause, and all later calls on the
    /// communicator return the same result. Output buffers have undefined contents.
    RINGFOLD_ERROR_FAILED = 3,
    /// The job has failed, and this rank learned it only when it freed the communicator.
    RINGFOLD_ERROR_LEAVE = 4,
    /// This process is a child that fork has made. Only its parent may use the communicator.
    RINGFOLD_ERROR_FORKED = 5,
    /// The ranks could not make a group of a communicator, which remains usable.
    RINGFOLD_ERROR_GROUP = 6,
    /// A variable of the environment has an invalid value.
    RINGFOLD_ERROR_CONFIG = 7,
    /// The ranks could not make a communicator.
    RINGFOLD_ERROR_INIT = 8,
    /// The program was compiled with the header of a version that does not fit the library.
    RINGFOLD_ERROR_VERSION = 9,
    /// A defect of ringfold. The communicator of the call has failed.
    RINGFOLD_ERROR_INTERNAL = 10,
    /// A message is longer than the buffer of the receive that takes it. The message stays for a
    /// later receive, and the communicator remains usable.
    RINGFOLD_ERROR_TRUNCATED = 11,
    /// The survivors of a failure could not make a communicator: too few have come, or the others
    /// have left this rank out.
    RINGFOLD_ERROR_REGROUP = 12,
}

/// The data type of an element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ringfold_type {
    /// Signed 8-bit integer.
    RINGFOLD_INT8 = 0,
    /// Unsigned 8-bit integer.
    RINGFOLD_UINT8 = 1,
    /// Signed 32-bit integer.
    RINGFOLD_INT32 = 2,
    /// Unsigned 32-bit integer.
    RINGFOLD_UINT32 = 3,
    /// Signed 64-bit integer.
    RINGFOLD_INT64 = 4,
    /// Unsigned 64-bit integer.
    RINGFOLD_UINT64 = 5,
    /// IEEE 754 binary16.
    RINGFOLD_FLOAT16 = 6,
    /// bfloat16: the upper half of a float.
    RINGFOLD_BFLOAT16 = 7,
    /// IEEE 754 binary32: float.
    RINGFOLD_FLOAT32 = 8,
    /// IEEE 754 binary64: double.
    RINGFOLD_FLOAT64 = 9,
    /// 8-bit float with 4 exponent bits and without infinity (OCP E4M3).
    RINGFOLD_FLOAT8_E4M3 = 10,
    /// 8-bit float with 5 exponent bits (OCP E5M2).
    RINGFOLD_FLOAT8_E5M2 = 11,
}

/// A predefined reduction operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ringfold_op {
    /// Sum. Integers wrap.
    RINGFOLD_SUM = 0,
    /// Product. Integers wrap.
    RINGFOLD_PROD = 1,
    /// Smallest element. A NaN anywhere gives NaN.
    RINGFOLD_MIN = 2,
    /// Largest element. A NaN anywhere gives NaN.
    RINGFOLD_MAX = 3,
    /// Sum divided by the number of ranks. Integers truncate toward zero.
    RINGFOLD_AVG = 4,
    /// Bitwise and. For integers only, as all operations below.
    RINGFOLD_BAND = 6,
    /// Bitwise or.
    RINGFOLD_BOR = 7,
    /// Bitwise exclusive or.
    RINGFOLD_BXOR = 8,
    /// 1 if all are not 0, and otherwise 0. A group of one keeps its value.
    RINGFOLD_LAND = 9,
    /// 1 if any is not 0, and otherwise 0.
    RINGFOLD_LOR = 10,
    /// 1 if an odd number is not 0, and otherwise 0.
    RINGFOLD_LXOR = 11,
}

/// A reduction operation: one of enum ringfold_op, or one that ringfold_op_create_pre_mul_sum or
/// ringfold_op_create made.
pub type ringfold_op_t = u64;

/// The function of an operation of the program. It combines each of `count` elements of `into` with
/// the element at the same place of `from`, and leaves the result in `into`. `into` may have the
/// alignment of the output of the call, and `from` has that of 64 bytes and whole elements. Any
/// thread that calls ringfold_all_reduce_by may call it. It returns 0, or another number if it
/// failed. It must return: no C++ exception and no longjmp may leave it. Functions of ringfold
/// that it calls return RINGFOLD_ERROR_ARGUMENT, except for versions and texts.
pub type ringfold_combine_t = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        into: *mut c_void,
        from: *const c_void,
        count: usize,
    ) -> c_int,
>;

/// A communicator. It has no definition: a handle is a number, and the library checks it.
pub struct ringfold_comm {
    _private: [u8; 0],
}

/// The handle of a communicator, or of a group of its calls, which ringfold_group_start makes.
/// Several threads may use it; their calls follow one another.
pub type ringfold_comm_t = *mut ringfold_comm;

/// A window. It has no definition: a handle is a number, and the library checks it.
pub struct ringfold_window {
    _private: [u8; 0],
}

/// The handle of a window: memory that all ranks of the host have mapped.
pub type ringfold_window_t = *mut ringfold_window;

/// A registration. It has no definition: a handle is a number, and the library checks it.
pub struct ringfold_registration {
    _private: [u8; 0],
}

/// The handle of a registration: memory of the program that RDMA devices know.
pub type ringfold_registration_t = *mut ringfold_registration;

/// A request. It has no definition: a handle is a number, and the library checks it.
pub struct ringfold_request {
    _private: [u8; 0],
}

/// The handle of a request: a collective that was started. Any thread may use it.
pub type ringfold_request_t = *mut ringfold_request;

/// The id of a group of ranks that start without a launcher, as a line of text. It holds the secret
/// of the group, so only the ranks may see it.
#[repr(C)]
pub struct ringfold_unique_id {
    /// The text, with a zero at its end.
    pub text: [c_char; RINGFOLD_UNIQUE_ID_BYTES],
}

/// A key-value store that all ranks of a group share. The library calls its functions in the thread
/// that calls ringfold_init_with_store. They return 0 if they succeed. They must return: no C++
/// exception and no longjmp may leave them.
#[repr(C)]
pub struct ringfold_store {
    /// The first argument of each function.
    pub context: *mut c_void,
    /// Stores a value under a key, in place of an earlier value.
    pub set: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const c_char,
            value: *const c_void,
            length: usize,
        ) -> c_int,
    >,
    /// Writes the value of a key, of at most `capacity` bytes, and its length. Returns
    /// RINGFOLD_STORE_NO_VALUE if no rank has set the key. Does not wait.
    pub get: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const c_char,
            value: *mut c_void,
            capacity: usize,
            length: *mut usize,
        ) -> c_int,
    >,
    /// Waits until a rank has set the key, for at most `timeout_ms`, and then does as `get`.
    pub wait: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const c_char,
            timeout_ms: u64,
            value: *mut c_void,
            capacity: usize,
            length: *mut usize,
        ) -> c_int,
    >,
}

/// A value of enum ringfold_type, which C does not check.
pub(crate) type RawType = c_uint;

/// A value of enum ringfold_result, which C does not check.
pub(crate) type RawResult = c_uint;
