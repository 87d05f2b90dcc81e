//! Messages between two ranks: the typed methods.

use bytemuck::Pod;
use ringfold_types::Rank;

use crate::communicator::Communicator;
use crate::error::{CallError, Error, Message, Operation};
use crate::messages::{Incoming, Messages, Outgoing, Search, Track, next_of_present};

impl Communicator {
    /// Sends `data` to rank `to`, which must receive it with the same tag, type and length. `u8`
    /// stands for bytes, which fit every type of the same length in bytes.
    ///
    /// Blocks until the message has left, or until the receiver takes it if it is long. Messages
    /// from one rank to another arrive in the order in which they were sent. They have no part in
    /// the order of the collectives. Two ranks that send long messages to each other must use
    /// [`send_recv`](Self::send_recv) or [`group`](Self::group), or they wait until the timeout.
    ///
    /// # Errors
    /// [`Error::Argument`] if `to` is this rank, or no rank; [`Error::Failed`] if the job has
    /// failed; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// let sums = local::run(2, |comm| {
    ///     let mut words = [1, 2, 3];
    ///     match comm.rank() {
    ///         Rank(0) => comm.send(&words, Rank(1), 7).unwrap(),
    ///         _ => comm.recv(&mut words, Rank(0), 7).unwrap(),
    ///     }
    ///     words.iter().sum::<i32>()
    /// })?;
    /// assert_eq!(sums, [6, 6]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn send<T: Pod>(&mut self, data: &[T], to: Rank, tag: u32) -> Result<(), Error> {
        self.exchange_messages(&mut [Outgoing::of(data, to, tag)], &mut [])
    }

    /// Receives the next message of rank `from` into `data`. Blocks until it has arrived.
    ///
    /// # Errors
    /// [`Error::Argument`] if `from` is this rank, or no rank; [`Error::Failed`] if the message has
    /// another tag, type or length in bytes, or the job has failed; [`Error::Forked`] in a child
    /// process.
    pub fn recv<T: Pod>(&mut self, data: &mut [T], from: Rank, tag: u32) -> Result<(), Error> {
        self.exchange_messages(&mut [], &mut [Incoming::of(data, from, tag)])
    }

    /// Receives the next message with this tag, of any other rank, into `data`. Blocks until it has
    /// arrived, and returns its sender.
    ///
    /// A rank whose next message has another tag is passed over, and that message stays for a later
    /// receive. Among several senders the search begins behind the one that it found last.
    ///
    /// # Errors
    /// [`Error::Argument`] in a group of one; [`Error::Failed`] if the message has another type or
    /// length in bytes, all other ranks have left, or the job has failed; [`Error::Forked`] in a
    /// child process.
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// let sums = local::run(4, |comm| {
    ///     let mut sum = 0;
    ///     match comm.rank() {
    ///         Rank(0) => {
    ///             for _ in 1..comm.size() {
    ///                 let mut result = [0];
    ///                 let from = comm.recv_any(&mut result, 7).unwrap();
    ///                 assert_eq!(result, [from.0 * 10]);
    ///                 sum += result[0];
    ///             }
    ///         }
    ///         own => comm.send(&[own.0 * 10], Rank(0), 7).unwrap(),
    ///     }
    ///     sum
    /// })?;
    /// assert_eq!(sums, [60, 0, 0, 0]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn recv_any<T: Pod>(&mut self, data: &mut [T], tag: u32) -> Result<Rank, Error> {
        self.beside(|it| it.recv_any_beside(data, tag))
    }

    fn recv_any_beside<T: Pod>(&mut self, data: &mut [T], tag: u32) -> Result<Rank, Error> {
        let (rank, size) = (self.rank(), self.size());
        let engine = self.engine()?;
        engine.health.check()?;
        if size == 1 {
            let what = "a group of one has no other rank that sends a message".to_owned();
            return Err(Error::Argument { rank, call: "recv_any", what });
        }
        let operation = Operation::AnyMessage { tag, bytes: size_of_val(data) };
        let mut search = Search::new(tag, (rank, size), engine.core.looks_first_at);
        let outcome = engine.guarded(|_| operation, |it| it.block_on(&mut search));
        outcome.map_err(|error| engine.fail_in(operation, error))?;
        let Some(from) = search.found else { unreachable!("the search has ended") };
        engine.core.looks_first_at = (from.index() + 1) % size;
        self.recv(data, from, tag)?;
        Ok(from)
    }

    /// The next message of rank `from`, with its tag and length, if it has begun to arrive. Does
    /// not wait, and leaves the message to a receive.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). A sender that has left fails the job once all of its messages are
    /// received.
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// local::run(2, |comm| match comm.rank() {
    ///     Rank(0) => comm.send(&[1.0, 2.0, 3.0], Rank(1), 7).unwrap(),
    ///     _ => {
    ///         let message = loop {
    ///             if let Some(message) = comm.probe(Rank(0)).unwrap() {
    ///                 break message;
    ///             }
    ///         };
    ///         let mut values = vec![0.0; message.bytes / size_of::<f64>()];
    ///         comm.recv(&mut values, message.peer, message.tag).unwrap();
    ///         assert_eq!(values, [1.0, 2.0, 3.0]);
    ///     }
    /// })?;
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn probe(&mut self, from: Rank) -> Result<Option<Message>, Error> {
        let (rank, size) = (self.rank(), self.size());
        self.check_process()?;
        self.check_failure()?;
        if from == rank || from.index() >= size {
            let what = format!("rank {from} is not one of the other ranks, of {size} in all");
            return Err(Error::Argument { rank, call: "probe", what });
        }
        let operation = Operation::Probe { from };
        self.beside(|it| {
            it.engine()?.attempt(
                |_| operation,
                |core, watch| {
                    watch.check_abort_after_pause()?;
                    core.router.poll()?;
                    next_of_present(&core.router, watch, from)
                },
            )
        })
    }

    /// Sends `data` to rank `to` and receives the next message of rank `from` into `into`, both
    /// with this tag. Both progress at once, so a ring of ranks that all call it does not deadlock.
    /// Both ranks may be this one. Blocks until both are done.
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
        from: Rank,
        tag: u32,
    ) -> Result<(), Error> {
        let (outgoing, incoming) = (Outgoing::of(data, to, tag), Incoming::of(into, from, tag));
        self.exchange_messages(&mut [outgoing], &mut [incoming])
    }

    /// Performs these messages together. Blocks until all are done.
    pub(crate) fn exchange_messages<'b>(
        &mut self,
        outgoing: &mut [Outgoing<'b>],
        incoming: &mut [Incoming<'b>],
    ) -> Result<(), Error> {
        self.check_process()?;
        self.check_failure()?;
        self.check_messages(outgoing, incoming)?;
        let ranks = (self.rank(), self.size());
        let mut messages = Messages::new(Track::POINT_TO_POINT, outgoing, incoming, ranks);
        let Some(first) = messages.unfinished(None) else { return Ok(()) };
        self.beside(|it| it.drive_messages(&mut messages, first))
    }

    /// Drives messages until all are done; `first` is one of them. Blocks.
    fn drive_messages(
        &mut self,
        messages: &mut Messages<'_, '_>,
        first: Message,
    ) -> Result<(), Error> {
        let engine = self.engine()?;
        engine.health.check()?;
        let named = |_| Operation::Message(first);
        let outcome = engine.guarded(named, |it| it.block_on(messages));
        outcome.map_err(|error| {
            let peer = match &error {
                CallError::Link(link) => Some(link.link.peer),
                CallError::Unexpected { peer, .. } | CallError::Left(peer) => Some(*peer),
                _ => None,
            };
            let message = messages.unfinished(peer).unwrap_or(first);
            engine.fail_in(Operation::Message(message), error)
        })
    }

    /// Checks the peers of messages, and that those of this rank to itself meet each other.
    #[inline]
    fn check_messages(
        &self,
        outgoing: &[Outgoing<'_>],
        incoming: &[Incoming<'_>],
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank(), self.size());
        let is_another = |peer: Rank| peer != rank && peer.index() < size;
        let mut peers = outgoing.iter().map(|it| it.to).chain(incoming.iter().map(|it| it.from));
        if peers.all(is_another) { Ok(()) } else { self.check_special(outgoing, incoming) }
    }

    /// Checks messages of which some are to this rank itself, or to none.
    #[cold]
    fn check_special(
        &self,
        outgoing: &[Outgoing<'_>],
        incoming: &[Incoming<'_>],
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank(), self.size());
        let messages = || {
            let sent = outgoing.iter().map(Outgoing::message);
            sent.chain(incoming.iter().map(Incoming::message))
        };
        let refuse = |is_sent, what| {
            let call = if is_sent { "send" } else { "recv" };
            Err(Error::Argument { rank, call, what })
        };
        if let Some(message) = messages().find(|it| it.peer.index() >= size) {
            let what = format!(
                "{} is not one of the {size} ranks, which are 0 to {}",
                message.peer,
                size - 1
            );
            return refuse(message.is_sent, what);
        }
        let sent = outgoing.iter().map(|it| (it.message(), it.elements));
        let received = incoming.iter().map(|it| (it.message(), it.elements));
        let mut sent = sent.filter(|(it, _)| it.peer == rank);
        let mut received = received.filter(|(it, _)| it.peer == rank);
        loop {
            match (sent.next(), received.next()) {
                (None, None) => return Ok(()),
                (Some((one, elements)), Some((other, awaited)))
                    if (one.tag, one.bytes) == (other.tag, other.bytes) =>
                {
                    if !elements.fits(awaited) {
                        let what = format!(
                            "{one} of {elements} to itself does not match {other} of {awaited}"
                        );
                        return refuse(true, what);
                    }
                }
                (Some((one, _)), Some((other, _))) => {
                    return refuse(true, format!("{one} to itself does not match {other}"));
                }
                (Some((one, _)), None) | (None, Some((one, _))) => {
                    let what = format!(
                        "{one} is a message of a rank to itself, whose other end must be in the \
                         same group of calls"
                    );
                    return refuse(one.is_sent, what);
                }
            }
        }
    }
}
