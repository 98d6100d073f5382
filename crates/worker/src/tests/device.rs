//! A simulated device: memory that all workers may read, with reads that happen as late as
//! possible.
//!
//! Work of a worker is executed when something depends on it: when the worker uses its result, or
//! when another worker takes its borrowed memory back. So memory that is returned too early, or a
//! result that is used too early, shows in the numbers.

use super::*;
use crate::{DirectReads, StridedRange, Turn};
use std::collections::BTreeMap;
use std::rc::Weak;

/// Work to be executed, after other work.
#[derive(Debug)]
struct Batch {
    after: Vec<u64>,
    work: Vec<Task>,
}

/// Ranges of memories, reduced if there are several, and their target.
#[derive(Debug)]
struct Task {
    from: Vec<(u64, StridedRange)>,
    reduce_op: ReduceOp,
    to: (Memory, StridedRange),
}

/// State that all workers share.
#[derive(Clone, Debug, Default)]
pub struct Device(Rc<RefCell<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    memories: BTreeMap<u64, Weak<RefCell<Vec<u8>>>>,
    batches: BTreeMap<u64, Batch>,
}

impl Device {
    fn number(&self) -> u64 {
        let mut inside = self.0.borrow_mut();
        inside.next += 1;
        inside.next
    }

    fn export(&self, memory: &Memory) -> u64 {
        let number = self.number();
        self.0.borrow_mut().memories.insert(number, Rc::downgrade(memory));
        number
    }

    fn begin(&self, batch: Batch) -> u64 {
        let number = self.number();
        self.0.borrow_mut().batches.insert(number, batch);
        number
    }

    /// Executes the work with this number, if that has not happened.
    fn run(&self, number: u64) {
        let Some(batch) = self.0.borrow_mut().batches.remove(&number) else { return };
        batch.after.iter().for_each(|&before| self.run(before));
        for task in batch.work {
            let shards: Vec<Vec<u8>> =
                task.from.iter().map(|&(memory, range)| self.read(memory, range)).collect();
            let shards: Vec<Shard<'_>> = shards.iter().map(|shard| Shard::Bytes(shard)).collect();
            let mut reduced = vec![0; task.to.1.bytes()];
            if !reduced.is_empty() {
                ToyEngine::reduce(Dtype::I64, task.reduce_op, &shards, &mut reduced);
            }
            let mut to = task.to.0.borrow_mut();
            for (place, &byte) in places(task.to.1).zip(&reduced) {
                to[place] = byte;
            }
        }
    }

    fn read(&self, memory: u64, range: StridedRange) -> Vec<u8> {
        let memory = self.0.borrow().memories[&memory].upgrade();
        let memory = memory.expect("borrowed memory is there");
        let bytes = memory.borrow();
        places(range).map(|place| bytes[place]).collect()
    }
}

fn places(range: StridedRange) -> impl Iterator<Item = usize> {
    let StridedRange { start, rows, run, stride } = range;
    (0..rows).flat_map(move |row| start + row * stride..start + row * stride + run)
}

/// One worker's part.
#[derive(Debug)]
pub struct Rendezvous {
    operand: Option<Memory>,
    result: Option<Memory>,
    me: usize,
    /// The members' borrowed memories: operand and result of each.
    memories: Vec<[u64; 2]>,
    pulls: Vec<crate::Pull>,
    batches: Vec<u64>,
    asked: usize,
    lost: Option<u32>,
}

/// Deviations of a worker with a device from the others.
#[derive(Clone, Debug, Default)]
pub struct DeviceConduct {
    pub device: Option<Device>,
    /// The round after which it fails, counted from 1.
    pub fails_after: Option<usize>,
    /// Number of times that it must be asked before its work is over, unless a member is gone.
    pub over_when_asked: usize,
    /// Members that it has been told are gone.
    pub gone: Rc<RefCell<Vec<u32>>>,
    /// True if all its values may be wrong, and it has not reported that.
    pub is_lost: Rc<Cell<bool>>,
}

fn word(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers(word: &[u8]) -> Vec<u64> {
    word.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

impl DeviceConduct {
    pub fn rendezvous(&self, me: usize, buffers: ToyBuffers) -> (Rendezvous, Vec<u8>) {
        let ToyBuffers { operand, result } = buffers;
        let words = self.device.as_ref().map(|device| {
            let number =
                |memory: &Option<Memory>| memory.as_ref().map_or(0, |one| device.export(one));
            word(&[number(&operand), number(&result)])
        });
        let (memories, pulls, batches) = (Vec::new(), Vec::new(), Vec::new());
        let (asked, lost) = (0, None);
        (
            Rendezvous { operand, result, me, memories, pulls, batches, asked, lost },
            words.unwrap_or_default(),
        )
    }

    pub fn negotiate(
        &self,
        rendezvous: &mut Rendezvous,
        payloads: &[&[u8]],
        reads: Option<&DirectReads>,
    ) -> Result<Turn, Fault> {
        let rounds = rendezvous.batches.len() + 1;
        if self.fails_after == Some(rounds) {
            return Err(Fault::new(FailureClass::OutOfMemory, "the device is full"));
        }
        let device = self.device.as_ref().unwrap();
        let members: Vec<Vec<u64>> = payloads.iter().map(|payload| numbers(payload)).collect();
        let Some(reads) = reads else {
            // Results that the others have reduced are available after it.
            let after = members.iter().map(|member| member[0]).collect();
            let batch = Batch { after, work: rendezvous.pulled() };
            return Ok(Turn::Done(rendezvous.begins(device, batch)));
        };
        rendezvous.memories = members.iter().map(|member| [member[0], member[1]]).collect();
        rendezvous.pulls = reads.pulls.to_vec();
        let mut tasks = rendezvous.reduced(reads);
        if reads.shares_result {
            return Ok(Turn::Continue(
                rendezvous.begins(device, Batch { after: Vec::new(), work: tasks }),
            ));
        }
        tasks.extend(rendezvous.pulled());
        Ok(Turn::Done(rendezvous.begins(device, Batch { after: Vec::new(), work: tasks })))
    }

    pub const fn is_over(&self, rendezvous: &mut Rendezvous) -> bool {
        rendezvous.asked += 1;
        rendezvous.asked > self.over_when_asked || rendezvous.lost.is_some()
    }

    pub fn finish(&self, rendezvous: &Rendezvous) {
        let device = self.device.as_ref().unwrap();
        rendezvous.batches.iter().for_each(|&batch| device.run(batch));
    }

    pub fn end(&self, rendezvous: &Rendezvous, payloads: &[Option<Vec<u8>>]) {
        let Some(device) = &self.device else { return };
        self.finish(rendezvous);
        for payload in payloads.iter().flatten() {
            for batch in numbers(payload) {
                device.run(batch);
            }
        }
    }
}

impl Rendezvous {
    pub const fn lose(&mut self, member: u32) {
        self.lost = Some(member);
    }

    /// The member without which it never completes.
    pub const fn lost(&self) -> Option<u32> {
        self.lost
    }

    pub fn buffers(self) -> ToyBuffers {
        ToyBuffers { operand: self.operand, result: self.result }
    }

    fn begins(&mut self, device: &Device, batch: Batch) -> Vec<u8> {
        self.batches.push(device.begin(batch));
        word(&self.batches[self.batches.len() - 1..])
    }

    fn reduced(&self, reads: &DirectReads) -> Vec<Task> {
        let mut tasks = Vec::new();
        let result = || self.result.clone().unwrap();
        if let Some((from, to)) = reads.kept {
            let from = vec![(self.memories[self.me][0], from)];
            tasks.push(Task { from, reduce_op: ReduceOp::Max, to: (result(), to) });
        }
        if let Some(reduction) = &reads.reduction {
            let from = self.memories.iter().zip(&reduction.shards);
            let from = from.map(|(memories, &shard)| (memories[0], shard)).collect();
            tasks.push(Task { from, reduce_op: reduction.reduce_op, to: (result(), reduction.to) });
        }
        tasks
    }

    fn pulled(&self) -> Vec<Task> {
        let task = |pull: &crate::Pull| {
            let from = vec![(self.memories[pull.place][usize::from(pull.of_result)], pull.from)];
            Task { from, reduce_op: ReduceOp::Max, to: (self.result.clone().unwrap(), pull.to) }
        };
        self.pulls.iter().map(task).collect()
    }
}
