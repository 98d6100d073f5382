//! A client whose answers show at once whether an instruction was lost or run twice.

use super::peer::{Peer, add};
use gt_protocol::{Id, Instruction, Op, Operand, wire};
use std::sync::atomic::{AtomicBool, Ordering};

/// A client that adds one to a number again and again, with many additions on their way, and
/// compares each number that it reads.
pub fn count(peer: &mut Peer, stop: &AtomicBool) -> u32 {
    const STEPS: u32 = 40;
    peer.upload(0, &[1.0]);
    peer.upload(10, &[0.0]);
    let mut words = Vec::new();
    for step in 0..STEPS {
        let (old, new) = if step % 2 == 0 { (10, 11) } else { (11, 10) };
        wire::encode(&add(new, old, 0), &mut words).unwrap();
        let mut free = Instruction::new(Op::Free);
        free.operands.push(Operand::Value(Id::slot(old)));
        wire::encode(&free, &mut words).unwrap();
    }
    let mut rounds = 0_u16;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..5 {
            peer.send(&words);
            rounds += 1;
            peer.ask(i64::from(rounds), 10, 1);
        }
        for round in rounds - 4..=rounds {
            let expected = f32::from(round) * 40.0;
            assert_eq!(peer.answer(i64::from(round)), Ok(vec![expected]), "after {round} rounds");
        }
        if rounds > 60_000 {
            break;
        }
    }
    u32::from(rounds)
}
