//! Instructions that compute nothing: free, synchronize, names, scopes. `read` reads values,
//! `distribute` shards them, `describe` describes them, `publish` keeps them under
//! names, `rebalance` moves them to the workers that there are.

mod describe;
mod distribute;
mod grant;
mod publish;
mod read;
mod rebalance;

pub(crate) use grant::listed;

use crate::event::{ClientFault, Sink, TraceNotes, WorkerIndex};
use crate::number::slot_of;
use crate::planner::Planner;
use crate::session::Session;
use crate::session::requests::{Request, RequestKind, request_number};
use crate::session::value::Handle;
use crate::workers::Workers;
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::{Attr, Instruction, Op};

impl Planner<'_> {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "any other operator is no instruction of clients and refused"
    )]
    pub fn control(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        if instruction.op == Op::Free {
            return self.free_values(instruction);
        }
        // Reads and names get what was there before a cancel.
        self.keeps = !matches!(instruction.op, Op::Distribute | Op::LocalShard);
        self.launch_buckets_of(instruction);
        match instruction.op {
            Op::Read => self.read(instruction),
            Op::Chunk => self.chunk(instruction),
            Op::Synchronize => self.synchronize(instruction),
            Op::Signal | Op::Site => self.name(instruction),
            Op::Configure => {
                self.trace_plain(instruction);
                self.session.scopes.configure(instruction)
            }
            Op::Boundary => {
                self.pass_boundary(instruction);
                Ok(())
            }
            Op::Distribute => self.distribute(instruction),
            Op::Describe => self.describe(instruction),
            Op::LocalShard => self.take_shard(instruction),
            Op::Publish => self.publish(instruction),
            Op::Published => self.take_published(instruction),
            Op::Rebalance => self.rebalance(instruction),
            Op::Grant => self.grant(instruction),
            op => Err(ClientFault::NotForClients { op }),
        }
    }

    fn free_values(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        self.trace_plain(instruction);
        for id in instruction.values() {
            self.release(slot_of(id))?;
        }
        Ok(())
    }

    /// Frees one value.
    pub fn release(&mut self, slot: u32) -> Result<(), ClientFault> {
        release(self.session, &mut self.core.workers, slot, self.sink)
    }

    fn synchronize(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let number = request_number(instruction)?;
        self.launch_all_buckets();
        if !self.core.reduced_together.is_empty() {
            self.trace_plain(instruction);
        }
        // A worker that this session has not used has nothing of it to finish, and may be busy for
        // others or stopped.
        let workers = self.core.workers.used_by(self.id);
        self.ask(number, RequestKind::Synchronize, &workers);
        Ok(())
    }

    fn name(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let op = instruction.op;
        let (Attr::Int(id), Attr::Text(name)) = (instruction.attr("id"), instruction.attr("name"))
        else {
            return Err(ClientFault::Attribute { op, name: "id" });
        };
        let id = u32::try_from(*id).map_err(|_| ClientFault::Attribute { op, name: "id" })?;
        self.session.name(op, id, name);
        Ok(())
    }

    fn pass_boundary(&mut self, instruction: &Instruction<'_>) {
        let signal = u32::from(instruction.signal);
        self.session.scopes.pass(signal);
        if self.core.tracing {
            let Session { signals, site_names, .. } = &*self.session;
            let signal = signals.get(&signal).map(AsRef::as_ref);
            let site = site_names.get(&instruction.tag).map(AsRef::as_ref);
            let notes = TraceNotes { signal, site, ..TraceNotes::default() };
            self.sink.trace(self.id, instruction, &notes);
        }
    }

    /// Asks these workers; the request is answered when the last one has answered.
    pub fn ask(&mut self, number: u64, kind: RequestKind, workers: &[WorkerIndex]) {
        if workers.is_empty() {
            self.sink.session(self.id, &ToClient::Done { request: number });
            return;
        }
        let (session, waiting) = (self.id, workers.iter().copied().collect());
        let request = Request { session, number, waiting, kind, received: 0, part: None };
        let request = self.core.requests.open(request);
        let mut word = Instruction::new(Op::Synchronize);
        word.attrs.push(Attr::Int(request));
        for &worker in workers {
            match kind {
                RequestKind::Stats => {
                    let request = request.cast_unsigned();
                    self.sink.worker_message(worker, &ToWorker::StatsRequest { request });
                }
                RequestKind::Read { .. } | RequestKind::Synchronize => self.send(worker, &word),
            }
        }
    }
}

/// Frees one value of a session, on the workers that hold it too.
pub(crate) fn release(
    session: &mut Session,
    workers: &mut Workers,
    slot: u32,
    sink: &mut dyn Sink,
) -> Result<(), ClientFault> {
    match session.take(slot)? {
        Handle::Live(value) => match value.only() {
            Some((worker, slot)) => workers.free(worker, &[slot], sink),
            None => workers.free_all(value.worker_slots(), sink),
        },
        Handle::Failed(_) | Handle::Free => {}
    }
    if !session.reductions.is_empty() {
        session.reductions.forget(slot);
    }
    Ok(())
}
