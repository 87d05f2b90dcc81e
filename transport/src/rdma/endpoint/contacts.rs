//! The peers with which this rank has exchanged messages, and how many of them need attention.

use std::time::Instant;

use ringfold_types::Rank;

use super::marks::Marks;
use crate::rdma::control_stream::ControlStream;
use crate::rdma::peer::{Costs, Fault, Peer};

/// A peer, and the control stream to it.
#[derive(Debug)]
pub(super) struct Contact {
    pub(super) peer: Peer,
    pub(super) stream: ControlStream,
    /// The state in which it was last counted.
    counted: State,
}

/// The facts of a contact that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    is_settled: bool,
    is_by_tcp: bool,
    is_lost: bool,
}

impl Contact {
    fn new(rank: Rank, lanes: usize, may_use_tcp: bool) -> Self {
        let counted = State { is_settled: true, is_by_tcp: false, is_lost: false };
        Self {
            peer: Peer::new(rank, lanes, may_use_tcp),
            stream: ControlStream::default(),
            counted,
        }
    }

    fn state(&self) -> State {
        State {
            is_settled: self.peer.is_settled() && self.is_sent(),
            is_by_tcp: self.peer.is_by_tcp(),
            is_lost: self.peer.fault().is_some_and(|fault| *fault != Fault::Closed),
        }
    }

    /// Returns whether the connection has taken all messages, or the peer is gone.
    pub(super) fn is_sent(&self) -> bool {
        self.stream.is_sent() || self.peer.fault().is_some()
    }

    /// Returns whether bytes are held back, credit is due, or messages are queued.
    pub(super) fn is_busy(&self) -> bool {
        !self.peer.is_flushed() || self.peer.owes() || !self.is_sent()
    }
}

/// The contacts by rank, and how many of them need attention. A contact is counted anew after each
/// change.
#[derive(Debug)]
pub(super) struct Contacts {
    all: Vec<Option<Box<Contact>>>,
    /// The ranks with a contact, in the order of their first message.
    known: Vec<usize>,
    /// The contacts that have messages queued or expect an answer.
    unsettled: usize,
    /// The peers that send data by TCP, those without a contact included.
    by_tcp: usize,
    /// The contacts that may hold bytes back, owe credit or have messages queued.
    busy: Marks,
    /// The contacts that may have an exchange to complete.
    open: Marks,
    /// A living peer to which bytes were lost that may have been accepted. The caller must learn of
    /// it even if nobody uses the link again.
    lost: Option<Rank>,
    /// The earliest time at which some peer needs attention though nothing happens.
    alarm: Option<Instant>,
}

impl Contacts {
    /// Makes an empty set for `ranks` ranks. `by_tcp` peers without a contact send data by TCP.
    pub(super) fn new(ranks: usize, by_tcp: usize) -> Self {
        Self {
            all: (0..ranks).map(|_| None).collect(),
            known: Vec::new(),
            unsettled: 0,
            by_tcp,
            busy: Marks::new(ranks),
            open: Marks::new(ranks),
            lost: None,
            alarm: None,
        }
    }

    pub(super) fn get(&self, rank: Rank) -> Option<&Contact> {
        self.all[rank.index()].as_deref()
    }

    pub(super) fn contact_mut(&mut self, rank: Rank) -> Option<&mut Contact> {
        self.all[rank.index()].as_deref_mut()
    }

    /// Returns whether that rank is a contact. The number need not be that of a rank.
    pub(super) fn has(&self, rank: Rank) -> bool {
        self.all.get(rank.index()).is_some_and(Option::is_some)
    }

    /// Returns the contact of that rank, and makes one if there was none.
    pub(super) fn meet(&mut self, rank: Rank, lanes: usize, may_use_tcp: bool) -> &mut Contact {
        let known = &mut self.known;
        self.all[rank.index()].get_or_insert_with(|| {
            known.push(rank.index());
            Box::new(Contact::new(rank, lanes, may_use_tcp))
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Contact> {
        self.all.iter().flatten().map(AsRef::as_ref)
    }

    /// The ranks with a contact, in the order of their first message.
    pub(super) fn known(&self) -> impl Iterator<Item = Rank> {
        self.known.iter().copied().map(Rank::at)
    }

    /// Returns the rank of the contact at that position in the order of first messages.
    pub(super) fn nth(&self, at: usize) -> Option<Rank> {
        self.known.get(at).copied().map(Rank::at)
    }

    /// Counts a contact that has changed.
    pub(super) fn count(&mut self, rank: Rank) {
        let Some(contact) = self.all[rank.index()].as_deref_mut() else { return };
        let is = contact.state();
        let was = std::mem::replace(&mut contact.counted, is);
        self.unsettled = self.unsettled + usize::from(was.is_settled) - usize::from(is.is_settled);
        self.by_tcp = self.by_tcp + usize::from(is.is_by_tcp) - usize::from(was.is_by_tcp);
        if is.is_lost && !was.is_lost {
            self.lost = Some(rank);
        }
        if contact.is_busy() {
            self.busy.mark(rank);
        }
        if !is.is_settled {
            self.open.mark(rank);
        }
        self.alarm = [self.alarm, contact.peer.deadline()].into_iter().flatten().min();
    }

    pub(super) const fn is_unsettled(&self) -> bool {
        self.unsettled > 0
    }

    pub(super) const fn by_tcp(&self) -> usize {
        self.by_tcp
    }

    pub(super) const fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// The contacts that may hold bytes back, owe credit or have messages queued.
    pub(super) const fn busy(&mut self) -> &mut Marks {
        &mut self.busy
    }

    /// The contacts that may have an exchange to complete.
    pub(super) const fn open(&mut self) -> &mut Marks {
        &mut self.open
    }

    /// Returns whether TCP has or may soon have something for a contact.
    pub(super) fn is_open(&self, rank: Rank) -> bool {
        self.get(rank).is_some_and(|contact| !contact.counted.is_settled)
    }

    pub(super) const fn has_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Reports once that bytes to a living peer were lost, and why.
    pub(super) fn take_lost(&mut self) -> Option<(Rank, &Fault)> {
        let rank = self.lost.take()?;
        Some((rank, self.get(rank)?.peer.fault()?))
    }

    pub(super) const fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Clears the alarm if it is due. Returns whether it was.
    pub(super) fn take_alarm(&mut self) -> bool {
        self.alarm.is_some() && self.alarm.take_if(|alarm| *alarm <= Instant::now()).is_some()
    }

    /// Returns whether some peer may be writing to callers' pages.
    pub(super) fn has_open_rtr(&self) -> bool {
        self.iter().any(|contact| contact.peer.has_open_rtr())
    }

    /// Returns whether some iWARP connection is expected.
    pub(super) fn is_connecting(&self) -> bool {
        self.unsettled > 0 && self.iter().any(|contact| contact.peer.is_connecting())
    }

    /// Returns whether the connections have taken all messages.
    pub(super) fn is_sent(&self) -> bool {
        self.iter().all(Contact::is_sent)
    }

    /// Returns the number of contacts, and the sum of their costs.
    pub(super) fn costs(&self) -> (usize, Costs) {
        let mut sum = Costs::default();
        self.iter().for_each(|contact| sum += contact.peer.costs());
        (self.known.len(), sum)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rdma::message::Message;

    const PEER: Rank = Rank(1);

    /// The contacts of two ranks, one of them known.
    fn contacts() -> Contacts {
        let mut contacts = Contacts::new(2, 1);
        contacts.meet(PEER, 1, true);
        contacts.count(PEER);
        contacts
    }

    fn peer(contacts: &mut Contacts) -> &mut Peer {
        &mut contacts.contact_mut(PEER).unwrap().peer
    }

    #[test]
    fn contacts_are_counted_once() {
        let mut contacts = contacts();
        assert!(contacts.has(PEER) && !contacts.has(Rank(0)) && !contacts.has(Rank(9)));
        assert!(!contacts.is_unsettled() && !contacts.is_busy());
        peer(&mut contacts).push(Message::Ready { path: 0 });
        for _ in 0..3 {
            contacts.count(PEER);
            assert!(contacts.is_unsettled() && contacts.is_busy());
        }
        assert_eq!((contacts.busy().take(), contacts.open().take()), (vec![PEER], vec![PEER]));
        peer(&mut contacts).next_message();
        contacts.count(PEER);
        assert!(!contacts.is_unsettled() && !contacts.is_busy());
        assert_eq!((contacts.by_tcp(), contacts.known().collect()), (1, vec![PEER]));
    }

    #[test]
    fn lost_bytes_are_reported_once_and_a_goodbye_never() {
        let mut contacts = contacts();
        peer(&mut contacts).end(Fault::Lost("cable".to_owned()));
        contacts.count(PEER);
        assert_eq!(contacts.take_lost(), Some((PEER, &Fault::Lost("cable".to_owned()))));
        contacts.count(PEER);
        assert!(!contacts.has_lost());
        let mut contacts = self::contacts();
        peer(&mut contacts).leave();
        contacts.count(PEER);
        assert_eq!(contacts.take_lost(), None);
    }

    #[test]
    fn the_earliest_alarm_counts() {
        let mut contacts = contacts();
        let now = Instant::now();
        contacts.alarm = Some(now + Duration::from_secs(60));
        assert!(!contacts.take_alarm() && contacts.alarm().is_some());
        contacts.alarm = Some(now);
        contacts.count(PEER);
        assert_eq!(contacts.alarm(), Some(now));
        assert!(contacts.take_alarm() && contacts.alarm().is_none());
    }
}
