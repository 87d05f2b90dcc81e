//! The uneven all-gather.

use ringfold_types::{Rank, UnevenCall};

use crate::communicator::Communicator;
use crate::error::Error;
use crate::messages::{Incoming, Outgoing};

impl Communicator {
    /// Gives every rank all parts. This rank's own part is in place. Among the ranks of one host
    /// each sends its part to all others. Between hosts a ring takes each part over each link once.
    pub(super) fn gather_parts(
        &mut self,
        call: &UnevenCall,
        mut parts: Vec<&mut [u8]>,
    ) -> Result<(), Error> {
        let (own, size) = (self.rank().index(), self.size());
        if self.layout().hosts() == 1 {
            let own_part = std::mem::take(&mut parts[own]);
            let others = || (0..size).filter(|rank| *rank != own).map(Rank::at);
            let mut outgoing: Vec<_> = others().map(|to| Outgoing::new(own_part, to, 0)).collect();
            let received = parts.into_iter().enumerate().filter(|(from, _)| *from != own);
            let mut incoming: Vec<_> =
                received.map(|(from, part)| Incoming::new(part, Rank::at(from), 0)).collect();
            return self.perform_messages(call, &mut outgoing, &mut incoming);
        }
        let order = self.layout().ring().clone();
        let place = order.place(Rank::at(own)) + size;
        let (next, previous) = (order.at((place + 1) % size), order.at((place - 1) % size));
        self.perform_rounds(call, |it, tag| {
            for round in 0..size - 1 {
                let of = [order.at((place - round) % size), order.at((place - round - 1) % size)];
                let Ok([sent, received]) = parts.get_disjoint_mut(of.map(Rank::index)) else {
                    unreachable!("more than one rank")
                };
                let mut outgoing = [Outgoing::new(sent, next, 0)];
                let mut incoming = [Incoming::new(received, previous, 0)];
                it.round(call, tag, &mut outgoing, &mut incoming)?;
            }
            Ok(())
        })
    }
}
