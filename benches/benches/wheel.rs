//! The timing wheel beside tokio-util's `DelayQueue` and the crate `hierarchical_hash_wheel_timer`.
//!
//! Timers with deadlines spread over an hour go in, a tenth of them is cancelled (not in the hash wheel, which can't), the rest comes
//! out. Dropping what is left is not measured.

use std::future::poll_fn;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use hierarchical_hash_wheel_timer::wheels::quad_wheel::QuadWheelWithOverflow;
use punctual_core::wheel::Wheel;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

const HOUR_MS: u64 = 3_600_000;

/// A deadline within the hour, never the present.
fn deadline_ms(timer: u64) -> u64 {
    let mut z = (timer + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    1 + (z ^ (z >> 31)) % HOUR_MS
}

fn is_cancelled(timer: u64) -> bool {
    timer % 10 == 3
}

fn fill_wheel(timers: u64) -> Wheel<u64> {
    let mut wheel = Wheel::new(0);
    let mut to_cancel = Vec::new();
    for timer in 0..timers {
        let key = wheel.insert(deadline_ms(timer), timer);
        if is_cancelled(timer) {
            to_cancel.push(key);
        }
    }
    for key in to_cancel {
        wheel.cancel(key);
    }
    wheel
}

fn run_wheel(timers: u64) -> Wheel<u64> {
    let mut wheel = fill_wheel(timers);
    for now_ms in 1..=HOUR_MS {
        while let Some(due) = wheel.pop_due(now_ms) {
            black_box(due);
        }
    }
    assert!(wheel.is_empty());
    wheel
}

fn fill_hash_wheel(timers: u64) -> QuadWheelWithOverflow<u64> {
    let mut wheel = QuadWheelWithOverflow::default();
    for timer in 0..timers {
        wheel.insert_with_delay(timer, Duration::from_millis(deadline_ms(timer))).expect("a deadline ahead");
    }
    wheel
}

fn run_hash_wheel(timers: u64) -> QuadWheelWithOverflow<u64> {
    let mut wheel = fill_hash_wheel(timers);
    for _ in 1..=HOUR_MS {
        for due in wheel.tick() {
            black_box(due);
        }
    }
    wheel
}

fn fill_delay_queue(timers: u64) -> DelayQueue<u64> {
    let start = Instant::now();
    let mut queue = DelayQueue::new();
    let mut to_cancel = Vec::new();
    for timer in 0..timers {
        let key = queue.insert_at(timer, start + Duration::from_millis(deadline_ms(timer)));
        if is_cancelled(timer) {
            to_cancel.push(key);
        }
    }
    for key in to_cancel {
        queue.remove(&key);
    }
    queue
}

/// Lets the hour pass at once, which is the quickest way to empty it.
async fn run_delay_queue(timers: u64) -> DelayQueue<u64> {
    let mut queue = fill_delay_queue(timers);
    tokio::time::advance(Duration::from_millis(HOUR_MS + 2)).await;
    while let Some(due) = poll_fn(|context| queue.poll_expired(context)).await {
        black_box(due);
    }
    queue
}

fn paused_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// Memory in use by the process, by its own account.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim_end_matches("kB").trim().parse::<u64>().map_or(0, |kib| kib * 1_024)
}

fn print_memory<Q>(name: &str, timers: u64, fill: impl FnOnce() -> Q) {
    let before = resident_bytes();
    let queue = fill();
    let bytes = resident_bytes().saturating_sub(before) as f64 / timers as f64;
    println!("{name}: {bytes:.1} resident bytes a timer at {timers} timers");
    drop(queue);
}

fn bench_memory(_: &mut Criterion) {
    const TIMERS: u64 = 10_000_000;
    let exact = fill_wheel(TIMERS).memory_bytes() as f64 / TIMERS as f64;
    println!("wheel: {exact:.1} bytes a timer by its own count");
    print_memory("wheel", TIMERS, || fill_wheel(TIMERS));
    print_memory("hash wheel", TIMERS, || fill_hash_wheel(TIMERS));
    let runtime = paused_runtime();
    let _guard = runtime.enter();
    print_memory("delay queue", TIMERS, || fill_delay_queue(TIMERS));
}

fn bench_life(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timers");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_millis(100));
    for timers in [1_000_000, 10_000_000] {
        group.throughput(Throughput::Elements(timers));
        group.bench_with_input(BenchmarkId::new("wheel", timers), &timers, |b, &timers| {
            b.iter_with_large_drop(|| run_wheel(timers));
        });
        group.bench_with_input(BenchmarkId::new("hash_wheel", timers), &timers, |b, &timers| {
            b.iter_with_large_drop(|| run_hash_wheel(timers));
        });
        let runtime = paused_runtime();
        group.bench_with_input(BenchmarkId::new("delay_queue", timers), &timers, |b, &timers| {
            b.iter_with_large_drop(|| runtime.block_on(run_delay_queue(timers)));
        });
    }
    group.finish();
}

criterion_group!(benches, bench_life, bench_memory);
criterion_main!(benches);
