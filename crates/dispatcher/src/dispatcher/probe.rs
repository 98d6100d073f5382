//! Measures the links between workers when they join, by ordinary instructions: a value goes back
//! and forth between two workers, once small and once large, and its last holder answers.
//!
//! The core has no clock: its owner passes the time, and the answers for the probe's session. One
//! request is in flight at a time, so that links do not disturb each other.

use super::Dispatcher;
use crate::cost::LinkCost;
use crate::event::{Event, SessionId, Sink, WorkerIndex};
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Op, Operand, Scalar};
use smallvec::smallvec;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of laps of which the shortest counts: others were disturbed.
const ROUNDS: usize = 3;
/// Legs of a lap: none, to subtract the time of the answer; small ones for the message; large ones
/// for the byte. A pair sends less than 1 MB in total.
const LEGS: [Leg; 3] = [
    Leg { hops: 0, elements: 1 },
    Leg { hops: 16, elements: 1 },
    Leg { hops: 4, elements: 16 * 1024 },
];
/// Minimum price of a message, whatever the clock measured.
const MESSAGE_MIN: f64 = 0.1;
const BYTE_MIN: f64 = 1e-6;
/// The scope that creates values on the first worker of a pair.
const SIGNAL: u16 = 1;

#[derive(Clone, Copy)]
struct Leg {
    hops: u32,
    elements: i64,
}

impl Leg {
    fn bytes(self) -> f64 {
        f64::from(i32::try_from(self.elements * 4).expect("a probe sends some megabytes"))
    }
}

/// Measured prices between two workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub from: WorkerIndex,
    pub to: WorkerIndex,
    pub link: LinkCost,
}

/// The measurement of one pair.
struct Course {
    from: WorkerIndex,
    to: WorkerIndex,
    /// Index of the lap, over all rounds.
    lap: usize,
    best: [Duration; LEGS.len()],
}

enum ProbeState {
    Idle,
    /// Instructions, made before the clock is read.
    Ready(Vec<Instruction<'static>>),
    Running {
        began: Duration,
    },
}

/// The waiting pairs, and the one being measured.
pub struct Probe {
    waiting: VecDeque<(WorkerIndex, WorkerIndex)>,
    course: Option<Course>,
    state: ProbeState,
    session: Option<SessionId>,
    measured: Vec<Measured>,
}

impl Default for Probe {
    fn default() -> Self {
        let (waiting, measured) = (VecDeque::new(), Vec::new());
        Self { waiting, course: None, state: ProbeState::Idle, session: None, measured }
    }
}

impl Probe {
    /// Adds a pair to measure.
    pub fn add(&mut self, from: WorkerIndex, to: WorkerIndex) {
        self.waiting.push_back((from, to));
    }

    /// Drops the pairs of a worker that is gone.
    pub fn left(&mut self, index: WorkerIndex) {
        self.waiting.retain(|&(from, to)| from != index && to != index);
    }

    /// Returns true if no pair is left.
    pub fn is_idle(&self) -> bool {
        self.course.is_none() && self.waiting.is_empty() && self.session.is_none()
    }

    /// Session whose answers are for [`Self::answered`].
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Prices measured since the last call, once no pair waits.
    pub fn take_measured(&mut self) -> Vec<Measured> {
        if self.is_idle() { std::mem::take(&mut self.measured) } else { Vec::new() }
    }

    /// Continues if no answer is pending; returns true if it did. `now` is the time since any fixed
    /// moment.
    pub fn step(&mut self, now: Duration, core: &mut Dispatcher, sink: &mut dyn Sink) -> bool {
        match std::mem::replace(&mut self.state, ProbeState::Idle) {
            ProbeState::Running { began } => {
                self.state = ProbeState::Running { began };
                false
            }
            ProbeState::Ready(lap) => {
                let Some(session) = self.session else { return false };
                self.state = ProbeState::Running { began: now };
                for instruction in &lap {
                    if core.instruction(session, instruction, sink).is_err() {
                        self.give_up(core, sink);
                        break;
                    }
                }
                true
            }
            ProbeState::Idle => self.prepare(core, sink),
        }
    }

    /// Prepares the next lap; ends the session if there is none.
    fn prepare(&mut self, core: &mut Dispatcher, sink: &mut dyn Sink) -> bool {
        if self.course.is_none() {
            let best = [Duration::MAX; LEGS.len()];
            let next = self.waiting.pop_front();
            self.course = next.map(|(from, to)| Course { from, to, lap: 0, best });
        }
        if let Some(course) = &self.course {
            self.state = ProbeState::Ready(course.instructions());
            // Opened before its first instruction, so that the core's owner knows the session of
            // the answers.
            self.session.get_or_insert_with(|| core.open_session());
            return true;
        }
        self.close(core, sink)
    }

    /// Handles the last holder's answer or failure.
    pub fn answered(
        &mut self,
        now: Duration,
        failed: bool,
        core: &mut Dispatcher,
        sink: &mut dyn Sink,
    ) {
        let ProbeState::Running { began } = self.state else { return };
        if failed {
            return self.give_up(core, sink);
        }
        self.state = ProbeState::Idle;
        let Some(course) = &mut self.course else { return };
        let hops = course.leg().hops;
        if let Some(best) = course.best.get_mut(course.lap % LEGS.len()) {
            *best = now.saturating_sub(began).min(*best);
        }
        course.lap += 1;
        if course.lap == ROUNDS * LEGS.len() {
            self.measured.push(course.measured());
            self.course = None;
        }
        if let Some(session) = self.session {
            let slots: Vec<u32> = (0..=hops).collect();
            // The slots exist, because the lap has succeeded.
            let _ = core.release(session, &slots, sink);
        }
    }

    /// Leaves a pair unmeasured. The values of its lap are freed with the session.
    fn give_up(&mut self, core: &mut Dispatcher, sink: &mut dyn Sink) {
        (self.course, self.state) = (None, ProbeState::Idle);
        self.close(core, sink);
    }

    fn close(&mut self, core: &mut Dispatcher, sink: &mut dyn Sink) -> bool {
        let Some(session) = self.session.take() else { return false };
        core.handle(Event::SessionClosed { session }, sink);
        true
    }
}

impl Course {
    fn leg(&self) -> Leg {
        let [none, small, large] = LEGS;
        match self.lap % LEGS.len() {
            0 => none,
            1 => small,
            _ => large,
        }
    }

    /// Sends a value back and forth as often as the leg says, and reads one element at the end.
    fn instructions(&self) -> Vec<Instruction<'static>> {
        let leg = self.leg();
        let mut lap = Vec::new();
        let mut scope = Instruction::new(Op::Configure);
        let text = format!("workers=[{}]", self.from);
        scope.attrs = smallvec![Attr::Int(i64::from(SIGNAL)), Attr::Text(text.into())];
        lap.push(scope);
        let mut full = Instruction::new(Op::Full);
        full.signal = SIGNAL;
        full.outputs.push(Id::slot(0));
        let size = Dims::new(&[leg.elements]).expect("one dimension");
        full.attrs =
            smallvec![Attr::Ints(size), Attr::Scalar(Scalar::Int(0)), Attr::Dtype(Dtype::F32)];
        lap.push(full);
        for hop in 0..leg.hops {
            let target = if hop % 2 == 0 { self.to } else { self.from };
            let mut word = Instruction::new(Op::Distribute);
            word.operands.push(Operand::Value(Id::slot(hop)));
            word.outputs.push(Id::slot(hop + 1));
            let layout = format!("replicate@[{target}]");
            word.attrs = smallvec![Attr::Absent, Attr::Text(layout.into())];
            lap.push(word);
        }
        let mut read = Instruction::new(Op::Read);
        read.operands.push(Operand::Value(Id::slot(leg.hops)));
        let request = i64::try_from(self.lap).expect("the number of laps is small");
        read.attrs = smallvec![Attr::Int(request), Attr::Int(0), Attr::Int(1)];
        lap.push(read);
        lap
    }

    fn measured(&self) -> Measured {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let [none, small, large] = self.best.map(micros);
        let [_, short, long] = LEGS;
        let message = ((small - none) / f64::from(short.hops)).max(MESSAGE_MIN);
        let hop = ((large - none) / f64::from(long.hops)).max(MESSAGE_MIN);
        let byte = ((hop - message) / long.bytes()).max(BYTE_MIN);
        let link = LinkCost { message: rounded(message), byte: rounded(byte) };
        Measured { from: self.from, to: self.to, link }
    }
}

/// Rounds to 1, 2 or 5 times a power of ten: no clock is more precise, and the next probe most
/// likely gives the same.
fn rounded(price: f64) -> f64 {
    let text = format!("{price:e}");
    let Some((digits, power)) = text.split_once('e') else { return price };
    let (Ok(digits), Ok(power)) = (digits.parse::<f64>(), power.parse::<i32>()) else {
        return price;
    };
    // The thresholds are midpoints on a logarithmic scale: the roots of 2, 10 and 50.
    let (digit, power) = match digits {
        ..1.414 => (1, power),
        ..3.162 => (2, power),
        ..7.071 => (5, power),
        _ => (1, power + 1),
    };
    format!("{digit}e{power}").parse().unwrap_or(price)
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn prices_are_rounded_to_what_a_clock_knows() {
        for (price, expected) in
            [(7.5, 10.0), (1.3, 1.0), (3.3e-4, 5e-4), (28.0, 20.0), (6e-5, 5e-5), (0.1, 0.1)]
        {
            assert_eq!(rounded(price).to_bits(), f64::to_bits(expected), "{price}");
        }
    }
}
