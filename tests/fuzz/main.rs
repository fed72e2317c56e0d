//! The fuzz targets, at random and bounded. By coverage: see `fuzz/`.
#![cfg(feature = "multipart")]
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
#![allow(clippy::indexing_slicing)]

mod targets;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[test]
fn no_target_finds_anything() {
    let rounds = std::env::var("FUZZ_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(1500);
    let mut random = StdRng::seed_from_u64(rounds);
    for (name, target) in targets::ALL {
        for round in 0..rounds {
            let len = random.random_range(0..400);
            let mut data: Vec<u8> = (0..len).map(|_| random.random()).collect();
            // Text and digits get further than noise.
            match round % 3 {
                0 => data
                    .iter_mut()
                    .for_each(|byte| *byte = b"0123456789 \"\r\n:;=%,GMT"[usize::from(*byte) % 21]),
                1 => data.iter_mut().for_each(|byte| *byte %= 24),
                _ => {}
            }
            let outcome = std::panic::catch_unwind(|| target(&data));
            assert!(outcome.is_ok(), "{name} fails for {data:?}");
        }
    }
}
