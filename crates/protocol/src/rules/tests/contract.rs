//! Contractions.

use super::{check, check_all};
use crate::Op;

#[test]
fn matmul_shapes() {
    check_all(&[
        ("matmul f32[2,3] f32[3,4]", "f32[2,4]"),
        ("matmul f32[3] f32[3]", "f32[]"),
        ("matmul f32[2,3] f32[3]", "f32[2]"),
        ("matmul f32[3] f32[3,4]", "f32[4]"),
        ("matmul f32[7,2,3] f32[3]", "f32[7,2]"),
        ("matmul f32[3] f32[7,3,4]", "f32[7,4]"),
        ("matmul f32[7,2,3] f32[3,5]", "f32[7,2,5]"),
        ("matmul f32[2,3] f32[7,3,4]", "f32[7,2,4]"),
        ("matmul f32[1,2,3] f32[7,3,5]", "f32[7,2,5]"),
        ("matmul f32[6,1,2,3] f32[7,3,5]", "f32[6,7,2,5]"),
        ("matmul f32[0,3] f32[3,5]", "f32[0,5]"),
        ("matmul f32[2,0] f32[0,5]", "f32[2,5]"),
        ("matmul i32[2,3] i32[3,4]", "i32[2,4]"),
        ("matmul bf16[2,3] bf16[3,4]", "bf16[2,4]"),
    ]);
}

#[test]
fn matmul_mistakes() {
    for (ranks, shapes) in [("0D and 1D", "f32[] f32[2]"), ("1D and 0D", "f32[2] f32[]")] {
        check(
            &format!("matmul {shapes}"),
            &format!(
                "RuntimeError: both arguments to matmul need to be at least 1D, but they are {ranks}"
            ),
        );
    }
    for (line, shapes) in [
        ("matmul f32[2,3] f32[4,5]", "2x3 and 4x5"),
        ("matmul f32[2] f32[3,4]", "1x2 and 3x4"),
        ("matmul f32[7,2,3] f32[4,5]", "14x3 and 4x5"),
        ("matmul f32[6,7,2,3] f32[4,5]", "84x3 and 4x5"),
        ("matmul f32[2,3] f64[4,4]", "2x3 and 4x4"),
    ] {
        check(
            line,
            &format!("RuntimeError: mm: mat1 and mat2 shapes cannot be multiplied ({shapes})"),
        );
    }
    for (line, expected, got) in [
        ("matmul f32[2] f32[7,3,4]", "[7, 2]", "[7, 3]"),
        ("matmul f32[7,2,3] f32[7,4,5]", "[7, 3]", "[7, 4]"),
        ("matmul f32[3,4] f32[6,7,2,3]", "[42, 4]", "[42, 2]"),
        ("matmul f32[6,1,2,3] f32[7,4,5]", "[42, 3]", "[42, 4]"),
    ] {
        check(
            line,
            &format!(
                "RuntimeError: Expected size for first two dimensions of batch2 tensor to be: {expected} but got: {got}."
            ),
        );
    }
    check_all(&[
        (
            "matmul f32[2] f32[3]",
            "RuntimeError: inconsistent tensor size, expected tensor [2] and src [3] to have the same number of \
             elements, but got 2 and 3 elements respectively",
        ),
        (
            "matmul f32[2,3] f32[4]",
            "RuntimeError: size mismatch, got input (2), mat (2x3), vec (4)",
        ),
        (
            "matmul f32[7,2,3] f32[4]",
            "RuntimeError: size mismatch, got input (14), mat (14x3), vec (4)",
        ),
        (
            "matmul f32[6,2,2,3] f32[7,4,5]",
            "RuntimeError: The size of tensor a (2) must match the size of tensor b (7) at non-singleton dimension 1",
        ),
        (
            "matmul f32[7,2,3] f32[8,3,5]",
            "RuntimeError: The size of tensor a (7) must match the size of tensor b (8) at non-singleton dimension 0",
        ),
    ]);
}

#[test]
fn matmul_dtypes() {
    check_all(&[
        (
            "matmul f32[2,3] f64[3,4]",
            "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != double",
        ),
        (
            "matmul f32[2,2,3] i64[3,3]",
            "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != long int",
        ),
        (
            "matmul f32[2,3] f64[3]",
            "RuntimeError: addmv input tensors must have the same dtype, but got Double, Float, and Double",
        ),
        (
            "matmul f32[3] f64[2]",
            "RuntimeError: dot : expected both vectors to have same dtype, but found Float and Double",
        ),
        (
            "matmul f32[2,2,3] f64[2,3,3]",
            "RuntimeError: expected scalar type Float but found Double",
        ),
        (
            "matmul bool[2,3] bool[3,4]",
            "NotImplementedError: \"addmm_impl_cpu_\" not implemented for 'Bool'",
        ),
        ("matmul bool[3] bool[3]", "NotImplementedError: \"dot\" not implemented for 'Bool'"),
        (
            "matmul bool[2,3] bool[3]",
            "NotImplementedError: \"addmv_impl_cpu\" not implemented for 'Bool'",
        ),
        (
            "matmul bool[2,2,3] bool[2,3,4]",
            "NotImplementedError: \"bmm\" not implemented for 'Bool'",
        ),
    ]);
}

#[test]
fn linear_shapes() {
    check_all(&[
        ("linear f32[2,3] f32[4,3]", "f32[2,4]"),
        ("linear f32[3] f32[4,3]", "f32[4]"),
        ("linear f32[3] f32[4,3] f32[4]", "f32[4]"),
        ("linear f32[6,7,2,3] f32[4,3] f32[4]", "f32[6,7,2,4]"),
        ("linear f32[2,3] f32[3]", "f32[2]"),
        ("linear f32[7,2,3] f32[3]", "f32[7,2]"),
        ("linear f32[3] f32[3]", "f32[]"),
        ("linear f32[3] f32[3] f32[]", "f32[]"),
        ("linear f32[2,3] f32[4,3] f32[1]", "f32[2,4]"),
        ("linear f32[2,3] f32[4,3] f32[2,4]", "f32[2,4]"),
        ("linear f32[7,2,3] f32[4,3] f32[7,2,4]", "f32[7,2,4]"),
        ("linear f32[0,3] f32[4,3] f32[4]", "f32[0,4]"),
        ("linear i32[2,3] i32[4,3] i32[4]", "i32[2,4]"),
    ]);
}

#[test]
fn linear_mistakes() {
    check_all(&[
        (
            "linear f32[2,3] f32[4,5]",
            "RuntimeError: mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)",
        ),
        (
            "linear f32[7,2,3] f32[4,5] f32[4]",
            "RuntimeError: addmm: mat1 and mat2 shapes cannot be multiplied (14x3 and 5x4)",
        ),
        (
            "linear f32[3] f32[4,5]",
            "RuntimeError: mm: mat1 and mat2 shapes cannot be multiplied (1x3 and 5x4)",
        ),
        (
            "linear f32[2,3] f32[4]",
            "RuntimeError: size mismatch, got input (2), mat (2x3), vec (4)",
        ),
        (
            "linear f32[] f32[4,3]",
            "RuntimeError: both arguments to linear need to be at least 1D, but they are 0D and 2D",
        ),
        (
            "linear f32[2,3] f32[2,4,3]",
            "RuntimeError: t() expects a tensor with <= 2 dimensions, but self is 3D",
        ),
        (
            "linear f32[2,3] f32[3] f32[2]",
            "RuntimeError: addmm: mat2 must be a matrix, got 1-D tensor",
        ),
        (
            "linear f32[7,2,3] f32[4,3] f32[5]",
            "RuntimeError: The expanded size of the tensor (4) must match the existing size (5) at non-singleton \
             dimension 1.  Target sizes: [14, 4].  Tensor sizes: [5]",
        ),
        (
            "linear f32[2,3] f32[4,3] f32[1,2,4]",
            "RuntimeError: expand(torch.FloatTensor{[1, 2, 4]}, size=[2, 4]): the number of sizes provided (2) must \
             be greater or equal to the number of dimensions in the tensor (3)",
        ),
        (
            "linear f32[2,3] f64[4,3]",
            "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != double",
        ),
        (
            "linear f32[3] f64[3]",
            "RuntimeError: dot : expected both vectors to have same dtype, but found Float and Double",
        ),
        (
            "linear f32[2,3] f64[4,3] f32[4]",
            "RuntimeError: self and mat2 must have the same dtype, but got Float and Double",
        ),
        (
            "linear f32[2,3] f32[4,3] f64[4]",
            "RuntimeError: self and mat2 must have the same dtype, but got Double and Float",
        ),
        (
            "linear f64[3] f32[4,3] f32[4]",
            "RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float",
        ),
        (
            "linear bool[2,3] bool[4,3] bool[4]",
            "NotImplementedError: \"addmm_impl_cpu_\" not implemented for 'Bool'",
        ),
    ]);
}

#[test]
fn a_weight_is_stored_as_its_index_equation_says() {
    let stored =
        |op: Op| op.info().weight.map(|weight| (weight.operand, weight.in_dim, weight.out_dim));
    assert_eq!(stored(Op::Matmul), Some((1, 0, 1)));
    assert_eq!(stored(Op::Linear), Some((1, 1, 0)));
    assert_eq!(stored(Op::Add), None);
}
