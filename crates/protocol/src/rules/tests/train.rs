//! Losses and optimizer steps.

use super::check_all;

#[test]
fn nll_loss() {
    check_all(&[
        ("nll_loss f32[2,3] i64[2]", "f32[2] f32[]"),
        ("nll_loss f32[2,3] i64[2] reduction=mean", "f32[] f32[]"),
        ("nll_loss f32[2,3] u8[2] f32[3] reduction=sum", "f32[] f32[]"),
        ("nll_loss f32[3] i64[]", "f32[] f32[]"),
        ("nll_loss f32[3] i64[1]", "f32[] f32[]"),
        ("nll_loss f32[2,3,4] i64[2,4]", "f32[2,4] f32[]"),
        ("nll_loss bf16[2,3,4,5] i64[2,4,5]", "bf16[2,4,5] bf16[]"),
        ("nll_loss f32[0,3] i64[0] reduction=mean", "f32[] f32[]"),
        ("nll_loss f32[2,3,4] u8[2,4]", "RuntimeError: expected scalar type Long but found Byte"),
        ("nll_loss f32[] i64[]", "ValueError: Expected 1 or more dimensions (got 0)"),
        (
            "nll_loss f32[2,3] i64[3]",
            "ValueError: Expected input batch_size (2) to match target batch_size (3).",
        ),
        (
            "nll_loss f32[2,3] i64[]",
            "ValueError: Expected input batch_size (2) to match target batch_size (0).",
        ),
        (
            "nll_loss f32[3] i64[3]",
            "ValueError: For 1D input, 1D target must have size 1, but got target size: 3",
        ),
        (
            "nll_loss f32[2,3] i64[2,1]",
            "RuntimeError: 0D or 1D target tensor expected, multi-target not supported",
        ),
        ("nll_loss f32[2,3,4] i64[2,3]", "RuntimeError: Expected target size [2, 4], got [2, 3]"),
        (
            "nll_loss f32[2,3,4,5] i64[2,4,6]",
            "RuntimeError: size mismatch (got input: [2, 3, 4, 5] , target: [2, 4, 6]",
        ),
        (
            "nll_loss f32[2,3,4,5] i64[2,4]",
            "RuntimeError: only batches of spatial targets supported (3D tensors) but got targets of dimension: 2",
        ),
        (
            "nll_loss f32[2,3,4,5,6] i64[2,4,5,7]",
            "RuntimeError: Expected target size [2, 4, 5, 6], got [2, 4, 5, 7]",
        ),
        (
            "nll_loss f32[2,3] i32[2]",
            "RuntimeError: expected target dtype to be Long or Byte, but got Int",
        ),
        (
            "nll_loss f32[2,3] i64[2] f32[2]",
            "RuntimeError: weight tensor should be defined either for all 3 classes or no classes but got weight \
             tensor of shape: [2]",
        ),
        (
            "nll_loss f32[2,3,4,5] i64[2,4,5] f32[4]",
            "RuntimeError: weight tensor should be defined either for all or no classes",
        ),
        (
            "nll_loss f32[2,3] i64[2] f64[3]",
            "RuntimeError: expected scalar type Float but found Double",
        ),
        (
            "nll_loss i32[2,3] i64[2]",
            "NotImplementedError: \"nll_loss_out_frame\" not implemented for 'Int'",
        ),
    ]);
}

#[test]
fn nll_loss_backward() {
    check_all(&[
        ("nll_loss_backward f32[] f32[2,3] i64[2] _ f32[] reduction=mean", "f32[2,3]"),
        ("nll_loss_backward f32[2] f32[2,3] i64[2] _ f32[]", "f32[2,3]"),
        (
            "nll_loss_backward f32[3] f32[2,3] i64[2] _ f32[]",
            "RuntimeError: Expected a tensor of dimension 1 and tensor.size[0] == 2 but got: dimension 1 and \
             tensor.size[0] = 3",
        ),
        (
            "nll_loss_backward f32[3] f32[2,3] i64[2] _ f32[] reduction=sum",
            "RuntimeError: Expected a single element grad_output tensor, but got: [3]",
        ),
        (
            "nll_loss_backward f32[] f32[2,3] i64[2] _ f32[2] reduction=mean",
            "RuntimeError: expected total_weight to be a  single element tensor, got: [2] (2 elements)",
        ),
    ]);
}

#[test]
fn losses_of_a_shard_of_the_classes() {
    const TOO_LARGE: &str =
        "RuntimeError: a shard of size 3 from 5 on is outside of a dimension of size 7";
    check_all(&[
        ("nll_loss f32[2,3] i64[2] f32[3] start=4 total=7", "f32[2] f32[]"),
        ("nll_loss f32[2,3] i64[2] start=5 total=7", TOO_LARGE),
        ("nll_loss_backward f32[2] f32[2,3] i64[2] f32[3] f32[] start=4 total=7", "f32[2,3]"),
        ("nll_loss_backward f32[2] f32[2,3] i64[2] _ f32[] start=5 total=7", TOO_LARGE),
        ("cross_entropy_backward f32[2] f32[2,3] i64[2] f32[7] f32[] start=4 total=7", "f32[2,3]"),
        ("cross_entropy_backward f32[2] f32[2,3] i64[2] _ f32[] start=5 total=7", TOO_LARGE),
    ]);
}

#[test]
fn cross_entropy() {
    check_all(&[
        ("cross_entropy f32[2,3] i64[2]", "f32[2] f32[2,3] f32[]"),
        ("cross_entropy f32[2,3] u8[2] f32[3] reduction=mean", "f32[] f32[2,3] f32[]"),
        ("cross_entropy f32[3] i64[1] reduction=sum", "f32[] f32[3] f32[]"),
        ("cross_entropy bf16[2,3,4] i64[2,4]", "bf16[2,4] bf16[2,3,4] bf16[]"),
        (
            "cross_entropy f32[] i64[]",
            "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)",
        ),
        (
            "cross_entropy i64[2,3] i64[2]",
            "NotImplementedError: \"log_softmax_lastdim_kernel_impl\" not implemented for 'Long'",
        ),
        (
            "cross_entropy f32[2,3] i64[3]",
            "ValueError: Expected input batch_size (2) to match target batch_size (3).",
        ),
        ("cross_entropy_backward f32[2] f32[2,3] i64[2] _ f32[]", "f32[2,3]"),
        (
            "cross_entropy_backward f32[3] f32[2,3] i64[2] _ f32[] reduction=sum",
            "RuntimeError: Expected a single element grad_output tensor, but got: [3]",
        ),
    ]);
}

#[test]
fn mse_loss() {
    check_all(&[
        ("mse_loss f32[2,3] f32[3]", "f32[2,3]"),
        ("mse_loss f32[2,3] f64[2,3] reduction=mean", "f64[]"),
        ("mse_loss f32[2] i64[2] reduction=sum", "f32[]"),
        ("mse_loss bf16[2] f16[2] reduction=mean", "f32[]"),
        (
            "mse_loss i64[2] i64[2] reduction=sum",
            "NotImplementedError: \"mse_cpu\" not implemented for 'Long'",
        ),
        (
            "mse_loss f32[2,3] f32[4]",
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        ),
        ("mse_loss_backward f32[] f32[2,3] f64[2,3] reduction=mean", "f32[2,3]"),
        ("mse_loss_backward f32[2,3] f32[3] f32[2,3]", "f32[2,3]"),
    ]);
}

#[test]
fn smooth_l1_loss() {
    check_all(&[
        ("smooth_l1_loss f32[2,3] f32[2,3] reduction=none beta=1", "f32[2,3]"),
        ("smooth_l1_loss f32[2,3] f64[2,3] reduction=mean beta=0.5", "f64[]"),
        (
            "smooth_l1_loss i64[2] i64[2] reduction=sum beta=1",
            "NotImplementedError: \"smooth_l1_cpu\" not implemented for 'Long'",
        ),
        ("smooth_l1_loss_backward f32[] f32[2,3] f64[2,3] reduction=mean beta=1", "f32[2,3]"),
    ]);
}

#[test]
fn updates() {
    check_all(&[
        ("sgd f32[2] f32[2]", "f32[2] f32[2]"),
        ("sgd bf16[2] bf16[2] bf16[2]", "bf16[2] bf16[2]"),
        ("adamw f32[2] f32[2] f32[2] f32[2]", "f32[2] f32[2] f32[2] f32[2]"),
        ("adamw f32[2] f32[2] f32[2] f32[2] f32[2]", "f32[2] f32[2] f32[2] f32[2]"),
        (
            "sgd f32[2] f32[3]",
            "RuntimeError: attempting to assign a gradient of size '[3]' to a tensor of size '[2]'. Please ensure \
             that the gradient and the tensor are the same size",
        ),
        ("sgd f32[2] f64[2]", "RuntimeError: expected scalar type Float but found Double"),
        (
            "sgd i64[2] i64[2]",
            "NotImplementedError: \"fused_sgd_kernel\" not implemented for 'Long'",
        ),
        (
            "adamw i64[2] i64[2] i64[2] i64[2]",
            "NotImplementedError: \"fused_adam_kernel\" not implemented for 'Long'",
        ),
    ]);
}
