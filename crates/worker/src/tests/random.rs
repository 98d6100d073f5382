//! Random programs, and random words.

use super::*;

/// A small generator, so that a failing seed can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(limit)).unwrap()
    }
}

const SLOTS: u32 = 6;

/// Definitions, frees and reads over a few slots; `live` has those that hold a value.
fn program(random: &mut Random) -> Vec<Instruction<'static>> {
    let mut live = [false; SLOTS as usize];
    let mut steps = Vec::new();
    for request in 0..60 {
        let slot = random.below(SLOTS);
        if live[slot as usize] {
            if random.below(3) == 0 {
                steps.push(read(slot, request, 4));
            } else {
                steps.push(free(&[slot]));
                live[slot as usize] = false;
            }
            continue;
        }
        let known: Vec<u32> = (0..SLOTS).filter(|&other| live[other as usize]).collect();
        if known.is_empty() {
            steps.push(full(slot, 4, i64::from(random.below(100))));
        } else {
            let count = u32::try_from(known.len()).unwrap();
            let [left, right] = [0; 2].map(|_| known[random.below(count) as usize]);
            steps.push(match random.below(5) {
                0 => op(Op::Sub, &[slot], &[left, right], &[]),
                1 => op(Op::Mul, &[slot], &[left, right], &[]),
                2 => op(Op::Neg, &[slot], &[left], &[]),
                3 => op(Op::Reshape, &[slot], &[left], &[ints(&[4])]),
                _ => op(Op::Add, &[slot], &[left, right], &[]),
            });
        }
        live[slot as usize] = true;
    }
    steps
}

#[test]
fn working_in_place_changes_no_result() {
    let mut saved = 0;
    for seed in 0..300 {
        let steps = program(&mut Random(seed));
        let run_with = |never_in_place| {
            let allocations = Rc::new(Cell::new(0));
            let engine = ToyEngine {
                allocations: Rc::clone(&allocations),
                never_in_place,
                ..ToyEngine::default()
            };
            (run(&mut Machine::new(engine), &steps), allocations.get())
        };
        let ((plain, allocated), (in_place, fewer)) = (run_with(true), run_with(false));
        assert_eq!(plain, in_place, "seed {seed}");
        saved += allocated - fewer;
    }
    assert!(saved > 300, "{saved} buffers were used again");
}

#[test]
fn garbage_never_panics() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut words = words(&program(&mut random));
        for _ in 0..=random.below(4) {
            let place = random.below(u32::try_from(words.len()).unwrap()) as usize;
            words[place] ^= 1 << random.below(32);
        }
        let mut machine = Machine::new(ToyEngine::default());
        let _ = machine.run(&words, &mut Answers::default(), &mut CommunicationStream::new(Nobody));
    }
}
