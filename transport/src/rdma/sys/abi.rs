//! The types and numbers of libibverbs and librdmacm, as in their headers. A type that is only used
//! by pointer is declared up to the last field that is read, because the rest differs between
//! architectures.
//!
//! The assertions at the end are the layout on 64-bit Linux, the same on x86-64 and AArch64.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A protection domain, which is opaque.
#[repr(C)]
pub(super) struct Pd {
    _private: [u8; 0],
}

/// A device, up to its kernel state.
#[repr(C)]
pub(super) struct Device {
    _ops: [*mut c_void; 2],
    pub(super) node_type: c_int,
    pub(super) transport_type: c_int,
    pub(super) name: [c_char; 64],
}

/// The last fields before a context that lies in a larger structure (`struct verbs_context`).
#[repr(C)]
pub(super) struct BeforeContext {
    pub(super) create_qp_ex: Option<CreateQpEx>,
    _others: [*mut c_void; 4],
    _placeholder: u64,
    /// Bytes of the whole structure.
    pub(super) bytes: usize,
}

pub(super) type CreateQpEx = unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp;

/// The mark of a context that lies in a larger structure.
pub(super) const IS_EXTENDED: usize = usize::MAX;

/// An open device.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    pub(super) ops: ContextOps,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
    pub(super) num_comp_vectors: c_int,
    _mutex: libc::pthread_mutex_t,
    pub(super) abi_compat: *mut c_void,
}

pub(super) type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
pub(super) type NotifyCq = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub(super) type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
pub(super) type PostRecv = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// The functions of the device's driver that the header calls. Unused ones are left out.
#[repr(C)]
pub(super) struct ContextOps {
    _before_poll: [*mut c_void; 11],
    pub(super) poll_cq: Option<PollCq>,
    pub(super) req_notify_cq: Option<NotifyCq>,
    _before_post: [*mut c_void; 12],
    pub(super) post_send: Option<PostSend>,
    pub(super) post_recv: Option<PostRecv>,
    _after: [*mut c_void; 5],
}

/// A completion channel, up to the handle.
#[repr(C)]
pub(super) struct Channel {
    pub(super) context: *mut Context,
    pub(super) fd: c_int,
}

/// A completion queue, up to the mutex.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
    pub(super) channel: *mut Channel,
    pub(super) cq_context: *mut c_void,
    pub(super) handle: u32,
    pub(super) cqe: c_int,
}

/// A queue pair, up to the mutex.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut Pd,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
}

#[repr(C)]
pub(super) struct Mr {
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: c_uint,
    pub(super) opcode: c_uint,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    /// The immediate, in network order.
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

#[repr(C)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// A send request, with the union's member for one-sided work.
#[repr(C)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    /// The immediate, in network order.
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) _rest: [u64; 9],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
    /// The fields of `QpInitAttrEx` that count. Without those it is padding.
    pub(super) comp_mask: u32,
}

/// As `QpInitAttr`, with more fields.
#[repr(C)]
pub(super) struct QpInitAttrEx {
    pub(super) first: QpInitAttr,
    pub(super) pd: *mut Pd,
    pub(super) xrcd: *mut c_void,
    pub(super) create_flags: u32,
    pub(super) max_tso_header: u16,
    pub(super) rwq_ind_tbl: *mut c_void,
    pub(super) rx_hash_conf: [u64; 3],
    pub(super) source_qpn: u32,
    pub(super) send_ops_flags: u64,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct GlobalRoute {
    pub(super) dgid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct AhAttr {
    pub(super) grh: GlobalRoute,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpAttr {
    pub(super) qp_state: c_uint,
    pub(super) cur_qp_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) path_mig_state: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: QpCap,
    pub(super) ah_attr: AhAttr,
    pub(super) alt_ah_attr: AhAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PortAttr {
    pub(super) state: c_uint,
    pub(super) max_mtu: c_uint,
    pub(super) active_mtu: c_uint,
    pub(super) gid_tbl_len: c_int,
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    pub(super) bad_pkey_cntr: u32,
    pub(super) qkey_viol_cntr: u32,
    pub(super) pkey_tbl_len: u16,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    pub(super) lmc: u8,
    pub(super) max_vl_num: u8,
    pub(super) sm_sl: u8,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) phys_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    /// Room for the fields of later headers, and more. The symbol `ibv_query_port` writes none of
    /// them.
    pub(super) _later: [u32; 4],
}

#[repr(C)]
pub(super) struct DeviceAttr {
    pub(super) fw_ver: [c_char; 64],
    _identity: [u64; 4],
    pub(super) vendor_id: u32,
    _part: [u32; 2],
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    _flags_and_sge: [c_int; 3],
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    pub(super) max_pd: c_int,
    _limits: [u8; 83],
    pub(super) phys_port_cnt: u8,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct GidEntry {
    pub(super) gid: [u8; 16],
    pub(super) gid_index: u32,
    pub(super) port_num: u32,
    pub(super) gid_type: u32,
    pub(super) ndev_ifindex: u32,
}

#[repr(C)]
pub(super) struct AsyncEvent {
    /// A port's number, or the object of the event.
    pub(super) element: *mut c_void,
    pub(super) event_type: c_uint,
}

/// An event channel of librdmacm.
#[repr(C)]
pub(super) struct CmChannel {
    pub(super) fd: c_int,
}

/// One end of a connection that librdmacm makes, up to its port.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    pub(super) channel: *mut CmChannel,
    pub(super) context: *mut c_void,
    _qp: *mut Qp,
    _route: [u64; 39],
    _port_space: c_uint,
    pub(super) port_num: u8,
}

#[repr(C)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// An event of librdmacm, with the union's member for connections.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: c_uint,
    pub(super) status: c_int,
    pub(super) param: ConnParam,
    _rest: [u64; 4],
}

pub(super) const PS_TCP: c_int = 0x0106;
pub(super) const CM_ADDR_RESOLVED: c_uint = 0;
pub(super) const CM_ADDR_ERROR: c_uint = 1;
pub(super) const CM_ROUTE_RESOLVED: c_uint = 2;
pub(super) const CM_ROUTE_ERROR: c_uint = 3;
pub(super) const CM_CONNECT_REQUEST: c_uint = 4;
pub(super) const CM_CONNECT_ERROR: c_uint = 6;
pub(super) const CM_UNREACHABLE: c_uint = 7;
pub(super) const CM_REJECTED: c_uint = 8;
pub(super) const CM_ESTABLISHED: c_uint = 9;
pub(super) const CM_DISCONNECTED: c_uint = 10;
pub(super) const CM_DEVICE_REMOVAL: c_uint = 11;
pub(super) const TRANSPORT_IB: c_int = 0;
pub(super) const TRANSPORT_IWARP: c_int = 1;
pub(super) const PORT_ACTIVE: c_uint = 4;
pub(super) const EVENT_CQ_ERR: c_uint = 0;
pub(super) const EVENT_DEVICE_FATAL: c_uint = 8;
pub(super) const EVENT_PORT_ACTIVE: c_uint = 9;
pub(super) const EVENT_PORT_ERR: c_uint = 10;
pub(super) const LINK_LAYER_INFINIBAND: u8 = 1;
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;
/// A flag of a port.
pub(super) const PORT_GRH_REQUIRED: u8 = 1;
pub(super) const GID_TYPE_ROCE_V1: u32 = 1;
pub(super) const GID_TYPE_ROCE_V2: u32 = 2;
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(super) const ACCESS_REMOTE_READ: c_int = 4;
/// The flag of relaxed ordering. libibverbs leaves it out where the kernel does not know it, and
/// the kernel where the device does not.
pub(super) const ACCESS_RELAXED_ORDERING: c_int = 1 << 20;
pub(super) const QPT_RC: c_uint = 2;
pub(super) const QP_INIT_ATTR_PD: u32 = 1;
pub(super) const QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
pub(super) const QP_EX_WITH_RDMA_WRITE: u64 = 1;
pub(super) const QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
pub(super) const QPS_INIT: c_uint = 1;
pub(super) const QPS_RTR: c_uint = 2;
pub(super) const QPS_RTS: c_uint = 3;
pub(super) const QPS_ERR: c_uint = 6;
pub(super) const QP_STATE: c_int = 1;
pub(super) const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(super) const QP_PKEY_INDEX: c_int = 1 << 4;
pub(super) const QP_PORT: c_int = 1 << 5;
pub(super) const QP_AV: c_int = 1 << 7;
pub(super) const QP_PATH_MTU: c_int = 1 << 8;
pub(super) const QP_TIMEOUT: c_int = 1 << 9;
pub(super) const QP_RETRY_CNT: c_int = 1 << 10;
pub(super) const QP_RNR_RETRY: c_int = 1 << 11;
pub(super) const QP_RQ_PSN: c_int = 1 << 12;
pub(super) const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(super) const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(super) const QP_SQ_PSN: c_int = 1 << 16;
pub(super) const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(super) const QP_DEST_QPN: c_int = 1 << 20;
pub(super) const WR_RDMA_WRITE: c_uint = 0;
pub(super) const WR_RDMA_WRITE_WITH_IMM: c_uint = 1;
pub(super) const WR_SEND: c_uint = 2;
pub(super) const WR_RDMA_READ: c_uint = 4;
pub(super) const SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const SEND_INLINE: c_uint = 1 << 3;
pub(super) const WC_RDMA_READ: c_uint = 2;
pub(super) const WC_RECV: c_uint = 128;
pub(super) const WC_RECV_RDMA_WITH_IMM: c_uint = 129;

/// Asserts sizes, and offsets of fields.
macro_rules! layout {
    ($($type:ident: $size:literal { $($field:ident @ $offset:literal),* })*) => {
        $(
            const _: () = assert!(size_of::<$type>() == $size);
            $(const _: () = assert!(std::mem::offset_of!($type, $field) == $offset);)*
        )*
        /// The same layout, for a comparison with the header.
        #[cfg(test)]
        pub(super) const LAYOUT: &[(&str, usize, &[(&str, usize)])] =
            &[$((stringify!($type), $size, &[$((stringify!($field), $offset)),*])),*];
    };
}

layout! {
    ContextOps: 256 { poll_cq @ 88, req_notify_cq @ 96, post_send @ 200, post_recv @ 208 }
    Mr: 48 { addr @ 16, length @ 24, lkey @ 36, rkey @ 40 }
    Wc: 48 { status @ 8, opcode @ 12, byte_len @ 20, imm_data @ 24, qp_num @ 28, slid @ 42 }
    Sge: 16 { length @ 8, lkey @ 12 }
    RecvWr: 32 { sg_list @ 16, num_sge @ 24 }
    SendWr: 128 {
        sg_list @ 16, num_sge @ 24, opcode @ 28, send_flags @ 32, imm_data @ 36,
        remote_addr @ 40, rkey @ 48
    }
    QpInitAttr: 64 { send_cq @ 8, recv_cq @ 16, srq @ 24, cap @ 32, qp_type @ 52, sq_sig_all @ 56 }
    QpInitAttrEx: 136 {
        pd @ 64, xrcd @ 72, create_flags @ 80, max_tso_header @ 84, rwq_ind_tbl @ 88,
        rx_hash_conf @ 96, source_qpn @ 120, send_ops_flags @ 128
    }
    GlobalRoute: 24 { flow_label @ 16, sgid_index @ 20, hop_limit @ 21, traffic_class @ 22 }
    AhAttr: 32 { dlid @ 24, sl @ 26, static_rate @ 28, is_global @ 29, port_num @ 30 }
    QpAttr: 144 {
        path_mtu @ 8, rq_psn @ 20, sq_psn @ 24, dest_qp_num @ 28, qp_access_flags @ 32, cap @ 36,
        ah_attr @ 56, alt_ah_attr @ 88, pkey_index @ 120, max_rd_atomic @ 126, min_rnr_timer @ 128,
        port_num @ 129, timeout @ 130, retry_cnt @ 131, rnr_retry @ 132, rate_limit @ 136
    }
    PortAttr: 64 {
        state @ 0, active_mtu @ 8, gid_tbl_len @ 12, max_msg_sz @ 20, lid @ 34, active_width @ 43,
        active_speed @ 44, link_layer @ 46, flags @ 47
    }
    DeviceAttr: 232 {
        vendor_id @ 96, max_qp @ 108, max_qp_wr @ 112, max_cq @ 128, max_cqe @ 132, max_mr @ 136,
        max_pd @ 140, phys_port_cnt @ 227
    }
    GidEntry: 32 { gid_index @ 16, port_num @ 20, gid_type @ 24, ndev_ifindex @ 28 }
    AsyncEvent: 16 { event_type @ 8 }
    ConnParam: 24 {
        private_data_len @ 8, responder_resources @ 9, initiator_depth @ 10, retry_count @ 12,
        qp_num @ 16
    }
    CmEvent: 80 { listen_id @ 8, event @ 16, status @ 20, param @ 24 }
}

// Types that are declared in part, as far as they go.
const _: () = assert!(std::mem::offset_of!(Device, transport_type) == 20);
const _: () = assert!(std::mem::offset_of!(Device, name) == 24);
const _: () = assert!(std::mem::offset_of!(Context, ops) == 8);
const _: () = assert!(std::mem::offset_of!(Context, async_fd) == 268);
const _: () =
    assert!(std::mem::offset_of!(Context, abi_compat) == 280 + size_of::<libc::pthread_mutex_t>());
const _: () = assert!(size_of::<BeforeContext>() == 56);
const _: () = assert!(std::mem::offset_of!(QpInitAttr, comp_mask) == 60);
const _: () = assert!(std::mem::offset_of!(Channel, fd) == 8);
const _: () = assert!(std::mem::offset_of!(Cq, cqe) == 28);
const _: () = assert!(std::mem::offset_of!(Qp, qp_num) == 52);
const _: () = assert!(std::mem::offset_of!(CmId, context) == 16);
const _: () = assert!(std::mem::offset_of!(CmId, port_num) == 348);
