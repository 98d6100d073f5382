//! Programs that a function's region has had.

use super::Unfit;
use super::program::RegionProgram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time between two questions whether a program is compiled; it doubles up to the longest.
const ASK_FIRST: Duration = Duration::from_millis(100);
const ASK_LONGEST: Duration = Duration::from_secs(2);

/// Number of timed runs of a compiled program, and of its instructions.
const TIMED_RUNS: usize = 5;

/// Progress of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramStage {
    /// Seen.
    Counted,
    /// A worker has its bytes, in this slot.
    Uploaded,
    /// A worker compiles it.
    Asked,
    /// It is compiled, and its calls are timed beside its instructions.
    Timed,
    Ready,
    Refused,
    /// Its calls took longer than its instructions.
    Slower,
}

impl ProgramStage {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Uploaded => "uploaded",
            Self::Asked => "compiling",
            Self::Timed => "timed",
            Self::Ready => "compiled",
            Self::Refused => "refused",
            Self::Slower => "slower when compiled",
        }
    }
}

#[derive(Debug)]
pub(crate) struct KnownProgram {
    pub stage: ProgramStage,
    pub instructions: usize,
    /// Words and facts of the program, which a digest alone does not tell apart from every other.
    words: Vec<u32>,
    facts: Vec<i64>,
    pub seen: u64,
    pub called: u64,
    /// Slot of the program's bytes, and the connection's number.
    bytes: Option<(u32, u32)>,
    /// Slots of the answers to the last questions, which Python takes: one answer, or those before
    /// and behind a timed run, with the worker's clock each.
    pub answers: Vec<u32>,
    asked: Option<Instant>,
    pause: Duration,
    /// Nanoseconds that timed runs took: of the instructions, of the call.
    pub times: [Vec<i64>; 2],
}

/// Programs by digest.
#[derive(Debug, Default)]
pub(crate) struct ProgramTable {
    pub entries: BTreeMap<u64, KnownProgram>,
    /// Words of programs that are to be uploaded.
    pub wanted: Vec<(u64, Vec<u32>)>,
    /// Calls after which a program is compiled, least number of instructions, most programs.
    pub threshold: u64,
    pub least: usize,
    pub most: usize,
    /// True to keep a compiled program only where its calls are faster than its instructions.
    pub is_timed: bool,
}

/// Way in which a segment is sent.
pub(crate) enum Way {
    Plain,
    /// One by one, after the question whether the program in this slot is compiled.
    Asking(u32),
    /// By a call of the program in this slot.
    Called(u32),
    /// One by one, or by a call of the program in this slot, between two questions for the time.
    Timed {
        bytes: u32,
        is_call: bool,
    },
    Unfit(Unfit),
}

impl ProgramTable {
    /// Counts a program, and says how it is sent.
    pub(crate) fn way(&mut self, program: &RegionProgram, epoch: u32) -> Way {
        if self.entries.len() >= self.most && !self.entries.contains_key(&program.digest) {
            return Way::Unfit(Unfit::Variants);
        }
        let entry = self.entries.entry(program.digest).or_insert_with(|| KnownProgram {
            stage: ProgramStage::Counted,
            instructions: program.instructions,
            words: program.words.clone(),
            facts: program.facts.clone(),
            seen: 0,
            called: 0,
            bytes: None,
            answers: Vec::new(),
            asked: None,
            pause: ASK_FIRST,
            times: Default::default(),
        });
        if entry.words != program.words || entry.facts != program.facts {
            return Way::Unfit(Unfit::Variants);
        }
        entry.seen += 1;
        let bytes = entry.bytes.filter(|&(_, of)| of == epoch).map(|(slot, _)| slot);
        match (entry.stage, bytes) {
            (ProgramStage::Ready, Some(slot)) => {
                entry.called += 1;
                Way::Called(slot)
            }
            // Answers that nobody has taken are to an earlier part of the same region.
            (ProgramStage::Timed, Some(_)) if !entry.answers.is_empty() => Way::Plain,
            (ProgramStage::Timed, Some(bytes)) => {
                // One by one first; then the one that was timed less often.
                let is_call = entry.times[1].len() < entry.times[0].len();
                entry.called += u64::from(is_call);
                Way::Timed { bytes, is_call }
            }
            (ProgramStage::Uploaded | ProgramStage::Asked, Some(slot))
                if entry.answers.is_empty() && entry.is_due() =>
            {
                Way::Asking(slot)
            }
            (ProgramStage::Refused | ProgramStage::Slower, _)
            | (ProgramStage::Uploaded | ProgramStage::Asked, Some(_)) => Way::Plain,
            // The bytes of another session are gone.
            (
                ProgramStage::Counted
                | ProgramStage::Uploaded
                | ProgramStage::Asked
                | ProgramStage::Timed
                | ProgramStage::Ready,
                _,
            ) => {
                if entry.seen >= self.threshold {
                    self.wanted.push((program.digest, program.words.clone()));
                }
                Way::Plain
            }
        }
    }

    /// Notes the slot that a program's bytes are in.
    pub(crate) fn uploaded(&mut self, digest: u64, slot: u32, epoch: u32) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            entry.bytes = Some((slot, epoch));
            entry.stage = ProgramStage::Uploaded;
            (entry.asked, entry.pause) = (None, ASK_FIRST);
            entry.answers.clear();
        }
    }

    pub(crate) fn asked(&mut self, digest: u64, answer: u32) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            entry.stage = ProgramStage::Asked;
            entry.answers = vec![answer];
            entry.asked = Some(Instant::now());
        }
    }

    /// Notes the slots of the answers around a timed run.
    pub(crate) fn timing(&mut self, digest: u64, answers: [u32; 4]) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            entry.answers = answers.to_vec();
        }
    }

    /// Notes the nanoseconds that a timed run took, and decides after the last one.
    pub(crate) fn timed(&mut self, digest: u64, nanoseconds: i64) {
        let Some(entry) = self.entries.get_mut(&digest) else { return };
        let [plain, called] = &mut entry.times;
        if called.len() < plain.len() {
            called.push(nanoseconds);
        } else {
            plain.push(nanoseconds);
        }
        if entry.stage == ProgramStage::Timed && called.len() == TIMED_RUNS {
            let is_faster = entry.best(1) < entry.best(0);
            entry.stage = if is_faster { ProgramStage::Ready } else { ProgramStage::Slower };
        }
    }

    /// Notes a worker's answer: 0 compiling, 1 ready, 2 refused.
    pub(crate) fn answered(&mut self, digest: u64, answer: i64) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            let is_timed = self.is_timed && entry.times[1].len() < TIMED_RUNS;
            entry.stage = match answer {
                0 => ProgramStage::Asked,
                1 if is_timed => ProgramStage::Timed,
                1 => ProgramStage::Ready,
                _ => ProgramStage::Refused,
            };
        }
    }
}

impl KnownProgram {
    /// Least time of the instructions (0) or of the call (1); the first run, which loads, is left
    /// out.
    pub(crate) fn best(&self, way: usize) -> Option<i64> {
        self.times.get(way)?.iter().skip(1).min().copied()
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= self.pause);
        if is_due && self.asked.is_some() {
            self.pause = (self.pause * 2).min(ASK_LONGEST);
        }
        is_due
    }
}
