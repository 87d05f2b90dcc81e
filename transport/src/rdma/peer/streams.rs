//! What goes to a peer, and what its paths say, once there are paths and rings.

use ringfold_types::limits::{PATHS_MAX, RDMA_LEND_BYTES};

use super::{Fault, Outgoing, Own, Peer, Way};
use crate::rdma::geometry::{Most, Number};
use crate::rdma::inbound::Inbound;
use crate::rdma::message::{Load, Message};
use crate::rdma::outbound::{By, Ready};
use crate::rdma::path::{Arrived, Path};
use crate::rdma::registry::{Loan, Place};

/// Instead of a path: by TCP.
const BY_TCP: usize = PATHS_MAX;

impl Peer {
    /// Offers bytes to the peer; how many were accepted. A caller that `is_patient` tries again
    /// soon.
    pub(in crate::rdma) fn send(
        &mut self,
        lane: usize,
        tag: u32,
        bytes: &[u8],
        is_patient: bool,
        own: &mut Own<'_>,
    ) -> Result<usize, Fault> {
        let (mut accepted, untold) = self.accept(lane, bytes);
        if let Some(fault) = &self.fault {
            return if accepted > 0 { Ok(accepted) } else { Err(fault.clone()) };
        }
        self.repeat(lane);
        self.flush_lane(lane);
        let place = if bytes.len() >= RDMA_LEND_BYTES { own.registry.find(bytes) } else { None };
        let mut written = accepted + untold;
        if written == 0 && place.is_some() && self.waits_for_answer(lane, tag, is_patient) {
            return Ok(0);
        }
        let most = self.most(bytes.len());
        while written < bytes.len() && self.outbound[lane].held.is_empty() {
            let place = place.map(|place| (place.skip(written), &mut *own));
            match self.write(lane, tag, &bytes[written..], most, place) {
                0 => break,
                more => written += more,
            }
        }
        accepted += self.accept(lane, &[]).0;
        if accepted < written {
            self.ask_borrowers(lane);
        }
        if written > 0 {
            return Ok(accepted);
        }
        // There is no room, but some was promised.
        let Outgoing { way, held } = &mut self.outbound[lane];
        match way {
            Way::Open(outbound) if held.is_empty() && outbound.promise_is_kept() => Ok(0),
            _ => Ok(held.hold(tag, bytes)),
        }
    }

    /// Whether the peer may have said where it wants a message of so many bytes before it begins.
    pub(in crate::rdma) fn is_asking(&self, lane: usize, bytes: usize) -> bool {
        let way = &self.outbound[lane].way;
        bytes >= RDMA_LEND_BYTES && matches!(way, Way::Open(outbound) if outbound.is_asking())
    }

    /// Whether not to begin a message yet that could be lent.
    fn waits_for_answer(&mut self, lane: usize, tag: u32, is_patient: bool) -> bool {
        let Some(way) = self.way() else { return false };
        let cable = self.cable(way);
        let Way::Open(outbound) = &mut self.outbound[lane].way else { return false };
        outbound.waits_for_answer(tag, cable, is_patient)
    }

    /// How many of `bytes` are newly accepted, from their front, and how many after them are under
    /// way.
    fn accept(&mut self, lane: usize, bytes: &[u8]) -> (usize, usize) {
        let Way::Open(outbound) = &mut self.outbound[lane].way else { return (0, 0) };
        let accepted = outbound.accept();
        if let Some(untold) = bytes.get(accepted..) {
            outbound.take_back(untold);
        }
        (accepted, outbound.untold_bytes())
    }

    /// Writes one fragment; how many bytes went into it. They are lent if they lie in pages.
    fn write(
        &mut self,
        lane: usize,
        tag: u32,
        bytes: &[u8],
        most: Most,
        place: Option<(Place, &mut Own<'_>)>,
    ) -> usize {
        let Some(way) = self.way() else { return 0 };
        let is_long = bytes.len() >= RDMA_LEND_BYTES;
        let loan = place.filter(|_| is_long).and_then(|(place, own)| self.lend(way, place, own));
        let cable = self.cable(way);
        let bare_most = self.paths.get(way).map_or(0, Path::bare_most);
        let by = By { path: way, cable, most, bare_most };
        let Way::Open(outbound) = &mut self.outbound[lane].way else { return 0 };
        let is_lent = loan.is_some();
        if is_lent && outbound.is_kept_back(tag, by.cable) {
            return 0;
        }
        let Some((written, ready)) = outbound.push(tag, bytes, by, is_lent) else { return 0 };
        // The last one that is lent brings word of all before it by this path.
        let is_last = bytes.len() - written < RDMA_LEND_BYTES;
        let tells = is_lent && (is_last || outbound.is_kept_back(tag, by.cable));
        if is_lent && is_last {
            outbound.end_message();
        }
        self.write_by(way, lane, ready, loan.map(|loan| (loan, tells)));
        written
    }

    /// Sees to it that the devices say when they are done with what is lent: no credit need come
    /// for the end of a message, nor for a full ring.
    fn ask_borrowers(&mut self, lane: usize) {
        for path in 0..self.paths.len() {
            let Way::Open(outbound) = &self.outbound[lane].way else { return };
            if outbound.borrowers().any(|borrower| borrower == path) {
                self.ask_path(path);
            }
        }
    }

    /// Lets a device say when it is done. A path that refuses is lost.
    pub(super) fn ask_path(&mut self, path: usize) {
        if let Err(error) = self.paths[path].ask() {
            self.lose(path, &format!("a question was refused: {error}"));
        }
    }

    /// Lends bytes to a path, if its completions say that they have arrived.
    fn lend<'a>(&self, way: usize, place: Place, own: &'a mut Own<'_>) -> Option<Loan<'a>> {
        let path = self.paths.get(way).filter(|path| !path.is_iwarp())?;
        let pd = self.cables[path.cable()].pd.as_ref()?;
        own.registry.lend(place, pd, own.budget)
    }

    /// The path whose turn it is to carry a fragment, or `BY_TCP`, if there is any.
    fn way(&self) -> Option<usize> {
        let paths = self.paths.len();
        let mut turns = (0..paths).map(|step| (self.turn + step) % paths);
        let path = turns.find(|at| self.paths[*at].takes_fragments() && !self.is_idle(*at));
        path.or_else(|| self.is_by_tcp.then_some(BY_TCP))
    }

    /// Whether a path carries no data, because its cable is a spare one and others carry it.
    fn is_idle(&self, path: usize) -> bool {
        let is_spare = |path: &Path| self.cables[path.cable()].is_spare;
        is_spare(&self.paths[path])
            && self.paths.iter().any(|path| path.is_usable() && !is_spare(path))
    }

    /// The rail of the path whose turn it is.
    #[cfg(test)]
    pub(in crate::rdma) fn rail(&self) -> Option<usize> {
        Some(self.cables[self.paths.get(self.way()?)?.cable()].rail)
    }

    /// The cable of that way, if its device can write where it is invited.
    fn cable(&self, path: usize) -> Option<usize> {
        let it = self.paths.get(path).filter(|path| !path.is_iwarp());
        it.map(|path| path.cable())
    }

    /// How much of a message of so many bytes one write takes at most.
    fn most(&self, bytes: usize) -> Most {
        let carries = |at: &usize| self.paths[*at].is_usable() && !self.is_idle(*at);
        Most::of(bytes, (0..self.paths.len()).filter(carries).count().max(1))
    }

    /// Lets what lies in the image be written. A path that refuses is lost, and what it was to
    /// carry with it.
    fn write_by(&mut self, way: usize, lane: usize, ready: Ready, loan: Option<(Loan<'_>, bool)>) {
        let paths = self.paths.len();
        let Some(path) = self.paths.get_mut(way) else {
            self.loads.push_back((lane, ready));
            return;
        };
        self.turn = (way + 1) % paths;
        let Way::Open(outbound) = &mut self.outbound[lane].way else { return };
        let (loan, tells) = loan.unzip();
        match path.write(outbound, &ready, loan, tells.unwrap_or(false)) {
            Ok(posted) if loan.is_some() => outbound.lent(posted),
            Ok(_) => {}
            Err(error) => self.lose(way, &format!("a write was refused: {error}")),
        }
    }

    /// Whether devices wait for `ring`.
    pub(in crate::rdma) fn has_gathered(&self) -> bool {
        self.paths.iter().any(Path::has_gathered)
    }

    /// Lets devices have what was gathered for them. A path that refuses is lost.
    pub(in crate::rdma) fn ring(&mut self) {
        for path in 0..self.paths.len() {
            if self.paths[path].has_gathered()
                && let Err(error) = self.paths[path].ring()
            {
                self.lose(path, &format!("writes were refused: {error}"));
            }
        }
    }

    /// Writes what was lost with a path again; whether anything was.
    fn repeat(&mut self, lane: usize) -> bool {
        let mut moved = false;
        while let Way::Open(outbound) = &mut self.outbound[lane].way
            && let Some((place, ready)) = outbound.lost()
            && let Some(way) = self.way()
        {
            let Way::Open(outbound) = &mut self.outbound[lane].way else { break };
            outbound.repeated(place, way);
            self.write_by(way, lane, ready, None);
            moved = true;
        }
        moved
    }

    /// What is to be said next, be it a fragment that goes by TCP.
    pub(in crate::rdma) fn next_to_say(&mut self) -> Option<Message> {
        if let Some(message) = self.to_say.pop_front() {
            return Some(message);
        }
        let (lane, Ready { at, bytes, number, .. }) = self.loads.pop_front()?;
        let Number::Fragment { sequence, lines, .. } = number.with_header() else { return None };
        Some(Message::Load(Load { lane, sequence, lines, at, bytes }))
    }

    /// Bytes of an open lane's image, from `from` on of what `load` said.
    pub(in crate::rdma) fn image(&self, load: Load, from: usize) -> &[u8] {
        match &self.outbound[load.lane].way {
            Way::Open(outbound) => &outbound.image(load.at, load.bytes)[from..],
            _ => &[],
        }
    }

    /// Writes what was held back on a lane, as far as there is room; whether anything was.
    fn flush_lane(&mut self, lane: usize) -> bool {
        if self.outbound[lane].held.is_empty() {
            return false;
        }
        // Taken out for a moment, so that its bytes can be lent to `write`.
        let mut held = std::mem::take(&mut self.outbound[lane].held);
        let mut moved = false;
        while let Some((tag, bytes)) = held.front() {
            match self.write(lane, tag, bytes, self.most(bytes.len()), None) {
                0 => break,
                written => held.consume(written),
            }
            self.accept(lane, &[]);
            moved = true;
        }
        self.outbound[lane].held = held;
        moved
    }

    /// A device is done with work of that life of a path.
    pub(in crate::rdma) fn done(&mut self, path: usize, life: u8, posted: u32, has_arrived: bool) {
        let Some(it) = self.paths.get_mut(path).filter(|path| path.lives(life)) else { return };
        let proves = it.done(posted, has_arrived);
        for lane in &mut self.outbound {
            if let Way::Open(outbound) = &mut lane.way {
                outbound.done(path, posted);
            }
        }
        if proves {
            self.proven(path);
        }
    }

    /// Takes back all that is lent and invited, when nobody will send or receive the rest: its
    /// paths end, and the devices lose the right to read or write it.
    pub(in crate::rdma) fn withdraw(&mut self, own: &mut Own<'_>) {
        let open = self.outbound.iter().filter_map(|lane| match &lane.way {
            Way::Open(outbound) => Some(outbound),
            _ => None,
        });
        let is_inviting = self.is_inviting();
        if !is_inviting && open.clone().all(|outbound| outbound.untold_bytes() == 0) {
            return;
        }
        // Of a peer that has said goodbye it is not known any more which path was lent what.
        let has_left = self.promised.is_some();
        let invited = if is_inviting || has_left { 0..self.paths.len() } else { 0..0 };
        let borrowers = open.flat_map(|outbound| outbound.borrowers());
        let borrowers: Vec<_> = borrowers.chain(invited).collect();
        for path in borrowers {
            if !self.paths[path].has_ended() {
                self.paths[path].end();
            }
            self.cables[self.paths[path].cable()].recall(own);
        }
        // A device that keeps the memory reaches it by queue pairs only.
        for path in self.paths.iter_mut().filter(|path| self.cables[path.cable()].is_stuck) {
            if !path.has_ended() {
                path.end();
            }
            if let Err(error) = path.destroy_now() {
                let name = &self.cables[path.cable()].name;
                tracing::error!("rdma: {name} may still write memory given back: {error}");
            }
        }
        for lane in &mut self.outbound {
            if let Way::Open(outbound) = &mut lane.way {
                outbound.give_up();
            }
        }
        self.inbound.iter_mut().flatten().for_each(Inbound::give_up);
        let given_up = || Fault::Lost("a message to it was given up".to_owned());
        self.end(if has_left { Fault::Closed } else { given_up() });
    }

    /// A receive was taken back from that life of a path; whether its end is news.
    pub(in crate::rdma) fn flushed(&mut self, path: usize, life: u8, is_receive: bool) -> bool {
        let it = self.paths.get_mut(path).filter(|path| path.lives(life));
        it.is_some_and(|it| {
            if is_receive {
                it.flushed();
            }
            !it.has_ended()
        })
    }

    /// Writes what was held back, and gives the credit that is due; whether anything moved.
    pub(in crate::rdma) fn flush(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let mut moved = false;
        for lane in 0..self.outbound.len() {
            moved |= self.repeat(lane);
            moved |= self.flush_lane(lane);
            moved |= self.pay(lane);
        }
        moved
    }

    /// Whether `flush` has something to do.
    pub(in crate::rdma) fn is_flushed(&self) -> bool {
        let is_flushed = |lane: &Outgoing| {
            let is_lost = matches!(&lane.way, Way::Open(outbound) if outbound.lost().is_some());
            lane.held.is_empty() && !is_lost
        };
        let waits_for = |at| {
            let mut lanes = self.outbound.iter();
            lanes.any(|lane| matches!(&lane.way, Way::Open(outbound) if outbound.waits_for(at)))
        };
        let is_unsettled =
            |(at, path): (usize, &Path)| path.has_ended() && !path.is_settled() && waits_for(at);
        self.is_done()
            || self.to_say.is_empty()
                && self.loads.is_empty()
                && self.outbound.iter().all(is_flushed)
                && !self.paths.iter().enumerate().any(is_unsettled)
    }

    /// A number has arrived by that life of a path.
    pub(in crate::rdma) fn arrive(
        &mut self,
        path: usize,
        life: u8,
        arrived: Arrived,
    ) -> Result<(), Fault> {
        let it = self.paths.get_mut(path).filter(|path| path.lives(life));
        // We have told the peer that it did not arrive, so it comes again.
        let Some(it) = it else { return Ok(()) };
        let number = it.number(arrived).ok_or("a message that brings no number")?;
        if let Err(error) = it.arrived() {
            self.lose(path, &format!("a receive was refused: {error}"));
        }
        self.take(Number::decode(number))
    }

    /// Takes note of what has arrived, whichever way.
    pub(super) fn take(&mut self, number: Number) -> Result<(), Fault> {
        match number {
            Number::Fragment { lane, sequence, lines } => {
                let inbound = self.inbound.get_mut(lane).and_then(Option::as_mut);
                let inbound = inbound.ok_or("a fragment of a lane that has no ring")?;
                Ok(inbound.arrive(sequence, lines)?)
            }
            Number::Bare { lane, sequence, bare } => {
                let inbound = self.inbound.get_mut(lane).and_then(Option::as_mut);
                let inbound = inbound.ok_or("a fragment of a lane that has no ring")?;
                Ok(inbound.arrive_bare(sequence, bare)?)
            }
            Number::Credit { lane, total } => {
                match self.outbound.get_mut(lane).map(|it| &mut it.way) {
                    Some(Way::Open(outbound)) => Ok(outbound.credit(total)?),
                    _ => Err("credit for a lane that has no ring".into()),
                }
            }
            Number::Invitation { lane, place, total } => {
                let way = self.outbound.get_mut(lane).map(|it| &mut it.way);
                match (way, &self.mailbox) {
                    (Some(Way::Open(outbound)), Some(mailbox)) => {
                        outbound.credit(total)?;
                        Ok(outbound.invite(mailbox.read(lane, place), place)?)
                    }
                    _ => Err("an invitation for a lane that has no ring".into()),
                }
            }
        }
    }
}
