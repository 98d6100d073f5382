//! A collective that goes another way than by bytes, at one member: rounds of words with the others, and between them what
//! the engine makes of what was said.
//!
//! While its part is well a member says a word in each round. Whoever has failed, or hears in a round that somebody has
//! failed or is gone, says so in the next one and is through with it. So nobody waits for a word that never comes, and who
//! goes on although it should not (a member died before it had told all) hears of it one round later.
//!
//! The last round says that what was begun has been begun: whoever lent memory has it back then. Nobody's result waits for
//! it.

use super::exchange::{Exchange, engines_word};
use super::group::Group;
use super::round::{Heard, Round, Says};
use super::{Senders, listeners, senders};
use crate::lane::{Driver, Ended, Job, Outcome, Refusal, Then};
use crate::machine::{Machine, Replies, UnderWay};
use crate::table::NoValue;
use crate::ways::{Meeting, Turn, Way};
use crate::{Broken, Cause, Engine};
use gt_protocol::Instruction;
use gt_protocol::message::FromWorker;
use std::rc::Rc;

/// How far a talk is; in all but the last a round is under way.
#[derive(Debug)]
enum Stage {
    Talking,
    /// All have heard that it does not go this way.
    ToBytes,
    /// The result can be had.
    Parting,
    /// Our part has failed, and the others hear of it.
    Failed,
    /// Nobody says anything more; the last words, in the group's order.
    Parted(Vec<Option<Vec<u8>>>),
}

#[derive(Debug)]
pub(crate) struct Talk<J> {
    tag: u64,
    group: Group,
    /// What would go by bytes; whose memory is read instead.
    exchange: Option<Exchange>,
    joint: Option<J>,
    stage: Stage,
    /// The round that is under way, and our word in it.
    round: u32,
    word: Vec<u8>,
    /// Those that we still hear.
    others: Vec<u32>,
    shares_result: bool,
    listeners: Senders,
    senders: Senders,
}

/// What becomes of a talk after a round.
type Next<E> = Option<(UnderWayOf<E>, Says)>;
type UnderWayOf<E> = UnderWay<<E as Engine>::Value, <E as Engine>::Joint>;

impl<J> Talk<J> {
    fn new(tag: u64, group: Group, instruction: &Instruction<'_>) -> Self {
        let others = group.others().map(|(_, member)| member).collect();
        Self {
            tag,
            exchange: None,
            joint: None,
            stage: Stage::Failed,
            round: 0,
            word: Vec::new(),
            others,
            shares_result: false,
            listeners: listeners(instruction, &group),
            senders: senders(instruction, &group),
            group,
        }
    }

    pub const fn is_parted(&self) -> bool {
        matches!(self.stage, Stage::Parted(_))
    }

    /// Whether the result can be had.
    pub const fn has_result(&self) -> bool {
        matches!(self.stage, Stage::Parting | Stage::Parted(_))
    }

    pub const fn shares_result(&self) -> bool {
        self.shares_result
    }

    /// The other members, and the engine's part.
    pub fn others_and_joint(&mut self) -> (&[u32], Option<&mut J>) {
        (&self.others, self.joint.as_mut())
    }

    pub const fn joint_mut(&mut self) -> Option<&mut J> {
        self.joint.as_mut()
    }

    /// The engine's part, and the last words; none of one that went wrong.
    pub fn into_last(self) -> (Option<J>, Vec<Option<Vec<u8>>>) {
        let words = match self.stage {
            Stage::Parted(words) => words,
            Stage::Talking | Stage::ToBytes | Stage::Parting | Stage::Failed => {
                vec![None; self.group.len()]
            }
        };
        (self.joint, words)
    }

    /// The same word for all others.
    fn tell_all(&mut self, word: Vec<u8>) -> Says {
        let says = Says::Words(vec![word.clone(); self.others.len()]);
        self.word = word;
        says
    }

    /// What was heard, at the members' places, and our own word.
    fn by_place(&self, heard: &[Heard]) -> Vec<Vec<u8>> {
        let word = |&member: &u32| {
            let found = heard.iter().find(|(peer, _)| *peer == member);
            found.and_then(|(_, said)| said.clone().ok()).unwrap_or_else(|| self.word.clone())
        };
        self.group.members.iter().map(word).collect()
    }

    /// What was heard in the last round, at the members' places.
    fn last_words(&self, heard: Vec<Heard>) -> Vec<Option<Vec<u8>>> {
        let mut words = vec![None; self.group.len()];
        for (peer, said) in heard {
            let place = self.group.members.iter().position(|&member| member == peer);
            if let Some(word) = place.and_then(|place| words.get_mut(place)) {
                *word = said.ok();
            }
        }
        words
    }

    const fn then(&self) -> Then {
        match self.stage {
            Stage::Talking | Stage::ToBytes => Then::More,
            Stage::Parting | Stage::Parted(_) => Then::End { well: true },
            Stage::Failed => Then::End { well: false },
        }
    }
}

impl<E: Engine> Machine<E> {
    pub(super) fn begin_talk(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        tag: u64,
        (way, group): (Way, Group),
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> Result<(), NoValue> {
        let mut talk = Talk::new(tag, group, instruction);
        match self.offer(instruction, next, way, &mut talk) {
            Ok((mut under_way, says)) => {
                under_way.talk = Some(Box::new(talk));
                self.talk_on(under_way, says, replies, driver);
                Ok(())
            }
            Err(why) => {
                let cause = self.cause(instruction, &why);
                let mut under_way = self.under_way_new(instruction);
                under_way.output = None;
                under_way.talk = Some(Box::new(talk));
                self.talk_on(under_way, Says::Failure(cause), replies, driver);
                Err(why)
            }
        }
    }

    /// The first words.
    fn offer(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        way: Way,
        talk: &mut Talk<E::Joint>,
    ) -> Result<(UnderWayOf<E>, Says), NoValue> {
        self.table.check_vacant(&instruction.outputs)?;
        self.lie_as_received(instruction)?;
        let (tag, group) = (talk.tag, &talk.group);
        let plan = self.task(instruction, tag, group)?;
        // In one hop the others read the operand to the end.
        let reused = self.reused(instruction, next).filter(|_| plan.exchange.is_two_hops());
        let meeting = Meeting { way, instruction, tag, members: &group.members, me: group.me };
        let give =
            |engine: &mut E, places: crate::Places<'_, E::Value>| engine.offer(&meeting, places);
        let ((joint, word), under_way) = self.prepare(instruction, &plan, reused, give)?;
        let words = talk.others.iter().map(|&peer| plan.exchange.first_word(peer, &word)).collect();
        talk.word = plan.exchange.first_word(self.index, &word);
        talk.shares_result = plan.exchange.is_two_hops();
        talk.exchange = Some(plan.exchange);
        talk.joint = Some(joint);
        talk.stage = Stage::Talking;
        Ok((under_way, Says::Words(words)))
    }

    /// Begins the next round, and goes on from it as long as rounds are over at once.
    fn talk_on(
        &mut self,
        mut under_way: UnderWayOf<E>,
        mut says: Says,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) {
        loop {
            let Some(talk) = &under_way.talk else { return };
            let round = Round::new(talk.tag, talk.round, says, &talk.others);
            let job = Job::round(under_way.ticket, under_way.origin, round, talk.then());
            let Some(Ended { outcome: Outcome::Round(heard), .. }) = driver.submit(job) else {
                self.leave(under_way);
                return;
            };
            match self.heard(under_way, heard, replies, driver) {
                Some(next) => (under_way, says) = next,
                None => return,
            }
        }
    }

    /// A round is over.
    pub(crate) fn resume(
        &mut self,
        under_way: UnderWayOf<E>,
        heard: Vec<Heard>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) {
        if let Some((under_way, says)) = self.heard(under_way, heard, replies, driver) {
            self.talk_on(under_way, says, replies, driver);
        }
    }

    /// What is to be said next, if anything.
    fn heard(
        &mut self,
        mut under_way: UnderWayOf<E>,
        heard: Vec<Heard>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> Next<E> {
        let talk = under_way.talk.as_deref_mut()?;
        talk.round += 1;
        match &talk.stage {
            Stage::Talking => match self.turn(talk, &heard) {
                Ok(says) => Some((under_way, says)),
                Err(broken) => {
                    talk.others = living(&heard);
                    talk.stage = Stage::Failed;
                    let cause = self.spoil(&mut under_way, &broken, replies);
                    Some((under_way, Says::Failure(cause)))
                }
            },
            Stage::ToBytes => {
                self.go_by_bytes(under_way, &heard, replies, driver);
                None
            }
            Stage::Parting => {
                talk.stage = Stage::Parted(talk.last_words(heard));
                self.leave(under_way);
                None
            }
            // Of those who went on, some may be reading what we have lent.
            Stage::Failed => {
                talk.stage = Stage::Parted(talk.last_words(heard));
                self.part(under_way);
                None
            }
            Stage::Parted(_) => None,
        }
    }

    /// What the engine makes of a round in which nobody has failed.
    fn turn(&mut self, talk: &mut Talk<E::Joint>, heard: &[Heard]) -> Result<Says, Broken> {
        if let Some(broken) = failure(heard) {
            return Err(broken);
        }
        let words = talk.by_place(heard);
        let mut words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut readings = None;
        let mut is_possible = true;
        if talk.round == 1 {
            is_possible = words.iter().all(|word| !engines_word(word).is_empty());
            if let Some(exchange) = talk.exchange.as_ref().filter(|_| is_possible) {
                readings = Some(exchange.work(&talk.group, &words)?);
            }
            for word in &mut words {
                *word = engines_word(word);
            }
        }
        let turn = match &mut talk.joint {
            Some(joint) if is_possible => {
                self.engine.hear(joint, &words, readings.as_ref()).map_err(Broken::Fault)?
            }
            Some(_) | None => Turn::Bytes,
        };
        Ok(match turn {
            Turn::Say(word) => talk.tell_all(word),
            Turn::Done(word) => {
                talk.stage = Stage::Parting;
                talk.tell_all(word)
            }
            Turn::Bytes => {
                talk.stage = Stage::ToBytes;
                talk.tell_all(Vec::new())
            }
        })
    }

    /// The result is not to be had; whoever looks for it finds why. A failure that is ours is reported.
    fn spoil(
        &mut self,
        under_way: &mut UnderWayOf<E>,
        broken: &Broken,
        replies: &mut impl Replies,
    ) -> Cause {
        let cause = broken.cause(&under_way.origin);
        if matches!(broken, Broken::Fault(_)) {
            replies.send(&FromWorker::Failure(cause.message()));
        }
        if let Some(id) = under_way.output.take() {
            self.table.poison(id, &Rc::new(cause.clone()));
        }
        cause
    }

    /// What all have agreed on, unless somebody has failed meanwhile.
    fn go_by_bytes(
        &mut self,
        mut under_way: UnderWayOf<E>,
        heard: &[Heard],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) {
        let Some(mut talk) = under_way.talk.take() else { return };
        let (Some(mut exchange), Some(joint)) = (talk.exchange.take(), talk.joint.take()) else {
            return;
        };
        exchange.begin_at(talk.round);
        let written = under_way.result.as_mut().map(|held| &mut held.value);
        let lent = self.engine.withdraw(joint, written);
        let lent = failure(heard).map_or(lent.map_err(Broken::Fault), Err);
        match lent {
            Ok(memory) => {
                let (ticket, origin) = (under_way.ticket, under_way.origin);
                let job = Job::new(ticket, origin, exchange, talk.group, E::reduce, memory);
                match driver.submit(job) {
                    Some(ended) => self.conclude(under_way, ended, replies, driver),
                    None => self.leave(under_way),
                }
            }
            Err(broken) => {
                let cause = self.spoil(&mut under_way, &broken, replies);
                let Talk { tag, round: hop, mut listeners, mut senders, .. } = *talk;
                // Who has said that it failed is through with it; the others begin with their bytes.
                let begins = living(heard);
                listeners.retain(|peer| begins.contains(peer));
                senders.retain(|peer| begins.contains(peer));
                driver.refuse(Refusal { tag, hop, cause, listeners, senders });
                self.part(under_way);
            }
        }
    }
}

/// The first that has failed or is gone.
fn failure(heard: &[Heard]) -> Option<Broken> {
    heard.iter().find_map(|(_, said)| said.as_ref().err().cloned())
}

/// Who has said a word.
fn living(heard: &[Heard]) -> Vec<u32> {
    heard.iter().filter(|(_, said)| said.is_ok()).map(|&(peer, _)| peer).collect()
}
