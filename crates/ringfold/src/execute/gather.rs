//! Exchanges a few bytes of every rank, within a call.

use ringfold_collectives::{Algorithm, Program, Progress, ScheduleParams, Stepper, Target, lower};
use ringfold_reduce::Kernel;
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Collective, DataType, Rank, ReduceOp, Wire};

use super::buffer_map::BufferMap;
use super::ports::CallPorts;
use crate::buffers::{Buffers, Place, User};
use crate::error::CallError;
use crate::router::Router;
use crate::timing::Untimed;
use crate::watch::Watch;

/// Ranks up to which each rank sends its byte to all others directly.
const DIRECT_RANKS: usize = 16;

/// An exchange of a few bytes of every rank, within a call.
pub(super) struct Gather {
    pub(super) program: Program,
    kernel: Kernel,
    pub(super) stepper: Stepper,
    scratch: Vec<u8>,
    /// The bytes of all ranks, in rank order.
    pub(super) all: Vec<u8>,
}

impl Gather {
    pub(super) fn new(layout: &Layout, rank: Rank, own: &[u8]) -> Self {
        let (collective, data_type, op) = (Collective::AllGather, DataType::U8, ReduceOp::Sum);
        let call = Call {
            collective,
            count: own.len(),
            data_type,
            op,
            root: Rank(0),
            wire: Wire::default(),
        };
        let size = layout.size();
        // With messages between all ranks, each detects a rank in another call at once. Larger
        // groups avoid it: it would open a link between every two ranks.
        let name = if size <= DIRECT_RANKS { "direct" } else { "bruck" };
        let algorithm = Algorithm::named(collective, name).expect("an algorithm of that name");
        let chunk = size * own.len();
        let plan = ScheduleParams { call, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let target = Target { in_place: true, ..Target::default() };
        let program = lower(&(algorithm.schedule)(&plan), target);
        let scratch = vec![0; program.scratch_len() + program.rounded_len()];
        let mut all = vec![0; size * own.len()];
        all[rank.index() * own.len()..][..own.len()].copy_from_slice(own);
        let mut stepper = Stepper::new();
        stepper.start(&program);
        Self { kernel: Kernel::new(data_type, op, size), program, stepper, scratch, all }
    }

    pub(super) fn advance(
        &mut self,
        tag: u32,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        let mut all = Buffers::InPlace(&mut self.all);
        let place = Place::of(&all);
        let mut user = User::Private(&mut all);
        let mut buffers = BufferMap::new(&self.program, &mut self.scratch);
        buffers.add_user(&self.program, false, &mut user, place);
        let (kernel, buffers) = (&self.kernel, &mut buffers);
        let mut ports =
            CallPorts { router, watch, kernel, tag, buffers, handed: &[], timing: Untimed };
        self.stepper.advance(&self.program, &mut ports, budget)
    }
}
