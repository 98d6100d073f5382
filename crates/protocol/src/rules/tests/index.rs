//! Reads and writes by index tensors, triangles, sorting.

use super::{check, check_all};

const OUT_OF_RANGE: &str =
    "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)";

#[test]
fn shards() {
    const OUTSIDE: &str =
        "RuntimeError: a shard of size 3 from 5 on is outside of a dimension of size 7";
    check_all(&[
        ("embedding f32[3,4] i64[2] start=4 total=7", "f32[2,4]"),
        ("embedding f32[3,4] i64[2] start=5 total=7", OUTSIDE),
        (
            "embedding f32[3,4] i64[2] start=5",
            "RuntimeError: start and total are given together or not at all",
        ),
        (
            "embedding f32[3,4] i64[2] total=5",
            "RuntimeError: start and total are given together or not at all",
        ),
        (
            "embedding f32[3,4] i64[2] start=-1 total=7",
            "RuntimeError: a shard of size 3 from -1 on is outside of a dimension of size 7",
        ),
        ("embedding_backward f32[2,4] i64[2] num_weights=3 start=4 total=7", "f32[3,4]"),
        ("embedding_backward f32[2,4] i64[2] num_weights=3 start=5 total=7", OUTSIDE),
        ("gather f32[2,3] i64[2,5] dim=1 start=4 total=7", "f32[2,5]"),
        ("gather f32[2,3] i64[2,5] dim=-1 start=5 total=7", OUTSIDE),
        ("index_select f32[2,0] i64[5] dim=1 start=4 total=7", "f32[2,5]"),
        ("index_select f32[2,3] i64[5] dim=1 start=5 total=7", OUTSIDE),
        ("scatter f32[2,3] i64[2,5] 1 dim=1 start=4 total=7", "f32[2,3]"),
        ("scatter_add f32[2,3] i64[2,5] f32[2,5] dim=1 start=5 total=7", OUTSIDE),
        ("index_add f32[2,3] i64[5] f32[2,5] dim=1 start=4 total=7", "f32[2,3]"),
        ("index_add f32[2,3] i64[5] f32[2,5] dim=1 start=5 total=7", OUTSIDE),
    ]);
}

#[test]
fn embedding() {
    check_all(&[
        ("embedding f32[3,4] i64[2,5]", "f32[2,5,4]"),
        ("embedding i32[3,4] i32[2]", "i32[2,4]"),
        ("embedding f32[3] i64[2]", "RuntimeError: 'weight' must be 2-D"),
        (
            "embedding f32[3,4] f32[2]",
            "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, \
             Int; but got torch.FloatTensor instead (while checking arguments for embedding)",
        ),
        ("embedding_backward f32[2,5,4] i64[2,5] num_weights=3", "f32[3,4]"),
        ("embedding_backward f32[4] i64[] num_weights=3", "f32[3,4]"),
        (
            "embedding_backward f32[2,4] i64[2,5] num_weights=3",
            "RuntimeError: shape '[10, 4]' is invalid for input of size 8",
        ),
        (
            "embedding_backward f32[2,4] i64[2] num_weights=-3",
            "RuntimeError: zeros: Dimension size must be non-negative.",
        ),
        (
            "embedding_backward f32[] i64[] num_weights=3",
            "IndexError: Dimension specified as -1 but tensor has no dimensions",
        ),
    ]);
}

#[test]
fn gather() {
    check_all(&[
        ("gather f32[3,4] i64[5,4] dim=0", "f32[5,4]"),
        ("gather f32[3,4] i32[2,2] dim=-1", "f32[2,2]"),
        ("gather f32[3,4] i64[0,9] dim=0", "f32[0,9]"),
        ("gather f32[3,4] f32[0] dim=0", "f32[0]"),
        ("gather f32[] i64[3] dim=0", "f32[3]"),
        ("gather f32[3] i64[] dim=0", "f32[]"),
        ("gather f32[3,4] i64[2,4] dim=2", OUT_OF_RANGE),
        (
            "gather f32[3,4] u8[2,4] dim=0",
            "RuntimeError: gather(): Expected dtype int32/int64 for index",
        ),
        (
            "gather f32[3,4] i64[2] dim=0",
            "RuntimeError: Index tensor must have the same number of dimensions as input tensor",
        ),
        (
            "gather f32[3,4] i64[2,5] dim=0",
            "RuntimeError: Size does not match at dimension 1 expected index [2, 5] to be no larger than self [3, 4] \
             apart from dimension 0",
        ),
    ]);
}

#[test]
fn scatter() {
    const RANKS: &str = "Index tensor must have the same number of dimensions as";
    for op in ["scatter", "scatter_add"] {
        for operands in [
            "f32[3,4] i64[2,4] f32[2,4]",
            "f32[3,4] i32[2,4] f32[2,9]",
            "f32[3,4] i64[5,4] f32[5,4]",
            "f32[3,4] i64[0] f32[2]",
            "f32[3,4] f32[0] f32[2,4]",
        ] {
            check(&format!("{op} {operands} dim=0"), "f32[3,4]");
        }
        for (operands, mistake) in [
            ("f32[3,4] f32[2,5] f32[2,5]", "scatter(): Expected dtype int32/int64 for index"),
            (
                "f32[3,4] i64[2,4] f64[1,4]",
                "scatter(): Expected self.dtype to be equal to src.dtype",
            ),
            ("f32[3,4] i64[2] f32[2]", &format!("{RANKS} self tensor")),
            ("f32[3,4] i64[2,4] f32[]", &format!("{RANKS} src tensor")),
            (
                "f32[3,4] i64[2,4] f32[1,4]",
                "Expected index [2, 4] to be no larger than self [3, 4] apart from dimension 0 and to be no larger \
                 size than src [1, 4]",
            ),
        ] {
            check(&format!("{op} {operands} dim=0"), &format!("RuntimeError: {mistake}"));
        }
        check(
            &format!("{op} f32[3,4] i64[2,4] f32[2] dim=0"),
            "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)",
        );
        check(&format!("{op} f32[3] i64[] f32[2] dim=0"), "f32[3]");
        check(&format!("{op} f32[] i64[3] f32[3] dim=0"), "f32[]");
        check(
            &format!("{op} f32[] i64[3] f32[] dim=0"),
            "RuntimeError: Expected index [3] to be no larger than self [] apart from dimension 0 and to be no larger \
             size than src []",
        );
    }
    check_all(&[
        ("scatter i32[3,4] i64[2,4] 1.5 dim=0", "i32[3,4]"),
        (
            "scatter f32[3,4] i64[2,5] 1.5 dim=0",
            "RuntimeError: Expected index [2, 5] to be no larger than self [3, 4] apart from dimension 0",
        ),
        (
            "scatter i8[2] i64[2] 300 dim=0",
            "RuntimeError: value cannot be converted to type int8_t without overflow",
        ),
        (
            "scatter_add f32[2] i64[2] 1 dim=0",
            "TypeError: scatter_add(): argument 'src' (position 3) must be Tensor, not int",
        ),
    ]);
}

#[test]
fn index_select_and_add() {
    check_all(&[
        ("index_select f32[3,4] i64[2] dim=-2", "f32[2,4]"),
        ("index_select f32[3,4] i32[] dim=0", "f32[1,4]"),
        ("index_select f32[] i64[1] dim=0", "f32[]"),
        ("index_select f32[0,4] i64[0] dim=0", "f32[0,4]"),
        ("index_select f32[3,4] i64[2] dim=2", OUT_OF_RANGE),
        (
            "index_select f32[3,4] i64[2,2] dim=0",
            "IndexError: index_select(): Index is supposed to be a vector",
        ),
        (
            "index_select f32[] u8[1] dim=0",
            "RuntimeError: index_select(): Expected dtype int32 or int64 for index",
        ),
        (
            "index_select f32[] i64[2] dim=0",
            "RuntimeError: index_select(): Index to scalar can have only 1 value, got 2 value(s)",
        ),
        (
            "index_select f32[0,4] i64[2] dim=0",
            "RuntimeError: index_select(): self indexing axis dim should be positive",
        ),
        ("index_add f32[3,4] i64[2] f32[3,2] dim=1", "f32[3,4]"),
        ("index_add f32[3,4] i32[] f32[1,4] dim=0", "f32[3,4]"),
        ("index_add f32[] i64[1] f32[] dim=0", "f32[]"),
        (
            "index_add f32[3,4] f32[2,2] f64[3,4] dim=0",
            "IndexError: index_add_(): Index is supposed to be a vector, but got dim: 2 with type: Float and size: \
             [2, 2]",
        ),
        (
            "index_add f32[3,4] f32[2] f64[3,4] dim=0",
            "RuntimeError: index_add_(): Expected dtype int32/int64 for index but got: Float",
        ),
        (
            "index_add f32[3,4] i64[2] f64[2,4] dim=0",
            "RuntimeError: index_add_(): self (Float) and source (Double) must have the same scalar type",
        ),
        (
            "index_add f32[3,4] i64[2] f32[3,4] dim=0",
            "RuntimeError: index_add_(): Number of indices (2) should be equal to source.size(dim): (3), for dim: 0",
        ),
        (
            "index_add f32[3,4] i64[2] f32[2,5] dim=0",
            "RuntimeError: source tensor shape must match self tensor shape, excluding the specified dimension. Got \
             self.shape = [3, 4] source.shape = [2, 5]",
        ),
        (
            "index_add f32[3] i64[2] f32[] dim=0",
            "IndexError: Dimension specified as 0 but tensor has no dimensions",
        ),
    ]);
}

#[test]
fn index() {
    check_all(&[
        ("index f32[3,4] i64[2]", "f32[2,4]"),
        ("index f32[3,4] _ i32[2]", "f32[3,2]"),
        ("index f32[3,4] i64[2,1] i64[3]", "f32[2,3]"),
        ("index f32[3,4] i64[] i64[]", "f32[]"),
        ("index f32[2,3,4] i64[5] _ i64[5]", "f32[5,3]"),
        ("index f32[2,3,4] _ i64[5] i64[5]", "f32[2,5]"),
        ("index f32[2,3,4,5] _ i64[6] _ i64[6]", "f32[6,2,4]"),
        ("index f32[2,3,4,5] _ i64[6] i64[6] _", "f32[2,6,5]"),
        ("index f32[0,4] i64[2,0]", "f32[2,0,4]"),
        ("index f32[0,4] _ i64[2]", "f32[0,2]"),
        ("index f32[0,4] i64[2]", "IndexError: index is out of bounds for dimension with size 0"),
        ("index f32[3,4]", "IndexError: at least one index must be provided"),
        (
            "index f32[3,4] i64[2] _ _",
            "IndexError: too many indices for tensor of dimension 2 (got 3)",
        ),
        (
            "index f32[3,4] i64[2] i64[3]",
            "IndexError: shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]",
        ),
        (
            "index f32[3,4] f32[2] i64[3]",
            "IndexError: tensors used as indices must be long, int, byte or bool tensors",
        ),
        (
            "index f32[3,4] bool[3,4]",
            "RuntimeError: the size of indexing with a mask is data-dependent; take the mask's indices first",
        ),
        ("index_put f32[3,4] f32[] i64[2]", "f32[3,4]"),
        ("index_put f32[3,4] f32[2,1] i64[2] accumulate=true", "f32[3,4]"),
        (
            "index_put f32[3,4] f64[3] i64[2]",
            "RuntimeError: shape mismatch: value tensor of shape [3] cannot be broadcast to indexing result of shape \
             [2, 4]",
        ),
        (
            "index_put f32[3,4] f32[1,2,4] i64[2]",
            "RuntimeError: shape mismatch: value tensor of shape [1, 2, 4] cannot be broadcast to indexing result of \
             shape [2, 4]",
        ),
        (
            "index_put f32[3,4] f64[4] i64[2]",
            "RuntimeError: Index put requires the source and destination dtypes match, got Float for the destination \
             and Double for the source.",
        ),
    ]);
}

#[test]
fn triangles_and_sorting() {
    check_all(&[
        ("tril bool[2,3]", "bool[2,3]"),
        ("triu f32[2,3,4] diagonal=-1", "f32[2,3,4]"),
        ("tril f32[3]", "RuntimeError: tril: input tensor must have at least 2 dimensions"),
        ("sort bool[3] dim=0", "bool[3] i64[3]"),
        ("sort f32[3,4] dim=2", OUT_OF_RANGE),
        ("topk f32[3,4] k=2 dim=1", "f32[3,2] i64[3,2]"),
        ("topk f32[] k=1 dim=0", "f32[] i64[]"),
        ("topk f32[3,4] k=5 dim=1", "RuntimeError: selected index k out of range"),
        ("topk f32[3,4] k=-1 dim=1", "RuntimeError: selected index k out of range"),
        ("topk f32[3,4] k=1 dim=2", OUT_OF_RANGE),
        ("topk bool[3] k=1 dim=0", "NotImplementedError: topk does not support bool dtypes on CPU"),
    ]);
}
