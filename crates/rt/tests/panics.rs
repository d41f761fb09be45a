//! A panic on any thread of a runtime ends what others wait for there, with an error.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::panic::catch_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wattle_rt::planted::{self, Bug};
use wattle_rt::{BackendChoice, Core, CoreHandle, CoreIx, IoErrorKind, RuntimeConfig, beside, run};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// What `work` comes to, on a thread of its own.
fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Leaves a task on a core that keeps the core in memory: a connection that looks after itself.
fn leave_a_task(core: &Core) {
    let home = core.clone();
    drop(core.spawn(async move {
        loop {
            home.sleep(Duration::from_secs(2)).await;
        }
    }));
}

fn is_gone<T: std::fmt::Debug>(result: Result<T, wattle_rt::IoError>) -> bool {
    result.is_err_and(|error| error.kind() == IoErrorKind::Gone)
}

/// A core beside all runtimes on which tasks wait, and calls of other threads for one of them.
fn with_a_waiting_caller() -> (CoreHandle, impl FnOnce() -> bool) {
    let handle = beside().unwrap();
    handle.call_blocking(|core| async move { leave_a_task(&core) }).unwrap();
    let (waits, waiting) = (handle.clone(), handle.clone());
    let waiter = std::thread::spawn(move || is_gone(waits.call_blocking(|_| std::future::pending::<()>())));
    // The call has begun once a later one has come back.
    while !waiting.call_blocking(|core| async move { core.ops_in_flight() == 0 }).unwrap() {}
    (handle, || waiter.join().unwrap())
}

#[test]
fn a_core_beside_the_runtimes_that_panicked_answers_with_errors() {
    let (handle, waiter) = with_a_waiting_caller();
    let asked = handle.clone();
    assert!(is_gone(soon("the call that panics", move || {
        asked.call_blocking(|_| async { panic!("on purpose") })
    })));
    assert!(soon("a call that waited", waiter));
    for _ in 0..3 {
        let asked = handle.clone();
        assert!(is_gone(soon("a later call", move || asked.call_blocking(|_| async { 3 }))));
    }
}

#[test]
fn callers_wait_for_a_core_that_panicked_and_kept_its_mail() {
    let (handle, waiter) = with_a_waiting_caller();
    let plant = || std::mem::forget(planted::plant(&[Bug::PanickedCoreKeepsMail]));
    handle.call_blocking(move |_| async move { plant() }).unwrap();
    let (told, tells) = channel();
    std::thread::spawn(move || {
        let _ = told.send(waiter());
    });
    let (asked, other) = (handle.clone(), handle);
    let (gone, goes) = channel();
    std::thread::spawn(move || {
        let panics = asked.call_blocking(|core| async move {
            core.sleep(Duration::from_millis(1)).await;
            panic!("on purpose")
        });
        let _ = gone.send(is_gone::<()>(panics));
    });
    let short = Duration::from_millis(500);
    let _ = goes.recv_timeout(short);
    // Threads of this test wait for as long as the process lives.
    let (later, answered) = channel();
    std::thread::spawn(move || {
        let _ = later.send(other.call_blocking(|_| async { 3 }).is_err());
    });
    assert_eq!(
        tells.recv_timeout(short),
        Err(RecvTimeoutError::Timeout),
        "the bug is not found by a call that waited"
    );
    assert_eq!(
        answered.recv_timeout(short),
        Err(RecvTimeoutError::Timeout),
        "the bug is not found by a later call"
    );
}

#[test]
fn a_task_of_another_runtime_hears_that_the_core_it_asks_has_panicked() {
    for backend in [BackendChoice::Auto, BackendChoice::Syscall] {
        let (handle, waiter) = with_a_waiting_caller();
        let config = RuntimeConfig { backend, cores: 2, ..RuntimeConfig::default() };
        let heard = soon("a task", move || {
            run(config, async |core| {
                let waits = handle.call(&core, |_| std::future::pending::<()>());
                let panics = handle.call(&core, |_| async { panic!("on purpose") });
                let heard = (waits.await.is_none(), panics.await.is_none());
                (heard, handle.call(&core, |_| async { 3 }).await)
            })
        });
        assert_eq!(heard, Ok(((true, true), None)));
        assert!(soon("a call that waited", waiter));
    }
}

#[test]
fn every_core_of_a_runtime_that_panicked_answers_with_errors() {
    // Each core in turn panics; others ask each of them.
    for panics in 0..3 {
        let (tell, told) = channel();
        let runtime = std::thread::spawn(move || {
            catch_unwind(|| {
                let config = RuntimeConfig { cores: 3, ..RuntimeConfig::default() };
                run(config, async |core| {
                    for ix in 0..3 {
                        let handle = core.call(CoreIx(ix), |core| async move {
                            leave_a_task(&core);
                            core.handle()
                        });
                        tell.send(handle.await).unwrap();
                    }
                    drop(tell);
                    std::future::pending::<()>().await;
                })
            })
        });
        let handles: Vec<CoreHandle> = told.iter().collect();
        let waiters: Vec<_> = handles
            .iter()
            .cloned()
            .map(|handle| {
                std::thread::spawn(move || is_gone(handle.call_blocking(|_| std::future::pending::<()>())))
            })
            .collect();
        let asked = handles[panics].clone();
        assert!(is_gone(soon("the call that panics", move || {
            asked.call_blocking(|_| async { panic!("on purpose") })
        })));
        assert!(soon("the runtime", move || runtime.join().unwrap().is_err()), "the panic comes out");
        for waiter in waiters {
            assert!(soon("a call that waited", move || waiter.join().unwrap()));
        }
        for handle in handles {
            assert!(is_gone(soon("a later call", move || handle.call_blocking(|_| async { 3 }))));
        }
    }
}
