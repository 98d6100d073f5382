//! Collectives of a group: every member runs the same instruction, and a failed operand is sent to
//! the others as a failure in place of its bytes, so that no member waits for it. This file turns a
//! collective into a job of the stream.

mod coalesced;
mod conclude;
mod negotiate;
mod plan;
mod wait;

use crate::attributes::unsigned;
use crate::backend::Backend;
use crate::engine::{Engine, Places};
use crate::exchange::{BucketMemory, Exchange, Group};
use crate::failure::Fault;
use crate::peers::PeerId;
use crate::replies::Replies;
use crate::reuse;
use crate::rounding::{ROUNDED_BYTES_MIN, RoundedReduction};
use crate::state::{Awaited, InFlightOf, MachineState};
use crate::stream::{Abort, Driver, Job};
use crate::table::NoValue;
use gt_protocol::placement::ReduceOp;
use gt_protocol::{Dtype, Id, Instruction, Op};
use plan::{CollectivePlan, plan, receivers, reduce_op_of, senders};
use smallvec::SmallVec;

/// An exchange with its memory, and the results that it will leave.
type Begun<E> = (Exchange, BucketMemory<<E as Engine>::Borrowed>, InFlightOf<E>);

impl<E: Engine> MachineState<E> {
    pub fn collective(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> Result<(), NoValue> {
        if instruction.op == Op::AllReduceCoalesced {
            return self.coalesced(instruction, replies, driver);
        }
        let tag = unsigned(instruction, "tag")?;
        let group = if matches!(instruction.op, Op::Send | Op::Receive) {
            Group::pair(self.incarnations.current(self.index), self.peer(instruction)?)
        } else {
            Group::new(instruction, self.index, &self.incarnations)?
        };
        if let Some(backend) = Backend::of(instruction)? {
            return self.begin_negotiation(
                instruction,
                next,
                tag,
                (backend, group),
                replies,
                driver,
            );
        }
        match self.begin_exchange(instruction, next, tag, &group) {
            Ok((exchange, mut bucket, in_flight)) => {
                if instruction.op == Op::AllReduce && exchange.dtype() == Dtype::F32 {
                    let bytes = exchange.result_bytes();
                    self.round(instruction, (&exchange, &group), bytes, &mut bucket, driver);
                }
                self.submit(in_flight, (exchange, group), bucket, replies, driver);
                Ok(())
            }
            Err(why) => {
                let cause = self.cause(instruction, &why);
                let (receivers, senders) =
                    (receivers(instruction, &group), senders(instruction, &group));
                driver.abort(Abort { tag, hop: 0, cause, receivers, senders });
                Err(why)
            }
        }
    }

    /// Gives an exchange to the stream, which may complete it at once.
    fn submit(
        &mut self,
        in_flight: InFlightOf<E>,
        exchange: (Exchange, Group),
        bucket: BucketMemory<E::Borrowed>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        let (ticket, origin) = (in_flight.ticket, in_flight.origin);
        match driver.submit(Job::exchange(ticket, origin, exchange, E::reduce, bucket)) {
            Some(ended) => self.conclude(in_flight, ended, replies, driver),
            None => self.keep_in_flight(in_flight),
        }
    }

    /// Rounds our contribution to a sum with members on other hosts, on a user's request.
    fn round(
        &mut self,
        instruction: &Instruction<'_>,
        (exchange, group): (&Exchange, &Group),
        bytes: usize,
        bucket: &mut BucketMemory<E::Borrowed>,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        let Some(rounding) = self.rounding.as_mut().filter(|_| bytes >= ROUNDED_BYTES_MIN) else {
            return;
        };
        let is_sum = reduce_op_of(instruction).is_ok_and(|reduce_op| reduce_op == ReduceOp::Sum);
        if is_sum && group.others().any(|(_, member)| driver.is_packed(member)) {
            let ids: SmallVec<[Id; 1]> = instruction.values().collect();
            let (members, is_two_hops) = (&*group.members, exchange.is_two_hops());
            let session = self.session;
            rounding.round(bucket, RoundedReduction { session, members, ids: &ids, is_two_hops });
        }
    }

    fn begin_exchange(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        tag: u64,
        group: &Group,
    ) -> Result<Begun<E>, NoValue> {
        self.check_collective()?;
        self.table.check_vacant(&instruction.outputs)?;
        self.make_as_received(instruction)?;
        let plan = plan(&self.table, instruction, tag, group)?;
        let reused = self.reused(instruction, next);
        let (memory, in_flight) = self.prepare(instruction, &plan, reused, E::borrow_buffers)?;
        let bucket = BucketMemory::of_one(plan.exchange.dtype(), memory);
        Ok((plan.exchange, bucket, in_flight))
    }

    /// Gives a value that is sent the strides here that it will have at the receiver: kernels round
    /// depending on their operands' strides, and two workers must compute bit-identical results
    /// from the same value.
    fn make_as_received(&mut self, instruction: &Instruction<'_>) -> Result<(), NoValue> {
        let Some(id) = instruction.values().next().filter(|_| instruction.op == Op::Send) else {
            return Ok(());
        };
        let held = self.table.held(id)?;
        let meta = held.meta;
        if held.contiguous {
            return Ok(());
        }
        if let Some(copy) = self.engine.as_received(&held.value, &meta)? {
            let held = self.table.adopt(copy, meta, meta.bytes());
            self.table.put_held(id, held);
        }
        Ok(())
    }

    /// Borrows the memory that a collective reads and writes, from the engine; returns it with the
    /// results that the collective will leave.
    fn prepare<R>(
        &mut self,
        instruction: &Instruction<'_>,
        plan: &CollectivePlan,
        reused: Option<Id>,
        give: impl FnOnce(&mut E, Places<'_, E::Value>) -> Result<R, Fault>,
    ) -> Result<(R, InFlightOf<E>), NoValue> {
        let mut in_flight = self.in_flight_new(instruction);
        let output = instruction.outputs.first().copied();
        if let Some(id) = reused {
            let mut held = self.table.withdraw(id)?;
            in_flight.bytes = held.meta.bytes();
            let given = give(&mut self.engine, Places::One(&mut held.value));
            if given.is_err() {
                // The value is not used any more.
                self.table.release(held.storage);
            }
            in_flight.awaited.push(Awaited { output, result: Some(held) });
            return Ok((given?, in_flight));
        }
        let mut result = match &plan.result {
            Some(meta) => Some((self.allocate(meta)?, *meta)),
            None => None,
        };
        let operand = match plan.operand {
            Some(id) => Some(self.table.held(id)?),
            None => None,
        };
        let places = match (operand, &mut result) {
            (Some(held), Some((value, _))) => Places::Both(&held.value, value),
            (Some(held), None) => Places::Operand(&held.value),
            (None, Some((value, _))) => Places::Result(value),
            (None, None) => return Err(Fault::protocol("neither an operand nor a result").into()),
        };
        let given = give(&mut self.engine, places)?;
        let (reads, read_bytes) = operand.map(|held| (held.storage, held.meta.bytes())).unzip();
        let result_bytes = result.as_ref().map(|(_, meta)| meta.bytes());
        in_flight.bytes = read_bytes.unwrap_or(0).saturating_add(result_bytes.unwrap_or(0));
        if let Some(storage) = reads {
            self.table.hold(storage);
            in_flight.reads.push(storage);
        }
        let result = result.map(|(value, meta)| self.table.adopt(value, meta, meta.bytes()));
        in_flight.awaited.push(Awaited { output, result });
        Ok((given, in_flight))
    }

    /// The operand of a reduction, if its buffer can become the result's.
    fn reused(&self, instruction: &Instruction<'_>, next: &[u32]) -> Option<Id> {
        if instruction.op != Op::AllReduce {
            return None;
        }
        let id = instruction.values().next()?;
        let meta = self.table.held(id).ok()?.meta;
        let in_place = self.engine.in_place(instruction.op);
        let reusable = reuse::reusable(&self.table, instruction, in_place, next, &[meta]);
        (reusable & 1 != 0).then_some(id)
    }

    fn peer(&self, instruction: &Instruction<'_>) -> Result<PeerId, Fault> {
        let peer = unsigned(instruction, "peer")?;
        match u32::try_from(peer) {
            Ok(peer) if peer != self.index => Ok(self.incarnations.current(peer)),
            Ok(_) | Err(_) => Err(Fault::protocol(format!("peer {peer} of worker {}", self.index))),
        }
    }
}
