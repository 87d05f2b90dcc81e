//! Messages between two ranks: the typed methods.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use ringfold_lend::{Loan, Owner, lend};
use ringfold_types::Rank;

use crate::communicator::Communicator;
use crate::error::{Error, Message, Operation};
use crate::messages::{Elements, End, Receiving, Sending};
use crate::requests::job::Job;
use crate::requests::{Failed, Request, Started};
use crate::ticket::Ticket;

/// The source of a receive that takes a message of any rank.
pub const ANY_SOURCE: Option<Rank> = None;

/// The tag of a receive that takes a message with any tag.
pub const ANY_TAG: Option<u32> = None;

/// The source and the tag of a receive.
type Which = (Option<Rank>, Option<u32>);

/// A buffer that a started receive has filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<B> {
    /// The buffer. The message is at its front.
    pub buffer: B,
    /// The message, if the receive has succeeded.
    pub message: Message,
}

/// Messages between two ranks. They have no part in the order of the collectives.
///
/// A receive takes the first message of its source that has its tag. [`ANY_SOURCE`] and [`ANY_TAG`]
/// take any. Messages with the same tag from one rank to another never overtake each other, and
/// neither do receives that want the same message.
impl Communicator {
    /// Sends `data` to rank `to`. `u8` stands for bytes, which fit every type.
    ///
    /// Blocks until the message has left, or until the receiver takes it if it is long. Two ranks
    /// that send long messages to each other must use [`send_recv`](Self::send_recv),
    /// [`group`](Self::group) or [`start_send`](Self::start_send), or they wait until the timeout.
    ///
    /// # Errors
    /// [`Error::Argument`] if `to` is no rank, or this one without a receive that was started for
    /// the message; [`Error::Failed`] if the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// let sums = local::run(2, |comm| {
    ///     let mut words = [1, 2, 3];
    ///     if comm.rank() == Rank(0) {
    ///         comm.send(&words, Rank(1), 7).unwrap();
    ///     } else {
    ///         comm.recv(&mut words, Rank(0), 7).unwrap();
    ///     }
    ///     words.iter().sum::<i32>()
    /// })?;
    /// assert_eq!(sums, [6, 6]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn send<T: Pod>(&mut self, data: &[T], to: Rank, tag: u32) -> Result<(), Error> {
        self.exchange_messages([Sending::borrowed(data, to, tag)], []).map(drop)
    }

    /// Receives a message into the front of `data`, and returns its sender, tag and length. Blocks
    /// until it has arrived.
    ///
    /// Among several senders the search for a message of [`ANY_SOURCE`] begins behind the one that
    /// it found last.
    ///
    /// # Errors
    /// [`Error::Argument`] if `from` is no rank, or this one without a message that was started;
    /// [`Error::Truncated`] if the message is longer than `data`, which leaves the message to a
    /// later receive; [`Error::Failed`] if the message has another type, the sender or all other
    /// ranks have left, or the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{ANY_SOURCE, ANY_TAG, Rank, local};
    ///
    /// let sums = local::run(4, |comm| {
    ///     let own = comm.rank();
    ///     if own != Rank(0) {
    ///         comm.send(&[own.0 * 10], Rank(0), own.0).unwrap();
    ///         return 0;
    ///     }
    ///     let (mut first, mut sum) = ([0_u32; 5], 0);
    ///     let message = comm.recv(&mut first, Rank(2), ANY_TAG).unwrap();
    ///     assert_eq!((message.tag, message.bytes, first[0]), (2, 4, 20));
    ///     for _ in 2..comm.size() {
    ///         let mut result = [0];
    ///         let message = comm.recv(&mut result, ANY_SOURCE, ANY_TAG).unwrap();
    ///         assert_eq!(result, [message.peer.0 * 10]);
    ///         sum += result[0];
    ///     }
    ///     sum
    /// })?;
    /// assert_eq!(sums, [40, 0, 0, 0]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn recv<T: Pod>(
        &mut self,
        data: &mut [T],
        from: impl Into<Option<Rank>>,
        tag: impl Into<Option<u32>>,
    ) -> Result<Message, Error> {
        let receiving = Receiving::borrowed(data, from.into(), tag.into());
        let received = self.exchange_messages([], [receiving])?;
        let Some(message) = received else { unreachable!("a receive has a message") };
        Ok(message)
    }

    /// The message that such a receive would take, if it has begun to arrive: its sender, tag and
    /// length. Does not wait, and leaves the message to a receive.
    ///
    /// # Errors
    /// [`Error::Argument`] if `from` is no rank; [`Error::Failed`] if the sender has left and all
    /// of its messages are received, or the job has failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{ANY_TAG, Rank, local};
    ///
    /// local::run(2, |comm| {
    ///     if comm.rank() == Rank(0) {
    ///         return comm.send(&[1.0, 2.0, 3.0], Rank(1), 7).unwrap();
    ///     }
    ///     let message = loop {
    ///         if let Some(message) = comm.probe(Rank(0), ANY_TAG).unwrap() {
    ///             break message;
    ///         }
    ///     };
    ///     let mut values = vec![0.0; message.bytes / size_of::<f64>()];
    ///     comm.recv(&mut values, message.peer, message.tag).unwrap();
    ///     assert_eq!(values, [1.0, 2.0, 3.0]);
    /// })?;
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn probe(
        &mut self,
        from: impl Into<Option<Rank>>,
        tag: impl Into<Option<u32>>,
    ) -> Result<Option<Message>, Error> {
        let (from, tag) = (from.into(), tag.into());
        let (rank, size) = (self.rank(), self.size());
        self.check_process()?;
        self.check_failure()?;
        if let Some(from) = from.filter(|from| from.index() >= size) {
            let what = format!("rank {from} is not one of the {size} ranks");
            return Err(Error::Argument { rank, call: "probe", what });
        }
        let operation = Operation::Probe { from };
        self.beside()?.attempt(
            |_| operation,
            |core, watch| {
                watch.check_abort_after_pause()?;
                core.router.poll()?;
                core.post.probe(from, tag, &mut core.router, watch)
            },
        )
    }

    /// Sends `data` to rank `to` and receives a message of rank `from` into `into`, both with this
    /// tag, and returns its length with its sender. Both progress at once, so a ring of ranks that
    /// all call it does not deadlock. Both ranks may be this one. Blocks until both are done.
    ///
    /// # Errors
    /// As for [`send`](Self::send) and [`recv`](Self::recv), but for ranks that are this one.
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// let from = local::run(3, |comm| {
    ///     let (rank, size) = (comm.rank().0, comm.size() as u32);
    ///     let mut from = [0_u32];
    ///     let (next, previous) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    ///     comm.send_recv(&[rank], next, &mut from, previous, 0).unwrap();
    ///     from[0]
    /// })?;
    /// assert_eq!(from, [2, 0, 1]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn send_recv<T: Pod, U: Pod>(
        &mut self,
        data: &[T],
        to: Rank,
        into: &mut [U],
        from: impl Into<Option<Rank>>,
        tag: u32,
    ) -> Result<Message, Error> {
        let sending = Sending::borrowed(data, to, tag);
        let receiving = Receiving::borrowed(into, from.into(), Some(tag));
        let received = self.exchange_messages([sending], [receiving])?;
        let Some(message) = received else { unreachable!("a receive has a message") };
        Ok(message)
    }

    /// Starts [`send`](Self::send), also to this rank. The request ends when the transport has the
    /// message. Does not wait for the receiver.
    ///
    /// # Errors
    /// Those of the call on its arguments, and those that are known already, with the buffer.
    ///
    /// ```
    /// use ringfold::{ANY_SOURCE, Rank, local};
    ///
    /// local::run(2, |comm| {
    ///     let peer = Rank(1 - comm.rank().0);
    ///     let coming = comm.start_recv(vec![0; 1 << 20], ANY_SOURCE, 7).unwrap();
    ///     let going = comm.start_send(vec![peer.0; 1 << 20], peer, 7).unwrap();
    ///     // The program computes here.
    ///     let received = coming.wait().unwrap();
    ///     assert_eq!((received.message.peer, received.buffer[0]), (peer, comm.rank().0));
    ///     going.wait().unwrap();
    /// })?;
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn start_send<T: Pod, B>(&mut self, data: B, to: Rank, tag: u32) -> Started<B>
    where
        B: AsRef<[T]> + Send + 'static,
    {
        let lent = lend(data, |it| (Some(cast_slice(B::as_ref(it))), &mut []));
        self.send_lent(lent, Elements::of::<T>(), to, tag)
    }

    /// Starts [`recv`](Self::recv), also from this rank. The request ends when the message is in
    /// the buffer. Receives take their messages in the order of their starts.
    ///
    /// # Errors
    /// As for [`start_send`](Self::start_send). [`Request::wait`] returns those of the message.
    pub fn start_recv<T: Pod, B>(
        &mut self,
        buffer: B,
        from: impl Into<Option<Rank>>,
        tag: impl Into<Option<u32>>,
    ) -> Started<Received<B>>
    where
        B: AsMut<[T]> + Send + 'static,
    {
        let which = (from.into(), tag.into());
        let lent = lend(self.awaited(buffer, which), |it| {
            (None, cast_slice_mut(B::as_mut(&mut it.buffer)))
        });
        let request = self.recv_lent(lent, Elements::of::<T>(), which)?;
        Ok(request.noting(|it, message| it.message = message))
    }

    /// Starts [`send`](Self::send) of the bytes that `view` shows of `buffers`, for bindings.
    ///
    /// # Errors
    /// As for [`start_send`](Self::start_send).
    pub fn start_send_of<B: Send + 'static>(
        &mut self,
        buffers: B,
        view: impl for<'b> Fn(&'b mut B) -> &'b [u8] + Send + Sync + 'static,
        to: Rank,
        tag: u32,
    ) -> Started<B> {
        let lent = lend(buffers, move |it| (Some(view(it)), &mut []));
        self.send_lent(lent, Elements::BYTES, to, tag)
    }

    /// Starts [`recv`](Self::recv) in the bytes that `view` shows of `buffers`, for bindings.
    /// [`Request::take_result`] has the message.
    ///
    /// # Errors
    /// As for [`start_send`](Self::start_send).
    pub fn start_recv_in<B: Send + 'static>(
        &mut self,
        buffers: B,
        view: impl for<'b> Fn(&'b mut B) -> &'b mut [u8] + Send + Sync + 'static,
        from: impl Into<Option<Rank>>,
        tag: impl Into<Option<u32>>,
    ) -> Started<B> {
        let which = (from.into(), tag.into());
        let lent = lend(buffers, move |it| (None, view(it)));
        self.recv_lent(lent, Elements::BYTES, which)
    }

    /// A buffer before its message has come.
    pub(crate) fn awaited<B>(&self, buffer: B, (from, tag): Which) -> Received<B> {
        let peer = from.unwrap_or_else(|| self.rank());
        let message = Message { is_sent: false, peer, tag: tag.unwrap_or_default(), bytes: 0 };
        Received { buffer, message }
    }

    /// Starts a send of lent bytes.
    pub(crate) fn send_lent<B>(
        &mut self,
        lent: (Loan, Owner<B>),
        elements: Elements,
        to: Rank,
        tag: u32,
    ) -> Started<B> {
        self.start_message(lent, |memory, deadline, end| {
            Job::Send(Sending::new(memory, elements, (to, tag), deadline, end))
        })
    }

    /// Starts a receive in lent bytes.
    pub(crate) fn recv_lent<B>(
        &mut self,
        lent: (Loan, Owner<B>),
        elements: Elements,
        which: Which,
    ) -> Started<B> {
        self.start_message(lent, |memory, deadline, end| {
            Job::Receive(Receiving::new(memory, elements, which, deadline, end))
        })
    }

    /// Starts a message in lent memory.
    fn start_message<B>(
        &mut self,
        (memory, mut owner): (Loan, Owner<B>),
        make: impl FnOnce(Loan, Option<Instant>, End) -> Job,
    ) -> Started<B> {
        let ticket = Arc::new(Ticket::default());
        let deadline = Instant::now() + self.timeout();
        let started = make(memory, Some(deadline), End::Started(Arc::clone(&ticket)));
        let checked = self.check_process().and_then(|()| self.check_started(&started));
        match checked.and_then(|()| self.check_failure()) {
            Ok(()) => {
                self.begin(started);
                Ok(Request::new(self.rank(), owner, ticket, Arc::clone(self.slot())))
            }
            Err(error) => {
                drop(started);
                let Some(buffers) = owner.take() else { unreachable!("the loan has ended") };
                Err(Failed { error, buffers })
            }
        }
    }

    /// Checks the peer of a started message.
    fn check_started(&self, started: &Job) -> Result<(), Error> {
        match started {
            Job::Send(it) => self.check_peer("send", it.to),
            Job::Receive(it) => it.from.map_or(Ok(()), |from| self.check_peer("recv", from)),
            Job::Call(_) => Ok(()),
        }
    }

    pub(crate) fn check_peer(&self, call: &'static str, peer: Rank) -> Result<(), Error> {
        let (rank, size) = (self.rank(), self.size());
        if peer.index() < size {
            return Ok(());
        }
        let what = format!("{peer} is not one of the {size} ranks, which are 0 to {}", size - 1);
        Err(Error::Argument { rank, call, what })
    }

    /// Performs these messages together. Blocks until all are done. Returns the last message that
    /// was received.
    pub(crate) fn exchange_messages<S, R>(
        &mut self,
        mut sends: S,
        mut receives: R,
    ) -> Result<Option<Message>, Error>
    where
        S: AsMut<[Sending]> + IntoIterator<Item = Sending>,
        R: AsMut<[Receiving]> + IntoIterator<Item = Receiving>,
    {
        self.check_process()?;
        self.check_failure()?;
        let (of_sends, of_receives) = (sends.as_mut(), receives.as_mut());
        let first = match (&mut *of_receives, &mut *of_sends) {
            ([first, ..], _) => first.operation(),
            (_, [first, ..]) => Operation::Message(first.message()),
            _ => return Ok(None),
        };
        self.check_messages(of_sends, of_receives)?;
        self.beside()?.exchange(sends.into_iter(), receives.into_iter(), first)
    }

    /// Checks the peers of messages, and that those of this rank to itself meet each other.
    #[inline]
    fn check_messages(
        &self,
        sends: &mut [Sending],
        receives: &mut [Receiving],
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank(), self.size());
        let is_another = |peer: Rank| peer != rank && peer.index() < size;
        let is_usual = sends.iter().all(|it| is_another(it.to))
            && receives.iter().all(|it| it.from.is_some_and(is_another));
        if is_usual { Ok(()) } else { self.check_special(sends, receives) }
    }

    /// Checks messages of which some are to this rank itself, to none, or from any.
    #[cold]
    fn check_special(
        &self,
        sends: &mut [Sending],
        receives: &mut [Receiving],
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank(), self.size());
        for sending in &*sends {
            self.check_peer("send", sending.to)?;
        }
        for from in receives.iter().filter_map(|it| it.from) {
            self.check_peer("recv", from)?;
        }
        if !self.is_at_rest() {
            return self.check_own_beside(sends, receives);
        }
        if size == 1 && sends.is_empty() && receives.iter().any(|it| it.from.is_none()) {
            let what = "a group of one has no other rank that sends a message".to_owned();
            return Err(Error::Argument { rank, call: "recv", what });
        }
        let refuse = |call, what| Err(Error::Argument { rank, call, what });
        let mut open: Vec<&mut Receiving> =
            receives.iter_mut().filter(|it| it.from.is_none_or(|from| from == rank)).collect();
        for sending in sends.iter_mut().filter(|it| it.to == rank) {
            let (message, elements) = (sending.message(), sending.elements);
            let Some(at) = open.iter().position(|it| it.takes(message.tag)) else {
                return match open.iter_mut().find(|it| it.from == Some(rank)) {
                    Some(other) => {
                        let other = other.operation();
                        refuse("send", format!("{message} to itself does not match {other}"))
                    }
                    None => Err(self.refuse_own("send", &message)),
                };
            };
            let other = open.remove(at);
            let operation = other.operation();
            if !elements.fits(other.elements) {
                let awaited = other.elements;
                let what = format!(
                    "{message} of {elements} to itself does not match {operation} of {awaited}"
                );
                return refuse("send", what);
            }
            if message.bytes > other.bytes().len() {
                return refuse("send", format!("{message} to itself does not match {operation}"));
            }
        }
        match open.iter_mut().find(|it| it.from == Some(rank)) {
            Some(other) => Err(self.refuse_own("recv", &other.operation())),
            None => Ok(()),
        }
    }

    /// Checks messages of this rank to itself beside started messages, which may be their other
    /// ends.
    fn check_own_beside(
        &self,
        sends: &mut [Sending],
        receives: &mut [Receiving],
    ) -> Result<(), Error> {
        let rank = self.rank();
        let meets = |it: &Receiving, tag| it.from.is_none_or(|from| from == rank) && it.takes(tag);
        let (sent, received) = self.look(|engine| {
            let post = &engine.core.post;
            let is_lone = |it: &Sending| {
                let is_met = receives.iter().any(|other| meets(other, it.tag));
                it.to == rank && !is_met && !post.receives_own(it.tag)
            };
            let is_awaiting = |it: &Receiving| {
                let is_met = sends.iter().any(|other| other.to == rank && meets(it, other.tag));
                // A group of one has no other rank that sends a message.
                (it.from == Some(rank) || self.size() == 1) && !is_met && !post.sends_own(it)
            };
            (sends.iter().position(is_lone), receives.iter().position(is_awaiting))
        });
        match (sent, received) {
            (Some(sent), _) => Err(self.refuse_own("send", &sends[sent].message())),
            (_, Some(received)) => Err(self.refuse_own("recv", &receives[received].operation())),
            (None, None) => Ok(()),
        }
    }

    /// The error of a message of this rank to itself that would wait for ever.
    fn refuse_own(&self, call: &'static str, it: &dyn fmt::Display) -> Error {
        let what = format!(
            "{it} is a message of a rank to itself, whose other end must be in the same group of \
             calls, or started before"
        );
        Error::Argument { rank: self.rank(), call, what }
    }
}
