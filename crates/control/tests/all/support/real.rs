//! Members that are files, arrays made and run on them, and a core to work with them on.

use std::rc::Rc;

use tempfile::TempDir;
use wattle_control::create::{Consistency, CreatePlan, CreateRequest, inspect, plan};
use wattle_control::members::MemberAccess;
use wattle_control::running::RunningArray;
use wattle_control::scan::scan;
use wattle_control::{Forced, Member, Problem, start};
use wattle_engine::geometry::Level;
use wattle_format::md::{Uuid, Version};
use wattle_rt::{Core, RuntimeConfig, WallTime};

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

/// An array of these members, always with the same UUID.
pub fn request(level: Level, members: Vec<Option<Member>>) -> CreateRequest {
    CreateRequest {
        bitmap_sweep_secs: None,
        write_mostly: Vec::new(),
        name: "host:t".to_owned(),
        level,
        members,
        spares: Vec::new(),
        version: Version::V12,
        chunk_bytes: (level != Level::Raid1).then_some(65536),
        layout: None,
        data_offset_bytes: None,
        size_bytes: None,
        assume_clean: false,
        consistency: Consistency::Resync,
        forced: Forced::default(),
        set_uuid: Uuid(*b"0123456789abcdef"),
        now: WallTime { secs: 1_700_000_000, micros: 0 },
    }
}

pub fn looked(names: &[String]) -> Vec<Option<Member>> {
    MemberAccess::local().look_all(names).unwrap().into_iter().map(Some).collect()
}

pub fn create(request: &CreateRequest) -> Result<CreatePlan, Problem> {
    let members = request.members.iter().flatten().chain(&request.spares);
    let states: Vec<_> = members.map(inspect).collect::<Result<_, _>>()?;
    let plan = plan(request, &states)?;
    plan.execute(&plan.claim(&states)?)?;
    Ok(plan)
}

pub async fn run(core: &Core, names: &[String]) -> Rc<RunningArray> {
    let found = scan(MemberAccess::local().look_all(names).unwrap(), Forced::default()).unwrap();
    let claimed = start::claim(&found, found.find(None).unwrap(), false).unwrap();
    drop(found);
    RunningArray::new(core, &MemberAccess::local(), "t", claimed.launch(core).await.unwrap())
}
