//! Mistakes planted in the core's outputs, as if it had made them: the simulator must detect each.
//! The core itself knows nothing of them; its outputs are altered before they are delivered.

use crate::shadow::ShadowAccounts;
use gt_dispatcher::{Dispatcher, Event, SessionId, WorkerIndex};
use gt_protocol::message::{self, ToClient};
use gt_protocol::wire::{self, MESSAGE_CODE_FIRST};
use gt_protocol::{Attr, Id, Instruction, Op};
use std::collections::BTreeMap;

/// Kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An answer goes to the oldest session.
    AnswerAstray,
    /// A dependent names itself as the first cause.
    CauseLost,
    /// An operand is freed before the instruction that it was gathered for.
    FreeEarly,
    /// Shards are joined in the wrong order.
    GatherOrder,
    /// The values of a client stay when it leaves.
    LeakOnLeave,
    /// Partial results are treated as whole ones.
    ReductionDropped,
    /// Only one copy of a replicated value is freed.
    ReplicaForgotten,
    /// A request to a lost worker is never answered.
    RequestLost,
}

impl Mistake {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, Self); 8] = [
        ("answer-astray", Self::AnswerAstray),
        ("cause-lost", Self::CauseLost),
        ("free-early", Self::FreeEarly),
        ("gather-order", Self::GatherOrder),
        ("leak-on-leave", Self::LeakOnLeave),
        ("reduction-dropped", Self::ReductionDropped),
        ("replica-forgotten", Self::ReplicaForgotten),
        ("request-lost", Self::RequestLost),
    ];
}

/// Occasion of an output of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    Instruction,
    SessionClosed,
    WorkerLeft,
    Other,
}

impl Occasion {
    pub fn of(event: &Event<'_>) -> Self {
        match event {
            Event::SessionClosed { .. } => Self::SessionClosed,
            Event::WorkerLeft { .. } => Self::WorkerLeft,
            Event::WorkerJoined { .. }
            | Event::WorkerProcess { .. }
            | Event::StatsRequest { .. }
            | Event::SessionDetached { .. }
            | Event::FromWorker { .. } => Self::Other,
        }
    }
}

type ToWorkers = Vec<(WorkerIndex, Vec<u32>)>;
type ToSessions = Vec<(SessionId, Vec<u32>)>;

/// A mistake, and the state that is needed to make it.
pub struct Planted {
    mistake: Mistake,
    /// The numbers of the values that were read, by session and request.
    reads: BTreeMap<(SessionId, u64), u64>,
    /// True if the present instruction frees values that are replicated on several workers.
    frees_replicas: bool,
}

impl Planted {
    pub fn new(mistake: Mistake) -> Self {
        Self { mistake, reads: BTreeMap::new(), frees_replicas: false }
    }

    /// Looks at an instruction before the core does.
    pub fn note(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        accounts: &ShadowAccounts,
        dispatcher: &Dispatcher,
    ) {
        let mut slots = instruction.values().filter_map(Id::as_slot);
        self.frees_replicas = instruction.op == Op::Free
            && slots.all(|slot| {
                let layout = dispatcher.layout_of(session, slot);
                layout.is_some_and(|layout| layout.starts_with("replicate@"))
            });
        if instruction.op == Op::Read
            && let Attr::Int(request) = instruction.attr("request")
            && let Some(slot) = instruction.values().next().and_then(Id::as_slot)
            && let Some(number) = accounts.number_of(session, slot)
        {
            self.reads.insert((session, request.cast_unsigned()), number);
        }
    }

    /// Makes the mistake in the core's outputs.
    pub fn spoil(
        &mut self,
        occasion: Occasion,
        to_workers: &mut ToWorkers,
        to_sessions: &mut ToSessions,
        oldest: Option<SessionId>,
    ) {
        let is_instruction = occasion == Occasion::Instruction;
        match self.mistake {
            Mistake::AnswerAstray => send_astray(to_sessions, oldest),
            Mistake::CauseLost => self.lose_causes(to_sessions),
            Mistake::FreeEarly if is_instruction => free_early(to_workers),
            Mistake::GatherOrder => {
                for attr in ["group", "sizes"] {
                    change(to_workers, (Op::AllGather, attr), |_, list| list.reverse());
                }
            }
            Mistake::LeakOnLeave if occasion == Occasion::SessionClosed => to_workers.clear(),
            Mistake::ReductionDropped => {
                for op in [Op::AllReduce, Op::AllReduceCoalesced] {
                    change(to_workers, (op, "group"), reduce_alone);
                }
            }
            Mistake::ReplicaForgotten if is_instruction && self.frees_replicas => {
                to_workers.truncate(1);
            }
            Mistake::RequestLost if occasion == Occasion::WorkerLeft => {
                to_sessions.retain(|(_, words)| !is_answer(words));
            }
            Mistake::FreeEarly
            | Mistake::LeakOnLeave
            | Mistake::ReplicaForgotten
            | Mistake::RequestLost => {}
        }
    }

    fn lose_causes(&self, to_sessions: &mut ToSessions) {
        for (session, words) in to_sessions {
            let ToClient::FailedReply { request, mut failure } = client_message(words) else {
                continue;
            };
            let Some(&number) = self.reads.get(&(*session, request)) else { continue };
            failure.number = number;
            let mut spoiled = Vec::new();
            message::encode(&ToClient::FailedReply { request, failure }, &mut spoiled)
                .expect("a failure with another number has a binary form too");
            *words = spoiled;
        }
    }
}

fn send_astray(to_sessions: &mut ToSessions, oldest: Option<SessionId>) {
    for (session, words) in to_sessions {
        if let (ToClient::Reply(_) | ToClient::SpacedReply(_), Some(oldest)) =
            (client_message(words), oldest)
        {
            *session = oldest;
        }
    }
}

fn is_answer(words: &[u32]) -> bool {
    matches!(client_message(words), ToClient::FailedReply { .. } | ToClient::Done { .. })
}

/// Moves each `free` before the last instruction that uses the slot.
fn free_early(to_workers: &mut ToWorkers) {
    for place in 0..to_workers.len() {
        let (worker, words) = &to_workers[place];
        let Some(free) = instruction(words).filter(|free| free.op == Op::Free) else { continue };
        let uses = |(other, words): &(WorkerIndex, Vec<u32>)| {
            let values = |user: Instruction<'_>| {
                user.op != Op::Free && user.values().any(|id| free.values().any(|slot| slot == id))
            };
            other == worker && instruction(words).is_some_and(values)
        };
        if let Some(user) = to_workers[..place].iter().rposition(uses) {
            to_workers[user..=place].rotate_right(1);
        }
    }
}

/// Reduces a group to this worker.
fn reduce_alone(worker: WorkerIndex, group: &mut Vec<i64>) {
    group.retain(|&member| member == i64::from(worker));
}

/// Changes a list among the attributes of all instructions of one operator.
fn change(
    to_workers: &mut ToWorkers,
    (op, attr): (Op, &str),
    spoil: impl Fn(WorkerIndex, &mut Vec<i64>),
) {
    for (worker, words) in to_workers {
        let Some(mut instruction) = instruction(words).filter(|it| it.op == op) else { continue };
        let place = op.info().attr_index(attr).expect("a column of the operator's row");
        if let Attr::List(list) = &mut instruction.attrs[place] {
            let mut spoiled = list.to_vec();
            spoil(*worker, &mut spoiled);
            *list = spoiled.into();
        }
        let mut spoiled = Vec::new();
        wire::encode(&instruction, &mut spoiled).expect("other lists have a binary form too");
        *words = spoiled;
    }
}

/// The instruction for a worker; `None` if these words are a message.
fn instruction(words: &[u32]) -> Option<Instruction<'_>> {
    let (code, _) = wire::halves(words[0]);
    let decoded = || wire::decode(words).expect("the core's instructions have a binary form").0;
    (code < MESSAGE_CODE_FIRST).then(decoded)
}

fn client_message(words: &[u32]) -> ToClient<'_> {
    message::decode(words).expect("the core's messages have a binary form").0
}
