//! Elementwise operators, and promotion against a table that `PyTorch` printed.

use super::{check, check_all};
use crate::rules::{RuleArg, floats_by_default, keeps_metadata};
use crate::{Dims, Dtype, Meta, Op, Scalar, dtype::Promotion};

#[test]
fn shapes_broadcast() {
    check_all(&[
        ("add f32[4] f32[4]", "f32[4]"),
        ("add f32[2,3] f32[3]", "f32[2,3]"),
        ("add f32[3] f32[2,3]", "f32[2,3]"),
        ("add f32[2,1,4] f32[3,1]", "f32[2,3,4]"),
        ("add f32[0] f32[1]", "f32[0]"),
        ("add f32[] f32[2]", "f32[2]"),
        (
            "add f32[4] f32[5]",
            "RuntimeError: The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 0",
        ),
        (
            "add f32[2,4] f32[3,1,5]",
            "RuntimeError: The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 2",
        ),
        (
            "add f32[3,1,5] f32[2,4]",
            "RuntimeError: The size of tensor a (5) must match the size of tensor b (4) at non-singleton dimension 2",
        ),
        (
            "add f32[2,3] f32[4,5]",
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (5) at non-singleton dimension 1",
        ),
        (
            "add f32[0] f32[2]",
            "RuntimeError: The size of tensor a (0) must match the size of tensor b (2) at non-singleton dimension 0",
        ),
        (
            "where bool[2] f32[3] f32[4]",
            "RuntimeError: The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0",
        ),
        (
            "where bool[] f32[3] f32[4]",
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0",
        ),
        ("where bool[2,1] f32[] f32[3]", "f32[2,3]"),
        ("lerp f32[2,1] f32[3] f32[4,1,1]", "f32[4,2,3]"),
        ("add 1 2", "TypeError: add(): argument 'self' (position 1) must be Tensor, not int"),
    ]);
}

#[test]
fn dtypes_follow_the_row() {
    check_all(&[
        ("add bool[2] bool[2]", "bool[2]"),
        ("add bool[2] 2", "i64[2]"),
        ("add i32[2] 2.5", "f32[2]"),
        ("add 2.5 f16[2]", "f16[2]"),
        ("add i8[2] 300", "i8[2]"),
        ("add f16[2] 1e30", "f16[2]"),
        ("div i32[2] 2", "f32[2]"),
        ("div bool[2] bool[2]", "f32[2]"),
        ("div f16[2] i64[2]", "f16[2]"),
        ("atan2 i64[2] i64[2]", "f32[2]"),
        ("eq i64[2] f64[2]", "bool[2]"),
        ("logical_and f32[2] bool[2]", "bool[2]"),
        ("exp i64[2]", "f32[2]"),
        ("exp bf16[2]", "bf16[2]"),
        ("abs i8[2]", "i8[2]"),
        ("isnan i32[2]", "bool[2]"),
        ("square bool[2]", "i64[2]"),
        ("square i8[2]", "i8[2]"),
        ("cast f32[2] dtype=i16", "i16[2]"),
        ("tanh_backward f32[2] f64[2]", "f64[2]"),
        ("maximum f16[2] bf16[2]", "f32[2]"),
        ("bitwise_and bool[2] i64[2]", "i64[2]"),
        ("where u8[2] f32[2] f64[2]", "f64[2]"),
        ("where bool[2] 1 2", "i64[2]"),
        ("where bool[2] f16[2] 1.5", "f16[2]"),
        ("where bool[2] f16[2] f32[]", "f16[2]"),
        ("clamp i32[2] 0 1.5", "f32[2]"),
        ("clamp f16[2] f32[] f64[]", "f16[2]"),
        ("clamp bool[2] _ bool[2]", "bool[2]"),
        ("clamp i32[2] f64[3,2] _", "f64[3,2]"),
        ("clamp bool[2] 0 1", "i64[2]"),
        ("masked_fill f32[2] bool[3,2] 1", "f32[3,2]"),
        ("masked_fill i32[2] bool[2] 1.5", "i32[2]"),
        ("masked_fill f32[2] bool[2] f64[]", "f32[2]"),
        ("lerp f32[3] f32[3] i64[]", "f32[3]"),
        ("lerp f32[3] f32[3] 1", "f32[3]"),
        ("lerp i32[3] i32[3] f32[]", "f32[3]"),
        ("lerp f32[] f32[] f64[]", "f64[]"),
    ]);
}

#[test]
fn dtypes_without_a_kernel() {
    for (op, kernel) in [
        ("abs bool[2]", "abs_cpu"),
        ("silu bool[2]", "silu_cpu"),
        ("floor bool[2]", "floor_vml_cpu"),
        ("floor_divide bool[2] bool[2]", "div_floor_cpu"),
        ("remainder bool[2] true", "remainder_cpu"),
        ("fmod bool[2] bool[2]", "fmod_cpu"),
        ("pow bool[2] bool[2]", "pow"),
        ("pow true bool[2]", "pow"),
        ("clamp bool[2] bool[2] bool[2]", "clamp_cpu"),
        ("clamp bool[2] true true", "clamp_scalar_cpu"),
        ("clamp bool[2] _ true", "clamp_max_scalar_cpu"),
        ("relu_backward bool[2] bool[2]", "threshold_cpu"),
    ] {
        check(op, &format!("NotImplementedError: \"{kernel}\" not implemented for 'Bool'"));
    }
    for (op, kernel) in [
        ("gelu i32[2]", "GeluKernelImpl"),
        ("elu i32[2]", "elu_cpu"),
        ("lerp i32[2] i32[2] i32[2]", "lerp_kernel_tensor"),
        ("lerp i32[2] i32[2] 0.5", "lerp_kernel_scalar"),
        ("gelu_backward i32[2] i32[2]", "GeluBackwardKernelImpl"),
        ("softplus_backward i32[2] i32[2]", "softplus_backward_cpu"),
    ] {
        check(op, &format!("NotImplementedError: \"{kernel}\" not implemented for 'Int'"));
    }
    for (op, kernel) in [
        ("bitwise_not f32[2]", "bitwise_not_cpu"),
        ("bitwise_and f32[2] i64[2]", "bitwise_and_cpu"),
        ("bitwise_xor i32[2] 2.5", "bitwise_xor_cpu"),
    ] {
        check(op, &format!("NotImplementedError: \"{kernel}\" not implemented for 'Float'"));
    }
}

#[test]
fn what_pytorch_refuses() {
    const TWO: &str = "NotImplementedError: Subtraction, the `-` operator, with two bool tensors is not supported. \
                       Use the `^` or `logical_xor()` operator instead.";
    const ONE: &str = "NotImplementedError: Subtraction, the `-` operator, with a bool tensor is not supported. If \
                       you are trying to invert a mask, use the `~` or `logical_not()` operator instead.";
    const INT8: &str = "RuntimeError: value cannot be converted to type int8_t without overflow";
    const NEGATIVE: &str = "RuntimeError: Integers to negative integer powers are not allowed.";
    check_all(&[
        ("sub bool[2] bool[3]", TWO),
        ("sub bool[2] true", TWO),
        ("sub 1 bool[2]", ONE),
        ("sub f32[2] true", ONE),
        ("sub i32[2] bool[2]", ONE),
        (
            "neg bool[2]",
            "NotImplementedError: Negation, the `-` operator, on a bool tensor is not supported. If you are trying to \
             invert a mask, use the `~` or `logical_not()` operator instead.",
        ),
        ("relu bool[2]", "NotImplementedError: Boolean inputs not supported for relu"),
        ("pow i32[2] -1", NEGATIVE),
        ("pow bool[2] -1", NEGATIVE),
        ("pow i32[2] -1.0", "f32[2]"),
        ("pow i32[2] i64[]", "i32[2]"),
        ("pow bool[2] true", "bool[2]"),
        ("pow 2 i32[2]", "i32[2]"),
        ("pow i8[2] 300", INT8),
        ("where bool[2] i8[2] 300", INT8),
        ("masked_fill i8[2] bool[2] -300", INT8),
        ("masked_fill i8[2] bool[2] -1", "i8[2]"),
        ("masked_fill u8[2] bool[2] -255", "u8[2]"),
        (
            "where f32[2] f32[2] f32[2]",
            "RuntimeError: where expected condition to be a boolean tensor, but got a tensor with dtype Float",
        ),
        (
            "clamp f32[2]",
            "RuntimeError: torch.clamp: At least one of 'min' or 'max' must not be None",
        ),
        (
            "masked_fill f32[2] u8[2] 1",
            "RuntimeError: masked_fill_ only supports boolean masks, but got mask with dtype unsigned char",
        ),
        (
            "masked_fill f32[2] f32[3] 1",
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0",
        ),
        (
            "masked_fill f32[2] bool[2] f64[1]",
            "RuntimeError: masked_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 \
             dimension(s).",
        ),
        (
            "lerp f32[3] f64[4] f32[4]",
            "RuntimeError: expected dtype float for `end` but got dtype double",
        ),
        (
            "lerp f32[2] f32[2] f64[2]",
            "RuntimeError: expected dtype float for `weight` but got dtype double",
        ),
    ]);
}

#[test]
fn numbers_that_fit() {
    let fits = |value, dtype| Scalar::Float(value).fits(dtype);
    assert!(fits(127.9, Dtype::I8) && fits(255.5, Dtype::U8) && fits(0.5, Dtype::Bool));
    assert!(!fits(128.0, Dtype::I8) && !fits(-129.5, Dtype::I8) && !fits(f64::NAN, Dtype::I64));
    assert!(!fits(9.3e18, Dtype::I64) && !fits(2_f64.powi(63), Dtype::I64));
    assert!(fits(-(2_f64.powi(63)), Dtype::I64));
    assert!(
        !fits(65520.0, Dtype::F16) && fits(f64::INFINITY, Dtype::F16) && !fits(1e39, Dtype::F32)
    );
    assert!(fits(f64::NAN, Dtype::F16) && fits(f64::NAN, Dtype::Bool));
    assert!(Scalar::Int(-255).fits(Dtype::U8) && !Scalar::Int(-256).fits(Dtype::U8));
}

/// Both operands have dimensions, or neither has.
const TENSORS: &str = "
      bool   u8   i8  i16  i32  i64  f16 bf16  f32  f64  c64 c128
 bool bool   u8   i8  i16  i32  i64  f16 bf16  f32  f64  c64 c128
   u8   u8   u8  i16  i16  i32  i64  f16 bf16  f32  f64  c64 c128
   i8   i8  i16   i8  i16  i32  i64  f16 bf16  f32  f64  c64 c128
  i16  i16  i16  i16  i16  i32  i64  f16 bf16  f32  f64  c64 c128
  i32  i32  i32  i32  i32  i32  i64  f16 bf16  f32  f64  c64 c128
  i64  i64  i64  i64  i64  i64  i64  f16 bf16  f32  f64  c64 c128
  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64  c64 c128
 bf16 bf16 bf16 bf16 bf16 bf16 bf16  f32 bf16  f32  f64  c64 c128
  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64 c128
  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64 c128 c128
  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64 c128  c64 c128
 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
";

/// The row has dimensions, the column has none.
const WITH_ZERO_DIM: &str = "
      bool   u8   i8  i16  i32  i64  f16 bf16  f32  f64  c64 c128
 bool bool   u8   i8  i16  i32  i64  f16 bf16  f32  f64  c64 c128
   u8   u8   u8   u8   u8   u8   u8  f16 bf16  f32  f64  c64 c128
   i8   i8   i8   i8   i8   i8   i8  f16 bf16  f32  f64  c64 c128
  i16  i16  i16  i16  i16  i16  i16  f16 bf16  f32  f64  c64 c128
  i32  i32  i32  i32  i32  i32  i32  f16 bf16  f32  f64  c64 c128
  i64  i64  i64  i64  i64  i64  i64  f16 bf16  f32  f64  c64 c128
  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  c64  c64
 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16  c64  c64
  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  c64  c64
  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64 c128 c128
  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64
 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
";

/// A tensor with dimensions and a number.
const WITH_NUMBER: &str = "
      true    1  1.5
 bool bool  i64  f32
   u8   u8   u8  f32
   i8   i8   i8  f32
  i16  i16  i16  f32
  i32  i32  i32  f32
  i64  i64  i64  f32
  f16  f16  f16  f16
 bf16 bf16 bf16 bf16
  f32  f32  f32  f32
  f64  f64  f64  f64
  c64  c64  c64  c64
 c128 c128 c128 c128
";

/// A tensor without dimensions and a number.
const ZERO_DIM_WITH_NUMBER: &str = "
      true    1  1.5
 bool bool  i64  f32
   u8   u8   u8  f32
   i8   i8   i8  f32
  i16  i16  i16  f32
  i32  i32  i32  f32
  i64  i64  i64  f32
  f16  f16  f16  f16
 bf16 bf16 bf16 bf16
  f32  f32  f32  f32
  f64  f64  f64  f64
  c64  c64  c64  c64
 c128 c128 c128 c128
";

/// Checks each cell of a table of `torch.result_type`; the header's words are dtypes or numbers.
fn check_promotion(table: &str, row_zero_dim: bool, column_zero_dim: bool) {
    let mut lines = table.lines().filter(|line| !line.is_empty());
    let header: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    let mut cells = 0;
    for line in lines {
        let mut words = line.split_whitespace();
        let row = words.next().and_then(Dtype::from_short).expect("a dtype");
        for (column, expected) in header.iter().zip(words) {
            let mut promotion = Promotion::default();
            match Dtype::from_short(column) {
                Some(dtype) => promotion.tensor(dtype, column_zero_dim),
                None => promotion.scalar(super::scalar(column)),
            }
            promotion.tensor(row, row_zero_dim);
            assert_eq!(promotion.dtype().short(), expected, "{row:?} with {column}");
            cells += 1;
        }
    }
    assert_eq!(cells, Dtype::ALL.len() * header.len());
}

#[test]
fn promotion_is_that_of_pytorch() {
    check_promotion(TENSORS, false, false);
    check_promotion(TENSORS, true, true);
    check_promotion(WITH_ZERO_DIM, false, true);
    check_promotion(WITH_NUMBER, false, false);
    check_promotion(ZERO_DIM_WITH_NUMBER, true, false);
}

#[test]
fn promotion_without_operands_is_the_default() {
    assert_eq!(Promotion::default().dtype(), Dtype::F32);
}

/// Comparisons return bools, bitwise operators refuse floats, a condition is a bool, attributes may
/// decide.
#[test]
fn which_operators_keep_float_metadata() {
    let keeps = |name| keeps_metadata(Op::from_name(name).expect("an operator"));
    for name in ["add", "sub", "mul", "div", "pow", "maximum", "neg", "exp", "relu", "lerp"] {
        assert!(keeps(name), "{name}");
    }
    for name in [
        "eq",
        "lt",
        "logical_and",
        "isnan",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_not",
        "where",
        "masked_fill",
        "cast",
        "gelu",
        "matmul",
        "sum",
        "cat",
        "reshape",
    ] {
        assert!(!keeps(name), "{name}");
    }
}

#[test]
fn integers_that_become_floats_by_default_are_told() {
    let [whole, flag, float] = [Dtype::I64, Dtype::Bool, Dtype::F16]
        .map(|dtype| Meta::new(dtype, Dims::new(&[2]).unwrap()));
    let [i, b, f] = [RuleArg::Value(&whole), RuleArg::Value(&flag), RuleArg::Value(&float)];
    let [one, half] = [RuleArg::Scalar(Scalar::Int(1)), RuleArg::Scalar(Scalar::Float(0.5))];
    let rows: &[(Op, &[RuleArg<'_>], u16)] = &[
        (Op::Add, &[i, half], 0b01),
        (Op::Add, &[half, b], 0b10),
        (Op::Add, &[i, one], 0),
        (Op::Add, &[i, f], 0),
        (Op::Add, &[f, half], 0),
        (Op::Div, &[i, b], 0b11),
        (Op::Div, &[i, one], 0b01),
        (Op::Exp, &[i], 0b1),
        (Op::Neg, &[i], 0),
        (Op::Lt, &[i, half], 0b01),
        (Op::Where, &[b, i, half], 0b010),
        (Op::Where, &[b, one, half], 0b100),
        (Op::Where, &[b, f, half], 0),
        (Op::Lerp, &[i, i, half], 0),
        (Op::MaskedFill, &[i, b, half], 0),
        (Op::Clamp, &[i, RuleArg::Absent, half], 0b001),
        (Op::Logsumexp, &[i], 0b1),
        (Op::Sum, &[i], 0),
    ];
    for (op, operands, floats) in rows {
        assert_eq!(floats_by_default(*op, operands), *floats, "{op:?} {operands:?}");
    }
}
