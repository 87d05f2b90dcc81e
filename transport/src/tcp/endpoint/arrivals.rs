//! Connections that peers open: accepted, authenticated, and assigned to their links.

use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;

use super::Tcp;
use crate::contract::Link;
use crate::proof::Hello;
use crate::tcp::connection::Connection;
use crate::tcp::greeting::{Greeting, Outcome};
use crate::tcp::hello::link;
use crate::tcp::socket::{EVENTS_OF_LINKS, accepted, peer};
use crate::tcp::token::Token;

impl Tcp {
    /// Accepts the waiting connections, as far as the limit on handshakes allows.
    pub(super) fn accept(&mut self) {
        self.backlog = false;
        for index in 0..self.listeners.len() {
            loop {
                if self.greetings.is_full() {
                    self.backlog = true;
                    break;
                }
                match accepted(&self.listeners[index], self.me.liveness) {
                    Ok(socket) => self.receive(Greeting::new(socket)),
                    Err(Errno::AGAIN) => break,
                    // The connection ended before it was accepted; others may wait.
                    Err(Errno::CONNABORTED | Errno::CONNRESET | Errno::PROTO) => {}
                    Err(errno) => {
                        self.refusals.log(&format!("connections cannot be accepted: {errno}"));
                        self.backlog = true;
                        break;
                    }
                }
            }
        }
        if self.backlog || !self.greetings.is_empty() {
            self.ticker.start();
        }
    }

    fn receive(&mut self, greeting: Greeting) {
        let place = self.greetings.add(greeting);
        let Some(greeting) = self.greetings.at(place) else { return };
        let data = epoll::EventData::new_u64(Token::Greeting(place).encode());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if epoll::add(&self.epoll, greeting.socket(), data, flags).is_err() {
            self.greetings.remove(place);
        }
    }

    /// Advances the handshake of an accepted connection.
    pub(super) fn greet(&mut self, place: usize) {
        let Some(greeting) = self.greetings.at(place) else { return };
        let (me, links) = (&self.me, &self.links);
        let check = |hello: &Hello| {
            let Hello { from, to, .. } = *hello;
            if to != me.rank || from == me.rank {
                return Err(Some("it looks for another rank"));
            }
            let is_known = |link: &Link| from.index() < me.size && link.lane.index() < me.lanes;
            let Some(link) = link(hello).filter(is_known) else {
                return Err(Some("there is no such rank or lane"));
            };
            match &links[from.index() * me.lanes + link.lane.index()] {
                Some(own) if !own.yields(me.rank, from) => Err(None),
                _ => Ok(link),
            }
        };
        match greeting.advance(&self.me.key, check) {
            Outcome::Waiting => {}
            Outcome::Refused(reason) => {
                let refused = self.greetings.remove(place);
                if let Some((greeting, reason)) = refused.zip(reason) {
                    self.log_refusal(&greeting, reason);
                }
            }
            Outcome::Proven(link) => {
                if let Some(greeting) = self.greetings.remove(place) {
                    self.admit(link, greeting.into_socket());
                }
            }
        }
    }

    /// Logs a refused connection with the address of its other end.
    pub(super) fn log_refusal(&mut self, refused: &Greeting, reason: &str) {
        match peer(refused.socket()) {
            Some(peer) => self.refusals.log(&format!("{peer}: {reason}")),
            None => self.refusals.log(reason),
        }
    }

    /// Assigns an authenticated connection to its link.
    fn admit(&mut self, link: Link, socket: OwnedFd) {
        let slot = self.slot(link);
        let data = epoll::EventData::new_u64(Token::Link(slot).encode());
        if epoll::modify(&self.epoll, &socket, data, EVENTS_OF_LINKS).is_err() {
            return;
        }
        if self.links[slot].is_none() {
            self.links[slot] = Some(Box::new(Connection::accepted(socket)));
            self.change(slot, |_, _| ());
        } else {
            self.change(slot, |connection, _| connection.adopt(socket));
        }
        self.stir(slot);
    }
}
