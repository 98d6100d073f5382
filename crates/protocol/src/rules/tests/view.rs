//! Views, their writes, and joining.

use super::{check, check_all};

const OUT_OF_RANGE: &str =
    "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)";

#[test]
fn reshape() {
    check_all(&[
        ("reshape f32[2,6] size=[3,4]", "f32[3,4]"),
        ("reshape f32[4] size=[-1,2]", "f32[2,2]"),
        ("reshape f32[0,3] size=[-1,3]", "f32[0,3]"),
        ("reshape f32[0] size=[-1]", "f32[0]"),
        ("reshape f32[] size=[-1]", "f32[1]"),
        ("reshape f32[] size=[1,1]", "f32[1,1]"),
        ("reshape f32[1] size=[]", "f32[]"),
        ("reshape f32[4] size=[3]", "RuntimeError: shape '[3]' is invalid for input of size 4"),
        ("reshape f32[4] size=[]", "RuntimeError: shape '[]' is invalid for input of size 4"),
        (
            "reshape f32[4] size=[-1,3]",
            "RuntimeError: shape '[-1, 3]' is invalid for input of size 4",
        ),
        (
            "reshape f32[4] size=[0,-1]",
            "RuntimeError: shape '[0, -1]' is invalid for input of size 4",
        ),
        (
            "reshape f32[4] size=[-1,-2]",
            "RuntimeError: invalid shape dimension -2 at index 1 of shape [-1, -2]",
        ),
        ("reshape f32[4] size=[-1,-1]", "RuntimeError: only one dimension can be inferred"),
        (
            "reshape f32[0] size=[-1,0]",
            "RuntimeError: cannot reshape tensor of 0 elements into shape [-1, 0] because the unspecified dimension \
             size -1 can be any value and is ambiguous",
        ),
    ]);
}

#[test]
fn permute_and_flip() {
    const ORDER: &str = "RuntimeError: permute(sparse_coo): number of dimensions in the tensor input does not match \
                         the length of the desired ordering of dimensions i.e. input.dim() = 2 is not equal to \
                         len(dims) = 1";
    check_all(&[
        ("permute f32[3,4] dims=[-1,0]", "f32[4,3]"),
        ("permute f32[] dims=[]", "f32[]"),
        ("permute f32[3,4] dims=[0]", ORDER),
        (
            "permute f32[3,4] dims=[0,-2]",
            "RuntimeError: permute(): duplicate dims are not allowed.",
        ),
        ("permute f32[3,4] dims=[0,2]", OUT_OF_RANGE),
        ("flip f32[3,4] dims=[0,-1]", "f32[3,4]"),
        ("flip f32[] dims=[0]", "f32[]"),
        (
            "flip f32[3,4] dims=[-1,1]",
            "RuntimeError: dim 1 appears multiple times in the list of dims",
        ),
        ("flip f32[3,4] dims=[2]", OUT_OF_RANGE),
    ]);
}

#[test]
fn expand() {
    check_all(&[
        ("expand f32[3,1] size=[2,-1,5]", "f32[2,3,5]"),
        ("expand f32[1] size=[0]", "f32[0]"),
        ("expand f32[] size=[2]", "f32[2]"),
        ("expand f32[] size=[]", "f32[]"),
        (
            "expand f32[4] size=[3]",
            "RuntimeError: The expanded size of the tensor (3) must match the existing size (4) at non-singleton \
             dimension 0.  Target sizes: [3].  Tensor sizes: [4]",
        ),
        (
            "expand f32[3,1] size=[4,5]",
            "RuntimeError: The expanded size of the tensor (4) must match the existing size (3) at non-singleton \
             dimension 0.  Target sizes: [4, 5].  Tensor sizes: [3, 1]",
        ),
        (
            "expand u8[0,1,2] size=[2,1,-1]",
            "RuntimeError: The expanded size of the tensor (2) must match the existing size (0) at non-singleton \
             dimension 0.  Target sizes: [2, 1, -1].  Tensor sizes: [0, 1, 2]",
        ),
        (
            "expand f32[3] size=[-2]",
            "RuntimeError: The expanded size of the tensor (-2) must match the existing size (3) at non-singleton \
             dimension 0.  Target sizes: [-2].  Tensor sizes: [3]",
        ),
        (
            "expand f32[3,1] size=[3]",
            "RuntimeError: expand(torch.FloatTensor{[3, 1]}, size=[3]): the number of sizes provided (1) must be \
             greater or equal to the number of dimensions in the tensor (2)",
        ),
        (
            "expand f32[3,1] size=[-1,3,5]",
            "RuntimeError: The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension 0",
        ),
        ("expand f32[] size=[-1]", "RuntimeError: numel: integer multiplication overflow"),
    ]);
}

#[test]
fn slice() {
    const MAX: i64 = i64::MAX;
    for (start, end, step, count) in [
        (0, MAX, 1, 3),
        (1, 2, 1, 1),
        (-1, MAX, 1, 1),
        (-10, 10, 1, 3),
        (2, 1, 1, 0),
        (0, 3, 2, 2),
        (5, 9, 1, 0),
        (0, 3, 5, 1),
        (i64::MIN, MAX, 1, 3),
        (0, -1, 1, 2),
    ] {
        check(
            &format!("slice f32[3,4] dim=0 start={start} end={end} step={step}"),
            &format!("f32[{count},4]"),
        );
    }
    check_all(&[
        ("slice f32[3,4] dim=-1 start=1 end=3 step=1", "f32[3,2]"),
        ("slice f32[3,4] dim=0 start=0 end=3 step=0", "RuntimeError: slice step must be positive"),
        ("slice f32[3,4] dim=2 start=0 end=3 step=0", OUT_OF_RANGE),
        (
            "slice f32[] dim=0 start=0 end=3 step=1",
            "IndexError: slice() cannot be applied to a 0-dim tensor.",
        ),
        ("slice_scatter f32[3,4] f64[2,4] dim=0 start=0 end=2 step=1", "f32[3,4]"),
        (
            "slice_scatter f32[3,4] f32[4] dim=0 start=0 end=2 step=1",
            "RuntimeError: expected src to have a size equal to the slice of self. src size = [4], slice size = [2, 4]",
        ),
    ]);
}

#[test]
fn select_and_diagonal() {
    check_all(&[
        ("select f32[3,4] dim=0 index=-3", "f32[4]"),
        ("select f32[3,4] dim=-1 index=3", "f32[3]"),
        (
            "select f32[3,4] dim=0 index=5",
            "IndexError: select(): index 5 out of range for tensor of size [3, 4] at dimension 0",
        ),
        (
            "select f32[3,4] dim=0 index=-4",
            "IndexError: select(): index -4 out of range for tensor of size [3, 4] at dimension 0",
        ),
        ("select f32[3,4] dim=2 index=0", OUT_OF_RANGE),
        ("select f32[] dim=5 index=0", "IndexError: select() cannot be applied to a 0-dim tensor."),
        ("select_scatter f32[3,4] f64[4] dim=0 index=0", "f32[3,4]"),
        (
            "select_scatter f32[3,4] f32[1] dim=0 index=0",
            "RuntimeError: expected src to have a size equal to the slice of self. src size = [1], slice size = [4]",
        ),
        ("diagonal f32[3,4] offset=1 dim1=0 dim2=1", "f32[3]"),
        ("diagonal f32[3,4] offset=-1 dim1=0 dim2=1", "f32[2]"),
        ("diagonal f32[3,4] offset=-9 dim1=0 dim2=1", "f32[0]"),
        ("diagonal f32[3,4] offset=9223372036854775807 dim1=0 dim2=1", "f32[0]"),
        ("diagonal f32[2,3,4] offset=0 dim1=0 dim2=2", "f32[3,2]"),
        (
            "diagonal f32[3,4] offset=0 dim1=1 dim2=-1",
            "RuntimeError: diagonal dimensions cannot be identical 1, -1",
        ),
        ("diagonal f32[3,4] offset=0 dim1=0 dim2=2", OUT_OF_RANGE),
        ("diagonal_scatter f32[3,4] f32[3] offset=0 dim1=0 dim2=1", "f32[3,4]"),
        (
            "diagonal_scatter f32[3,4] f32[4] offset=0 dim1=0 dim2=1",
            "RuntimeError: expected src to have a size equal to the slice of self. src size = [4], slice size = [3]",
        ),
    ]);
}

#[test]
fn pad_and_repeat() {
    check_all(&[
        ("pad f32[3,4] pad=[1,2,3,4]", "f32[10,7]"),
        ("pad f32[3,4] pad=[-1,-1]", "f32[3,2]"),
        ("pad f32[3,4] pad=[]", "f32[3,4]"),
        ("pad f32[0,3] pad=[-1,-2,0,0]", "f32[0,0]"),
        ("pad i32[3] pad=[1,1] value=0.5", "i32[5]"),
        ("pad f32[3,4] pad=[1]", "RuntimeError: Padding length must be divisible by 2"),
        (
            "pad f32[3,4] pad=[1,1,1,1,1,1]",
            "RuntimeError: Padding length should be less than or equal to two times the input dimension but got \
             padding length 6 and input of dimension 2",
        ),
        ("pad f32[3,4] pad=[-5,1]", "RuntimeError: narrow(): length must be non-negative."),
        (
            "pad i8[3] pad=[1,1] value=300",
            "RuntimeError: value cannot be converted to type int8_t without overflow",
        ),
        ("repeat f32[3,4] repeats=[2,2,2]", "f32[2,6,8]"),
        ("repeat f32[3,4] repeats=[0,1]", "f32[0,4]"),
        ("repeat f32[] repeats=[]", "f32[]"),
        (
            "repeat f32[3,4] repeats=[2]",
            "RuntimeError: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        ),
        (
            "repeat f32[3,4] repeats=[-1,2]",
            "RuntimeError: Trying to create tensor with negative dimension -3: [-3, 8]",
        ),
        (
            "repeat f32[3,4] repeats=[4611686018427387904,1]",
            "RuntimeError: Storage size calculation overflowed with sizes=[9223372036854775807, 4]",
        ),
    ]);
}

#[test]
fn cat() {
    check_all(&[
        ("cat f32[2,3] f32[4,3]", "f32[6,3]"),
        ("cat f32[2,3] f32[2,1] dim=-1", "f32[2,4]"),
        ("cat f32[0] f32[2,3] dim=-2", "f32[2,3]"),
        ("cat f64[0] f32[2,3]", "f64[2,3]"),
        ("cat f32[0] f32[0] dim=1", "f32[0]"),
        ("cat i32[2] f16[2]", "f16[4]"),
        ("cat bool[2] u8[2] i8[2]", "i16[6]"),
        ("cat", "ValueError: torch.cat(): expected a non-empty list of Tensors"),
        (
            "cat f32[2] f32[]",
            "RuntimeError: zero-dimensional tensor (at position 1) cannot be concatenated",
        ),
        ("cat f32[2,3] dim=2", OUT_OF_RANGE),
        (
            "cat f32[2,3] f32[3]",
            "RuntimeError: Tensors must have same number of dimensions: got 2 and 1",
        ),
        (
            "cat f32[2,3] f32[2,3] f32[2,4]",
            "RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4 for \
             tensor number 2 in the list.",
        ),
        (
            "cat f32[1,0] f32[2,3]",
            "RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 0 but got size 3 for \
             tensor number 1 in the list.",
        ),
    ]);
}

#[test]
fn as_strided() {
    check_all(&[
        ("as_strided f32[2,3] size=[3,2] stride=[1,3] storage_offset=0", "f32[3,2]"),
        ("as_strided f32[6] size=[4] stride=[0] storage_offset=5", "f32[4]"),
        ("as_strided f32[0] size=[0,3] stride=[9,9] storage_offset=0", "f32[0,3]"),
        ("as_strided c64[] size=[] stride=[] storage_offset=0", "c64[]"),
        (
            "as_strided f32[6] size=[2,2] stride=[4,2] storage_offset=0",
            "RuntimeError: setStorage: sizes [2, 2], strides [4, 2], storage offset 0, and itemsize 4 requiring a storage \
             size of 28 are out of bounds for storage of size 24",
        ),
        (
            "as_strided f32[6] size=[2] stride=[-1] storage_offset=3",
            "RuntimeError: as_strided: Negative strides are not supported at the moment, got strides: [-1]",
        ),
        (
            "as_strided f32[6] size=[2] stride=[1] storage_offset=-1",
            "RuntimeError: Tensor: invalid storage offset -1",
        ),
        (
            "as_strided f32[6] size=[0,-9223372036854775808] stride=[0,0] storage_offset=0",
            "RuntimeError: Trying to create tensor with negative dimension -9223372036854775808: \
             [0, -9223372036854775808]",
        ),
        (
            "as_strided f32[6] size=[2,1] stride=[1] storage_offset=0",
            "RuntimeError: mismatch in length of strides and shape",
        ),
    ]);
}

#[test]
fn bitcast() {
    check_all(&[
        ("bitcast f32[2,3] dtype=i32", "i32[2,3]"),
        ("bitcast f32[] dtype=i32", "i32[]"),
        ("bitcast f32[2,3] dtype=bf16", "bf16[2,6]"),
        ("bitcast f32[2,0] dtype=u8", "u8[2,0]"),
        ("bitcast u8[2,8] dtype=f64", "f64[2,1]"),
        ("bitcast bool[2,8] dtype=i16", "i16[2,4]"),
        (
            "bitcast u8[2,6] dtype=f32",
            "RuntimeError: self.size(-1) must be divisible by 4 to view Byte as Float (different element sizes), but \
             got 6",
        ),
        (
            "bitcast f32[] dtype=f64",
            "RuntimeError: self.dim() cannot be 0 to view Float as Double (different element sizes)",
        ),
    ]);
}

#[test]
fn stack() {
    check_all(&[
        ("stack f32[2,3] f32[2,3] dim=1", "f32[2,2,3]"),
        ("stack f32[2,3] f32[2,3] dim=-1", "f32[2,3,2]"),
        ("stack f32[] f32[]", "f32[2]"),
        ("stack i32[] f16[]", "f16[2]"),
        ("stack", "RuntimeError: stack expects a non-empty TensorList"),
        (
            "stack f32[2,3] f32[2,4] dim=7",
            "IndexError: Dimension out of range (expected to be in range of [-3, 2], but got 7)",
        ),
        (
            "stack f32[2,3] f32[2,3] f32[2]",
            "RuntimeError: stack expects each tensor to be equal size, but got [2, 3] at entry 0 and [2] at entry 2",
        ),
        ("stack f32[1,1,1,1,1,1,1,1]", "RuntimeError: a tensor has at most 8 dimensions"),
    ]);
}
