//! Compares ringfold's declarations of libibverbs and librdmacm with those that `rdma-sys`
//! generates from the headers: sizes, offsets and constants.
#![cfg(test)]

/// The declarations of the transport crate.
#[path = "../../../transport/src/rdma/sys/abi.rs"]
#[allow(dead_code, unsafe_code, reason = "only its layout matters here")]
mod abi;

use std::mem::offset_of;

use rdma_sys as verbs;

/// Asserts that fields have the same offsets as in the header. `=>` precedes a field's name in the
/// header if it differs.
macro_rules! offsets {
    ($($ours:ident = $theirs:ident {
        $($field:ident $(=> $first:ident $(. $rest:ident)*)?),* $(,)?
    })*) => {
        $($(assert_eq!(
            offset_of!(abi::$ours, $field),
            offsets!(@ $theirs, $field $(=> $first $(. $rest)*)?),
            "{}.{}", stringify!($theirs), stringify!($field),
        );)*)*
    };
    (@ $theirs:ident, $field:ident) => { offset_of!(verbs::$theirs, $field) };
    (@ $theirs:ident, $field:ident => $first:ident $(. $rest:ident)*) => {
        offset_of!(verbs::$theirs, $first $(. $rest)*)
    };
}

/// Asserts that structures that are passed whole have the size of the header's.
macro_rules! sizes {
    ($($ours:ident = $theirs:ident)*) => {
        $(assert_eq!(
            size_of::<abi::$ours>(), size_of::<verbs::$theirs>(), stringify!($theirs)
        );)*
    };
}

/// Asserts that constants have the values of the header.
macro_rules! numbers {
    ($($ours:ident = $theirs:expr;)*) => {
        $(assert_eq!(i64::from(abi::$ours), i64::from($theirs), stringify!($ours));)*
    };
}

#[test]
fn structures_are_as_large_as_in_the_header() {
    sizes! {
        ContextOps = ibv_context_ops
        Mr = ibv_mr
        Wc = ibv_wc
        Sge = ibv_sge
        RecvWr = ibv_recv_wr
        SendWr = ibv_send_wr
        QpCap = ibv_qp_cap
        QpInitAttr = ibv_qp_init_attr
        GlobalRoute = ibv_global_route
        AhAttr = ibv_ah_attr
        QpAttr = ibv_qp_attr
        DeviceAttr = ibv_device_attr
        GidEntry = ibv_gid_entry
        AsyncEvent = ibv_async_event
        ConnParam = rdma_conn_param
        CmEvent = rdma_cm_event
    }
    // Headers differ in the last fields, so ringfold's structure has room for more.
    assert!(size_of::<abi::PortAttr>() >= size_of::<verbs::ibv_port_attr>());
}

#[test]
fn devices_lie_as_in_the_header() {
    offsets! {
        Device = ibv_device { node_type, transport_type, name }
        Context = ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors }
        ContextOps = ibv_context_ops { poll_cq, req_notify_cq, post_send, post_recv }
        PortAttr = ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
        }
        DeviceAttr = ibv_device_attr {
            fw_ver, vendor_id, max_qp, max_qp_wr, max_cq, max_cqe, max_mr, max_pd, phys_port_cnt,
        }
        GidEntry = ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        AsyncEvent = ibv_async_event { element, event_type }
    }
}

#[test]
fn queues_lie_as_in_the_header() {
    offsets! {
        Channel = ibv_comp_channel { context, fd }
        Cq = ibv_cq { context, channel, cq_context, handle, cqe }
        Qp = ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num }
        Mr = ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        Wc = ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len,
            imm_data => imm_data_invalidated_rkey_union, qp_num, src_qp, wc_flags, pkey_index,
            slid, sl, dlid_path_bits,
        }
        Sge = ibv_sge { addr, length, lkey }
        RecvWr = ibv_recv_wr { wr_id, next, sg_list, num_sge }
        SendWr = ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags,
            imm_data => imm_data_invalidated_rkey_union, remote_addr => wr.rdma.remote_addr,
            rkey => wr.rdma.rkey,
        }
        QpCap = ibv_qp_cap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        }
        QpInitAttr = ibv_qp_init_attr {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all,
        }
        GlobalRoute = ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        AhAttr = ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        QpAttr = ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn,
            dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit,
        }
    }
}

#[test]
fn connections_lie_as_in_the_header() {
    offsets! {
        CmChannel = rdma_event_channel { fd }
        CmId = rdma_cm_id { verbs, channel, context, port_num }
        ConnParam = rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        }
        CmEvent = rdma_cm_event { id, listen_id, event, status, param }
    }
}

#[test]
fn numbers_are_those_of_the_header() {
    use verbs::{
        ibv_access_flags as access, ibv_event_type as event, ibv_port_state as port,
        ibv_qp_attr_mask as mask, ibv_qp_state as state, ibv_qp_type as kind,
        ibv_send_flags as flag, ibv_transport_type as transport, ibv_wc_opcode as found,
        ibv_wr_opcode as work, rdma_cm_event_type as cm, rdma_port_space as space,
    };
    numbers! {
        PS_TCP = space::RDMA_PS_TCP;
        CM_ADDR_RESOLVED = cm::RDMA_CM_EVENT_ADDR_RESOLVED;
        CM_ADDR_ERROR = cm::RDMA_CM_EVENT_ADDR_ERROR;
        CM_ROUTE_RESOLVED = cm::RDMA_CM_EVENT_ROUTE_RESOLVED;
        CM_ROUTE_ERROR = cm::RDMA_CM_EVENT_ROUTE_ERROR;
        CM_CONNECT_REQUEST = cm::RDMA_CM_EVENT_CONNECT_REQUEST;
        CM_CONNECT_ERROR = cm::RDMA_CM_EVENT_CONNECT_ERROR;
        CM_UNREACHABLE = cm::RDMA_CM_EVENT_UNREACHABLE;
        CM_REJECTED = cm::RDMA_CM_EVENT_REJECTED;
        CM_ESTABLISHED = cm::RDMA_CM_EVENT_ESTABLISHED;
        CM_DISCONNECTED = cm::RDMA_CM_EVENT_DISCONNECTED;
        CM_DEVICE_REMOVAL = cm::RDMA_CM_EVENT_DEVICE_REMOVAL;
        TRANSPORT_IB = transport::IBV_TRANSPORT_IB;
        TRANSPORT_IWARP = transport::IBV_TRANSPORT_IWARP;
        PORT_ACTIVE = port::IBV_PORT_ACTIVE;
        EVENT_CQ_ERR = event::IBV_EVENT_CQ_ERR as u32;
        EVENT_DEVICE_FATAL = event::IBV_EVENT_DEVICE_FATAL as u32;
        EVENT_PORT_ACTIVE = event::IBV_EVENT_PORT_ACTIVE as u32;
        EVENT_PORT_ERR = event::IBV_EVENT_PORT_ERR as u32;
        GID_TYPE_ROCE_V1 = verbs::IBV_GID_TYPE_ROCE_V1;
        GID_TYPE_ROCE_V2 = verbs::IBV_GID_TYPE_ROCE_V2;
        ACCESS_LOCAL_WRITE = access::IBV_ACCESS_LOCAL_WRITE.0;
        ACCESS_REMOTE_WRITE = access::IBV_ACCESS_REMOTE_WRITE.0;
        ACCESS_REMOTE_READ = access::IBV_ACCESS_REMOTE_READ.0;
        ACCESS_RELAXED_ORDERING = access::IBV_ACCESS_RELAXED_ORDERING.0;
        QPT_RC = kind::IBV_QPT_RC;
        QPS_INIT = state::IBV_QPS_INIT;
        QPS_RTR = state::IBV_QPS_RTR;
        QPS_RTS = state::IBV_QPS_RTS;
        QPS_ERR = state::IBV_QPS_ERR;
        QP_STATE = mask::IBV_QP_STATE.0;
        QP_ACCESS_FLAGS = mask::IBV_QP_ACCESS_FLAGS.0;
        QP_PKEY_INDEX = mask::IBV_QP_PKEY_INDEX.0;
        QP_PORT = mask::IBV_QP_PORT.0;
        QP_AV = mask::IBV_QP_AV.0;
        QP_PATH_MTU = mask::IBV_QP_PATH_MTU.0;
        QP_TIMEOUT = mask::IBV_QP_TIMEOUT.0;
        QP_RETRY_CNT = mask::IBV_QP_RETRY_CNT.0;
        QP_RNR_RETRY = mask::IBV_QP_RNR_RETRY.0;
        QP_RQ_PSN = mask::IBV_QP_RQ_PSN.0;
        QP_MAX_QP_RD_ATOMIC = mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
        QP_MIN_RNR_TIMER = mask::IBV_QP_MIN_RNR_TIMER.0;
        QP_SQ_PSN = mask::IBV_QP_SQ_PSN.0;
        QP_MAX_DEST_RD_ATOMIC = mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
        QP_DEST_QPN = mask::IBV_QP_DEST_QPN.0;
        WR_RDMA_WRITE = work::IBV_WR_RDMA_WRITE;
        WR_RDMA_WRITE_WITH_IMM = work::IBV_WR_RDMA_WRITE_WITH_IMM;
        WR_SEND = work::IBV_WR_SEND;
        WR_RDMA_READ = work::IBV_WR_RDMA_READ;
        SEND_SIGNALED = flag::IBV_SEND_SIGNALED.0;
        SEND_INLINE = flag::IBV_SEND_INLINE.0;
        WC_RDMA_READ = found::IBV_WC_RDMA_READ;
        WC_RECV = found::IBV_WC_RECV;
        WC_RECV_RDMA_WITH_IMM = found::IBV_WC_RECV_RDMA_WITH_IMM;
    }
}
