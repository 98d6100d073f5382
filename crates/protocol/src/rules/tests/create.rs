//! Creation, random draws, control and collectives.

use super::{check, check_all};

#[test]
fn creation() {
    check_all(&[
        ("full size=[2,3] value=1.5", "f32[2,3]"),
        ("full size=[] value=1 dtype=i64", "i64[]"),
        (
            "full_like 1 size=[2] value=1.5",
            "TypeError: full_like(): argument 'self' (position 1) must be Tensor, not int",
        ),
        ("upload size=[0,3] dtype=bool", "bool[0,3]"),
        ("eye n=2 m=3 dtype=bool", "bool[2,3]"),
        ("linspace start=0 end=1 steps=0", "f32[0]"),
        ("linspace start=0 end=5 steps=3 dtype=i32", "i32[3]"),
        (
            "full size=[-1] value=1e30 dtype=i32",
            "RuntimeError: Trying to create tensor with negative dimension -1: [-1]",
        ),
        (
            "full size=[2] value=300 dtype=u8",
            "RuntimeError: value cannot be converted to type uint8_t without overflow",
        ),
        (
            "full size=[2] value=1e30 dtype=f16",
            "RuntimeError: value cannot be converted to type c10::Half without overflow",
        ),
        (
            "full size=[1099511627776,1099511627776]",
            "RuntimeError: Storage size calculation overflowed with sizes=[1099511627776, 1099511627776]",
        ),
        (
            "full size=[2305843009213693952,2]",
            "RuntimeError: Storage size calculation overflowed with sizes=[2305843009213693952, 2]",
        ),
        (
            "full size=[0,4611686018427387904,4611686018427387904]",
            "RuntimeError: Stride calculation overflowed",
        ),
        ("eye n=-1 m=2", "RuntimeError: n must be greater or equal to 0, got -1"),
        ("eye n=2 m=-3", "RuntimeError: m must be greater or equal to 0, got -3"),
        ("linspace start=0 end=1 steps=-1", "RuntimeError: number of steps must be non-negative"),
        (
            "linspace start=0 end=5 steps=3 dtype=bool",
            "NotImplementedError: \"linspace_cpu\" not implemented for 'Bool'",
        ),
    ]);
}

#[test]
fn arange_counts() {
    for (start, end, step, dtype, count) in [
        ("0", "5", "1", "i64", 5),
        ("5", "0", "-2", "i64", 3),
        ("0", "1", "0.3", "f32", 4),
        ("0.0", "1.0", "0.1", "f32", 10),
        ("0", "0", "1", "i64", 0),
        ("0.5", "5.7", "1.2", "i64", 5),
        ("0", "2.9", "1", "i64", 3),
        ("0", "3", "0.5", "i32", 6),
        ("-1.5", "2", "1", "i32", 4),
        ("0", "10", "0.3", "bf16", 34),
        ("0", "300", "1", "u8", 300),
        ("0", "5", "4611686018427387904", "i64", 1),
        ("9007199254740992", "9007199254740995", "1", "i64", 3),
        ("9007199254740992", "9007199254740995", "1", "f32", 4),
    ] {
        check(
            &format!("arange start={start} end={end} step={step} dtype={dtype}"),
            &format!("{dtype}[{count}]"),
        );
    }
    for (range, mistake) in [
        ("start=5 end=0 step=1", "upper bound and lower bound inconsistent with step sign"),
        ("start=0 end=5 step=0", "step must be nonzero"),
        ("start=0 end=inf step=1", "unsupported range: 0 -> inf"),
        ("start=nan end=1 step=1", "unsupported range: nan -> 1"),
        ("start=0 end=1 step=nan", "step must be finite but got nan"),
        ("start=0 end=1e30 step=1", "invalid size, possible overflow?"),
    ] {
        check(&format!("arange {range}"), &format!("RuntimeError: {mistake}"));
    }
    check(
        "arange start=0 end=1 step=0 dtype=bool",
        "NotImplementedError: \"arange_cpu\" not implemented for 'Bool'",
    );
}

#[test]
fn draws() {
    check_all(&[
        ("uniform size=[2,3] low=0 high=1", "f32[2,3]"),
        ("normal size=[] dtype=bf16", "bf16[]"),
        ("randint size=[2] low=0 high=5 dtype=i64", "i64[2]"),
        ("randint size=[2] low=0 high=2 dtype=bool", "bool[2]"),
        ("randint size=[2] low=0 high=5 dtype=f32", "f32[2]"),
        ("bernoulli size=[2] p=0.5 dtype=i32", "i32[2]"),
        ("dropout f16[2,3] p=0.5", "f16[2,3] bool[2,3]"),
        (
            "uniform size=[2] dtype=i32 high=1",
            "NotImplementedError: \"check_uniform_bounds\" not implemented for 'Int'",
        ),
        (
            "uniform size=[2] low=2 high=1",
            "RuntimeError: uniform_ expects to return a [from, to) range, but found from=2 > to=1",
        ),
        ("uniform size=[2] high=nan", "RuntimeError: to is out of bounds for float"),
        (
            "normal size=[2] dtype=i64",
            "NotImplementedError: \"normal_kernel_cpu\" not implemented for 'Long'",
        ),
        ("normal size=[2] std=-1", "RuntimeError: normal expects std >= 0.0, but found std -1"),
        (
            "normal size=[-2]",
            "RuntimeError: Trying to create tensor with negative dimension -2: [-2]",
        ),
        (
            "randint size=[2] low=5 high=5 dtype=i64",
            "RuntimeError: random_ expects 'from' to be less than 'to', but got from=5 >= to=5",
        ),
        (
            "randint size=[2] low=0 high=300 dtype=u8",
            "RuntimeError: to - 1 is out of bounds for unsigned char",
        ),
        (
            "randint size=[2] low=-1 high=2 dtype=bool",
            "RuntimeError: from is out of bounds for bool",
        ),
        (
            "bernoulli size=[2] p=1.5",
            "RuntimeError: bernoulli_ expects p to be in [0, 1], but got p=1.5",
        ),
        (
            "dropout f32[2] p=-1",
            "ValueError: dropout probability has to be between 0 and 1, but got -1.0",
        ),
        (
            "dropout i32[2] p=0.5",
            "RuntimeError: result type Float can't be cast to the desired output type Int",
        ),
    ]);
}

#[test]
fn boxes_of_draws() {
    let outside = |size, start, global| {
        format!(
            "RuntimeError: a box of shape {size} from {start} on is outside of a tensor of shape {global}"
        )
    };
    check_all(&[
        ("uniform size=[2,3] high=1 global=[5,3] start=[3,0]", "f32[2,3]"),
        ("normal size=[] global=[] start=[]", "f32[]"),
        ("randint size=[0,3] high=5 dtype=i64 global=[5,3] start=[5,0]", "i64[0,3]"),
        ("bernoulli size=[1,1] p=0.5 global=[2,2] start=[1,1]", "f32[1,1]"),
        ("dropout f16[2,3] p=0.5 global=[4,6] start=[2,3]", "f16[2,3] bool[2,3]"),
        (
            "normal size=[2] global=[4]",
            "RuntimeError: global and start are given together or not at all",
        ),
        (
            "dropout f32[2] p=0.5 start=[0]",
            "RuntimeError: global and start are given together or not at all",
        ),
        (
            "normal size=[2] global=[-4] start=[0]",
            "RuntimeError: Trying to create tensor with negative dimension -4: [-4]",
        ),
    ]);
    for (size, start, global) in [
        ("[2]", "[3]", "[4]"),
        ("[2]", "[-1]", "[4]"),
        ("[2]", "[9223372036854775807]", "[4]"),
        ("[0]", "[5]", "[4]"),
        ("[2]", "[0]", "[4,1]"),
        ("[2]", "[]", "[4]"),
        ("[2,2]", "[0,1]", "[2,2]"),
    ] {
        let line = format!("uniform size={size} high=1 global={global} start={start}");
        let show = |list: &str| list.replace(',', ", ");
        check(&line, &outside(show(size), show(start), show(global)));
    }
}

#[test]
fn control_and_collectives() {
    check_all(&[
        ("free", ""),
        ("free f32[2] i64[]", ""),
        ("synchronize request=1", ""),
        ("site id=1 name=train.py:42", ""),
        ("read f32[2,3] start=2 count=4", ""),
        (
            "read f32[2,3] start=3 count=4",
            "IndexError: read: 4 elements from 3 on are not all in f32[2,3]",
        ),
        ("chunk f32[2] offset=8", ""),
        ("chunk f32[2] offset=9", "IndexError: chunk: offset 9 is not in f32[2]"),
        ("distribute f32[2,3] dim=-1", "f32[2,3]"),
        ("distribute f32[2,3]", "f32[2,3]"),
        (
            "distribute f32[2,3] dim=2",
            "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
        ),
        ("all_reduce f32[2] group=[0,1] reduce=max", "f32[2]"),
        ("all_gather f32[2,3] group=[0,1] dim=0 sizes=[2,5]", "f32[7,3]"),
        (
            "all_gather f32[] group=[0,1] dim=0 sizes=[1,1]",
            "RuntimeError: all_gather: sizes [1, 1] of f32[]",
        ),
        (
            "all_gather f32[2] group=[0,1,2] dim=0 sizes=[1,1]",
            "RuntimeError: all_gather: sizes [1, 1] of f32[2]",
        ),
        (
            "reduce_scatter f32[3] group=[0,1] dim=0 sizes=[2,2]",
            "RuntimeError: reduce_scatter: sizes [2, 2] of f32[3]",
        ),
        (
            "reduce_scatter f32[3] group=[0,1] dim=0 sizes=[2,1]",
            "RuntimeError: reduce_scatter: only a member knows its shard",
        ),
        (
            "all_to_all f32[2,3] group=[0,1] from_dim=0 from_sizes=[2,1] to_dim=1 to_sizes=[2,2]",
            "RuntimeError: all_to_all: sizes [2, 2] of f32[2,3]",
        ),
        ("broadcast group=[0,1,4] root=1 size=[2,3] dtype=bf16", "bf16[2,3]"),
        ("broadcast f32[2,3] group=[0,1] root=0 size=[2,3] dtype=f32", "f32[2,3]"),
        ("send f32[2] peer=1", ""),
        ("receive peer=1 size=[2,3] dtype=i8", "i8[2,3]"),
    ]);
}
