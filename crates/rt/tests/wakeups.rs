//! Cores that wait for each other wake up, in every mode of the ring.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "tests")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wattle_rt::{BackendChoice, BackendError, CoreIx, RingMode, Rng, RuntimeConfig, run};

/// So long without a call that comes back is for ever: a call takes some 100 µs.
const STUCK: Duration = Duration::from_secs(5);
/// Calls in each mode. (A window of some 100 ns in which an event was lost hung one call in some
/// 10,000 to 100,000; `backend::uring` has a test that hits it each time.)
const CALLS: u64 = 20_000;

/// One core calls the other, which works for a while that differs each time, so that the answer
/// comes at any moment of the first core's way into its sleep.
fn call_each_other(ring: RingMode, calls: &AtomicU64) -> Result<(), BackendError> {
    let config = RuntimeConfig { cores: 2, backend: BackendChoice::Uring, ring, ..RuntimeConfig::default() };
    run(config, async |core| {
        let mut rng = Rng::new(1);
        while calls.fetch_add(1, Ordering::Relaxed) < CALLS {
            let spin = rng.below(3000);
            if spin.is_multiple_of(8) {
                core.sleep(Duration::from_micros(30)).await;
            }
            core.call(CoreIx(1), move |_| async move {
                (0..spin).for_each(|at| {
                    black_box(at);
                });
            })
            .await;
        }
    })
}

fn answers_come(ring: RingMode) {
    let (ended, end) = channel();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let caller = std::thread::spawn(move || {
        let _ = ended.send(call_each_other(ring, &counted));
    });
    let mut seen = 0;
    let result = loop {
        match end.recv_timeout(STUCK) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Disconnected) => panic!("the runtime panicked"),
            Err(RecvTimeoutError::Timeout) => {
                let now = calls.load(Ordering::Relaxed);
                assert!(now > seen, "{ring:?}: a core sleeps with its answer undelivered, after {now} calls");
                seen = now;
            }
        }
    };
    caller.join().unwrap();
    match result {
        Ok(()) => assert!(calls.load(Ordering::Relaxed) >= CALLS),
        Err(BackendError::UringForbidden { errno }) => println!("no {ring:?} here: errno {errno}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn answers_from_another_core_end_a_sleep_on_a_plain_ring() {
    answers_come(RingMode::Plain);
}

#[test]
fn answers_from_another_core_end_a_sleep_on_a_cooperative_ring() {
    answers_come(RingMode::Cooperative);
}

#[test]
fn answers_from_another_core_end_a_sleep_on_a_deferred_ring() {
    answers_come(RingMode::Deferred);
}
