//! The lineage of a worker's values: the words that it was sent, from which another worker makes
//! the same values again.
//!
//! Instructions are pure, draws are attributes, and no bit depends on time: so the words that led
//! to a value, sent again in their order with the same slots, lead to the same bits. Whoever owns
//! the worker's ring appends what it writes there, which costs a copy of some 20 words an
//! instruction; nothing is looked at before a worker has died. The log has a limit: with its oldest
//! part the values are lost that depend on it. So are values that came from another worker, as
//! collectives' results, because the others do not take part again.

use gt_protocol::integer::to_usize;
use gt_protocol::wire::{self, cut};
use gt_protocol::{Attr, Id, Instruction, Kind, Op, Operand};
use std::collections::{BTreeSet, VecDeque};

/// Words of one part of the log, 1 MiB: the log drops whole parts.
const PART_WORDS: usize = 1 << 18;
/// Code of the frame that stands for bytes that are not kept; no instruction has it.
const OMITTED: u32 = 0;

/// Instructions that a worker was sent, the latest ones up to a limit.
#[derive(Debug)]
pub struct Lineage {
    /// Earlier parts, of whole frames.
    past: VecDeque<Part>,
    present: Part,
    /// Limit of all parts together.
    words_max: usize,
    words_past: usize,
    /// Words of payloads that were sent beside the ring, as far as they are kept.
    beside: usize,
    /// The session of the first instruction.
    session: Vec<u32>,
}

#[derive(Debug, Default)]
struct Part {
    words: Vec<u32>,
    beside: usize,
}

/// Values to be made again, by their slots on the worker, and questions to be answered.
#[derive(Debug, Default)]
pub struct WantedValues {
    pub slots: BTreeSet<u32>,
    /// Requests of reads.
    pub requests: BTreeSet<i64>,
    /// Instructions that are not run again, by session and tag.
    pub refused: BTreeSet<(u32, u32)>,
}

/// Words that make values again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remake {
    pub words: Vec<u32>,
    /// Number of instructions among them that compute.
    pub instructions: usize,
    /// The wanted slots that have their value again.
    pub slots: BTreeSet<u32>,
    /// The wanted reads that are asked again.
    pub requests: BTreeSet<i64>,
    /// The wanted slots without a value because an instruction is refused.
    pub refused: BTreeSet<u32>,
    /// The wanted reads of such values.
    pub refused_requests: BTreeSet<i64>,
}

/// State of a slot while the words are gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotState {
    #[default]
    Vacant,
    Made,
    /// Its value cannot be made again.
    Lost,
    /// Its value depends on a refused instruction.
    Refused,
}

/// One frame of the log, and the words that name its session.
#[derive(Clone, Copy)]
struct Logged<'a> {
    frame: &'a [u32],
    session: &'a [u32],
}

impl Lineage {
    /// An empty log of at most so many words.
    pub fn new(words_max: usize) -> Self {
        Self {
            past: VecDeque::new(),
            present: Part::default(),
            words_max,
            words_past: 0,
            beside: 0,
            session: Vec::new(),
        }
    }

    /// Appends whole frames as they go to the worker.
    #[inline]
    pub fn append(&mut self, words: &[u32]) {
        if self.present.words.len() + words.len() > self.present.words.capacity() {
            self.begin_part(words.len());
        }
        self.present.words.extend_from_slice(words);
    }

    /// Appends the frames of a payload that goes beside the ring, unless payloads fill half of the
    /// log: then the value of `slot` cannot be made again.
    pub fn append_beside(&mut self, slot: u32, words: &[u32]) {
        if self.beside + words.len() > self.words_max / 2 {
            self.append(&[OMITTED | 2 << 16, slot]);
            return;
        }
        self.append(words);
        self.present.beside += words.len();
        self.beside += words.len();
    }

    /// Begins a part with room for so many words, in the memory of the oldest one where the log is
    /// full.
    #[cold]
    fn begin_part(&mut self, words: usize) {
        let full = std::mem::take(&mut self.present);
        self.words_past += full.words.len();
        self.past.push_back(full);
        while self.words_past + words.max(PART_WORDS) > self.words_max {
            let Some(mut oldest) = self.past.pop_front() else { break };
            self.words_past -= oldest.words.len();
            self.beside -= oldest.beside;
            for frame in frames(&oldest.words).filter(|frame| is_session(frame)) {
                self.session.clear();
                self.session.extend_from_slice(frame);
            }
            oldest.words.clear();
            self.present.words = oldest.words;
        }
        self.present.words.reserve_exact(words.max(PART_WORDS));
    }

    /// Drops all words: a part of them was cancelled, and only the worker knows which.
    pub fn forget(&mut self) {
        for part in self.past.drain(..).chain([std::mem::take(&mut self.present)]) {
            for frame in frames(&part.words).filter(|frame| is_session(frame)) {
                self.session.clear();
                self.session.extend_from_slice(frame);
            }
        }
        (self.words_past, self.beside) = (0, 0);
    }

    /// Number of words that are kept.
    pub fn len(&self) -> usize {
        self.words_past + self.present.words.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The words that make values again, as far as the log has what they need: only instructions on
    /// which the wanted ones depend, in their order, with frees of what they no longer need.
    pub fn remake(&self, wanted: &WantedValues) -> Remake {
        let log = self.log();
        let possible = run(&log, &needed(&log, wanted), wanted);
        // Instructions that only lead to values that cannot be made are left out.
        let wanted = WantedValues {
            slots: possible.slots,
            requests: possible.requests,
            refused: wanted.refused.clone(),
        };
        let (refused, refused_requests) = (possible.refused, possible.refused_requests);
        Remake { refused, refused_requests, ..run(&log, &needed(&log, &wanted), &wanted) }
    }

    /// All frames with their sessions.
    fn log(&self) -> Vec<Logged<'_>> {
        let mut session = &self.session[..];
        let parts = self.past.iter().chain([&self.present]);
        let all = parts.flat_map(|part| frames(&part.words));
        let with_session = all.map(|frame| {
            if is_session(frame) {
                session = frame;
            }
            Logged { frame, session }
        });
        with_session.collect()
    }
}

/// The frames on which the wanted slots and requests depend, found from the last frame on.
fn needed(log: &[Logged<'_>], wanted: &WantedValues) -> Vec<bool> {
    let mut slots = wanted.slots.clone();
    let mut needed = vec![false; log.len()];
    for (logged, is_needed) in log.iter().zip(&mut needed).rev() {
        if let Some(slot) = omitted(logged.frame) {
            *is_needed = slots.contains(&slot);
            continue;
        }
        let Some(instruction) = decoded(logged.frame) else { continue };
        // A slot may be freed where it was made again, which is not known yet.
        if instruction.op == Op::Free {
            continue;
        }
        *is_needed = if instruction.op == Op::Read {
            request(&instruction).is_some_and(|key| wanted.requests.contains(&key))
        } else if instruction.op == Op::Chunk {
            operands(&instruction).any(|slot| slots.contains(&slot))
        } else {
            let mut results = instruction.outputs.iter().filter_map(|id| id.as_slot());
            results.any(|slot| slots.contains(&slot))
        };
        if *is_needed {
            for slot in instruction.outputs.iter().filter_map(|id| id.as_slot()) {
                slots.remove(&slot);
            }
            slots.extend(operands(&instruction));
        }
    }
    needed
}

/// Goes through the needed frames in their order.
fn run(log: &[Logged<'_>], needed: &[bool], wanted: &WantedValues) -> Remake {
    let mut remake = Remake::default();
    let mut slots = SlotStates::default();
    let mut session: &[u32] = &[];
    for (logged, &is_needed) in log.iter().zip(needed) {
        if let Some(slot) = omitted(logged.frame).filter(|_| is_needed) {
            slots.set(slot, SlotState::Lost);
            continue;
        }
        let Some(instruction) = decoded(logged.frame) else { continue };
        if instruction.op == Op::Free {
            let made = operands(&instruction).filter(|&slot| slots.vacate(slot) == SlotState::Made);
            let made: Vec<u32> = made.collect();
            wire::encode_free(&made, &mut remake.words);
            continue;
        }
        if !is_needed {
            continue;
        }
        let result = outcome(&instruction, &slots, logged, wanted);
        for slot in instruction.outputs.iter().filter_map(|id| id.as_slot()) {
            slots.set(slot, result);
        }
        if result == SlotState::Refused && instruction.op == Op::Read {
            remake.refused_requests.extend(request(&instruction));
        }
        if result != SlotState::Made {
            continue;
        }
        if logged.session != session {
            session = logged.session;
            remake.words.extend_from_slice(session);
        }
        remake.words.extend_from_slice(logged.frame);
        if instruction.op == Op::Read {
            remake.requests.extend(request(&instruction));
        }
        remake.instructions += usize::from(!instruction.outputs.is_empty());
    }
    let mut left = Vec::new();
    for (slot, state) in (0..).zip(slots.0) {
        match (wanted.slots.contains(&slot), state) {
            (_, SlotState::Vacant)
            | (true | false, SlotState::Lost)
            | (false, SlotState::Refused) => {}
            (true, SlotState::Made) => drop(remake.slots.insert(slot)),
            (true, SlotState::Refused) => drop(remake.refused.insert(slot)),
            (false, SlotState::Made) => left.push(slot),
        }
    }
    wire::encode_free(&left, &mut remake.words);
    remake
}

/// State of an instruction's results.
fn outcome(
    instruction: &Instruction<'_>,
    slots: &SlotStates,
    logged: &Logged<'_>,
    wanted: &WantedValues,
) -> SlotState {
    let session = session_of(logged.session);
    if session.is_some_and(|session| wanted.refused.contains(&(session, instruction.tag))) {
        return SlotState::Refused;
    }
    let states = || operands(instruction).map(|slot| slots.get(slot));
    let is_local = instruction.op.info().kind() != Kind::Collective && session.is_some();
    if states().any(|state| state == SlotState::Refused) {
        SlotState::Refused
    } else if is_local && states().all(|state| state == SlotState::Made) {
        SlotState::Made
    } else {
        SlotState::Lost
    }
}

/// States by slot. A worker's slots are few and begin at 0.
#[derive(Default)]
struct SlotStates(Vec<SlotState>);

impl SlotStates {
    fn get(&self, slot: u32) -> SlotState {
        self.0.get(to_usize(slot)).copied().unwrap_or_default()
    }

    fn set(&mut self, slot: u32, state: SlotState) {
        let at = to_usize(slot);
        if at >= self.0.len() {
            self.0.resize(at + 1, SlotState::Vacant);
        }
        self.0[at] = state;
    }

    /// Empties a slot; returns its state before.
    fn vacate(&mut self, slot: u32) -> SlotState {
        self.0.get_mut(to_usize(slot)).map(std::mem::take).unwrap_or_default()
    }
}

/// Instructions and messages, one after the other.
pub(crate) fn frames(words: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let frame = cut::first(rest).ok().flatten()?;
        rest = &rest[frame.len()..];
        Some(frame)
    })
}

fn is_session(frame: &[u32]) -> bool {
    frame.first().is_some_and(|&first| wire::halves(first).0 == Op::Session.info().code)
}

fn session_of(frame: &[u32]) -> Option<u32> {
    let instruction = decoded(frame)?;
    let Attr::Int(id) = instruction.attr("id") else { return None };
    u32::try_from(*id).ok()
}

/// The slot of a frame that stands for bytes that are not kept.
fn omitted(frame: &[u32]) -> Option<u32> {
    match frame {
        [first, slot] if wire::halves(*first).0 == 0 => Some(*slot),
        _ => None,
    }
}

/// An instruction; `None` for messages, and for instructions that define and ask nothing.
fn decoded(frame: &[u32]) -> Option<Instruction<'_>> {
    let is_message = frame.first().is_none_or(|&first| cut::is_message(first));
    if is_message || omitted(frame).is_some() {
        return None;
    }
    wire::decode(frame).ok().map(|(instruction, _)| instruction)
}

fn operands<'a>(instruction: &'a Instruction<'_>) -> impl Iterator<Item = u32> + 'a {
    instruction.operands.iter().filter_map(|operand| match operand {
        Operand::Value(id) => Id::as_slot(*id),
        Operand::Absent | Operand::Scalar(_) => None,
    })
}

fn request(instruction: &Instruction<'_>) -> Option<i64> {
    let Attr::Int(request) = instruction.attr("request") else { return None };
    Some(*request)
}
