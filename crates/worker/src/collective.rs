//! What the workers of a group do together: every member meets the same instruction, and a failed operand travels to
//! the others in the place of its bytes, so that nobody waits for it.

use crate::machine::{Machine, first_value, unsigned};
use crate::reuse::with_size;
use crate::table::NoValue;
use crate::{Cause, Engine, Fault, Fold};
use gt_protocol::message::FailureClass;
use gt_protocol::{Attr, Dims, Instruction, Meta, Op};
use std::rc::Rc;

/// Up to here a reduction goes in one hop, every shard to everyone: below it the second hop's wait costs more than the
/// bytes it saves.
const ONE_HOP_BYTES_MAX: usize = 16 * 1024;

/// What one worker sends another: a value's bytes, or why there are none.
#[derive(Clone, Copy, Debug)]
pub enum Parcel<'a> {
    Bytes(&'a [u8]),
    Failure(&'a Cause),
}

/// What arrives.
pub type Received = Result<Vec<u8>, Cause>;

/// A worker that nobody can reach any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} is gone")]
pub struct PeerLost(pub u32);

/// The other workers.
pub trait Peers {
    /// Sends the parcels and returns one from each of `from`, in this order, all under `tag`. It takes in what arrives
    /// while it sends, whoever it is from: two workers that send each other more than the way between them holds must
    /// not wait for each other.
    fn exchange(
        &mut self,
        tag: u64,
        parcels: &[(u32, Parcel<'_>)],
        from: &[u32],
    ) -> Result<Vec<Received>, PeerLost>;
}

impl From<PeerLost> for Fault {
    fn from(lost: PeerLost) -> Self {
        Self::new(FailureClass::WorkerLost, lost.to_string())
    }
}

/// The members of a collective, and which of them we are.
struct Group {
    members: Vec<u32>,
    me: usize,
    tag: u64,
}

impl Group {
    fn new(instruction: &Instruction<'_>, index: u32) -> Result<Self, Fault> {
        let Attr::Ints(members) = instruction.attr("group") else {
            return Err(Fault::protocol("group is missing"));
        };
        let tag = unsigned(instruction, "tag")?;
        let members: Result<Vec<u32>, _> = members.iter().map(|&one| u32::try_from(one)).collect();
        let Ok(members) = members else {
            return Err(Fault::protocol("a group's member is no worker"));
        };
        let Some(me) = members.iter().position(|&member| member == index) else {
            return Err(Fault::protocol(format!("worker {index} is not in the group {members:?}")));
        };
        Ok(Self { members, me, tag })
    }

    fn others(&self) -> Vec<u32> {
        let me = self.me;
        let others = self.members.iter().enumerate().filter(|&(place, _)| place != me);
        others.map(|(_, &member)| member).collect()
    }

    /// The same parcel to everyone else, and theirs.
    fn share(&self, parcel: Parcel<'_>, peers: &mut impl Peers) -> Result<Vec<Vec<u8>>, NoValue> {
        let others = self.others();
        let parcels: Vec<_> = others.iter().map(|&member| (member, parcel)).collect();
        all_bytes(peers.exchange(self.tag, &parcels, &others).map_err(Fault::from)?)
    }

    /// Piece k of `bytes` to member k, and our piece of theirs.
    fn scatter(
        &self,
        bytes: &[u8],
        cuts: &[(usize, usize)],
        peers: &mut impl Peers,
    ) -> Result<Vec<Received>, PeerLost> {
        let pieces = self.members.iter().zip(cuts).enumerate();
        let parcels: Vec<_> = pieces
            .filter(|&(place, _)| place != self.me)
            .map(|(_, (&member, &cut))| (member, Parcel::Bytes(piece(bytes, cut))))
            .collect();
        peers.exchange(self.tag, &parcels, &self.others())
    }

    /// What the others sent with our own in its place.
    fn in_order<'a>(&self, received: &'a [Vec<u8>], own: &'a [u8]) -> Vec<&'a [u8]> {
        let mut shards: Vec<&[u8]> = received.iter().map(Vec::as_slice).collect();
        shards.insert(self.me.min(shards.len()), own);
        shards
    }
}

impl<E: Engine> Machine<E> {
    pub(crate) fn collective(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<(), NoValue> {
        self.table.check_vacant(&instruction.outputs)?;
        if instruction.op == Op::Send {
            return self.send(instruction, peers);
        }
        let (bytes, meta) = if instruction.op == Op::Receive {
            self.receive(instruction, peers)?
        } else if instruction.op == Op::AllReduce {
            self.all_reduce(instruction, peers)?
        } else {
            self.all_gather(instruction, peers)?
        };
        let expected = meta.bytes();
        if u64::try_from(bytes.len()).ok() != Some(expected) {
            let text = format!("{} bytes arrived for a {meta}", bytes.len());
            return Err(Fault::protocol(text).into());
        }
        let mut value = self.allocate(&meta)?;
        self.engine.write(&mut value, 0, &bytes)?;
        if let Some(&id) = instruction.outputs.first() {
            self.table.put(id, value, meta);
        }
        Ok(())
    }

    /// Bytes and metadata of the operand, and a copy of why there are none.
    fn shard(&mut self, instruction: &Instruction<'_>) -> Result<(Vec<u8>, Meta), NoValue> {
        let held = self.table.held(first_value(instruction)?)?;
        let mut shard = Vec::new();
        self.engine.with_bytes(&held.value, &mut |bytes| shard.extend_from_slice(bytes))?;
        Ok((shard, held.meta))
    }

    /// Why our part of a collective fails, as the others are to hear it.
    fn cause(&self, instruction: &Instruction<'_>, why: &NoValue) -> Rc<Cause> {
        match why {
            NoValue::Failed(cause) => Rc::clone(cause),
            NoValue::Fault(fault) => Rc::new(self.cause_of(instruction, fault.clone())),
        }
    }

    fn send(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<(), NoValue> {
        let peer = self.peer(instruction)?;
        let tag = unsigned(instruction, "tag")?;
        let shard = self.shard(instruction);
        let cause = shard.as_ref().err().map(|why| self.cause(instruction, why));
        let parcel = match (&shard, &cause) {
            (Err(_), Some(cause)) => Parcel::Failure(cause),
            (Ok((bytes, _)), _) => Parcel::Bytes(bytes),
            (Err(_), None) => Parcel::Bytes(&[]),
        };
        peers.exchange(tag, &[(peer, parcel)], &[]).map_err(Fault::from)?;
        shard.map(|_| ())
    }

    fn receive(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<(Vec<u8>, Meta), NoValue> {
        let (Attr::Ints(dims), Attr::Dtype(dtype)) =
            (instruction.attr("size"), instruction.attr("dtype"))
        else {
            return Err(Fault::protocol("receive without size and dtype").into());
        };
        let peer = self.peer(instruction)?;
        let tag = unsigned(instruction, "tag")?;
        let mut received = all_bytes(peers.exchange(tag, &[], &[peer]).map_err(Fault::from)?)?;
        let bytes = received.pop().unwrap_or_default();
        Ok((bytes, Meta::new(*dtype, *dims)))
    }

    fn peer(&self, instruction: &Instruction<'_>) -> Result<u32, Fault> {
        let peer = unsigned(instruction, "peer")?;
        match u32::try_from(peer) {
            Ok(peer) if peer != self.index => Ok(peer),
            Ok(_) | Err(_) => Err(Fault::protocol(format!("peer {peer} of worker {}", self.index))),
        }
    }

    fn all_reduce(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<(Vec<u8>, Meta), NoValue> {
        let group = Group::new(instruction, self.index)?;
        let Attr::Choice(choice) = instruction.attr("fold") else {
            return Err(Fault::protocol("fold is missing").into());
        };
        let fold = Fold::from_choice(*choice).ok_or_else(|| Fault::protocol("fold is unknown"))?;
        let (own, meta) = self.shard_or_tell(instruction, &group, peers)?;
        if own.len() <= ONE_HOP_BYTES_MAX {
            let received = group.share(Parcel::Bytes(&own), peers)?;
            let folded = self.fold(&meta, fold, &group.in_order(&received, &own))?;
            return Ok((folded, meta));
        }
        // Each member folds one piece of all shards and shares it: every element is still folded once, in the group's
        // order, so that all members hold the same bits, and the same as in one hop.
        let cuts = cuts(own.len(), &meta, group.members.len());
        let mine = cuts.get(group.me).copied().unwrap_or((0, 0));
        // A member that failed has told all, and all stop here. A lost one may have told some only, and a fold that
        // fails is nobody else's knowledge: then the second hop carries the failure.
        let folded = match group.scatter(&own, &cuts, peers) {
            Ok(received) => {
                let received = all_bytes(received)?;
                self.fold(&meta, fold, &group.in_order(&received, piece(&own, mine)))
            }
            Err(lost) => Err(lost.into()),
        };
        let folded = match folded {
            Ok(folded) => folded,
            Err(fault) => {
                let cause = self.cause_of(instruction, fault.clone());
                group.share(Parcel::Failure(&cause), peers)?;
                return Err(fault.into());
            }
        };
        let received = group.share(Parcel::Bytes(&folded), peers)?;
        Ok((group.in_order(&received, &folded).concat(), meta))
    }

    fn all_gather(
        &mut self,
        instruction: &Instruction<'_>,
        peers: &mut impl Peers,
    ) -> Result<(Vec<u8>, Meta), NoValue> {
        let group = Group::new(instruction, self.index)?;
        let Attr::Ints(sizes) = instruction.attr("sizes") else {
            return Err(Fault::protocol("sizes are missing").into());
        };
        if sizes.len() != group.members.len() || sizes.iter().any(|&size| size < 0) {
            let text = format!("sizes {sizes} for {} members", group.members.len());
            return Err(Fault::protocol(text).into());
        }
        let dim = usize::try_from(unsigned(instruction, "dim")?).unwrap_or(usize::MAX);
        let (own, meta) = self.shard_or_tell(instruction, &group, peers)?;
        let received = group.share(Parcel::Bytes(&own), peers)?;
        let total = sizes.iter().sum();
        let Some(dims) = with_size(&meta.dims, dim, total) else {
            return Err(Fault::protocol(format!("dim {dim} of a {meta}")).into());
        };
        let result = Meta::new(meta.dtype, dims);
        let shards = group.in_order(&received, &own);
        Ok((joined(&shards, sizes, &result, dim)?, result))
    }

    /// Our shard; where there is none, the others hear why, in the place where they wait for it.
    fn shard_or_tell(
        &mut self,
        instruction: &Instruction<'_>,
        group: &Group,
        peers: &mut impl Peers,
    ) -> Result<(Vec<u8>, Meta), NoValue> {
        match self.shard(instruction) {
            Ok(shard) => Ok(shard),
            Err(why) => {
                let cause = self.cause(instruction, &why);
                group.share(Parcel::Failure(&cause), peers)?;
                Err(why)
            }
        }
    }

    fn fold(&mut self, meta: &Meta, fold: Fold, shards: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let lengths: Vec<usize> = shards.iter().map(|shard| shard.len()).collect();
        if lengths.iter().any(|length| Some(length) != lengths.first()) {
            return Err(Fault::protocol(format!("shards of {lengths:?} bytes to fold")));
        }
        self.engine.fold(meta.dtype, fold, shards)
    }
}

/// The bytes of all, or the first failure in the group's order.
fn all_bytes(received: Vec<Received>) -> Result<Vec<Vec<u8>>, NoValue> {
    let bytes: Result<Vec<_>, Cause> = received.into_iter().collect();
    bytes.map_err(|cause| NoValue::Failed(Rc::new(cause)))
}

/// Byte ranges of one piece a member, cut between elements.
fn cuts(bytes: usize, meta: &Meta, members: usize) -> Vec<(usize, usize)> {
    let size = usize::try_from(meta.dtype.size()).unwrap_or(1);
    let elements = bytes / size;
    let end = |member: usize| elements * member / members * size;
    (0..members).map(|member| (end(member), end(member + 1))).collect()
}

fn piece(bytes: &[u8], (start, end): (usize, usize)) -> &[u8] {
    bytes.get(start..end).unwrap_or_default()
}

/// Shards one after the other along `dim`.
fn joined(shards: &[&[u8]], sizes: &Dims, result: &Meta, dim: usize) -> Result<Vec<u8>, Fault> {
    let before = result.dims.iter().take(dim);
    let rows = before.fold(1, |rows, &size| rows * usize::try_from(size).unwrap_or(0));
    let element = usize::try_from(result.dtype.size()).unwrap_or(1);
    let after = result.dims.iter().skip(dim + 1);
    let run = after.fold(element, |run, &size| run * usize::try_from(size).unwrap_or(0));
    let runs: Vec<usize> =
        sizes.iter().map(|&size| run * usize::try_from(size).unwrap_or(0)).collect();
    if shards.iter().zip(&runs).any(|(shard, run)| shard.len() != rows * run) {
        let lengths: Vec<usize> = shards.iter().map(|shard| shard.len()).collect();
        let text = format!("shards of {lengths:?} bytes for a {result} of sizes {sizes}");
        return Err(Fault::protocol(text));
    }
    let mut bytes = Vec::with_capacity(rows * runs.iter().sum::<usize>());
    for row in 0..rows {
        for (shard, &run) in shards.iter().zip(&runs) {
            bytes.extend_from_slice(piece(shard, (row * run, (row + 1) * run)));
        }
    }
    Ok(bytes)
}
