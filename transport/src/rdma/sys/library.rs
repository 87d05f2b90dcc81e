//! libibverbs and librdmacm, found at run time. Without libibverbs there is no RDMA, without
//! librdmacm there is no iWARP, and everything else works.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::abi::{
    AsyncEvent, Channel, CmChannel, CmEvent, CmId, ConnParam, Context, Cq, Device, DeviceAttr,
    GidEntry, Mr, Pd, PortAttr, Qp, QpAttr, QpInitAttr,
};

/// Declares a library's table of functions, and the code that fills it.
macro_rules! functions {
    (
        $library:ident of $name:literal in $packages:literal
        $($field:ident = $symbol:literal : $type:ty;)*
    ) => {
        /// The functions of the library.
        pub(super) struct $library {
            $(pub(super) $field: $type,)*
        }

        impl $library {
            fn load() -> Result<Self, String> {
                let handle = open($name, $packages)?;
                Ok(Self {
                    $($field: {
                        let symbol = find($name, handle, $symbol)?;
                        // SAFETY: the symbol is the library's function of that name, and the type
                        // is that of its header. A null pointer was refused.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
                    },)*
                })
            }
        }
    };
}

functions! {
    Library of c"libibverbs.so.1" in "libibverbs1 and ibverbs-providers, or rdma-core"
    get_device_list = c"ibv_get_device_list":
        unsafe extern "C" fn(*mut c_int) -> *mut *mut Device;
    fork_init = c"ibv_fork_init": unsafe extern "C" fn() -> c_int;
    free_device_list = c"ibv_free_device_list": unsafe extern "C" fn(*mut *mut Device);
    open_device = c"ibv_open_device": unsafe extern "C" fn(*mut Device) -> *mut Context;
    close_device = c"ibv_close_device": unsafe extern "C" fn(*mut Context) -> c_int;
    query_device = c"ibv_query_device":
        unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int;
    query_port = c"ibv_query_port":
        unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int;
    query_gid = c"_ibv_query_gid_ex":
        unsafe extern "C" fn(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    query_pkey = c"ibv_query_pkey":
        unsafe extern "C" fn(*mut Context, u8, c_int, *mut u16) -> c_int;
    async_event = c"ibv_get_async_event":
        unsafe extern "C" fn(*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event = c"ibv_ack_async_event": unsafe extern "C" fn(*mut AsyncEvent);
    event_name = c"ibv_event_type_str": unsafe extern "C" fn(c_uint) -> *const c_char;
    alloc_pd = c"ibv_alloc_pd": unsafe extern "C" fn(*mut Context) -> *mut Pd;
    dealloc_pd = c"ibv_dealloc_pd": unsafe extern "C" fn(*mut Pd) -> c_int;
    reg_mr = c"ibv_reg_mr_iova2":
        unsafe extern "C" fn(*mut Pd, *mut c_void, usize, u64, c_uint) -> *mut Mr;
    dereg_mr = c"ibv_dereg_mr": unsafe extern "C" fn(*mut Mr) -> c_int;
    create_channel = c"ibv_create_comp_channel":
        unsafe extern "C" fn(*mut Context) -> *mut Channel;
    destroy_channel = c"ibv_destroy_comp_channel": unsafe extern "C" fn(*mut Channel) -> c_int;
    create_cq = c"ibv_create_cq":
        unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut Cq;
    resize_cq = c"ibv_resize_cq": unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
    destroy_cq = c"ibv_destroy_cq": unsafe extern "C" fn(*mut Cq) -> c_int;
    cq_event = c"ibv_get_cq_event":
        unsafe extern "C" fn(*mut Channel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events = c"ibv_ack_cq_events": unsafe extern "C" fn(*mut Cq, c_uint);
    create_qp = c"ibv_create_qp": unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp = c"ibv_modify_qp": unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp = c"ibv_destroy_qp": unsafe extern "C" fn(*mut Qp) -> c_int;
}

functions! {
    CmLibrary of c"librdmacm.so.1" in "librdmacm1, or librdmacm"
    create_channel = c"rdma_create_event_channel": unsafe extern "C" fn() -> *mut CmChannel;
    destroy_channel = c"rdma_destroy_event_channel": unsafe extern "C" fn(*mut CmChannel);
    create_id = c"rdma_create_id":
        unsafe extern "C" fn(*mut CmChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
    destroy_id = c"rdma_destroy_id": unsafe extern "C" fn(*mut CmId) -> c_int;
    bind_addr = c"rdma_bind_addr":
        unsafe extern "C" fn(*mut CmId, *mut libc::sockaddr) -> c_int;
    src_port = c"rdma_get_src_port": unsafe extern "C" fn(*mut CmId) -> u16;
    listen = c"rdma_listen": unsafe extern "C" fn(*mut CmId, c_int) -> c_int;
    resolve_addr = c"rdma_resolve_addr":
        unsafe extern "C" fn(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    resolve_route = c"rdma_resolve_route": unsafe extern "C" fn(*mut CmId, c_int) -> c_int;
    connect = c"rdma_connect": unsafe extern "C" fn(*mut CmId, *mut ConnParam) -> c_int;
    accept = c"rdma_accept": unsafe extern "C" fn(*mut CmId, *mut ConnParam) -> c_int;
    reject = c"rdma_reject": unsafe extern "C" fn(*mut CmId, *const c_void, u8) -> c_int;
    get_event = c"rdma_get_cm_event":
        unsafe extern "C" fn(*mut CmChannel, *mut *mut CmEvent) -> c_int;
    ack_event = c"rdma_ack_cm_event": unsafe extern "C" fn(*mut CmEvent) -> c_int;
    event_name = c"rdma_event_str": unsafe extern "C" fn(c_uint) -> *const c_char;
}

/// Returns librdmacm, loaded at the first call, or the reason why it cannot be loaded.
pub(super) fn cm_library() -> Result<&'static CmLibrary, &'static str> {
    static LIBRARY: OnceLock<Result<CmLibrary, String>> = OnceLock::new();
    LIBRARY.get_or_init(CmLibrary::load).as_ref().map_err(String::as_str)
}

/// Returns libibverbs, loaded at the first call, or the reason why it cannot be loaded.
pub(super) fn library() -> Result<&'static Library, &'static str> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || {
        let library = Library::load()?;
        // SAFETY: takes nothing. Without this call, on kernels before 5.12, a child process
        // (`system`) takes pages of queues away from the device. If another library has opened
        // devices already, the call comes too late, and that library had to decide.
        let status = unsafe { (library.fork_init)() };
        tracing::debug!(status, "ibv_fork_init");
        Ok(library)
    };
    LIBRARY.get_or_init(load).as_ref().map_err(String::as_str)
}

/// Returns whether a `fork` leaves the pages of a registered buffer to this process, without a
/// library that takes them away from the child. Kernels since 5.12 copy such pages for the child.
pub(in crate::rdma) fn forks_copy_pinned_pages() -> bool {
    /// `IBV_FORK_UNNEEDED`.
    const UNNEEDED: c_int = 2;
    if library().is_err() {
        return false;
    }
    let Ok(handle) = open(c"libibverbs.so.1", "libibverbs1") else { return false };
    // rdma-core has the function since version 35.
    let symbol = find(c"libibverbs.so.1", handle, c"ibv_is_fork_initialized");
    symbol.is_ok_and(|symbol| {
        // SAFETY: the symbol is the library's function of that name, and the type is that of its
        // header.
        let call: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(symbol) };
        // SAFETY: takes nothing, and only reads a state.
        unsafe { call() == UNNEEDED }
    })
}

/// Loads a library that comes with `packages`.
pub(super) fn open(name: &CStr, packages: &str) -> Result<*mut c_void, String> {
    // SAFETY: the name is a string. The libraries' initialisers register drivers and nothing else.
    // The libraries are never unloaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        let name = name.to_string_lossy();
        return Err(format!("{name} cannot be loaded ({}); install {packages}", why()));
    }
    Ok(handle)
}

/// Finds the symbol's default version, which is the one of the header.
pub(super) fn find(name: &CStr, handle: *mut c_void, symbol: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle is that of a loaded library, and the symbol is a string.
    let found = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
    if found.is_null() {
        let (name, symbol) = (name.to_string_lossy(), symbol.to_string_lossy());
        return Err(format!(
            "{name} has no {symbol}: it is older than rdma-core 32 of 2020; install a newer one"
        ));
    }
    Ok(found)
}

/// The loader's reason.
fn why() -> String {
    // SAFETY: gives a string that is valid until this thread's next call of the loader, or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason was given".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
