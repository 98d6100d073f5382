//! Packing: bytes are restored exactly, whatever they are; bfloat16 gets shorter; measurements
//! decide.

use gt_transport::packing::{PACKED_BYTES_MIN, PackingChoice, PackingPolicy, pack, unpack};
use proptest::prelude::*;
use std::time::Duration;

const BYTES_MAX: usize = 1 << 20;

/// Numbers about zero as in training: sums of uniform ones, in bfloat16.
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

/// float32 numbers about zero.
fn singles(count: usize, scale: f32) -> Vec<f32> {
    let halves = gaussian(count, scale);
    let (pairs, _) = halves.as_chunks::<2>();
    let number = |(place, &[third, fourth]): (usize, &[u8; 2])| {
        let low = u16::try_from(place * 40_503 % 65_536).expect("16 bits").to_le_bytes();
        f32::from_le_bytes([low[0], low[1], third, fourth])
    };
    pairs.iter().enumerate().map(number).collect()
}

/// Numbers after a cast to bfloat16 and back.
fn as_brain(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| (number.to_bits() & 0xffff_0000).to_le_bytes()).collect()
}

/// Numbers rounded to 8-bit multiples of a scale for each block.
fn as_multiples(numbers: &[f32], block: usize) -> Vec<u8> {
    let rounded = |block: &[f32]| {
        let largest = block.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let scale = f32::from_bits((largest / 127.0).to_bits() & !0x7f);
        let one = move |number: &f32| {
            let multiple = (number / scale).round_ties_even().clamp(-127.0, 127.0);
            (multiple * scale + 0.0).to_le_bytes()
        };
        block.iter().flat_map(one).collect::<Vec<u8>>()
    };
    numbers.chunks(block).flat_map(rounded).collect()
}

#[test]
fn what_codecs_leave_gets_as_short_as_they_say() {
    for (count, scale) in [(65_536, 1.0), (8192, 1e-6), (8193, 1e20), (32_767, 0.02)] {
        let numbers = singles(count, scale);
        let headed = [&[7, 0, 0, 1, 255, 3, 3, 3][..], &as_brain(&numbers)].concat();
        let cut = as_multiples(&numbers, 256)[4 * 100..].to_vec();
        for (bytes, permille) in [
            (as_brain(&numbers), 501),
            (headed, 505),
            (as_multiples(&numbers, 256), 275),
            (cut, 280),
            (as_multiples(&numbers, 77), 330),
            (vec![0; 4 * count], 275),
            (as_multiples(&numbers, 3), 1000),
        ] {
            let (mut packed, mut again) = (vec![9; 3], vec![1; 7]);
            if !pack(&bytes, &mut packed) {
                assert_eq!(permille, 1000, "{count} numbers of {scale} are not packed");
                continue;
            }
            let length = packed.len() - 3;
            assert!(length * 1000 <= bytes.len() * permille, "{length} of {}", bytes.len());
            assert_eq!(unpack(&packed[3..], BYTES_MAX, &mut again), Some(bytes.len()));
            assert!(again[..bytes.len()] == bytes, "{count} numbers of {scale}");
        }
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
    fn any_numbers_come_back(seed in prop::collection::vec(any::<f32>(), 1..300), count in 4096_usize..5000, strangers in prop::collection::vec((0_usize..4096, any::<u32>()), 0..40), block in 1_usize..600) {
        let numbers: Vec<f32> = seed.iter().copied().cycle().take(count).collect();
        let small: Vec<f32> = numbers.iter().map(|number| number % 64.0).collect();
        let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        for mut bytes in [raw, as_brain(&numbers), as_multiples(&small, block)] {
            for &(place, bits) in &strangers {
                bytes[4 * place..4 * place + 4].copy_from_slice(&bits.to_le_bytes());
            }
            let (mut packed, mut again) = (Vec::new(), Vec::new());
            if pack(&bytes, &mut packed) {
                prop_assert_eq!(unpack(&packed, BYTES_MAX, &mut again), Some(bytes.len()));
                prop_assert!(again[..bytes.len()] == bytes);
                for cut in [0, 3, 4, 6, packed.len() / 2, packed.len() - 1] {
                    prop_assert_eq!(unpack(&packed[..cut], BYTES_MAX, &mut again), None);
                }
            }
        }
    }

    #[test]
    fn bytes_from_outside_do_no_harm(form in 0_u32..4, length in 0_u32..5000, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let head = (length | form << 30).to_le_bytes();
        for bytes in [[&head[..], &bytes].concat(), bytes] {
            let mut out = Vec::new();
            let _ = unpack(&bytes, 4096, &mut out);
            prop_assert!(out.len() <= 4096);
        }
    }
}

/// Number of chunks among a hundred that are tried, on a link and with a packer of so many
/// nanoseconds a kilobyte.
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
    // 8 GB/s: two chunks are tried.
    assert!(tried(PackingPolicy::Measured, 125, 1000, quarter) <= 2);
    // Chunks that cannot be packed are rarely tried again.
    assert!(tried(PackingPolicy::Measured, 10_000, 1000, 0) <= 2);
    assert_eq!(tried(PackingPolicy::Never, 10_000, 1000, quarter), 0);
    assert_eq!(tried(PackingPolicy::Always, 125, 1000, quarter), 100);
}
