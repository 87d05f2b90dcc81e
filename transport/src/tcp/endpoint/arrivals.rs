//! Connections that others open: accepted, greeted, and at last made those of their links.

use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;

use super::Tcp;
use crate::contract::Link;
use crate::proof::Hello;
use crate::tcp::connection::Connection;
use crate::tcp::greeting::{Greeting, Outcome};
use crate::tcp::hello::link;
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
        match greeting.advance(&self.me.key, judge) {
            Outcome::Waiting => {}
            Outcome::Refused(reason) => {
                self.greetings.remove(place);
                if let Some(reason) = reason {
                    self.strangers.log(reason);
                }
            }
            Outcome::Proven(link) => {
                if let Some(greeting) = self.greetings.remove(place) {
                    self.admit(link, greeting.into_socket());
                }
            }
        }
    }

    /// Makes a proven connection that of its link.
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
