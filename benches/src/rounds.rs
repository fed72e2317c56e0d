//! Times, taken so that they can be compared: all cases in turn, in a new order each round, and the
//! base of the same round subtracted.

use std::time::Instant;

use crate::alloc;
use crate::cases::{Case, in_runtime};

const BATCH: usize = 32;

/// What one case costs over its base, for one call.
#[derive(Debug, Clone)]
pub struct Row {
    pub name: &'static str,
    /// Nanoseconds: the median of the paired differences.
    pub net: f64,
    /// The middle half of them.
    pub spread: (f64, f64),
    /// Nanoseconds with the base: the median.
    pub whole: f64,
    pub allocations: f64,
    /// Bytes over the base's future.
    pub future: i64,
}

/// Runs all cases for so many rounds.
pub fn run(cases: &mut [Box<dyn Case>], rounds: usize) -> Vec<Row> {
    in_runtime(|| compare(cases, rounds))
}

fn compare(cases: &mut [Box<dyn Case>], rounds: usize) -> Vec<Row> {
    let bases: Vec<usize> = cases
        .iter()
        .map(|case| position(cases, case.base()))
        .collect();
    let mut times = vec![Vec::with_capacity(rounds); cases.len()];
    let mut order = Order::new(cases.len());
    let warm_up = rounds / 10 + 2;
    for round in 0..warm_up + rounds {
        for &index in order.shuffled() {
            let case = &mut cases[index];
            case.prepare(BATCH);
            let start = Instant::now();
            case.run();
            let time = start.elapsed().as_nanos() as f64 / BATCH as f64;
            if round >= warm_up {
                times[index].push(time);
            }
        }
    }
    let allocations: Vec<f64> = cases
        .iter_mut()
        .map(|case| allocations(&mut **case))
        .collect();
    let futures: Vec<usize> = cases.iter_mut().map(|case| case.future_bytes()).collect();
    (0..cases.len())
        .map(|index| {
            let base = bases[index];
            let mut net: Vec<f64> = times[index]
                .iter()
                .zip(&times[base])
                .map(|(with, without)| with - without)
                .collect();
            net.sort_by(f64::total_cmp);
            Row {
                name: cases[index].name(),
                net: quantile(&net, 0.5),
                spread: (quantile(&net, 0.25), quantile(&net, 0.75)),
                whole: median(times[index].clone()),
                allocations: allocations[index] - allocations[base],
                future: futures[index] as i64 - futures[base] as i64,
            }
        })
        .collect()
}

/// Allocations of one call, its base's included.
pub fn allocations(case: &mut dyn Case) -> f64 {
    for _ in 0..3 {
        case.prepare(BATCH);
        case.run();
    }
    case.prepare(BATCH);
    let ((), count) = alloc::count(|| case.run());
    count.allocations as f64 / BATCH as f64
}

pub fn position(cases: &[Box<dyn Case>], name: &str) -> usize {
    cases
        .iter()
        .position(|case| case.name() == name)
        .expect("its base is among the cases")
}

pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    quantile(&times, 0.5)
}

fn quantile(sorted: &[f64], at: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}

/// A new order for each round, so that no case always follows the same one.
pub struct Order {
    indices: Vec<usize>,
    state: u64,
}

impl Order {
    pub fn new(len: usize) -> Self {
        Self {
            indices: (0..len).collect(),
            state: 0x9e37_79b9_7f4a_7c15,
        }
    }

    pub fn shuffled(&mut self) -> &[usize] {
        for last in (1..self.indices.len()).rev() {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.indices
                .swap(last, (self.state % (last as u64 + 1)) as usize);
        }
        &self.indices
    }
}
