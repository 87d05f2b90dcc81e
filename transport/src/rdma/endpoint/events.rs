//! The events of devices: completions, and changes of their ports.

use std::sync::Arc;
use std::time::Instant;

use ringfold_types::Rank;
use tracing::Level;

use super::Rdma;
use super::contacts::Contact;
use crate::rdma::diagnostics::{self, FLUSHED, log};
use crate::rdma::path::{Arrived, Id, Work};
use crate::rdma::peer::Peer;
use crate::rdma::rail::{Rails, Seen};
use crate::rdma::settings::Settings;
use crate::rdma::sys::{About, Completion, Event, Outcome};

impl Rdma {
    /// Handles the events of all devices. A port that goes down ends its paths, and a port that
    /// comes up brings them back.
    pub(super) fn handle_device_events(&mut self) {
        if self.devices.has_iwarp() {
            self.handle_connections();
        }
        for rail in 0..self.devices.count() {
            let it = self.devices.rail_mut(rail);
            if it.is_gone {
                continue;
            }
            let (mut about_port, mut gone) = (false, None);
            for Event { about, what } in it.events() {
                match about {
                    About::Device | About::Queue => gone = Some(what),
                    About::Port => {
                        tracing::info!("rdma: {}: {what}", it.name());
                        about_port = true;
                    }
                    About::Other => {
                        tracing::debug!("rdma: {}: {what}", it.name());
                        // It may be about the port's addresses.
                        about_port = true;
                    }
                }
            }
            if let Some(why) = gone {
                self.lose_device(rail, &why);
            } else if about_port {
                let before = it.port.gigabits;
                let seen = it.refresh();
                self.handle_rate(rail, before);
                self.handle_port(rail, seen);
            }
        }
    }

    /// Gives the paths on a port that had another rate before other shares.
    fn handle_rate(&mut self, rail: usize, before: u32) {
        let it = self.devices.rail(rail);
        let now = it.port.gigabits;
        if now == before {
            return;
        }
        let is_slower = now < before && now > 0;
        let level = if is_slower { Level::WARN } else { Level::INFO };
        let name = it.name();
        let [now_is, before_was] = [now, before].map(|rate| match rate {
            0 => "an unknown rate".to_owned(),
            _ => format!("{rate} Gbit/s"),
        });
        let what = format!("{name} runs at {now_is}, in place of {before_was}");
        log((level, format!("{what}; it gets a share by its rate")));
        self.change_all(|peer, _| peer.set_rate(rail, now));
    }

    /// Ends or remakes the paths on a port, by the state that `Rail::refresh` found.
    fn handle_port(&mut self, rail: usize, seen: Seen) {
        match seen {
            Seen::Up => {}
            Seen::Moved(what) => {
                tracing::info!("rdma: {what}; its paths are made again");
                self.change_all(|peer, _| peer.relocate(rail, &what));
            }
            Seen::Down(how) => {
                let what = format!("{} {how}", self.devices.rail(rail).name());
                self.log_down(rail, &what, |peer, rails| peer.leaves(rail, rails).len());
                // `change_all` ends the paths on it where there is another way.
                return self.change_all(|_, _| ());
            }
        }
        self.change_all(|peer, _| peer.regain(rail));
    }

    /// Lets go of a device that is gone. Its descriptors would stay readable for ever.
    pub(super) fn lose_device(&mut self, rail: usize, why: &str) {
        // Peers were told of these arrivals by their own devices, so the completions are handled
        // first.
        let mut last = Vec::new();
        self.devices.rail_mut(rail).poll(&mut last).ok();
        last.into_iter().for_each(|completion| self.handle(completion));
        let it = self.devices.rail_mut(rail);
        (it.is_up, it.is_gone) = (false, true);
        let (device, what) =
            (Arc::clone(&it.device), format!("{} cannot be used any more: {why}", it.name()));
        self.waker.forget(it.listener.bell());
        self.waker.forget(it.channel.fd());
        if let Some(connector) = it.connector.take() {
            self.waker.forget(connector.fd());
        }
        if !self.devices.is_used(&device) {
            self.waker.forget(device.context.events());
        }
        self.log_down(rail, &what, |peer, _| peer.paths_by(rail).len());
        self.change_all(|peer, _| peer.lose_device(rail, why));
        self.devices.forget(rail);
    }

    /// Logs that a rail is down. `goes` counts the paths to a peer that end with it.
    fn log_down(&mut self, rail: usize, what: &str, goes: impl Fn(&Peer, &Rails) -> usize) {
        let (mut paths, mut peers, mut kept) = (0, 0, 0);
        for Contact { peer, .. } in self.contacts.iter() {
            let some = goes(peer, self.devices.rails());
            (paths, peers) = (paths + some, peers + usize::from(some > 0));
            kept += peer.paths_by(rail).len() - some;
        }
        let what = match (kept, &self.config.settings) {
            (0, _) => what.to_owned(),
            (_, &Settings { timeout, retries, .. }) => {
                let silence = diagnostics::silence(timeout, retries).as_secs_f64();
                format!(
                    "{what}; on {kept} paths without another way its device retries for \
                     {silence:.1} s"
                )
            }
        };
        log(self.rail_log.down(rail, &what, (paths, peers), Instant::now()));
    }

    /// Handles all completions. Returns whether there were any.
    pub(super) fn drain(&mut self) -> bool {
        let mut completions = self.devices.take_room();
        for rail in 0..self.devices.count() {
            let it = self.devices.rail_mut(rail);
            if !it.is_gone
                && let Err(error) = it.poll(&mut completions)
            {
                self.lose_device(rail, &error.to_string());
            }
        }
        let moved = !completions.is_empty();
        for completion in completions.drain(..) {
            self.handle(completion);
        }
        self.devices.put_back(completions);
        moved
    }

    fn handle(&mut self, Completion { id, outcome }: Completion) {
        let (Id { peer: rank, path, life }, work) = Id::decode(id);
        if !self.contacts.has(rank) {
            return;
        }
        let Some(Contact { peer, .. }) = self.contacts.contact_mut(rank) else { return };
        let arrived = match (outcome, work) {
            (Outcome::Done | Outcome::Answered, Work::Send(posted)) => {
                let has_arrived = matches!(outcome, Outcome::Answered);
                if peer.done(path, life, posted, has_arrived) {
                    self.change(rank, |_, _| ());
                }
                return;
            }
            (Outcome::Arrived(number), _) => Arrived::Immediate(number),
            (Outcome::Message(bytes), Work::Receive(slot)) => Arrived::Message { slot, bytes },
            (Outcome::Failed { status, vendor }, work) => {
                let is_new = peer.flushed(path, life, matches!(work, Work::Receive(_)));
                if is_new && (status != FLUSHED || peer.fault().is_none()) {
                    self.explain(rank);
                }
                return self.change(rank, |peer, own| {
                    peer.fail(path, life, (status, vendor), own.settings);
                });
            }
            _ => {
                return self
                    .change(rank, |peer, _| peer.end("a completion without a message".into()));
            }
        };
        match peer.arrive(path, life, arrived) {
            Ok(false) => {}
            Ok(true) => self.change(rank, |_, _| ()),
            Err(fault) => self.change(rank, |peer, _| peer.end(fault)),
        }
    }

    /// Handles the messages that a peer may have sent before a path to it failed: its goodbye
    /// explains the failure.
    pub(super) fn explain(&mut self, rank: Rank) {
        self.control.poll().ok();
        self.receive_messages(rank);
        // Other peers may have sent messages too.
        self.control.mark_pending();
    }
}
