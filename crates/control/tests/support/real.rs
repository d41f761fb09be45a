//! Members that are files, and a core to work with them on.

use tempfile::TempDir;
use wattle_rt::{Core, RuntimeConfig};

/// Sparse files, and the directory that goes with them.
pub fn files(count: usize, size_bytes: u64) -> (TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let names = (0..count).map(|ix| {
        let path = dir.path().join(format!("d{ix}"));
        std::fs::File::create(&path).unwrap().set_len(size_bytes).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let names = names.collect();
    (dir, names)
}

/// Runs a job in real time.
pub fn on_a_core<T: Send + 'static>(job: impl AsyncFnOnce(Core) -> T + Send + 'static) -> T {
    wattle_rt::run(RuntimeConfig::default(), |core| async move { job(core).await }).unwrap()
}
