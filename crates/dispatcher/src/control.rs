//! Instructions that compute nothing: free, synchronize, names, distribute. `reading` reads, `uploads` takes chunks.

use crate::Dispatcher;
use crate::event::{Fault, SessionId, Sink, TraceNotes, WorkerIndex};
use crate::handle::{Handle, Shards, Value};
use crate::motion::Mover;
use crate::note::Why;
use crate::request::{Request, RequestKind, request_number};
use crate::worker;
use gt_protocol::message::{ToClient, ToWorker};
use gt_protocol::placement::{Layout, Mesh, Pieces, Placement};
use gt_protocol::rules::{ErrorClass, RuleError};
use gt_protocol::{Attr, Id, Instruction, Meta, Op};
use smallvec::{SmallVec, smallvec};

impl Dispatcher {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "whatever is no instruction of clients is refused"
    )]
    pub(crate) fn control(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        if !matches!(instruction.op, Op::Free) {
            self.fold_awaited(session, instruction, sink);
        }
        match instruction.op {
            Op::Free => self.free(session, instruction, sink),
            Op::Read => self.read(session, instruction, sink),
            Op::Chunk => self.chunk(session, instruction, sink),
            Op::Synchronize => {
                let number = request_number(instruction)?;
                self.fold_all_awaited(session, sink);
                if !self.together.is_empty() {
                    self.trace_plain(session, instruction, sink);
                }
                self.ask_all(session, number, RequestKind::Synchronize, sink);
                Ok(())
            }
            Op::Signal | Op::Site => self.name(session, instruction),
            Op::Configure => self.configure(session, instruction, sink),
            Op::Boundary => self.boundary(session, instruction, sink),
            Op::Distribute => self.distribute(session, instruction, sink),
            Op::Describe => self.describe(session, instruction, sink),
            Op::Piece => self.piece(session, instruction, sink),
            op => Err(Fault::NotForClients { op }),
        }
    }

    fn free(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        if self.tracing {
            self.trace_plain(session, instruction, sink);
        }
        for id in instruction.values() {
            self.release_one(session, id.as_slot().unwrap_or(u32::MAX), sink)?;
        }
        Ok(())
    }

    pub(crate) fn release_one(
        &mut self,
        session: SessionId,
        slot: u32,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let Self { sessions, workers, .. } = self;
        let state = sessions.get_mut(&session).ok_or(Fault::NoSession { session })?;
        match state.handle(slot) {
            Handle::Live(value) => worker::free_value(workers, value, sink),
            Handle::Failed(_) => {}
            Handle::Free => return Err(Fault::UnknownSlot { op: Op::Free, slot: u64::from(slot) }),
        }
        if !state.piles.is_empty() {
            state.piles.forget(slot);
        }
        state.clear(slot);
        Ok(())
    }

    fn name(&mut self, session: SessionId, instruction: &Instruction<'_>) -> Result<(), Fault> {
        let op = instruction.op;
        let (Attr::Int(id), Attr::Text(name)) = (instruction.attr("id"), instruction.attr("name"))
        else {
            return Err(Fault::Attribute { op, name: "id" });
        };
        let id = u32::try_from(*id).map_err(|_| Fault::Attribute { op, name: "id" })?;
        if let Some(state) = self.sessions.get_mut(&session) {
            state.name(op, id, name);
        }
        Ok(())
    }

    fn configure(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        if self.tracing {
            self.trace_plain(session, instruction, sink);
        }
        let state = self.sessions.get_mut(&session).ok_or(Fault::NoSession { session })?;
        state.scopes.configure(instruction)
    }

    fn boundary(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let state = self.sessions.get_mut(&session).ok_or(Fault::NoSession { session })?;
        let signal = u32::from(instruction.signal);
        state.scopes.pass(signal);
        if self.tracing {
            let signal = state.signals.get(&signal).map(AsRef::as_ref);
            let site = state.site_names.get(&instruction.tag).map(AsRef::as_ref);
            let notes = TraceNotes { signal, site, ..TraceNotes::default() };
            sink.trace(session, instruction, &notes);
        }
        Ok(())
    }

    /// Asks every living worker; the answer waits for the last.
    pub(crate) fn ask_all(
        &mut self,
        session: SessionId,
        number: u64,
        kind: RequestKind,
        sink: &mut dyn Sink,
    ) {
        let workers = self.alive();
        if workers.is_empty() {
            sink.session(session, &ToClient::Done { request: number });
            return;
        }
        let request = self.open_request(session, number, workers.iter().copied().collect(), kind);
        let mut word = Instruction::new(Op::Synchronize);
        word.attrs.push(Attr::Int(request));
        for &worker in &workers {
            match kind {
                RequestKind::Stats => {
                    let request = u64::try_from(request).unwrap_or(0);
                    sink.worker_message(worker, &ToWorker::StatsRequest { request });
                }
                RequestKind::Read { .. } | RequestKind::Synchronize => {
                    self.send(session, worker, &word, sink);
                }
            }
        }
    }

    pub(crate) fn open_request(
        &mut self,
        session: SessionId,
        number: u64,
        waiting: SmallVec<[WorkerIndex; 2]>,
        kind: RequestKind,
    ) -> i64 {
        self.open(Request { session, number, waiting, kind, received: 0, part: None })
    }

    pub(crate) fn open(&mut self, request: Request) -> i64 {
        let key = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        self.requests.insert(key, request);
        key
    }

    /// The layout that `distribute` asks for: a text, or one dimension over all workers. The workers that it names may
    /// have left meanwhile, which is no fault of the client's.
    fn asked_layout(
        &self,
        instruction: &Instruction<'_>,
        value: &Value,
    ) -> Result<Result<Layout, RuleError>, Fault> {
        let op = instruction.op;
        let mistake = |text: String| {
            Ok(Err(RuleError { class: ErrorClass::Runtime, text: format!("distribute: {text}") }))
        };
        let dims = &value.meta.dims;
        let alive = self.alive();
        if let Attr::Text(text) = instruction.attr("layout") {
            let layout = match Layout::parse_over(text, dims, &value.shards.layout) {
                Ok(layout) => layout,
                // Right or wrong by how the value lies.
                Err(error) if text.contains("keep") || text.contains("fold") => {
                    return mistake(error.to_string());
                }
                Err(_) => return Err(Fault::Attribute { op, name: "layout" }),
            };
            let absent = layout.mesh().members().iter().find(|worker| !alive.contains(worker));
            return match absent {
                Some(worker) => mistake(format!(
                    "worker {worker} of layout {layout} is not connected; {alive:?} are"
                )),
                None => Ok(Ok(layout)),
            };
        }
        if alive.is_empty() {
            return mistake("no worker is connected to the dispatcher".to_owned());
        }
        let mesh = Mesh::line(&alive);
        let rank = i64::try_from(dims.len()).unwrap_or(0);
        let Attr::Int(asked) = *instruction.attr("dim") else {
            return Ok(Ok(Layout::replicated(mesh)));
        };
        let dim = usize::try_from(if asked < 0 { asked + rank } else { asked }).ok();
        let Some((dim, &size)) = dim.and_then(|dim| Some((dim, dims.get(dim)?))) else {
            return Err(Fault::Attribute { op, name: "dim" });
        };
        let pieces = Pieces::even(size, mesh.len());
        Ok(Ok(Layout::new(mesh, [Placement::Shard { dim, pieces }].into_iter().collect())))
    }

    fn distribute(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        self.laid_anew(session, instruction, sink, |mover, value, source, layout| {
            let brought = mover.settle(value.meta, &value.shards, source, &layout);
            let slots = mover.own(value.meta, &layout, brought);
            Ok((value.meta, Shards { layout, slots }))
        })
    }

    /// One member's piece of a value, as a value on that worker alone.
    fn piece(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        let fault = Fault::Attribute { op: instruction.op, name: "member" };
        let Attr::Int(member) = *instruction.attr("member") else { return Err(fault) };
        let Ok(member) = usize::try_from(member) else { return Err(fault) };
        self.laid_anew(session, instruction, sink, |mover, value, _, layout| {
            let worker = layout.mesh().members().get(member).copied().ok_or(fault)?;
            let brought = mover.redistribute(value.meta, &value.shards, &layout);
            let meta = Meta::new(value.meta.dtype, layout.local_dims(&value.meta.dims, member));
            let held = brought.slots.get(member).copied().unwrap_or(u32::MAX);
            let own = mover.alias(worker, held, meta);
            mover.discard(&layout, &brought);
            Ok((meta, Shards { layout: Layout::on(worker), slots: smallvec![own] }))
        })
    }

    /// Defines what `make` makes of a value, its slot and the layout that is asked for.
    fn laid_anew(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
        make: impl FnOnce(&mut Mover<'_>, Value, u32, Layout) -> Result<(Meta, Shards), Fault>,
    ) -> Result<(), Fault> {
        let (number, value, source) = match self.operand_of(session, instruction)? {
            Operated::Live { number, value, slot } => (number, value, slot),
            Operated::Failed => return Ok(()),
        };
        let moved_before = self.moved_bytes;
        let layout = match self.asked_layout(instruction, &value)? {
            Ok(layout) => layout,
            Err(error) => {
                self.fail(session, instruction, number, &error, sink);
                return Ok(());
            }
        };
        if instruction.op == Op::Distribute {
            self.learn_need(session, source, &layout);
        }
        let Some(value) = self.operand_made(session, instruction, &layout, sink) else {
            return Ok(());
        };
        let before = self.motion(session);
        let result = make(&mut Mover::new(self, session, sink), value, source, layout)?;
        self.define_values(session, instruction, number, [result]);
        self.note(session, instruction, Why::Asked, before);
        self.trace_line(session, instruction, number, moved_before, sink);
        Ok(())
    }

    /// The operand with its wish granted, or made as asked if it has waited; nothing where that failed, and then the
    /// results have too.
    fn operand_made(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        layout: &Layout,
        sink: &mut dyn Sink,
    ) -> Option<Value> {
        self.grant_wishes(session, instruction, sink);
        let slot = instruction.values().next().and_then(Id::as_slot)?;
        self.make(session, slot, Some(layout), sink);
        let state = self.sessions.get_mut(&session)?;
        match state.handle(slot).clone() {
            Handle::Live(value) => Some(value),
            Handle::Failed(failure) => {
                for output in &instruction.outputs {
                    state.define_failed(*output, failure.clone());
                }
                None
            }
            Handle::Free => None,
        }
    }

    /// The value that `distribute` or `piece` is about, and the number of the instruction.
    fn operand_of(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
    ) -> Result<Operated, Fault> {
        let op = instruction.op;
        let slot = instruction.values().next().and_then(Id::as_slot).unwrap_or(u32::MAX);
        let state = self.sessions.get_mut(&session).ok_or(Fault::NoSession { session })?;
        let target =
            instruction.outputs.first().ok_or(Fault::Outputs { op, given: 0, expected: 1 })?;
        let target = state.check_definable(op, *target)?;
        let handle = state.handle(slot).clone();
        let number = state.number(instruction.tag);
        self.planning = number;
        match handle {
            Handle::Free => Err(Fault::UnknownSlot { op, slot: u64::from(slot) }),
            Handle::Failed(failure) => {
                state.define_failed(Id::slot(target), failure);
                Ok(Operated::Failed)
            }
            Handle::Live(value) => Ok(Operated::Live { number, value, slot }),
        }
    }
}

/// The operand of an instruction that only changes where a value lies.
#[allow(clippy::large_enum_variant, reason = "one of them, for the time of one instruction")]
enum Operated {
    Live {
        number: u64,
        value: Value,
        slot: u32,
    },
    /// It has failed, and so have the results.
    Failed,
}
