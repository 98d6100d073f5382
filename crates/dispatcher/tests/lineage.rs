//! Values of a worker that are made again from the words that it was sent.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "the line of a panic says why a test cannot go on"
)]

mod common;

use common::{add, encoded, free, full, read, receive, session};
use gt_dispatcher::{Lineage, Possible, Remake, Vacancies, WantedValues, WorkerLosses};
use gt_protocol::wire::{self, cut};
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Op, Operand};
use std::collections::BTreeMap;

const WORDS_MAX: usize = 1 << 24;

fn append(lineage: &mut Lineage, instruction: &Instruction<'_>) {
    lineage.append(0, &encoded(instruction));
}

fn wanted(slots: &[u32]) -> WantedValues {
    let slots = slots.iter().map(|&slot| (0, slot)).collect();
    WantedValues { slots, ..WantedValues::default() }
}

/// The only worker has nothing: another one was in its place.
fn losses() -> WorkerLosses {
    WorkerLosses { alive: [0].into(), empty: [0].into(), ..WorkerLosses::default() }
}

fn of(words: &[Instruction<'_>]) -> Lineage {
    let mut lineage = Lineage::new(WORDS_MAX);
    append(&mut lineage, &session(1));
    for word in words {
        append(&mut lineage, word);
    }
    lineage
}

struct FromHundred(u32);

impl Vacancies for FromHundred {
    fn slot(&mut self, _worker: u32) -> u32 {
        self.0 += 1;
        self.0 + 99
    }

    fn tag(&mut self) -> i64 {
        1 << 40
    }
}

/// The values that can be made again, and the words that make them.
fn remade(lineage: &Lineage, wanted: &WantedValues, losses: &WorkerLosses) -> (Possible, Remake) {
    let possible = lineage.possible(wanted, losses);
    let wanted =
        WantedValues { slots: possible.slots.clone(), requests: possible.requests.clone() };
    let remake = lineage.remake(&wanted, losses, &mut FromHundred(0));
    (possible, remake)
}

fn made(possible: &Possible) -> Vec<u32> {
    possible.made.iter().map(|(_, slot)| *slot).collect()
}

/// A worker that knows these operators: its values, and the sum of all reads.
#[derive(Default)]
struct Toy {
    values: BTreeMap<u32, i64>,
    session: i64,
    reads: BTreeMap<i64, i64>,
}

impl Toy {
    fn run(&mut self, words: &[u32]) {
        let mut rest = words;
        while let Some(frame) = cut::first(rest).unwrap() {
            rest = &rest[frame.len()..];
            self.step(&wire::decode(frame).unwrap().0);
        }
    }

    fn step(&mut self, instruction: &Instruction<'_>) {
        let slots: Vec<u32> = instruction.values().map(|id| id.as_slot().unwrap()).collect();
        let result = match instruction.op {
            Op::Session => {
                let Attr::Int(id) = instruction.attr("id") else { panic!() };
                self.session = *id;
                return;
            }
            Op::Free => {
                for slot in slots {
                    assert!(self.values.remove(&slot).is_some(), "slot {slot} is free");
                }
                return;
            }
            Op::Read => {
                let Attr::Int(request) = instruction.attr("request") else { panic!() };
                self.reads.insert(*request, self.values[&slots[0]]);
                return;
            }
            Op::Full => {
                let Attr::Scalar(gt_protocol::Scalar::Int(value)) = instruction.attrs[1] else {
                    panic!("{instruction:?}")
                };
                value
            }
            Op::Add => self.values[&slots[0]].wrapping_mul(3).wrapping_add(self.values[&slots[1]]),
            other => panic!("{other:?}"),
        };
        assert!(self.session > 0, "an instruction of no session");
        let out = instruction.outputs[0].as_slot().unwrap();
        assert!(self.values.insert(out, result).is_none(), "slot {out} is taken");
    }
}

fn run(remake: &Remake) -> Toy {
    let mut toy = Toy::default();
    remake.words.get(&0).into_iter().for_each(|words| toy.run(words));
    toy
}

#[test]
fn values_from_before_a_cancel_are_not_made_again() {
    let mut lineage = of(&[full(1, 0, 5), full(2, 1, 7)]);
    lineage.forget();
    assert!(lineage.is_empty());
    for word in [full(3, 2, 9), add(4, 3, [2, 2]), add(5, 4, [2, 0]), free(&[1])] {
        append(&mut lineage, &word);
    }
    let (possible, remake) = remade(&lineage, &wanted(&[0, 2, 3, 4]), &losses());
    assert_eq!(made(&possible), [2, 3]);
    assert_eq!(run(&remake).values, BTreeMap::from([(2, 9), (3, 36)]));
}

#[test]
fn only_what_wanted_values_need_is_run_again() {
    let lineage = of(&[
        full(0, 0, 5),
        full(1, 1, 7),
        add(2, 2, [0, 1]),
        free(&[0]),
        full(3, 0, 11), // the slot again, for a value that nobody wants
        add(4, 3, [2, 2]),
        free(&[1, 2]),
    ]);
    let (possible, remake) = remade(&lineage, &wanted(&[3]), &losses());
    assert_eq!((remake.instructions, made(&possible)), (4, vec![3]));
    assert_eq!(run(&remake).values, BTreeMap::from([(3, 22 * 4)]));
    assert_eq!(remade(&lineage, &wanted(&[]), &losses()).1, Remake::default());
}

#[test]
fn values_from_a_worker_that_is_gone_are_lost_with_all_that_needs_them_and_nothing_else() {
    let lineage = of(&[
        receive(0, 0, (1, 9)),
        full(1, 1, 2),
        add(2, 2, [0, 1]),
        add(3, 3, [1, 1]),
        free(&[1]),
    ]);
    let (possible, remake) = remade(&lineage, &wanted(&[0, 2, 3]), &losses());
    assert_eq!((made(&possible), remake.instructions), (vec![3], 2));
    assert_eq!(run(&remake).values, BTreeMap::from([(3, 8)]));
    assert!(possible.refused.is_empty());
}

#[test]
fn a_refused_instruction_and_its_readers_have_no_value() {
    let lineage =
        of(&[full(0, 0, 1), add(1, 1, [0, 0]), add(2, 2, [1, 0]), read(2, 8), read(0, 9)]);
    let mut wanted = wanted(&[0, 1, 2]);
    wanted.requests.extend([(0, 8), (0, 9)]);
    let refused = WorkerLosses { refused: [(1, 1)].into(), ..losses() };
    let (possible, remake) = remade(&lineage, &wanted, &refused);
    assert_eq!(made(&possible), [0]);
    assert_eq!(possible.refused, [(0, 1), (0, 2)].into());
    assert_eq!((possible.requests, possible.refused_requests), ([(0, 9)].into(), [(0, 8)].into()));
    assert_eq!(run(&remake).reads, BTreeMap::from([(9, 1)]));
    let of_another_session = WorkerLosses { refused: [(2, 1)].into(), ..losses() };
    assert_eq!(made(&remade(&lineage, &wanted, &of_another_session).0), [0, 1, 2]);
}

#[test]
fn bytes_that_were_not_kept_make_an_upload_unknown() {
    let mut upload = Instruction::new(Op::Upload);
    upload.outputs.push(Id::slot(0));
    upload.attrs.extend([Attr::Ints(Dims::new(&[1]).unwrap()), Attr::Dtype(Dtype::I64)]);
    let mut chunk = Instruction::new(Op::Chunk);
    chunk.operands.push(Operand::Value(Id::slot(0)));
    chunk.attrs.push(Attr::Int(0));
    let bytes = vec![0; 4000];
    chunk.payload = &bytes;
    let words = encoded(&chunk);
    for (limit, is_made) in [(4 * words.len(), true), (words.len(), false)] {
        let mut lineage = Lineage::new(limit);
        append(&mut lineage, &session(1));
        append(&mut lineage, &upload);
        lineage.append_beside(0, 0, &words);
        let (possible, remake) = remade(&lineage, &wanted(&[0]), &losses());
        assert_eq!(made(&possible).contains(&0), is_made, "{limit}");
        let length = remake.words.get(&0).map_or(0, Vec::len);
        assert_eq!(length > words.len(), is_made);
    }
}

#[test]
fn the_oldest_part_is_dropped_at_the_limit_and_its_session_is_known() {
    let mut lineage = Lineage::new(1 << 19);
    append(&mut lineage, &session(4));
    append(&mut lineage, &full(0, 0, 1));
    let tag = 70_000;
    for tag in 1..tag {
        append(&mut lineage, &full(tag, 1, 2));
        append(&mut lineage, &free(&[1]));
    }
    assert!(lineage.len() <= 1 << 19, "{} words", lineage.len());
    append(&mut lineage, &full(tag, 1, 3));
    append(&mut lineage, &add(tag + 1, 2, [0, 1]));
    let (possible, remake) = remade(&lineage, &wanted(&[0, 1, 2]), &losses());
    assert_eq!(made(&possible), [1]);
    assert_eq!(run(&remake).session, 4);
}

#[test]
fn words_that_were_not_sent_are_not_dropped_at_the_limit() {
    let mut lineage = Lineage::new(1 << 19);
    append(&mut lineage, &session(4));
    append(&mut lineage, &full(0, 0, 1));
    lineage.hold();
    for tag in 1..70_000 {
        append(&mut lineage, &full(tag, 1, 2));
        append(&mut lineage, &free(&[1]));
    }
    assert!(lineage.len() > 1 << 19, "{} words", lineage.len());
    append(&mut lineage, &add(70_000, 2, [0, 0]));
    let nobody_died = WorkerLosses { alive: [0].into(), ..WorkerLosses::default() };
    let (possible, remake) = remade(&lineage, &wanted(&[0, 2]), &nobody_died);
    assert_eq!((made(&possible), remake.instructions), (vec![2], 1));
}

/// A stream that a worker could be sent, from a seed.
fn stream(seed: u64, length: u32) -> (Vec<Instruction<'static>>, Vec<u32>) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut words = vec![session(1)];
    let (mut live, mut vacant): (Vec<u32>, Vec<u32>) = (Vec::new(), (0..12).rev().collect());
    for tag in 0..length {
        if draw(8) == 0 {
            words.push(session(i64::try_from(1 + draw(3)).unwrap()));
        }
        if live.len() > 2 && (vacant.is_empty() || draw(3) == 0) {
            let slot = live.swap_remove(draw(live.len()));
            vacant.push(slot);
            words.push(free(&[slot]));
            continue;
        }
        let out = vacant.pop().unwrap();
        if live.len() > 1 && draw(3) > 0 {
            let operands = [live[draw(live.len())], live[draw(live.len())]];
            words.push(add(tag, out, operands));
        } else {
            words.push(full(tag, out, i64::from(tag) + 1));
        }
        live.push(out);
    }
    (words, live)
}

#[test]
fn all_live_values_of_any_stream_are_made_again() {
    for seed in 0..300 {
        let (words, live) = stream(seed, 20 + u32::try_from(seed).unwrap());
        let mut lineage = Lineage::new(WORDS_MAX);
        let mut before = Toy::default();
        for word in &words {
            append(&mut lineage, word);
            before.step(word);
        }
        let half = &live[..live.len() / 2];
        for slots in [&live[..], half] {
            let (possible, remake) = remade(&lineage, &wanted(slots), &losses());
            assert_eq!(possible.made, wanted(slots).slots, "seed {seed}");
            let expected = before.values.iter().filter(|(slot, _)| slots.contains(slot));
            let expected: BTreeMap<u32, i64> =
                expected.map(|(&slot, &value)| (slot, value)).collect();
            assert_eq!(run(&remake).values, expected, "seed {seed}");
            // The words are a lineage themselves.
            let mut again = Lineage::new(WORDS_MAX);
            again.append(0, remake.words.get(&0).map_or(&[], Vec::as_slice));
            let (_, remake) = remade(&again, &wanted(slots), &losses());
            assert_eq!(run(&remake).values, expected, "seed {seed}");
        }
    }
}
