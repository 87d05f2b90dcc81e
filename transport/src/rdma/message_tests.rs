//! Messages as they travel: whole, changed on the way, and without sense.

use super::*;

fn context(key: &JobKey) -> Context<'_> {
    Context { key, from: Rank(3), to: Rank(4), count: 7 }
}

fn load(lane: usize, at: usize, bytes: usize) -> Load {
    Load { lane, sequence: 255, lines: 2, at, bytes }
}

fn plate(host: &str, port: &str) -> Nameplate {
    Nameplate { host: host.to_owned(), port: port.to_owned() }
}

#[test]
fn messages_travel() {
    let key = JobKey::new([1; 32]);
    let place = Some(Place { rail: 300, plane: 3 });
    let label = Label { place, is_preferred: true, crosses: true };
    let (gid, kind) = ([7; 16], GidKind::RoceV1);
    let rail = RailCard { gid, lid: 300, mtu: 5, kind, name: 1 << 31, ..RailCard::default() };
    let rail = RailCard { prefix: 128, label, ..rail };
    let iwarp = RailCard { kind: GidKind::Iwarp, label: Label::default(), ..rail };
    let flags = [(true, false, false), (false, true, false), (false, false, true)];
    let flagged = flags.map(|(needs_grh, is_preferred, crosses)| RailCard {
        needs_grh,
        label: Label { place: None, is_preferred, crosses },
        ..rail
    });
    let (ticket, address) = (*b"any sixteen of t", u64::MAX - 1);
    let target = Target { number: 1 << 23, sequence: 5, ticket, address, key: u32::MAX };
    let mut keys = [7; RAILS_MAX];
    (keys[0], keys[RAILS_MAX - 1]) = (1, u32::MAX);
    for message in [
        Message::Rails { rails: vec![], queue_pairs: 1 },
        Message::Rails { rails: vec![rail; RAILS_MAX], queue_pairs: 4 },
        Message::Rails { rails: vec![iwarp], queue_pairs: 1 },
        Message::Rails { rails: flagged.to_vec(), queue_pairs: 1 },
        Message::Offer { path: PATHS_MAX - 1, target, rail, plate: plate("h2", "rxe_h2r1:1") },
        Message::Offer { path: 0, target, rail, plate: plate(&"h".repeat(64), "") },
        Message::Ready { path: 0 },
        Message::Without { path: 1, returns: false },
        Message::Without { path: 2, returns: true },
        Message::Want { lane: LANES_MAX - 1, mailbox: Grant { address: 1 << 60, keys } },
        Message::Grant { lane: 2, grant: Grant { address: u64::MAX - 3, keys } },
        Message::Bye { fragments: [1 << 40; LANES_MAX] },
        Message::Heard { path: 3, lanes: [Heard { next: 1 << 40, early: 5 << 60 }; LANES_MAX] },
        Message::Load(load(LANES_MAX - 1, RDMA_RING_BYTES - 100, 100)),
        Message::Credit { lane: 1, total: u64::MAX },
    ] {
        let bytes = message.encode(context(&key));
        assert_eq!(Message::decode(&bytes, context(&key)), Ok(message));
    }
}

#[test]
fn what_was_changed_or_said_before_is_refused() {
    let key = JobKey::new([1; 32]);
    let bytes = Message::Credit { lane: 0, total: 1 }.encode(context(&key));
    let refused = |bytes: &[u8; MESSAGE_BYTES], context| {
        assert_eq!(Message::decode(bytes, context), Err(BadMessage::Unproven));
    };
    for at in [0, 9, 200, MESSAGE_BYTES - 1] {
        let mut changed = bytes;
        changed[at] ^= 1;
        refused(&changed, context(&key));
    }
    refused(&bytes, Context { count: 8, ..context(&key) });
    refused(&bytes, Context { from: Rank(4), to: Rank(3), ..context(&key) });
    refused(&bytes, context(&JobKey::new([2; 32])));
}

#[test]
fn nonsense_is_refused_though_it_is_proven() {
    let key = JobKey::new([1; 32]);
    let kind = GidKind::RoceV2;
    let mtu = |mtu| RailCard { gid: [7; 16], mtu, kind, ..RailCard::default() };
    let rails = |rail| Message::Rails { rails: vec![rail], queue_pairs: 1 };
    for message in [
        rails(mtu(6)),
        rails(mtu(0)),
        Message::Ready { path: PATHS_MAX },
        Message::Want { lane: LANES_MAX, mailbox: Grant::default() },
        Message::Offer { path: 0, target: Target::default(), rail: mtu(9), plate: plate("", "") },
        Message::Load(load(LANES_MAX, 0, 64)),
        Message::Load(load(0, RDMA_RING_BYTES - 63, 64)),
        Message::Load(load(0, usize::try_from(u32::MAX).unwrap(), 64)),
        Message::Load(load(0, 0, 0)),
        Message::Credit { lane: LANES_MAX, total: 0 },
    ] {
        let bytes = message.encode(context(&key));
        let found = Message::decode(&bytes, context(&key));
        assert_eq!(found, Err(BadMessage::Nonsense), "{message:?}");
    }
    // Kinds, flags and prefix lengths that do not exist.
    for (at, value) in [(19, 4), (20, 16), (21, 129)] {
        let mut bytes = rails(mtu(5)).encode(context(&key));
        bytes[BODY_AT + at] = value;
        context(&key).prove(&mut bytes);
        assert_eq!(Message::decode(&bytes, context(&key)), Err(BadMessage::Nonsense));
    }
}
