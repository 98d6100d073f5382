//! Packed bytes come back as they were, whatever they are; bfloat16 gets shorter; packing is chosen by what was measured.

use gt_transport::packing::{PACKED_BYTES_MIN, PackingChoice, PackingPolicy, pack, unpack};
use proptest::prelude::*;
use std::time::Duration;

const BYTES_MAX: usize = 1 << 20;

/// Numbers about zero as training has them: sums of uniform ones, in bfloat16.
fn gaussian(count: usize, scale: f32) -> Vec<u8> {
    let mut state = 7_u64;
    let mut uniform = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f32::from_bits(0x3f80_0000 | u32::try_from(state >> 41).expect("23 bits")) - 1.5
    };
    let numbers = (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f32>() * scale);
    numbers
        .flat_map(|number| [number.to_bits().to_le_bytes()[2], number.to_bits().to_le_bytes()[3]])
        .collect()
}

#[test]
fn bfloat16_takes_three_quarters_and_comes_back() {
    for (count, scale) in [(131_072, 1.0), (8192, 1e-6), (8193, 1e20), (32_767, 0.02)] {
        let bytes = gaussian(count, scale);
        let (mut packed, mut again) = (vec![9; 3], Vec::new());
        assert!(pack(&bytes, &mut packed));
        let length = packed.len() - 3;
        assert!(length * 100 <= bytes.len() * 78, "{length} of {}", bytes.len());
        assert_eq!(unpack(&packed[3..], BYTES_MAX, &mut again), Some(bytes.len()));
        assert_eq!(again[..bytes.len()], bytes);
    }
}

#[test]
fn what_does_not_get_shorter_is_left_alone() {
    let noise: Vec<u8> =
        (0..100_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_be_bytes()).collect();
    let short = vec![0; PACKED_BYTES_MIN - 2];
    let odd = vec![0; PACKED_BYTES_MIN + 1];
    for bytes in [&noise, &short, &odd] {
        let mut out = vec![1, 2, 3];
        assert!(!pack(bytes, &mut out));
        assert_eq!(out, [1, 2, 3]);
    }
}

proptest! {
    #[test]
    fn anything_comes_back(seed in prop::collection::vec(any::<u8>(), 1..64), count in 8192_usize..9000, strangers in prop::collection::vec((0_usize..8192, any::<u8>()), 0..800)) {
        let mut bytes: Vec<u8> = seed.iter().copied().cycle().take(2 * count).collect();
        for (place, value) in strangers {
            bytes[2 * place + 1] = value;
        }
        let (mut packed, mut again) = (Vec::new(), vec![1; 5]);
        if pack(&bytes, &mut packed) {
            prop_assert_eq!(unpack(&packed, BYTES_MAX, &mut again), Some(bytes.len()));
            prop_assert_eq!(&again[..bytes.len()], &bytes[..]);
            for cut in [0, 3, 19, 20, packed.len() / 2, packed.len() - 1] {
                prop_assert_eq!(unpack(&packed[..cut], BYTES_MAX, &mut again), None);
            }
            prop_assert_eq!(unpack(&packed, bytes.len() - 1, &mut again), None);
        }
    }

    #[test]
    fn bytes_from_outside_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut out = Vec::new();
        let _ = unpack(&bytes, 4096, &mut out);
        prop_assert!(out.len() <= 4096);
    }
}

/// How many of a hundred chunks are tried, on a link and with a packer of so many nanoseconds a kilobyte.
fn tried(packing: PackingPolicy, link: u64, packer: u64, saved: usize) -> usize {
    const CHUNK: usize = 256 * 1024;
    let mut choice = PackingChoice::new(packing);
    let mut tried = 0;
    for _ in 0..100 {
        if choice.tries() {
            tried += 1;
            choice.packed(CHUNK, saved, Duration::from_nanos(256 * packer));
        }
        choice.sent(CHUNK, Duration::from_nanos(256 * link));
    }
    tried
}

#[test]
fn packing_is_chosen_by_the_measured_link() {
    let quarter = 64 * 1024;
    // 100 MB/s, packed at 1 GB/s: the first MiB is for measuring.
    assert!(tried(PackingPolicy::Measured, 10_000, 1000, quarter) >= 95);
    // 8 GB/s: a look at two chunks.
    assert!(tried(PackingPolicy::Measured, 125, 1000, quarter) <= 2);
    // What cannot be packed is not tried again and again.
    assert!(tried(PackingPolicy::Measured, 10_000, 1000, 0) <= 2);
    assert_eq!(tried(PackingPolicy::Never, 10_000, 1000, quarter), 0);
    assert_eq!(tried(PackingPolicy::Always, 125, 1000, quarter), 100);
}
