//! Tests that run in one array.

use wattle_engine::metadata::NoMetadata;
use wattle_engine::{ArrayHandle, ArraySpec, Volume};
use wattle_rt::{Core, SimWorld};

/// Runs `test` with the array, which it has to stop, and its volume.
#[track_caller]
pub fn run<T>(
    world: &mut SimWorld,
    spec: ArraySpec,
    test: impl AsyncFnOnce(Core, ArrayHandle, Volume) -> T,
) -> T {
    let outcome = world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
        let volume = array.volume().open(&core).expect("it runs");
        test(core, array, volume).await
    });
    outcome.expect_done()
}
