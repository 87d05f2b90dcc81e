//! Groups of calls: messages that start together, and like collectives that are packed into one.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use bytemuck::Pod;
use ringfold_lend::{Loan, borrow_buffers, lend_parts};
use ringfold_reduce::Element;
use ringfold_types::{Call, Collective, Rank, ReduceOp, Wire};

use crate::arguments::valid;
use crate::buffers::{AlignedBytes, Buffers, Place, User};
use crate::cache::Request;
use crate::collective::{apart, in_place, movement, reduction};
use crate::communicator::Communicator;
use crate::core::StartedCall;
use crate::error::Error;
use crate::messages::{End, Receiving, Sending};
use crate::packs::{Pack, packs};
use crate::requests::job::{CallJob, Job, Memory};
use crate::requests::{self, Failed, Started};
use crate::ticket::Ticket;

/// The calls of a group, which [`Communicator::group`] performs, and [`Communicator::start_group`]
/// starts. It borrows their buffers until then.
#[derive(Debug)]
pub struct CallGroup<'b> {
    wire: Wire,
    calls: Calls,
    buffers: PhantomData<&'b mut [u8]>,
}

/// The calls of a group, in borrowed memory.
#[derive(Debug, Default)]
struct Calls {
    sends: Vec<Sending>,
    receives: Vec<Receiving>,
    collectives: Vec<(Call, Loan)>,
}

impl<'b> CallGroup<'b> {
    fn new(wire: Wire) -> Self {
        Self { wire, calls: Calls::default(), buffers: PhantomData }
    }

    /// Adds [`Communicator::send`]. The group may also receive the message, if it goes to this
    /// rank.
    pub fn send<T: Pod>(&mut self, data: &'b [T], to: Rank, tag: u32) {
        self.calls.sends.push(Sending::borrowed(data, to, tag));
    }

    /// Adds [`Communicator::recv`].
    pub fn recv<T: Pod>(
        &mut self,
        data: &'b mut [T],
        from: impl Into<Option<Rank>>,
        tag: impl Into<Option<u32>>,
    ) {
        self.calls.receives.push(Receiving::borrowed(data, from.into(), tag.into()));
    }

    /// Adds [`Communicator::all_reduce`].
    pub fn all_reduce<T: Element>(&mut self, buffer: &'b mut [T], op: ReduceOp) {
        let call = reduction::<T>(self.wire, Collective::AllReduce, buffer.len(), op, Rank(0));
        self.perform(&call, in_place(buffer));
    }

    /// Adds [`Communicator::broadcast`].
    pub fn broadcast<T: Pod>(&mut self, buffer: &'b mut [T], root: Rank) {
        let call = movement::<T>(Collective::Broadcast, buffer.len(), root);
        self.perform(&call, in_place(buffer));
    }

    /// Adds [`Communicator::all_gather_into`].
    pub fn all_gather_into<T: Pod>(&mut self, input: &'b [T], output: &'b mut [T]) {
        let call = movement::<T>(Collective::AllGather, input.len(), Rank(0));
        self.perform(&call, apart(input, output));
    }

    /// Adds [`Communicator::reduce_scatter_into`].
    pub fn reduce_scatter_into<T: Element>(
        &mut self,
        input: &'b [T],
        output: &'b mut [T],
        op: ReduceOp,
    ) {
        let call = reduction::<T>(self.wire, Collective::ReduceScatter, output.len(), op, Rank(0));
        self.perform(&call, apart(input, output));
    }

    /// Adds [`Communicator::perform`], for every other collective.
    pub fn perform(&mut self, call: &Call, buffers: Buffers<'b>) {
        let memory = match buffers {
            Buffers::Apart { input, output } => borrow_buffers(Some(input), output),
            Buffers::InPlace(both) => borrow_buffers(None, both),
        };
        self.calls.collectives.push((*call, memory));
    }
}

impl Communicator {
    /// Performs the calls that `add` adds to a group. Blocks until all are done.
    ///
    /// The messages of the group start together, so sends and receives in any order do not
    /// deadlock. Its collectives begin when its messages are done, in their order. Short ones of
    /// the same kind, type, operation and root become one call: all ranks must add the same ones.
    /// Such a sum may have been added in another order than by a call of its own.
    ///
    /// # Errors
    /// As for the calls. After [`Error::Argument`] no call of the group has begun.
    ///
    /// ```
    /// use ringfold::{Rank, ReduceOp, local};
    ///
    /// let results = local::run(3, |comm| {
    ///     let (rank, size) = (comm.rank().0, comm.size() as u32);
    ///     let data = [rank; 1000];
    ///     let mut from = vec![[9_u32; 1000]; size as usize];
    ///     let mut sums = [[1.0_f32, 2.0], [3.0, 4.0]];
    ///     comm.group(|group| {
    ///         for peer in 0..size {
    ///             group.send(&data, Rank(peer), 0);
    ///         }
    ///         for (peer, from) in (0..size).zip(&mut from) {
    ///             group.recv(from, Rank(peer), 0);
    ///         }
    ///         for sum in &mut sums {
    ///             group.all_reduce(sum, ReduceOp::Sum);
    ///         }
    ///     })
    ///     .unwrap();
    ///     (from[0][0], from[2][999], sums)
    /// })?;
    /// assert_eq!(results, [(0, 2, [[3.0, 6.0], [9.0, 12.0]]); 3]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn group<'b>(&mut self, add: impl FnOnce(&mut CallGroup<'b>)) -> Result<(), Error> {
        self.check_process()?;
        self.check_failure()?;
        let mut group = CallGroup::new(self.wire());
        add(&mut group);
        let Calls { sends, receives, mut collectives } = group.calls;
        self.check_collectives(&mut collectives)?;
        // The other ranks perform the collectives also where a message is too long for its buffer.
        let truncated = match self.exchange_messages(sends, receives) {
            Ok(_) => Ok(()),
            Err(error @ Error::Truncated { .. }) => Err(error),
            Err(error) => return Err(error),
        };
        packs(collectives, self.size()).into_iter().try_for_each(|pack| self.perform_pack(pack))?;
        truncated
    }

    /// Starts [`group`](Self::group) with the calls that `add` adds. They use the memory of
    /// `buffers`, and the request ends with the last of them. Does not wait for other ranks.
    ///
    /// The collectives do not wait for the messages. A rank may start a group that another one
    /// performs by [`group`](Self::group). A message of this rank to itself may also meet one that
    /// is no part of the group.
    ///
    /// # Errors
    /// [`Error::Argument`] if a call is invalid, or within [`prepare`](Self::prepare); and those
    /// that are known already, with the buffers. No call has begun then. [`Request::wait`] returns
    /// those of the calls, and [`Error::Truncated`] only if the others have succeeded.
    ///
    /// [`Request::wait`]: crate::Request::wait
    ///
    /// ```
    /// use ringfold::{Rank, ReduceOp, local};
    ///
    /// let results = local::run(2, |comm| {
    ///     let (own, peer) = (comm.rank().0, Rank(1 - comm.rank().0));
    ///     let buffers = ([own; 5], [9_u32; 5], [1_u32, 2]);
    ///     let request = comm.start_group(buffers, |(data, from, sum), group| {
    ///         group.send(data, peer, 0);
    ///         group.recv(from, peer, 0);
    ///         group.all_reduce(sum, ReduceOp::Sum);
    ///     });
    ///     // The program computes here.
    ///     let (_, from, sum) = request.unwrap().wait().unwrap();
    ///     (from[4], sum)
    /// })?;
    /// assert_eq!(results, [(1, [2, 4]), (0, [2, 4])]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn start_group<B: Send + 'static>(
        &mut self,
        buffers: B,
        add: impl for<'b> FnOnce(&'b mut B, &mut CallGroup<'b>),
    ) -> Started<B> {
        let wire = self.wire();
        let (mut calls, whole, mut owner) = lend_parts(buffers, |buffers| {
            let mut group = CallGroup::new(wire);
            add(buffers, &mut group);
            group.calls
        });
        if let Err(error) = self.check_started_group(&mut calls) {
            drop((calls, whole));
            let Some(buffers) = owner.take() else { unreachable!("the loan has ended") };
            return Err(Failed { error, buffers });
        }
        let ticket = Arc::new(Ticket::default());
        let jobs = self.jobs_of(calls, &whole, &ticket);
        drop(whole);
        ticket.await_parts(jobs.len());
        jobs.into_iter().for_each(|job| self.begin(job));
        Ok(requests::Request::new(self.rank(), owner, ticket, Arc::clone(self.slot())))
    }

    /// The calls of a group as jobs, whose memory is a part of the `whole` loan.
    fn jobs_of(&self, calls: Calls, whole: &Loan, ticket: &Arc<Ticket>) -> Vec<Job> {
        let timeout = self.timeout();
        let (deadline, end) = (Some(Instant::now() + timeout), || End::Started(Arc::clone(ticket)));
        let Calls { mut sends, mut receives, mut collectives } = calls;
        let memories = sends.iter_mut().map(|it| &mut it.memory);
        let memories = memories.chain(receives.iter_mut().map(|it| &mut it.memory));
        memories
            .chain(collectives.iter_mut().map(|it| &mut it.1))
            .for_each(|memory| whole.extend_to(memory));
        let sends = sends.into_iter().map(|it| Job::Send(Sending { deadline, end: end(), ..it }));
        let receives =
            receives.into_iter().map(|it| Job::Receive(Receiving { deadline, end: end(), ..it }));
        let packs = packs(collectives, self.size()).into_iter().map(|mut calls| {
            let (call, mark, mut memory) = if calls.len() > 1 {
                let pack = Pack::new(calls, AlignedBytes::default(), (self.rank(), self.size()));
                (pack.call, Some(pack.mark), Memory::Packed(Box::new(pack)))
            } else {
                let Some((call, memory)) = calls.pop() else { unreachable!("no pack is empty") };
                (call, None, Memory::Lent(memory))
            };
            Job::Call(CallJob {
                call: StartedCall::Scheduled { call, blocks: None, mark },
                place: memory.lent().place(),
                timeout,
                memory,
                begun: None,
                ticket: Arc::clone(ticket),
            })
        });
        sends.chain(receives).chain(packs).collect()
    }

    fn check_started_group(&self, calls: &mut Calls) -> Result<(), Error> {
        self.check_process()?;
        if self.kept.is_some() {
            let what = "a group of calls cannot be prepared; prepare its calls".to_owned();
            return Err(Error::Argument { rank: self.rank(), call: "prepare", what });
        }
        calls.sends.iter().try_for_each(|it| self.check_peer("send", it.to))?;
        let sources = calls.receives.iter().filter_map(|it| it.from);
        sources.into_iter().try_for_each(|from| self.check_peer("recv", from))?;
        self.check_collectives(&mut calls.collectives)?;
        self.check_failure()
    }

    fn check_collectives(&self, collectives: &mut [(Call, Loan)]) -> Result<(), Error> {
        for (call, memory) in collectives {
            // Fields without a meaning must not make the packs of ranks differ.
            *call = valid(call, Place::of(&Buffers::of_loan(memory)), self.size(), self.rank())?;
        }
        Ok(())
    }

    /// Performs the calls of a pack as one.
    fn perform_pack(&mut self, mut calls: Vec<(Call, Loan)>) -> Result<(), Error> {
        if let [(call, memory)] = &mut *calls {
            let mut buffers = Buffers::of_loan(memory);
            let request = Request::ordinary(call, &buffers);
            return self.perform_request(request, User::Private(&mut buffers));
        }
        let memory = std::mem::take(&mut self.engine()?.core.packed);
        let mut pack = Pack::new(calls, memory, (self.rank(), self.size()));
        let (call, mark) = (pack.call, Some(pack.mark));
        let mut buffers = pack.buffers();
        let request = Request { mark, ..Request::ordinary(&call, &buffers) };
        let outcome = self.perform_request(request, User::Private(&mut buffers));
        if outcome.is_ok() {
            pack.scatter();
        }
        self.engine()?.core.packed = pack.whole;
        outcome
    }
}
