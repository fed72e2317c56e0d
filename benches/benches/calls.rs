//! The same calls under criterion: `cargo bench -p tower-http-retry-benches --bench calls`.

#![allow(clippy::disallowed_methods)] // of times

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use tower_http_retry_benches::cases::{all, in_runtime};
use tower_http_retry_benches::inner::Upstream;
use tower_http_retry_benches::request::PROFILES;

const BATCH: u64 = 32;

fn calls(criterion: &mut Criterion) {
    for profile in PROFILES {
        let mut group = criterion.benchmark_group(profile.name());
        for mut case in all(profile, Upstream::Well) {
            let name = case.name();
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|calls| {
                    let mut time = Duration::ZERO;
                    let mut left = calls;
                    while left > 0 {
                        let batch = left.min(BATCH);
                        case.prepare(batch as usize);
                        let start = Instant::now();
                        in_runtime(|| case.run());
                        time += start.elapsed();
                        left -= batch;
                    }
                    time
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, calls);
criterion_main!(benches);
