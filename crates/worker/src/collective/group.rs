//! The members of a collective, and which of them we are.

use super::{Parcel, Peers, Received};
use crate::Fault;
use crate::machine::unsigned;
use crate::table::NoValue;
use gt_protocol::{Attr, Instruction};
use std::rc::Rc;

/// Every member has the same list, and the same place in it for everyone.
pub(super) struct Group {
    members: Vec<u32>,
    pub me: usize,
    tag: u64,
}

impl Group {
    pub fn new(instruction: &Instruction<'_>, index: u32) -> Result<Self, Fault> {
        let tag = unsigned(instruction, "tag")?;
        let members = list(instruction, "group")?;
        let found: Result<Vec<u32>, _> = members.iter().map(|&one| u32::try_from(one)).collect();
        let Ok(members) = found else {
            return Err(Fault::protocol("a group's member is no worker"));
        };
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Fault::protocol(format!("a worker is in the group {members:?} twice")));
        }
        let Some(me) = members.iter().position(|&member| member == index) else {
            return Err(Fault::protocol(format!("worker {index} is not in the group {members:?}")));
        };
        Ok(Self { members, me, tag })
    }

    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// Where a worker stands in the list.
    pub fn place(&self, worker: u64) -> Option<usize> {
        self.members.iter().position(|&member| u64::from(member) == worker)
    }

    /// One size a member, from the attribute `name`.
    pub fn sizes<'a>(
        &self,
        instruction: &'a Instruction<'_>,
        name: &str,
    ) -> Result<&'a [i64], Fault> {
        let sizes = list(instruction, name)?;
        let total = sizes.iter().try_fold(0_i64, |total, &size| total.checked_add(size));
        if sizes.len() != self.len() || sizes.iter().any(|&size| size < 0) || total.is_none() {
            let text = format!("{name} {sizes:?} for {} members", self.len());
            return Err(Fault::protocol(text));
        }
        Ok(sizes)
    }

    fn others(&self) -> Vec<u32> {
        let me = self.me;
        let others = self.members.iter().enumerate().filter(|&(place, _)| place != me);
        others.map(|(_, &member)| member).collect()
    }

    /// The same parcel to everyone else, and theirs.
    pub fn share(
        &self,
        parcel: Parcel<'_>,
        peers: &mut impl Peers,
    ) -> Result<Vec<Vec<u8>>, NoValue> {
        let others = self.others();
        let parcels: Vec<_> = others.iter().map(|&member| (member, parcel)).collect();
        all_bytes(peers.exchange(self.tag, &parcels, &others).map_err(Fault::from)?)
    }

    /// The same parcel to everyone else, and nothing back.
    pub fn tell(&self, parcel: Parcel<'_>, peers: &mut impl Peers) -> Result<(), Fault> {
        let parcels: Vec<_> = self.others().iter().map(|&member| (member, parcel)).collect();
        peers.exchange(self.tag, &parcels, &[])?;
        Ok(())
    }

    /// A parcel from the member at `place`, and nothing to it.
    pub fn hear(&self, place: usize, peers: &mut impl Peers) -> Result<Vec<u8>, NoValue> {
        let from: Vec<u32> = self.members.get(place).copied().into_iter().collect();
        let received = peers.exchange(self.tag, &[], &from).map_err(Fault::from)?;
        Ok(all_bytes(received)?.pop().unwrap_or_default())
    }

    /// Piece k to member k, and our piece of theirs.
    pub fn scatter<B: AsRef<[u8]>>(
        &self,
        pieces: &[B],
        peers: &mut impl Peers,
    ) -> Result<Vec<Vec<u8>>, NoValue> {
        let pieces = self.members.iter().zip(pieces).enumerate();
        let parcels: Vec<_> = pieces
            .filter(|&(place, _)| place != self.me)
            .map(|(_, (&member, piece))| (member, Parcel::Bytes(piece.as_ref())))
            .collect();
        all_bytes(peers.exchange(self.tag, &parcels, &self.others()).map_err(Fault::from)?)
    }

    /// What the others sent with our own in its place.
    pub fn in_order<'a>(&self, received: &'a [Vec<u8>], own: &'a [u8]) -> Vec<&'a [u8]> {
        let mut shards: Vec<&[u8]> = received.iter().map(Vec::as_slice).collect();
        shards.insert(self.me.min(shards.len()), own);
        shards
    }
}

/// The bytes of all, or the first failure in the group's order.
pub(super) fn all_bytes(received: Vec<Received>) -> Result<Vec<Vec<u8>>, NoValue> {
    let bytes: Result<Vec<_>, _> = received.into_iter().collect();
    bytes.map_err(|cause| NoValue::Failed(Rc::new(cause)))
}

fn list<'a>(instruction: &'a Instruction<'_>, name: &str) -> Result<&'a [i64], Fault> {
    let Attr::List(values) = instruction.attr(name) else {
        return Err(Fault::protocol(format!("{name} is missing")));
    };
    Ok(values)
}
