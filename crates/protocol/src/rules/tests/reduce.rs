//! Reductions, softmax and layer norm.

use super::{check, check_all};

#[test]
fn reduced_shapes() {
    check_all(&[
        ("sum f32[2,3]", "f32[]"),
        ("sum f32[2,3] dim=[]", "f32[]"),
        ("sum f32[2,3] dim=[-1]", "f32[2]"),
        ("sum f32[2,3] dim=[0,1] keepdim=true", "f32[1,1]"),
        ("sum f32[]", "f32[]"),
        ("sum f32[] dim=[-1] keepdim=true", "f32[]"),
        ("mean f32[0,3] dim=[0]", "f32[3]"),
        ("prod f32[2,3] dim=0 keepdim=true", "f32[1,3]"),
        ("prod f32[2,3]", "f32[]"),
        ("amax f32[2,3] dim=[0,1]", "f32[]"),
        ("amax f32[0,3] dim=[1]", "f32[0]"),
        ("argmax f32[2,3] keepdim=true", "i64[1,1]"),
        ("argmin f32[2,3] dim=1", "i64[2]"),
        ("max_dim f32[2,3] dim=0", "f32[3] i64[3]"),
        ("min_dim f32[] dim=-1", "f32[] i64[]"),
        ("all f32[2,3]", "bool[]"),
        ("all f32[2,3] dim=[]", "bool[2,3]"),
        ("any f32[0,3] dim=[0]", "bool[3]"),
        ("var f32[2,3] dim=[1] keepdim=true correction=1", "f32[2,1]"),
        ("logsumexp f32[2,3] dim=[0]", "f32[3]"),
        ("cumsum f32[2,3] dim=-1", "f32[2,3]"),
        ("cumsum f32[] dim=0", "f32[]"),
    ]);
}

#[test]
fn reduced_dtypes() {
    check_all(&[
        ("sum bool[2]", "i64[]"),
        ("sum i32[2]", "i64[]"),
        ("sum f16[2]", "f16[]"),
        ("sum f32[2] dtype=i32", "i32[]"),
        ("sum f32[2] dtype=bool", "bool[]"),
        ("prod u8[2]", "i64[]"),
        ("cumsum i8[2] dim=0", "i64[2]"),
        ("mean i32[2] dtype=f64", "f64[]"),
        ("mean bf16[2]", "bf16[]"),
        ("amax bool[2]", "bool[]"),
        ("max_dim i8[2] dim=0", "i8[] i64[]"),
        ("all u8[2]", "u8[]"),
        ("any i8[2]", "bool[]"),
        ("logsumexp i32[2] dim=[0]", "f32[]"),
        ("logsumexp f32[2,3] dim=[] keepdim=true", "f32[1,1]"),
        ("softmax u8[3,0] dim=-1", "u8[3,0]"),
        ("softmax f16[2] dim=0 dtype=f32", "f32[2]"),
        ("softmax i32[2] dim=0 dtype=f64", "f64[2]"),
        (
            "mean i64[2] dim=[5]",
            "NotImplementedError: mean(): could not infer output dtype. Input dtype must be either a floating point \
             or complex dtype. Got: Long",
        ),
        (
            "mean f32[2] dtype=i32",
            "NotImplementedError: mean(): could not infer output dtype. Optional dtype must be either a floating \
             point or complex dtype. Got: Int",
        ),
        (
            "var i32[2]",
            "NotImplementedError: std and var only support floating point and complex dtypes",
        ),
        ("argmax bool[2]", "NotImplementedError: argmax(): does not support bool input"),
        (
            "cumsum f32[2] dim=0 dtype=bool",
            "NotImplementedError: \"cumsum_out_cpu\" not implemented for 'Bool'",
        ),
    ]);
}

#[test]
fn dimensions_that_are_not_there() {
    for op in ["sum", "mean", "amax", "all", "var", "logsumexp"] {
        check(
            &format!("{op} f32[2,3] dim=[2]"),
            "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
        );
        check(
            &format!("{op} f32[2,3] dim=[0,-2]"),
            "RuntimeError: dim 0 appears multiple times in the list of dims",
        );
        check(
            &format!("{op} f32[] dim=[0,0]"),
            "RuntimeError: dim 0 appears multiple times in the list of dims",
        );
    }
    for op in ["prod", "argmax", "max_dim", "cumsum", "softmax", "log_softmax"] {
        check(
            &format!("{op} f32[2,3] dim=-3"),
            "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got -3)",
        );
        check(
            &format!("{op} f32[] dim=1"),
            "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)",
        );
    }
}

#[test]
fn extrema_of_nothing() {
    check_all(&[
        (
            "amax f32[0,3]",
            "RuntimeError: amax(): Expected reduction dim to be specified for input.numel() == 0. Specify the \
             reduction dim with the 'dim' argument.",
        ),
        (
            "amin f32[0,3] dim=[]",
            "RuntimeError: amin(): Expected reduction dim to be specified for input.numel() == 0. Specify the \
             reduction dim with the 'dim' argument.",
        ),
        (
            "amax f32[0,3] dim=[0,1]",
            "IndexError: amax(): Expected reduction dim 0 to have non-zero size.",
        ),
        (
            "amax f32[0,3] dim=[-2]",
            "IndexError: amax(): Expected reduction dim -2 to have non-zero size.",
        ),
        (
            "max_dim f32[0,3] dim=-2",
            "IndexError: max(): Expected reduction dim 0 to have non-zero size.",
        ),
        (
            "max_dim f32[0,3] dim=0",
            "IndexError: max(): Expected reduction dim 0 to have non-zero size.",
        ),
        (
            "argmax f32[0,3]",
            "IndexError: argmax(): Expected reduction dim to be specified for input.numel() == 0.",
        ),
        (
            "argmin f32[0,3] dim=0",
            "IndexError: argmin(): Expected reduction dim 0 to have non-zero size.",
        ),
        (
            "logsumexp f32[2,3] dim=[]",
            "RuntimeError: output with shape [] doesn't match the broadcast shape [1, 1]",
        ),
    ]);
}

#[test]
fn softmax_mistakes() {
    check_all(&[
        ("softmax f32[2,3] dim=-1", "f32[2,3]"),
        (
            "softmax i32[2,3] dim=0",
            "NotImplementedError: \"softmax_kernel_impl\" not implemented for 'Int'",
        ),
        (
            "softmax f32[2] dim=0 dtype=bool",
            "NotImplementedError: \"softmax_lastdim_kernel_impl\" not implemented for 'Bool'",
        ),
        (
            "log_softmax i64[2,3] dim=0",
            "NotImplementedError: \"log_softmax_kernel_impl\" not implemented for 'Long'",
        ),
        ("softmax_backward f32[2,3] f32[2,3] dim=1", "f32[2,3]"),
        (
            "softmax_backward f64[2,3] f32[2,3] dim=1",
            "RuntimeError: expected scalar type Double but found Float",
        ),
        (
            "softmax_backward i32[2,3] i32[2,3] dim=1",
            "NotImplementedError: \"softmax_backward_lastdim_kernel_impl\" not implemented for 'Int'",
        ),
        (
            "softmax_backward f32[2,3] f32[2,4] dim=1",
            "RuntimeError: Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 \
             'output'; but [2, 3] does not equal [2, 4] (while checking arguments for softmax_backward)",
        ),
    ]);
}

#[test]
fn layer_norm() {
    check_all(&[
        ("layer_norm f32[2,3] normalized_shape=[3]", "f32[2,3] f32[2,1] f32[2,1]"),
        (
            "layer_norm f32[5,2,3] f32[2,3] f32[2,3] normalized_shape=[2,3]",
            "f32[5,2,3] f32[5,1,1] f32[5,1,1]",
        ),
        ("layer_norm bf16[2,3] normalized_shape=[3]", "bf16[2,3] bf16[2,1] bf16[2,1]"),
        ("layer_norm bf16[2,3] f32[3] f32[3] normalized_shape=[3]", "bf16[2,3] f32[2,1] f32[2,1]"),
        ("layer_norm f32[2,3] _ f32[3] normalized_shape=[3]", "f32[2,3] f32[2,1] f32[2,1]"),
        ("layer_norm f32[2,0] normalized_shape=[0]", "f32[2,0] f32[2,1] f32[2,1]"),
        (
            "layer_norm f32[2,3] normalized_shape=[1,2,3]",
            "RuntimeError: Given normalized_shape=[1, 2, 3], expected input with shape [*, 1, 2, 3], but got input of \
             size[2, 3]",
        ),
        (
            "layer_norm f32[2,3] normalized_shape=[]",
            "RuntimeError: Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one \
             element, but got normalized_shape = []",
        ),
        (
            "layer_norm f32[2,3] f32[3] f32[2] normalized_shape=[3]",
            "RuntimeError: Expected bias to be of same shape as normalized_shape, but got bias of shape [2] and \
             normalized_shape = [3]",
        ),
        (
            "layer_norm f32[2,3] f64[3] _ normalized_shape=[3]",
            "RuntimeError: mixed dtype (CPU): expect parameter to have scalar type of Float",
        ),
        (
            "layer_norm f64[2,3] f32[3] _ normalized_shape=[3]",
            "RuntimeError: mixed dtype (CPU): all inputs must share same datatype.",
        ),
        (
            "layer_norm bf16[2,3] bf16[3] f32[3] normalized_shape=[3]",
            "RuntimeError: expected scalar type BFloat16 but found Float",
        ),
        (
            "layer_norm i32[2,3] normalized_shape=[3]",
            "NotImplementedError: \"LayerNormKernelImpl\" not implemented for 'Int'",
        ),
    ]);
    check_all(&[
        (
            "layer_norm_backward f32[2,3] f32[2,3] f32[2,1] f32[2,1] f32[3] normalized_shape=[3]",
            "f32[2,3] f32[3] f32[3]",
        ),
        (
            "layer_norm_backward bf16[2,3] bf16[2,3] f32[2,1] f32[2,1] f32[3] normalized_shape=[3]",
            "bf16[2,3] f32[3] f32[3]",
        ),
        (
            "layer_norm_backward f64[2,3] f32[2,3] f32[2,1] f32[2,1] f32[3] normalized_shape=[3]",
            "RuntimeError: expected scalar type Float but found Double",
        ),
    ]);
}

#[test]
fn rms_norm() {
    check_all(&[
        ("rms_norm f32[2,3] normalized_shape=[3]", "f32[2,3] f32[2,1]"),
        ("rms_norm f64[5,2,3] f64[2,3] normalized_shape=[2,3]", "f64[5,2,3] f64[5,1,1]"),
        ("rms_norm bf16[2,3] bf16[3] normalized_shape=[3]", "bf16[2,3] f32[2,1]"),
        ("rms_norm f16[3] normalized_shape=[3]", "f16[3] f32[1]"),
        ("rms_norm f32[2,0] normalized_shape=[0]", "f32[2,0] f32[2,1]"),
        ("rms_norm f32[0,3] normalized_shape=[3]", "f32[0,3] f32[0,1]"),
        (
            "rms_norm i32[2,3] normalized_shape=[]",
            "RuntimeError: Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one \
             element, but got normalized_shape = []",
        ),
        (
            "rms_norm i32[2] f32[3] normalized_shape=[2,3]",
            "RuntimeError: Expected weight to be of same shape as normalized_shape, but got weight of shape [3] and \
             normalized_shape = [2, 3]",
        ),
        (
            "rms_norm i32[3] normalized_shape=[2,3]",
            "ValueError: Input tensor must have at least 2 dimensions, but got 1",
        ),
        (
            "rms_norm i32[5,3,4] normalized_shape=[2,4]",
            "RuntimeError: Given normalized_shape=[2, 4], expected input with shape [*2, 4], but got input of \
             size[5, 3, 4]",
        ),
        (
            "rms_norm i32[2,3] f32[3] normalized_shape=[3]",
            "NotImplementedError: \"rms_norm\" not implemented for 'Int'",
        ),
        (
            "rms_norm bf16[2,3] f32[3] normalized_shape=[3]",
            "RuntimeError: expected scalar type BFloat16 but found Float",
        ),
    ]);
    check_all(&[
        (
            "rms_norm_backward f32[2,3] f32[2,3] f32[2,1] f32[3] normalized_shape=[3]",
            "f32[2,3] f32[3]",
        ),
        (
            "rms_norm_backward bf16[2,3] bf16[2,3] f32[2,1] normalized_shape=[3]",
            "bf16[2,3] bf16[3]",
        ),
        (
            "rms_norm_backward bf16[2,3] bf16[2,3] bf16[2,1] normalized_shape=[3]",
            "RuntimeError: expected scalar type Float but found BFloat16",
        ),
        (
            "rms_norm_backward f64[2,3] f32[2,3] f32[2,1] normalized_shape=[3]",
            "RuntimeError: expected scalar type Float but found Double",
        ),
        (
            "rms_norm_backward f32[2,3] f32[2,3] f32[3,1] normalized_shape=[3]",
            "RuntimeError: rms_norm_backward: grad f32[2,3] and rstd f32[3,1] are not those of input f32[2,3]",
        ),
    ]);
}
