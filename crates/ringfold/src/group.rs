//! Communicators of some ranks of a communicator.

use std::sync::Arc;

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold_bootstrap::{Aborter, CallWindows, Parent, ParentGroup};
use ringfold_types::{Call, Collective, DataType, Digest, Rank, ReduceOp, Wire};

use crate::buffers::{Buffers, User};
use crate::cache::Request;
use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::setup::{GroupAddress, GroupListener, InitError, Meeting, Origin, Parts, join_group};
use crate::store::KeyValueStore;

/// The method that makes a group. All ranks must call the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Split,
    Duplicate,
    /// The digest of the list of ranks.
    Subset(u64),
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Duplicate => "duplicate",
            Self::Subset(_) => "subset",
        }
    }

    /// The words that all ranks must have in common.
    const fn to_words(self) -> [u64; 2] {
        match self {
            Self::Split => [0, 0],
            Self::Duplicate => [1, 0],
            Self::Subset(digest) => [2, digest],
        }
    }
}

/// The statement of one rank about the group that it wants.
const WORDS: usize = 9;

/// The new group of this rank.
struct Group {
    name: Arc<str>,
    /// The number of the group among those of its parent, and its color.
    id: (u64, u64),
    /// The rank in the parent group of each member.
    members: Vec<usize>,
    /// The rank of this process in the group.
    rank: Rank,
}

impl Communicator {
    /// Divides the ranks into groups: ranks of one `color` get a communicator of their own. `key`
    /// orders the ranks of a group, and equal keys keep the order of this communicator. Returns
    /// `None` on ranks without a color.
    ///
    /// Every rank must call it, between the same two collectives. Blocks until the ranks of this
    /// color have joined, for at most [`Config::join_timeout`](crate::Config::join_timeout). If one
    /// of them fails meanwhile, the others stop waiting for it. No launcher takes part.
    ///
    /// A group has a key, a control plane, transports and failures of its own. It keeps the
    /// settings, the profile of prices and the CPUs' load of this communicator, which remains
    /// usable and may be dropped first. Errors of the group name it, as
    /// [`group_name`](Self::group_name) does, and its rank 0 takes the place of rank 0 in them.
    /// Threads may use several groups at once, each group from one thread at a time. Ranks that
    /// call blocking collectives of two groups in opposite orders wait for each other until the
    /// timeout.
    ///
    /// # Errors
    /// [`Error::Group`] if the ranks of this color cannot join; [`Error::Argument`], on every rank,
    /// if the ranks call different methods; [`Error::Failed`] if this communicator has failed;
    /// [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{ReduceOp, local};
    ///
    /// let sums = local::run(4, |comm| {
    ///     let row = comm.rank().0 / 2;
    ///     let mut group = comm.split(Some(row), 0).unwrap().unwrap();
    ///     let mut sum = [comm.rank().0];
    ///     group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    ///     (group.size(), group.group_name() == Some(&*format!("split 1 color {row}")), sum[0])
    /// })?;
    /// assert_eq!(sums, [(2, true, 1), (2, true, 1), (2, true, 5), (2, true, 5)]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>, Error> {
        self.make_group(Method::Split, color, key)
    }

    /// Makes a communicator of the same ranks, for calls that overlap those of this one. Everything
    /// else is as for [`split`](Self::split).
    ///
    /// # Errors
    /// As for [`split`](Self::split).
    ///
    /// ```
    /// use ringfold::Communicator;
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut other = comm.duplicate()?;
    /// assert_eq!((other.rank(), other.group_name()), (comm.rank(), Some("duplicate 1")));
    /// other.barrier()?;
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn duplicate(&mut self) -> Result<Self, Error> {
        let group = self.make_group(Method::Duplicate, Some(0), 0)?;
        let Some(group) = group else { unreachable!("every rank has the color") };
        Ok(group)
    }

    /// Makes a communicator of these `ranks`, in this order. Every rank of this communicator must
    /// call it with the same list. Returns `None` on ranks outside the list. Everything else is as
    /// for [`split`](Self::split).
    ///
    /// # Errors
    /// [`Error::Argument`] if the list has a rank twice or a rank that is not below the size, or
    /// if ranks pass different lists. Otherwise as for [`split`](Self::split).
    ///
    /// ```
    /// use ringfold::{Rank, local};
    ///
    /// let ranks = local::run(3, |comm| {
    ///     let pair = comm.subset(&[Rank(2), Rank(0)]).unwrap();
    ///     pair.map(|pair| pair.rank())
    /// })?;
    /// assert_eq!(ranks, [Some(Rank(1)), None, Some(Rank(0))]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn subset(&mut self, ranks: &[Rank]) -> Result<Option<Self>, Error> {
        let mut places = vec![None; self.size()];
        for (place, rank) in (0..).zip(ranks) {
            let Some(seat) = places.get_mut(rank.index()) else {
                let size = self.size();
                return Err(self.refuse_group("subset", format!("rank {rank} is not below {size}")));
            };
            if seat.replace(place).is_some() {
                return Err(
                    self.refuse_group("subset", format!("rank {rank} is in the list twice"))
                );
            }
        }
        let list: Vec<u8> = ranks.iter().flat_map(|rank| rank.0.to_le_bytes()).collect();
        let place = places[self.rank().index()];
        self.make_group(Method::Subset(Digest::of(&list)), place.map(|_| 0), place.unwrap_or(0))
    }

    /// Makes a communicator of these `ranks` of the communicator of `parent`, in this order, which
    /// share `store`. Only these ranks call it, with the same list, at any time: it makes no call
    /// of the parent, which may be in use. Blocks until they have joined, for at most
    /// [`Config::join_timeout`]. If one of them fails in the parent meanwhile, or leaves it, the
    /// others stop waiting for it. Everything else is as for
    /// [`init_with_store`](Self::init_with_store).
    ///
    /// # Errors
    /// [`Error::Init`] if the store fails or the ranks cannot join; [`Error::Argument`] if the list
    /// has a rank twice or lacks this rank.
    ///
    /// [`Config::join_timeout`]: crate::Config::join_timeout
    pub fn subset_with_store(
        config: &Config,
        store: impl KeyValueStore,
        parent: &Aborter,
        ranks: &[Rank],
    ) -> Result<Self, Error> {
        let (own, call) = (parent.rank(), "subset_with_store");
        let refuse = |what| Error::Argument { rank: own, call, what };
        let has_twice = |rank: &&Rank| ranks.iter().filter(|other| other == rank).count() > 1;
        if let Some(rank) = ranks.iter().find(has_twice) {
            return Err(refuse(format!("rank {rank} is in the list twice")));
        }
        let Some(place) = ranks.iter().position(|rank| *rank == own) else {
            return Err(refuse("the list lacks this rank".to_owned()));
        };
        let place = (Rank::at(place), ranks.len());
        let parent = ParentGroup { group: 0, aborter: parent.clone(), members: ranks.to_vec() };
        Self::join_by_store(config, store, place, Some(parent))
    }

    /// Makes the group of this rank's color. All ranks exchange their wishes and the addresses at
    /// which they listen, and then the ranks of each color join.
    fn make_group(
        &mut self,
        method: Method,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Self>, Error> {
        self.check_process()?;
        let listener = self.origin().open_listener(self.layout());
        let address = listener.as_ref().ok().and_then(|it| Some(it.as_ref()?.address));
        let mut mine = [0; WORDS];
        mine[..2].copy_from_slice(&method.to_words());
        mine[2] = color.map_or(0, |color| u64::from(color) + 1);
        mine[3] = key.cast_unsigned();
        mine[4..].copy_from_slice(&GroupAddress::to_words(address));
        let mut all = vec![[0_u64; WORDS]; self.size()];
        self.gather_words(&mine, all.as_flattened_mut())?;
        if let Some(other) = all.iter().position(|it| it[..2] != all[0][..2]) {
            let what = format!(
                "rank {other} and rank 0 call different methods, or pass different lists; all \
                 ranks must ask for the same groups"
            );
            return Err(self.refuse_group(method.name(), what));
        }
        let number = self.count_group();
        let group = color.map(|color| self.group_of(method, (number, color.into()), &all));
        let parts = if let Origin::Threads(_) = self.origin() {
            self.meet_threads(group.as_ref())?
        } else {
            let is_first = group.as_ref().is_some_and(|group| group.rank == Rank(0));
            // The other ranks close their listeners.
            let listener = if is_first { listener } else { Ok(None) };
            group.as_ref().map(|group| listener.and_then(|it| self.join(group, it, &all)))
        };
        let (Some(group), Some(parts)) = (group, parts) else { return Ok(None) };
        match parts {
            Ok(parts) => {
                let mut child = self.child(Arc::clone(&group.name), parts)?;
                self.inherit(&mut child, &group.members);
                Ok(Some(child))
            }
            Err(source) => {
                let (rank, source) = (self.rank(), Arc::new(source));
                let error = Error::Group { rank, group: group.name, source };
                tracing::error!("{error:?}");
                Err(error)
            }
        }
    }

    /// Gathers the words of all ranks. The mark tells the call from an all-gather of the program.
    fn gather_words(&mut self, mine: &[u64; WORDS], all: &mut [u64]) -> Result<(), Error> {
        let (collective, data_type) = (Collective::AllGather, DataType::U64);
        let (op, root, wire) = (ReduceOp::Sum, Rank(0), Wire::Element);
        let call = Call { collective, count: WORDS, data_type, op, root, wire };
        let mut buffers = Buffers::Apart { input: cast_slice(mine), output: cast_slice_mut(all) };
        let mark = Some(CallWindows::GROUP);
        let request = Request { mark, ..Request::ordinary(&call, &buffers) };
        self.perform_request(request, User::Private(&mut buffers))
    }

    /// The group of a color, from the wishes of all ranks.
    fn group_of(&self, method: Method, id: (u64, u64), all: &[[u64; WORDS]]) -> Group {
        let (number, color) = id;
        let key = |rank: usize| all[rank][3].cast_signed();
        let mut members: Vec<usize> =
            (0..all.len()).filter(|rank| all[*rank][2] == color + 1).collect();
        members.sort_by_key(|rank| (key(*rank), *rank));
        let own = members.iter().position(|rank| *rank == self.rank().index());
        let Some(own) = own else { unreachable!("this rank has the color") };
        let parent = self.group_name().map_or_else(String::new, |parent| format!("{parent} / "));
        let color = match method {
            Method::Split => format!(" color {color}"),
            Method::Duplicate | Method::Subset(_) => String::new(),
        };
        let name = format!("{parent}{} {number}{color}", method.name()).into();
        Group { name, id, members, rank: Rank::at(own) }
    }

    /// Joins a group of processes. The first member has its `listener`.
    fn join(
        &self,
        group: &Group,
        listener: Option<GroupListener>,
        all: &[[u64; WORDS]],
    ) -> Result<Parts, InitError> {
        let Group { name, id: (number, color), members, rank } = group;
        let parent = match self.origin() {
            Origin::Joined(parent) if members.len() > 1 => parent,
            _ => return Parts::alone(),
        };
        let first = members[0];
        let [.., a, b, c, d, e] = all[first];
        let address = GroupAddress::from_words([a, b, c, d, e]);
        let address = address.ok_or(InitError::GroupWithoutPort { rank: Rank::at(first) })?;
        let meeting = Meeting {
            place: (*rank, members.len()),
            name: name.to_string(),
            labels: [number.to_string(), color.to_string(), format!("{:x}", address.nonce)],
            address: address.socket,
            listener: listener.map(|it| it.socket),
            parent: Parent::Group(self.as_parent_of(members, address.nonce)),
        };
        join_group(self.config(), parent, meeting)
    }

    fn as_parent_of(&self, members: &[usize], group: u128) -> ParentGroup {
        let members = members.iter().copied().map(Rank::at).collect();
        ParentGroup { group, aborter: self.aborter(), members }
    }

    /// Makes a group of threads: its first rank makes the parts of all, and each takes its own.
    fn meet_threads(
        &mut self,
        group: Option<&Group>,
    ) -> Result<Option<Result<Parts, InitError>>, Error> {
        let Origin::Threads(groups) = self.origin().clone() else { return Ok(None) };
        let left = match group {
            Some(Group { id, members, rank: Rank(0), .. }) => groups.leave(*id, members.len()),
            _ => Ok(()),
        };
        self.barrier()?;
        Ok(group.map(|group| left.and_then(|()| groups.take(group.id, group.rank.index()))))
    }

    const fn refuse_group(&self, call: &'static str, what: String) -> Error {
        Error::Argument { rank: self.rank(), call, what }
    }
}
