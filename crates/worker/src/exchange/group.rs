//! The members of a collective, and the index of this worker among them.

use crate::attributes::{list, unsigned};
use crate::failure::Fault;
use crate::incarnations::Incarnations;
use crate::peers::PeerId;
use gt_protocol::Instruction;

/// The members, in the same order at every member.
#[derive(Clone, Debug)]
pub struct Group {
    pub members: Vec<PeerId>,
    pub me: usize,
}

impl Group {
    pub fn new(
        instruction: &Instruction<'_>,
        index: u32,
        incarnations: &Incarnations,
    ) -> Result<Self, Fault> {
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
        let members = members.into_iter().map(|member| incarnations.current(member)).collect();
        Ok(Self { members, me })
    }

    /// A group of two workers that only pass a value on.
    pub fn pair(me: PeerId, peer: PeerId) -> Self {
        Self { members: vec![me, peer], me: 0 }
    }

    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// The other members with their indices, in the group's order.
    pub fn others(&self) -> impl Iterator<Item = (usize, PeerId)> + '_ {
        let all = self.members.iter().copied().enumerate();
        all.filter(|&(place, _)| place != self.me)
    }

    /// Index in the group of the worker that an attribute names.
    pub fn place(&self, instruction: &Instruction<'_>, name: &str) -> Result<usize, Fault> {
        let worker = unsigned(instruction, name)?;
        let place = self.members.iter().position(|&member| u64::from(member.index) == worker);
        place.ok_or_else(|| Fault::protocol(format!("the {name} {worker} is not in its group")))
    }

    /// One size for each member, from the attribute `name`.
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

    /// Index of another member in the group.
    pub fn place_of(&self, peer: PeerId) -> usize {
        let place = self.members.iter().position(|&member| member == peer);
        place.unwrap_or_else(|| panic!("{peer:?} is not in the group {:?}", self.members))
    }
}
