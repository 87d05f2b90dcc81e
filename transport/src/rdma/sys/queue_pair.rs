//! Queue pairs for reliable connections.

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::abi;
use super::completion::Cq;
use super::connection::Ticket;
use super::device::check;
use super::iwarp_immediates::{IMMEDIATE_BYTES, IwarpImmediates};
use super::memory::{Mr, Pd};
use super::request::{INLINE_BYTES, PIECES, Request};

/// The encoded time (0.64 ms) after which a sender that found no receive posted tries again.
/// Credits ensure that it always finds one.
const RNR_TIMER: u8 = 12;
/// The number of such tries that means no limit.
const RNR_RETRIES: u8 = 7;
/// Receives posted by one call.
const RECEIVES: usize = 32;

/// One end of a connection.
pub(in crate::rdma) struct Qp {
    raw: NonNull<abi::Qp>,
    post_send: abi::PostSend,
    post_recv: abi::PostRecv,
    inline_bytes: usize,
    /// The receive buffers of immediates, over iWARP.
    immediates: Option<IwarpImmediates>,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    /// The device was asked to destroy it.
    is_gone: bool,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Qp {}

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Sizes {
    pub(in crate::rdma) sends: u32,
    pub(in crate::rdma) receives: u32,
    /// Inline bytes of a send, if the device can.
    pub(in crate::rdma) inline_bytes: u32,
}

/// The route to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Route {
    /// Our own port.
    pub(in crate::rdma) port: u8,
    /// The index of our GID.
    pub(in crate::rdma) gid_index: u32,
    /// The peer's GID, where packets have a global header.
    pub(in crate::rdma) gid: Option<[u8; 16]>,
    /// The LID, by which InfiniBand switches forward packets; 0 on Ethernet.
    pub(in crate::rdma) lid: u16,
    /// The MTU, as verbs count it.
    pub(in crate::rdma) mtu: u8,
    pub(in crate::rdma) service_level: u8,
    pub(in crate::rdma) traffic_class: u8,
    /// The wait for an answer: 4.096 us times two to the power of this.
    pub(in crate::rdma) timeout: u8,
    /// The number of retries.
    pub(in crate::rdma) retries: u8,
}

/// The other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rdma) struct Target {
    /// Its number; over iWARP, the port to connect to.
    pub(in crate::rdma) number: u32,
    /// The sequence number of its first packet.
    pub(in crate::rdma) sequence: u32,
    /// The ticket to show to the listener, over iWARP.
    pub(in crate::rdma) ticket: Ticket,
    /// The address of memory for questions. Over iWARP it may be read, and the answer shows that
    /// everything posted before has arrived.
    pub(in crate::rdma) address: u64,
    /// The key to that memory.
    pub(in crate::rdma) key: u32,
}

/// A write to the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct Put<'a> {
    /// The registration of the bytes.
    pub(in crate::rdma) from: &'a Mr,
    /// The first byte, and the number of bytes.
    pub(in crate::rdma) range: (usize, usize),
    /// The payload, which follows these bytes, if it lies elsewhere.
    pub(in crate::rdma) lent: Option<(&'a Mr, (usize, usize))>,
    /// The address at the peer.
    pub(in crate::rdma) to: u64,
    /// The key to that address.
    pub(in crate::rdma) remote_key: u32,
    /// The address and key of the payload at the peer, if it does not follow the bytes. It is
    /// written before them. Not over iWARP.
    pub(in crate::rdma) placed: Option<(u64, u32)>,
}

impl Qp {
    /// Makes a queue pair that is not connected.
    pub(in crate::rdma) fn new(pd: &Arc<Pd>, cq: &Arc<Cq>, sizes: Sizes) -> io::Result<Self> {
        let unable = || io::Error::from(io::ErrorKind::Unsupported);
        let ops = pd.context().ops();
        let post_send = ops.post_send.ok_or_else(unable)?;
        let post_recv = ops.post_recv.ok_or_else(unable)?;
        let is_iwarp = pd.context().is_iwarp();
        let immediates =
            if is_iwarp { Some(IwarpImmediates::new(pd, sizes.receives)?) } else { None };
        let mut wanted = abi::QpInitAttrEx {
            first: abi::QpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: cq.raw(),
                recv_cq: cq.raw(),
                srq: ptr::null_mut(),
                cap: abi::QpCap::default(),
                qp_type: abi::QPT_RC,
                sq_sig_all: 0,
                comp_mask: abi::QP_INIT_ATTR_PD | abi::QP_INIT_ATTR_SEND_OPS_FLAGS,
            },
            pd: pd.raw(),
            xrcd: ptr::null_mut(),
            create_flags: 0,
            max_tso_header: 0,
            rwq_ind_tbl: ptr::null_mut(),
            rx_hash_conf: [0; 3],
            source_qpn: 0,
            send_ops_flags: abi::QP_EX_WITH_RDMA_WRITE | abi::QP_EX_WITH_RDMA_WRITE_WITH_IMM,
        };
        let mut create = |create_ex: Option<abi::CreateQpEx>, inline_bytes| {
            wanted.first.cap = abi::QpCap {
                max_send_wr: sizes.sends,
                max_recv_wr: sizes.receives,
                max_send_sge: u32::try_from(PIECES).unwrap_or(1),
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            };
            // SAFETY: domain and queue live, and are kept by the queue pair. The short attributes
            // are the first fields of the long ones.
            let raw = unsafe {
                match create_ex {
                    Some(create) => create(pd.context().raw(), &raw mut wanted),
                    None => (pd.context().library().create_qp)(pd.raw(), (&raw mut wanted).cast()),
                }
            };
            let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
            // The device may have given more than it was asked for.
            Ok::<_, io::Error>((raw, wanted.first.cap.max_inline_data as usize))
        };
        // Room for atomic operations and memory windows in each request would take two and a half
        // times the memory (`_sq_overhead` in rdma-core's providers/mlx5).
        let create_ex = pd.context().create_qp_ex().filter(|_| !is_iwarp);
        let small = create_ex.map(|create_ex| create(Some(create_ex), sizes.inline_bytes));
        // A device that cannot carry as many inline bytes does without, except for immediates.
        let least = if is_iwarp { IMMEDIATE_BYTES } else { 0 };
        let (raw, inline_bytes) = match small {
            Some(Ok(small)) => small,
            _ => create(None, sizes.inline_bytes).or_else(|_| create(None, least))?,
        };
        let (pd, cq, is_gone) = (Arc::clone(pd), Arc::clone(cq), false);
        let made = Self { raw, post_send, post_recv, inline_bytes, immediates, pd, cq, is_gone };
        if inline_bytes < least as usize {
            return Err(io::Error::other("the device takes no number into a request"));
        }
        Ok(made)
    }

    /// Returns whether writes and immediates are requests of their own, in this order.
    pub(in crate::rdma) const fn is_iwarp(&self) -> bool {
        self.immediates.is_some()
    }

    pub(in crate::rdma) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    fn modify(&self, mut attributes: abi::QpAttr, mask: i32) -> io::Result<()> {
        let modify = self.pd.context().library().modify_qp;
        // SAFETY: the queue pair lives, and the attributes that the mask names are filled in.
        check(unsafe { modify(self.raw.as_ptr(), &raw mut attributes, mask) })
    }

    /// Lets receives be posted. Over iWARP, the connection does the rest.
    pub(in crate::rdma) fn init(&self, port: u8, partition_key_index: u16) -> io::Result<()> {
        if self.is_iwarp() {
            let access = abi::ACCESS_REMOTE_WRITE | abi::ACCESS_REMOTE_READ;
            let attributes = abi::QpAttr {
                qp_state: abi::QPS_INIT,
                qp_access_flags: access.cast_unsigned(),
                ..abi::QpAttr::default()
            };
            return self.modify(attributes, abi::QP_STATE | abi::QP_ACCESS_FLAGS);
        }
        let attributes = abi::QpAttr {
            qp_state: abi::QPS_INIT,
            port_num: port,
            pkey_index: partition_key_index,
            qp_access_flags: abi::ACCESS_REMOTE_WRITE.cast_unsigned(),
            ..abi::QpAttr::default()
        };
        let mask = abi::QP_STATE | abi::QP_PKEY_INDEX | abi::QP_PORT | abi::QP_ACCESS_FLAGS;
        self.modify(attributes, mask)
    }

    /// Connects to `target`, which must do the same. Our packets begin with number `sequence`.
    pub(in crate::rdma) fn connect(
        &self,
        route: &Route,
        target: Target,
        sequence: u32,
    ) -> io::Result<()> {
        let mut address = abi::AhAttr {
            dlid: route.lid,
            sl: route.service_level,
            port_num: route.port,
            ..abi::AhAttr::default()
        };
        if let Some(gid) = route.gid {
            address.is_global = 1;
            address.grh = abi::GlobalRoute {
                dgid: gid,
                flow_label: 0,
                sgid_index: u8::try_from(route.gid_index).unwrap_or(u8::MAX),
                hop_limit: 255,
                traffic_class: route.traffic_class,
            };
        }
        let attributes = abi::QpAttr {
            qp_state: abi::QPS_RTR,
            path_mtu: route.mtu.into(),
            dest_qp_num: target.number,
            rq_psn: target.sequence,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RNR_TIMER,
            ah_attr: address,
            ..abi::QpAttr::default()
        };
        let mask = abi::QP_STATE
            | abi::QP_AV
            | abi::QP_PATH_MTU
            | abi::QP_DEST_QPN
            | abi::QP_RQ_PSN
            | abi::QP_MAX_DEST_RD_ATOMIC
            | abi::QP_MIN_RNR_TIMER;
        self.modify(attributes, mask)?;
        let attributes = abi::QpAttr {
            qp_state: abi::QPS_RTS,
            sq_psn: sequence,
            timeout: route.timeout,
            retry_cnt: route.retries,
            rnr_retry: RNR_RETRIES,
            max_rd_atomic: 1,
            ..abi::QpAttr::default()
        };
        let mask = abi::QP_STATE
            | abi::QP_TIMEOUT
            | abi::QP_RETRY_CNT
            | abi::QP_RNR_RETRY
            | abi::QP_SQ_PSN
            | abi::QP_MAX_QP_RD_ATOMIC;
        self.modify(attributes, mask)
    }

    /// Ends the connection: the device refuses the peer's work from now on, and flushes ours.
    ///
    /// # Errors
    /// The device refuses. The peer can write until the queue pair is destroyed.
    pub(in crate::rdma) fn fail(&self) -> io::Result<()> {
        let attributes = abi::QpAttr { qp_state: abi::QPS_ERR, ..abi::QpAttr::default() };
        self.modify(attributes, abi::QP_STATE)
    }

    /// Destroys the queue pair. Blocks until the device sends and takes nothing for it any more.
    ///
    /// # Errors
    /// The device refuses, and may go on. Domain, queue and memory of the queue pair are leaked.
    pub(in crate::rdma) fn destroy(mut self) -> io::Result<()> {
        self.release()
    }

    fn release(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_gone, true) {
            return Ok(());
        }
        // SAFETY: made by `new`, nobody else has it, and nothing uses it after this.
        let released = check(unsafe { (self.pd.context().library().destroy_qp)(self.raw()) });
        if released.is_err() {
            std::mem::forget((Arc::clone(&self.pd), Arc::clone(&self.cq), self.immediates.take()));
        }
        released
    }

    const fn raw(&self) -> *mut abi::Qp {
        self.raw.as_ptr()
    }

    /// Posts `count` receives, one for each immediate of the peer, which complete under `id`. Over
    /// iWARP the number of a buffer slot is added to `id`, and `immediate` reads the slot.
    pub(in crate::rdma) fn receive(&mut self, id: u64, mut count: usize) -> io::Result<()> {
        while count > 0 {
            let batch = count.min(RECEIVES);
            let mut pieces = [const { abi::Sge { addr: 0, length: 0, lkey: 0 } }; RECEIVES];
            let mut chain: [abi::RecvWr; RECEIVES] = std::array::from_fn(|_| abi::RecvWr {
                wr_id: id,
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: 0,
            });
            if let Some(immediates) = &mut self.immediates {
                for (work, piece) in chain.iter_mut().zip(&mut pieces).take(batch) {
                    let slot;
                    (*piece, slot) = immediates.next_slot();
                    work.wr_id |= u64::from(slot);
                    (work.sg_list, work.num_sge) = (piece, 1);
                }
            }
            for at in (1..batch).rev() {
                chain[at - 1].next = &raw mut chain[at];
            }
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair lives, and the chain ends at `batch`. A receive exposes only
            // memory that the queue pair keeps. The driver copies the requests.
            check(unsafe {
                (self.post_recv)(self.raw.as_ptr(), chain.as_mut_ptr(), &raw mut bad)
            })?;
            count -= batch;
        }
        Ok(())
    }

    /// Returns the immediate that a message of so many bytes has brought to a slot, if it is one.
    pub(in crate::rdma) fn immediate(&self, slot: u32, bytes: u32) -> Option<u32> {
        self.immediates.as_ref().filter(|_| bytes == IMMEDIATE_BYTES)?.read(slot)
    }

    /// Asks the peer's device whether everything posted before has arrived. The answer completes
    /// under `id`. The question is a write of the `payload`, if there is one, to `target`'s memory.
    /// Over iWARP a read of that memory follows, and only one may be under way. It is never empty,
    /// because soft devices fail in an empty read.
    pub(in crate::rdma) fn ask(
        &mut self,
        id: u64,
        target: &Target,
        payload: Option<(&Mr, (usize, usize))>,
    ) -> io::Result<()> {
        let answer = self.immediates.as_ref().map(IwarpImmediates::answer);
        let mut write = Request::new(id, abi::WR_RDMA_WRITE, answer.is_none());
        if let Some((from, range)) = payload {
            write.to = (target.address, target.key);
            write.take(piece(from, range)?);
        }
        let Some(answer) = answer else { return self.post([write]) };
        // The bytes read go to a slot of their own, in memory that the queue pair keeps.
        let mut read = Request::new(id, abi::WR_RDMA_READ, true);
        read.to = (target.address, target.key);
        read.take(answer);
        if payload.is_some() { self.post([write, read]) } else { self.post([read]) }
    }

    /// Posts a write to the peer's memory, if there is one, that brings the immediate `number`.
    /// `is_signaled` work completes under `id`.
    pub(in crate::rdma) fn put(
        &mut self,
        id: u64,
        put: Option<Put<'_>>,
        number: u32,
        is_signaled: bool,
    ) -> io::Result<()> {
        let mut work = Request::new(id, abi::WR_RDMA_WRITE_WITH_IMM, is_signaled);
        work.number = number;
        let has_put = put.is_some();
        let mut before = None;
        if let Some(Put { from, range, lent, to, remote_key, placed }) = put {
            work.to = (to, remote_key);
            work.take(piece(from, range)?);
            match (lent, placed) {
                (Some((from, range)), Some(to)) => {
                    let mut payload = Request::new(id, abi::WR_RDMA_WRITE, false);
                    payload.to = to;
                    payload.take(piece(from, range)?);
                    before = Some(payload);
                }
                (Some((from, range)), None) => work.take(piece(from, range)?),
                (None, _) => {}
            }
            if work.count == 1 && range.1 <= self.inline_bytes {
                work.flags |= abi::SEND_INLINE;
            }
        }
        if let Some(payload) = before {
            return self.post([payload, work]);
        }
        if !self.is_iwarp() {
            return self.post([work]);
        }
        let mut message = Request::new(id, abi::WR_SEND, is_signaled);
        message.set_inline(&number.to_le_bytes());
        (work.opcode, work.number) = (abi::WR_RDMA_WRITE, 0);
        work.flags &= !abi::SEND_SIGNALED;
        if has_put { self.post([work, message]) } else { self.post([message]) }
    }

    /// Returns whether `write_inline` takes lines of so many bytes.
    pub(in crate::rdma) const fn can_write_inline(&self, line: usize) -> bool {
        self.inline_bytes >= line && INLINE_BYTES >= line && !self.is_iwarp()
    }

    /// Posts an inline write of a line to the peer's memory at `to`, which brings the immediate
    /// `number`. A second line, if there is one, is written behind the first before that.
    ///
    /// # Panics
    /// A line is longer than `can_write_inline` allows.
    pub(in crate::rdma) fn write_inline(
        &mut self,
        id: u64,
        lines: &[u8],
        to: (u64, u32),
        number: u32,
        is_signaled: bool,
    ) -> io::Result<()> {
        let (first, second) = lines.split_at(lines.len().min(INLINE_BYTES));
        let mut work = Request::new(id, abi::WR_RDMA_WRITE_WITH_IMM, is_signaled);
        (work.number, work.to) = (number, to);
        work.set_inline(first);
        if second.is_empty() {
            return self.post([work]);
        }
        let mut before = Request::new(id, abi::WR_RDMA_WRITE, false);
        before.to = (to.0.wrapping_add(INLINE_BYTES as u64), to.1);
        before.set_inline(second);
        self.post([before, work])
    }

    /// Posts requests that belong together, in this order, by one ring of the doorbell.
    fn post<const N: usize>(&mut self, mut requests: [Request; N]) -> io::Result<()> {
        let mut works = requests.each_mut().map(Request::work);
        for at in (1..N).rev() {
            works[at - 1].next = &raw mut works[at];
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair lives, and the chain ends with `works`. Their pieces lie within
        // registered memory, which the device can access only as long as it is registered, or
        // inline in `requests`. The driver copies works and pieces.
        check(unsafe { (self.post_send)(self.raw.as_ptr(), works.as_mut_ptr(), &raw mut bad) })
    }
}

/// The description of registered bytes for a device.
fn piece(from: &Mr, (at, bytes): (usize, usize)) -> io::Result<abi::Sge> {
    let Range { start, end } = at..at + bytes;
    assert!(start < end && end <= from.region().bytes(), "{bytes} bytes at {at}");
    let length = u32::try_from(bytes).map_err(io::Error::other)?;
    Ok(abi::Sge { addr: from.region().address(start), length, lkey: from.local_key() })
}

impl Drop for Qp {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::warn!("rdma: {self:?} cannot be destroyed: {error}; see `dmesg`");
        }
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({} at {:p})", self.pd.context().name(), self.raw())
    }
}
