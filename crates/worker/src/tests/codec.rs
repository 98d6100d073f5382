//! Errors of codecs, their compensation in the next step, and the assignment of residuals.

use super::*;
use crate::Codec;
use crate::exchange::BucketMemory;
use crate::rounding::{RoundedReduction, Rounding};
use std::mem::size_of;

const MEMBERS: [PeerId; 2] =
    [PeerId { index: 0, incarnation: 0 }, PeerId { index: 1, incarnation: 0 }];

/// Numbers about zero of very different sizes, the same at each run.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 9_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f32::from_bits(0x4000_0000 | u32::try_from(state >> 41).unwrap()) - 3.0
    };
    let power = |place| i32::try_from(place / 300 % 7).unwrap() - 3;
    (0..count).map(|place: usize| next() * 10_f32.powi(power(place))).collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn rounded(codec: Codec, numbers: &[f32]) -> Vec<f32> {
    let mut bytes = bytes(numbers);
    codec.round(&mut bytes, &mut []);
    floats(&bytes)
}

#[test]
fn bfloat16_loses_a_256th() {
    let numbers = numbers(4321);
    for (number, rounded) in numbers.iter().zip(rounded(Codec::Bf16, &numbers)) {
        assert!((number - rounded).abs() <= number.abs() / 256.0, "{number} as {rounded}");
        assert_eq!(rounded.to_bits() & 0xffff, 0);
    }
}

#[test]
fn int8_loses_half_a_127th_of_a_blocks_largest() {
    let numbers = numbers(4321);
    let rounded = rounded(Codec::Int8, &numbers);
    for (numbers, rounded) in numbers.chunks(256).zip(rounded.chunks(256)) {
        let largest = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let limit = f64::from(largest) / 127.0 / 2.0 * (1.0 + 1.0 / 65_536.0);
        for (&number, &rounded) in numbers.iter().zip(rounded) {
            let error = (f64::from(number) - f64::from(rounded)).abs();
            assert!(error <= limit, "{number} as {rounded}, {error} over {limit}");
        }
    }
}

#[test]
fn what_has_no_scale_stays() {
    let odd = [f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE / 4.0, 1e-39];
    for number in odd {
        let mut block = numbers(256);
        block[7] = number;
        if number.abs() < 1.0 {
            block = vec![number; 256];
        }
        assert_eq!(bytes(&rounded(Codec::Int8, &block)), bytes(&block));
    }
    assert_eq!(rounded(Codec::Int8, &[0.0; 300]), [0.0; 300]);
    let odd = rounded(Codec::Bf16, &[f32::NAN, f32::NEG_INFINITY, -0.0]);
    assert!(odd[0].is_nan());
    assert_eq!(odd[1..], [f32::NEG_INFINITY, 0.0]);
    for codec in [Codec::Bf16, Codec::Int8] {
        let mut residual = vec![0.25; 3];
        codec.round(&mut bytes(&[f32::NAN, f32::INFINITY, 1.0]), &mut residual);
        assert!(residual.iter().all(|lost| lost.is_finite()), "{residual:?}");
    }
}

#[test]
fn rounded_again_nothing_changes() {
    let numbers = numbers(1000);
    for codec in [Codec::Bf16, Codec::Int8] {
        let once = rounded(codec, &numbers);
        assert_eq!(rounded(codec, &once), once, "{codec:?}");
    }
}

/// Twenty steps of a value in slot 3 of the member 0 of two; returns the sum of the sent numbers.
fn sent(
    rounding: &mut Rounding,
    numbers: &[f32],
    each_step: &mut dyn FnMut(&mut Rounding),
) -> Vec<f64> {
    let mut total = vec![0.0; numbers.len()];
    for _ in 0..20 {
        each_step(rounding);
        rounding.seen(5, &op(Op::Mul, &[3], &[1, 2], &[]));
        let memory = Rc::new(RefCell::new(bytes(numbers)));
        let buffers =
            ToyBuffers { operand: Some(Rc::clone(&memory)), result: Some(Rc::clone(&memory)) };
        let mut bucket = BucketMemory::of_one(Dtype::F32, buffers);
        let (members, ids) = (&MEMBERS, &[Id::slot(3)]);
        let reduction = RoundedReduction { session: 5, members, ids, is_two_hops: false };
        rounding.round(&mut bucket, reduction);
        for (total, sent) in total.iter_mut().zip(floats(&memory.borrow())) {
            *total += f64::from(sent);
        }
    }
    total
}

/// The largest difference of a sum from twenty times the number, in units of the scale of its
/// block.
fn error_of(total: &[f64], numbers: &[f32]) -> f64 {
    let block = |(total, numbers): (&[f64], &[f32])| {
        let largest = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let error = |(total, number): (&f64, &f32)| (total - 20.0 * f64::from(*number)).abs();
        total.iter().zip(numbers).map(error).fold(0.0, f64::max) * 127.0 / f64::from(largest)
    };
    total.chunks(256).zip(numbers.chunks(256)).map(block).fold(0.0, f64::max)
}

fn update(rounding: &mut Rounding) {
    rounding.seen(5, &op(Op::Sgd, &[8], &[8], &[]));
}

#[test]
fn the_next_step_makes_good_what_one_has_lost() {
    let numbers = numbers(2000);
    let new = || Rounding::new(Codec::Int8);
    let total = sent(&mut new(), &numbers, &mut update);
    assert!(error_of(&total, &numbers) < 2.0, "{}", error_of(&total, &numbers));
    // Gradients cannot be identified without updates, and residuals are lost.
    let total = sent(&mut new(), &numbers, &mut |_| {});
    assert!(error_of(&total, &numbers) > 5.0, "{}", error_of(&total, &numbers));
    // Residuals are lost too for a member that is replaced before each step.
    let total = sent(&mut new(), &numbers, &mut |rounding| {
        update(rounding);
        rounding.forget_member(1);
    });
    assert!(error_of(&total, &numbers) > 5.0, "{}", error_of(&total, &numbers));
}

#[test]
fn a_gradient_at_another_place_of_its_step_has_another_residual() {
    let numbers = numbers(2000);
    let mut step = 0;
    let mut rounding = Rounding::new(Codec::Int8);
    let total = sent(&mut rounding, &numbers, &mut |rounding| {
        update(rounding);
        step += 1;
        for _ in 0..step {
            rounding.seen(5, &op(Op::Mul, &[9], &[1, 2], &[]));
        }
    });
    assert!(error_of(&total, &numbers) > 5.0);
    assert_eq!(rounding.stats().reductions, 20);
    let error = rounding.stats().error.relative();
    assert!(error > 1e-4 && error < 1e-2, "{error}");
    assert!(rounding.stats().error_max >= error);
}

#[test]
fn operands_that_others_read_stay_as_they_are() {
    let numbers = numbers(5000);
    let [operand, result] = [bytes(&numbers), vec![0xff; size_of::<f32>() * numbers.len()]];
    let [operand, result] = [operand, result].map(|bytes| Rc::new(RefCell::new(bytes)));
    let buffers =
        ToyBuffers { operand: Some(Rc::clone(&operand)), result: Some(Rc::clone(&result)) };
    let mut bucket = BucketMemory::of_one(Dtype::F32, buffers);
    let reduction =
        RoundedReduction { session: 0, members: &MEMBERS, ids: &[Id::slot(0)], is_two_hops: true };
    Rounding::new(Codec::Bf16).round(&mut bucket, reduction);
    assert_eq!(*operand.borrow(), bytes(&numbers));
    assert_eq!(*result.borrow(), bytes(&rounded(Codec::Bf16, &numbers)));
}
