//! Connections that others open: accepted, greeted, and at last made those of their links.

use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;

use super::Tcp;
use crate::contract::Link;
use crate::tcp::connection::Connection;
use crate::tcp::greeting::{Greeting, Outcome};
use crate::tcp::proof::Hello;
use crate::tcp::socket::{EVENTS_OF_LINKS, accepted};
use crate::tcp::token::Token;

impl Tcp {
    /// Takes in the connections that wait, as far as there are places for them.
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
                    // The connection ended while it waited; there may be others.
                    Err(Errno::CONNABORTED | Errno::CONNRESET | Errno::PROTO) => {}
                    Err(errno) => {
                        self.strangers.log(&format!("connections cannot be accepted: {errno}"));
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

    /// Goes on with a connection that has not proven itself.
    pub(super) fn greet(&mut self, place: usize) {
        let Some(greeting) = self.greetings.at(place) else { return };
        let (me, links) = (&self.me, &self.links);
        let judge = |hello: &Hello| {
            let Hello { from, to, lane, .. } = *hello;
            if to != me.rank || from == me.rank {
                return Err(Some("it looks for another rank"));
            }
            if from.index() >= me.size || lane.index() >= me.lanes {
                return Err(Some("there is no such rank or lane"));
            }
            match &links[from.index() * me.lanes + lane.index()] {
                Some(own) if !own.yields(me.rank, from) => Err(None),
                _ => Ok(()),
            }
        };
        match greeting.advance(&self.me.key, judge) {
            Outcome::Waiting => {}
            Outcome::Refused(reason) => {
                self.greetings.remove(place);
                if let Some(reason) = reason {
                    self.strangers.log(reason);
                }
            }
            Outcome::Proven(hello) => {
                if let Some(greeting) = self.greetings.remove(place) {
                    self.admit(&hello, greeting.into_socket());
                }
            }
        }
    }

    /// Makes a proven connection that of its link.
    fn admit(&mut self, hello: &Hello, socket: OwnedFd) {
        let slot = self.slot(Link { peer: hello.from, lane: hello.lane });
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
