//! Where a call's random numbers come from.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// The source of randomness of a layer; clones share it.
#[derive(Clone)]
pub(crate) enum Randomness {
    System,
    Seeded { seed: u64, calls: Arc<AtomicU64> },
}

impl Randomness {
    pub(crate) fn system() -> Self {
        Self::System
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded {
            seed,
            calls: Arc::default(),
        }
    }

    /// A sequence of the next call's own, so that two calls never share one.
    pub(crate) fn of_call(&self) -> Sequence {
        match self {
            Self::System => Sequence(None),
            Self::Seeded { seed, calls } => {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                Sequence(Some(SmallRng::seed_from_u64(seed.wrapping_add(call))))
            }
        }
    }
}

/// The random numbers of one call.
#[derive(Default)]
pub(crate) struct Sequence(Option<SmallRng>);

impl Sequence {
    /// Uniform in `0.0..1.0`.
    pub(crate) fn draw(&mut self) -> f64 {
        match &mut self.0 {
            Some(seeded) => seeded.random(),
            None => rand::random(),
        }
    }
}

/// A fresh idempotency key: a random UUID (RFC 9562 §5.4) as a structured-field string, the form
/// that the Idempotency-Key draft asks for.
pub(crate) fn idempotency_key() -> Option<HeaderValue> {
    let bits = rand::random::<u128>() & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let mut key = String::with_capacity(38);
    for (index, digit) in hex.chars().enumerate() {
        if matches!(index, 8 | 12 | 16 | 20) {
            key.push('-');
        }
        key.push(digit);
    }
    let mut quoted = String::with_capacity(40);
    write!(quoted, "\"{key}\"").ok()?;
    HeaderValue::try_from(quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_each_call_its_own_sequence_and_the_same_again() {
        let run = || {
            let layer = Randomness::seeded(7);
            let (mut first, mut second) = (layer.of_call(), layer.clone().of_call());
            [first.draw(), second.draw(), first.draw(), second.draw()]
        };
        let numbers = run();
        assert_eq!(numbers, run());
        for (i, a) in numbers.iter().enumerate() {
            assert!((0.0..1.0).contains(a));
            assert!(numbers.iter().skip(i + 1).all(|b| a != b), "{numbers:?}");
        }
    }

    #[test]
    fn a_generated_key_is_a_quoted_random_uuid() {
        let key = idempotency_key().unwrap();
        let text = key.to_str().unwrap();
        assert_eq!(text.len(), 38);
        assert!(text.starts_with('"') && text.ends_with('"'));
        assert_eq!(&text[15..16], "4", "version: {text}");
        assert!("89ab".contains(&text[20..21]), "variant: {text}");
        assert_ne!(idempotency_key(), idempotency_key());
    }
}
