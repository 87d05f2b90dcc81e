//! What a rank says of itself when it joins, so that the others know how to reach it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringfold_types::limits::{CARD_BYTES_MAX, EVIDENCE_BYTES_MAX};

use ringfold_topology::Crowd;
use ringfold_topology::discover::Cpus;

use crate::settings::Settings;

/// One rank's card. Every rank sees every card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Card {
    /// `Host::id`: ranks with the same can share memory.
    pub(crate) host_id: String,
    /// Where its shared memory is to be had; empty if it offers none.
    pub(crate) shm: String,
    /// What all ranks must have set alike.
    pub(crate) settings: Settings,
    /// The CPUs that it may run on; none if they would take too long to list.
    pub(crate) cpus: Cpus,
    /// How many of them it may use at once, quotas counted.
    pub(crate) cores: usize,
    /// The kinds of RDMA networks that it is on, a letter each.
    pub(crate) rdma: String,
    /// Whether its data may go by TCP.
    pub(crate) may_use_tcp: bool,
    /// The digest and size of its evidence of the fabric, which follows the cards.
    pub(crate) evidence: Option<EvidenceCard>,
    /// Where it listens for TCP, which RDMA needs too; empty if it does not.
    pub(crate) tcp: Vec<SocketAddr>,
}

/// The part of a card about evidence of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvidenceCard {
    /// The digest of the evidence: one rank of a host tells it for all with the same.
    pub(crate) digest: u64,
    /// Bytes of all that the rank may tell, at most `limits::EVIDENCE_BYTES_MAX`.
    pub(crate) bytes: usize,
    /// It may change how data moves, so ranks exchange what they know.
    pub(crate) is_of_use: bool,
}

/// Begins the line of RDMA networks of a rank whose data may not go by TCP.
const WITHOUT_TCP: char = '-';

/// Bytes of a list of CPUs that a card has room for.
const CPUS_BYTES: usize = 64;

/// No machine has so many cores.
const CORES_END: usize = 1 << 16;

/// A card that no ringfold rank writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its card cannot be read; do all ranks run the same version of ringfold?")]
pub struct UnreadableCard;

impl Card {
    /// Distinguishes the machine: its containers are different hosts, but share its CPUs.
    pub(crate) fn machine(&self) -> &str {
        self.host_id.split_once('/').map_or(&self.host_id, |(boot, _)| boot)
    }

    /// The card as lines of text: host, shared memory, settings, CPUs, cores, RDMA
    /// networks, evidence, TCP addresses. What would make it too long is left out.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { host_id, shm, settings, cpus, cores, rdma, may_use_tcp, evidence, tcp: _ } =
            self;
        let said = |it: &EvidenceCard| {
            let mark = if it.is_of_use { "+" } else { "" };
            format!("{:x}:{}{mark}", it.digest, it.bytes)
        };
        let evidence = evidence.as_ref().map_or_else(String::new, said);
        let without_tcp = if *may_use_tcp { "" } else { "-" };
        let cpus = Some(cpus.to_string()).filter(|list| list.len() <= CPUS_BYTES);
        let cpus = cpus.unwrap_or_default();
        let mut text = format!(
            "{host_id}\n{shm}\n{settings}\n{cpus}\n{cores}\n{without_tcp}{rdma}\n{evidence}\n"
        );
        for address in &self.tcp {
            let address = format!("{address} ");
            if text.len() + address.len() <= CARD_BYTES_MAX {
                text += &address;
            }
        }
        text.into_bytes()
    }

    /// Reads what `encode` wrote.
    ///
    /// # Errors
    /// It is something else.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, UnreadableCard> {
        let text = std::str::from_utf8(bytes).map_err(|_| UnreadableCard)?;
        let mut lines = text.split('\n');
        let mut line = || lines.next().ok_or(UnreadableCard);
        let [host_id, shm, settings] = [line()?, line()?, line()?];
        let [cpus, cores, rdma, evidence, tcp] = [line()?, line()?, line()?, line()?, line()?];
        if lines.next().is_some() {
            return Err(UnreadableCard);
        }
        let tcp = tcp.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        Ok(Self {
            host_id: host_id.to_owned(),
            shm: shm.to_owned(),
            settings: Settings::parse(settings).ok_or(UnreadableCard)?,
            cpus: cpus.parse().map_err(|_| UnreadableCard)?,
            cores: cores.parse().ok().filter(|it| *it < CORES_END).ok_or(UnreadableCard)?,
            rdma: rdma.trim_start_matches(WITHOUT_TCP).to_owned(),
            may_use_tcp: !rdma.starts_with(WITHOUT_TCP),
            evidence: EvidenceCard::parse(evidence)?,
            tcp: tcp.map_err(|_| UnreadableCard)?,
        })
    }
}

impl EvidenceCard {
    fn parse(text: &str) -> Result<Option<Self>, UnreadableCard> {
        if text.is_empty() {
            return Ok(None);
        }
        let (digest, bytes) = text.split_once(':').ok_or(UnreadableCard)?;
        let digest = u64::from_str_radix(digest, 16).map_err(|_| UnreadableCard)?;
        let is_of_use = bytes.ends_with('+');
        let bytes = bytes.strip_suffix('+').unwrap_or(bytes).parse().ok();
        let bytes = bytes.filter(|bytes| *bytes <= EVIDENCE_BYTES_MAX).ok_or(UnreadableCard)?;
        Ok(Some(Self { digest, bytes, is_of_use }))
    }
}

/// The ranks of each machine, and the CPUs that they share: the same on every rank.
pub(crate) fn crowds(cards: &[Card]) -> BTreeMap<&str, Crowd> {
    let mut machines: BTreeMap<&str, Vec<&Card>> = BTreeMap::new();
    for card in cards {
        machines.entry(card.machine()).or_default().push(card);
    }
    machines.into_iter().map(|(machine, cards)| (machine, crowd(&cards))).collect()
}

/// Those of one machine.
fn crowd(cards: &[&Card]) -> Crowd {
    let mut cpus = Cpus::default();
    cards.iter().for_each(|card| cpus.join(&card.cpus));
    // Lists that are missing, or that a quota leaves less of, say too little.
    let is_limited = cards.iter().any(|card| card.cores != card.cpus.len());
    let least = cards.iter().map(|card| card.cores).min().unwrap_or(1);
    Crowd { ranks: cards.len(), cpus: if is_limited { least } else { cpus.len() }.max(1) }
}

/// Whether the bytes are what a rank says of itself when it joins. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn is_card(bytes: &[u8]) -> bool {
    Card::decode(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn what_is_written_is_read() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let card = Card {
            host_id: "boot/net:[1]".to_owned(),
            shm: "@ringfold-1".to_owned(),
            settings: Settings::of(&Config::default(), None),
            cpus: "0-3,8".parse().unwrap_or_default(),
            cores: 5,
            rdma: "ei".to_owned(),
            may_use_tcp: true,
            evidence: Some(EvidenceCard {
                digest: u64::MAX,
                bytes: EVIDENCE_BYTES_MAX,
                is_of_use: true,
            }),
            tcp: vec![address(1), address(65535)],
        };
        assert_eq!(Card::decode(&card.encode()), Ok(card));
        assert_eq!(Card::decode(&Card::default().encode()), Ok(Card::default()));
        let many = Card { tcp: vec![address(40000); 100], ..Card::default() };
        assert!(many.encode().len() <= CARD_BYTES_MAX);
        assert!(Card::decode(&many.encode()).is_ok());
    }

    #[test]
    fn ranks_share_the_cpus_of_their_machine() {
        let card = |host: &str, cpus: &str, cores| {
            let (host_id, cpus) = (host.to_owned(), cpus.parse().unwrap_or_default());
            Card { host_id, cpus, cores, ..Card::default() }
        };
        let of = |cards: &[Card]| {
            let crowds = crowds(cards).into_iter();
            let each =
                crowds.map(|(machine, it)| format!("{machine}: {} on {}", it.ranks, it.cpus));
            each.collect::<Vec<_>>().join(", ")
        };
        let containers = [card("a/1", "0-1", 2), card("a/2", "0-1", 2), card("b/1", "0-7", 8)];
        assert_eq!(of(&containers), "a: 2 on 2, b: 1 on 8");
        assert_eq!(of(&[card("a/1", "0", 1), card("a/1", "1", 1)]), "a: 2 on 2", "bound");
        assert_eq!(of(&[card("a/1", "0-7", 2), card("a/1", "0-7", 2)]), "a: 2 on 2", "a quota");
        assert_eq!(of(&[card("a/1", "", 64), card("a/1", "0", 1)]), "a: 2 on 1", "not listed");
        assert_eq!(of(&[Card::default()]), ": 1 on 1", "nothing known");
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [
            &b""[..],
            b"\xff",
            b"a\nb",
            b"a\nb\nc d\n",
            b"a\nb\nc\n",
            b"a\nb\n0: 0: 0: 0:\n\n1\ne\n\n1.2.3.4",
            b"a\nb\n0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n1\n1.2.3.4:1",
            b"a\nb\n0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n1:9999\n1.2.3.4:1",
        ] {
            assert_eq!(Card::decode(bytes), Err(UnreadableCard), "{bytes:?}");
        }
        let good = b"a\nb\n0: 0: 0: 0: 0: 0: 0:\n\n1\ne\n1:8192\n1.2.3.4:1";
        assert!(Card::decode(good).is_ok(), "the others lack one thing each");
    }
}
