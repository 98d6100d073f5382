//! Descriptions of a value's layout and its reasons, of the transfers for it, and of a session's
//! counters: for people and tests. Nothing is decided here.

use crate::cost::CostModel;
use crate::event::{ClientFault, WorkerIndex};
use crate::number::wide;
use crate::planner::Planner;
use crate::session::Session;
use crate::session::provenance::LayoutChange;
use crate::session::reason;
use crate::session::requests::{answer_failed, request_number};
use crate::session::value::{Handle, Value};
use gt_protocol::message::{DESCRIPTION_BYTES_MAX, Failure, FailureClass, ToClient};
use gt_protocol::{Attr, Instruction, Operand};
use smallvec::SmallVec;

impl Planner<'_> {
    /// The instruction `describe`.
    pub(super) fn describe(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let op = instruction.op;
        let request = request_number(instruction)?;
        let session = &*self.session;
        let kinds = [
            DescribeRequest::Layout,
            DescribeRequest::Explanation,
            DescribeRequest::Counters,
            DescribeRequest::Workers,
            DescribeRequest::Unanswered,
            DescribeRequest::Published,
        ];
        let kinds = kinds.into_iter().zip(0..);
        let mut kinds =
            kinds.filter(|(_, choice)| *instruction.attr("what") == Attr::Choice(*choice));
        let (what, _) = kinds.next().ok_or(ClientFault::Attribute { op, name: "what" })?;
        let slot = match instruction.operands.first() {
            Some(Operand::Value(id)) => id.as_slot(),
            Some(Operand::Absent | Operand::Scalar(_)) | None => None,
        };
        let text = match (what, slot) {
            (DescribeRequest::Counters, _) => self.counters(),
            (DescribeRequest::Workers, _) => self.indexes(),
            (DescribeRequest::Unanswered, _) => self.unanswered(),
            (DescribeRequest::Published, _) => self.session.published_text(),
            (DescribeRequest::Layout | DescribeRequest::Explanation, None) => {
                return Err(ClientFault::UnknownSlot { op, slot: u64::MAX });
            }
            (DescribeRequest::Layout | DescribeRequest::Explanation, Some(slot)) => match session
                .handle(slot)
            {
                Handle::Free => return Err(ClientFault::UnknownSlot { op, slot: u64::from(slot) }),
                Handle::Failed(failure) => {
                    answer_failed(self.id, request, failure, self.sink);
                    return Ok(());
                }
                Handle::Live(value) if what == DescribeRequest::Layout => {
                    value.target().to_string()
                }
                Handle::Live(value) => explanation(session, value, &self.core.cost_model),
            },
        };
        if text.len() <= DESCRIPTION_BYTES_MAX {
            self.sink.session(self.id, &ToClient::Description { request, text: &text });
            return Ok(());
        }
        let text = format!("its layout has {} bytes of text", text.len());
        let (number, class) = (0, FailureClass::Quota);
        let failure = Failure {
            session: self.id.0,
            number,
            class,
            op: Some(op),
            tag: instruction.tag,
            text: &text,
        };
        self.sink.session(self.id, &ToClient::FailedReply { request, failure });
        Ok(())
    }

    /// The indices of the connected workers, in one line.
    fn indexes(&self) -> String {
        let alive = self.core.workers.alive().iter();
        let words: SmallVec<[String; 8]> = alive.map(ToString::to_string).collect();
        words.join(" ")
    }

    /// A line for each worker: its index, its process (0 where that is not known), and whether it
    /// has an unanswered request of this session (0 or 1). A worker with a request may itself wait
    /// for one without.
    fn unanswered(&self) -> String {
        let open = self.core.requests.open.values().filter(|request| request.session == self.id);
        let waiting: SmallVec<[WorkerIndex; 8]> =
            open.flat_map(|request| request.waiting.iter().copied()).collect();
        let lines = self.core.workers.alive().iter().map(|&index| {
            let process = self.core.workers.process(index).unwrap_or(0);
            format!("{index} {process} {}", u32::from(waiting.contains(&index)))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// `name=value` for each counter, in one line.
    fn counters(&self) -> String {
        let count = |length: usize| wide(length);
        let (workers, values) = (self.core.workers.alive().len(), self.session.live_values());
        let bytes = self.session.live_bytes();
        let held = [("workers", count(workers)), ("values", count(values)), ("bytes", bytes)];
        let words: SmallVec<[String; 16]> = held
            .into_iter()
            .chain(self.session.traffic.counters())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.join(" ")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DescribeRequest {
    Layout,
    Explanation,
    Counters,
    Workers,
    Unanswered,
    Published,
}

/// One `name: text` a line, most important first.
fn explanation(session: &Session, value: &Value, cost_model: &CostModel) -> String {
    let mut lines = vec![
        format!("value: {} {}", named(value), value.meta()),
        format!("layout: {}", value.target()),
        format!("why: {}", reason::of_layout(session, value)),
    ];
    if value.site != 0 {
        lines.push(format!("site: {}", value.site));
    }
    if let Some(provenance) = value.provenance() {
        if provenance.signal != 0 {
            lines.push(format!("signal: {}", reason::signal(session, provenance.signal)));
        }
        for LayoutChange { number, from, to } in &provenance.changes {
            lines.push(format!("reshard: %{number} from {from} to {to}"));
        }
        let traffic = provenance.traffic;
        lines.push(format!("moved: {} bytes", traffic.bytes));
        let cost = traffic.cost(cost_model.among(value.layout().mesh()));
        lines.push(format!("cost: about {cost:.0} us{}", traffic.exchanges()));
    } else {
        lines.push("moved: 0 bytes".to_owned());
    }
    for copy in value.copies() {
        lines.push(format!("copy: {}", copy.layout));
    }
    lines.join("\n")
}

/// Name of a value in the trace.
fn named(value: &Value) -> String {
    match value.output {
        0 => format!("%{}", value.number()),
        output => format!("%{}.{output}", value.number()),
    }
}
