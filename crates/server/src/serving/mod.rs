//! What a `wattle serve` process holds while it runs: the arrays, and its answers to other
//! commands.

mod apart;
mod changes;
mod checkpoints;
pub mod layers;
mod qos;
mod reservations;
mod stop;
pub mod threads;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wattle_control::lvm::GroupScan;
use wattle_control::lvm::allocate::free_extents;
use wattle_control::members::MemberAccess;
use wattle_control::running::Terms;
use wattle_control::undo::Recorder;
use wattle_control::{Code, Problem, Stack};
use wattle_engine::units::SECTOR_BYTES;
use wattle_engine::volume::qos::QosSite;
use wattle_engine::{RecordJob, VolumeRef};
use wattle_export::fuse::Files;
use wattle_rt::sync::{OneshotSender, Semaphore};
use wattle_rt::{Core, Latch};

use crate::array::{Obeyed, Served};
use crate::events::{EventFeed, FeedPosition};
use crate::exports::{ExportPlace, Offered};
use crate::protocol::report::{GroupReport, ServerReport, VolumeReport, below};
use crate::protocol::{MapOrder, Response, SavingOrder, ServerRequest, forced};
use crate::saving::ServerSaving;
use crate::socket::listen::error_response;

/// Everything that the process serves.
pub struct Serving {
    core: Core,
    /// How drives that orders name are opened.
    access: MemberAccess,
    server: String,
    /// Where what orders overwrite is saved.
    saving: ServerSaving,
    arrays: RefCell<Vec<Rc<Served>>>,
    /// What clients are offered: the arrays themselves, or what lies on them.
    offered: RefCell<Rc<[Offered]>>,
    /// New volumes too: the command named none.
    offers_all: bool,
    /// What lies on the arrays and on drives; not here while a volume group is being changed.
    stack: RefCell<Option<Stack>>,
    /// Whether there is such a thing.
    layered: bool,
    /// The volume groups that are open.
    groups: RefCell<Vec<GroupReport>>,
    /// The array that all lies on that it serves, by UUID or else by name, if it began with but
    /// one.
    sole_array: Option<String>,
    /// The volume that it offers, if it began with but one.
    sole_volume: Option<VolumeRef>,
    /// The names of arrays that were stopped.
    stopped: RefCell<Vec<String>>,
    /// Held by the order that changes a volume group.
    changing: Semaphore,
    /// Commands that wait for the process to have given everything back.
    waiting_for_end: RefCell<Vec<OneshotSender<Result<(), Problem>>>>,
    ending: Cell<bool>,
    /// No order that changes a group begins any more.
    closing: Cell<bool>,
    /// Volumes share what there is.
    site: QosSite,
    /// What is set of a volume when it begins to be offered.
    settings: Vec<String>,
    /// What happens, for clients that follow it.
    feed: Rc<EventFeed>,
    /// Where volumes are offered.
    places: RefCell<Vec<ExportPlace>>,
    /// The last array is to be stopped.
    pub last_stop: Latch,
}

impl Serving {
    /// Of arrays and volumes that run already; `offers_all` if these are all there are.
    pub fn new(
        core: &Core,
        access: &MemberAccess,
        server: String,
        arrays: Vec<Rc<Served>>,
        (offered, offers_all): (Vec<Offered>, bool),
        stack: Option<Stack>,
        saving: ServerSaving,
    ) -> Self {
        let now = core.wall_clock();
        let site = QosSite::new(core.cores());
        let offered: Vec<_> = offered.into_iter().map(|offered| qos::governed(&site, offered)).collect();
        let epoch = format!("{}.{:06}-{}", now.secs, now.micros, std::process::id());
        let feed = Rc::new(EventFeed::new(&server, epoch));
        arrays.iter().for_each(|served| served.feed_into(&feed));
        let sole_array = match &arrays[..] {
            [array] => apart::is_below_all(stack.as_ref(), array, &offered).then(|| array.id().to_owned()),
            _ => None,
        };
        let sole_volume = match &offered[..] {
            [sole] => Some(sole.volume.clone()),
            _ => None,
        };
        Self {
            sole_array,
            sole_volume,
            stopped: RefCell::default(),
            feed,
            layered: stack.is_some(),
            groups: RefCell::new(stack.iter().flat_map(groups_of).collect()),
            changing: Semaphore::new(1),
            core: core.clone(),
            access: access.clone(),
            server,
            saving,
            arrays: RefCell::new(arrays),
            offered: RefCell::new(offered.into()),
            offers_all,
            stack: RefCell::new(stack),
            waiting_for_end: RefCell::default(),
            ending: Cell::new(false),
            closing: Cell::new(false),
            site,
            settings: Vec::new(),
            places: RefCell::default(),
            last_stop: Latch::new(),
        }
    }

    /// The volumes on offer are offered there as well, from now on.
    pub fn offers(&self, place: ExportPlace) {
        self.places.borrow_mut().push(place);
    }

    /// What clients are offered.
    pub fn offered(&self) -> Rc<[Offered]> {
        self.offered.borrow().clone()
    }

    fn places(&self) -> Vec<ExportPlace> {
        self.places.borrow().clone()
    }

    /// Whether what is offered lies on arrays and drives.
    pub fn has_layers(&self) -> bool {
        self.layered
    }

    /// Whether a file of a volume was ever open.
    pub fn was_opened(&self) -> bool {
        self.places.borrow().iter().filter_map(ExportPlace::files).any(Files::was_opened)
    }

    /// How often the files of volumes are open now.
    pub fn opens(&self) -> u32 {
        self.places.borrow().iter().filter_map(ExportPlace::files).map(Files::opens_of_all).sum()
    }

    /// Whether it is being stopped: what begins now would be too late.
    pub fn is_ending(&self) -> bool {
        self.closing.get() || self.ending.get() || self.last_stop.is_set()
    }

    /// Lets no order that changes a group begin any more, and one that is being carried out finish:
    /// what it offers is there when exports end then, and nothing is offered after them.
    pub async fn close(&self) {
        self.closing.set(true);
        drop(self.changing.acquire(1).await);
    }

    /// The arrays that run now.
    pub fn arrays(&self) -> Vec<Rc<Served>> {
        self.arrays.borrow().clone()
    }

    /// Answers a command.
    pub async fn answer(&self, request: ServerRequest) -> Response {
        match self.answer_or_problem(request).await {
            Ok(response) => response,
            Err(problem) => error_response(&problem),
        }
    }

    async fn answer_or_problem(&self, request: ServerRequest) -> Result<Response, Problem> {
        let message = match request {
            ServerRequest::Status => return Ok(Response::Status(self.status().await)),
            ServerRequest::Events { epoch, after, wait_secs } => {
                let position = FeedPosition { epoch, after };
                return Ok(Response::Events(self.feed.follow(&self.core, &position, wait_secs).await?));
            }
            ServerRequest::Lvm { order } => {
                return Ok(Response::Changed { change: self.obey(&order).await? });
            }
            ServerRequest::Why { array } => return Ok(Response::Why(self.why(&array).await?)),
            ServerRequest::Stop { array, server } => self.stop(&array, server).await?,
            ServerRequest::Fail { array, member } => self.find(&array)?.fail(&member).await?,
            ServerRequest::Remove { array, member } => self.find(&array)?.remove(&member).await?,
            ServerRequest::Add { array, member, force, write_mostly, undo, map, typed } => {
                let served = self.find(&array)?;
                let recorder = self.recorder(&undo, &format!("add {}", served.facts.name), &member)?;
                let (undo, typed) = (recorder.as_ref(), typed.as_deref());
                let terms = Terms { forced: forced(&force)?, undo, write_mostly, typed, ..Terms::default() };
                let adding = served.add(&member, terms);
                let added = self.with_map(&member, map, adding).await;
                return self.done(added, recorder);
            }
            ServerRequest::Replace { array, member, with, force, undo, map, typed } => {
                let served = self.find(&array)?;
                let new = with.as_deref().unwrap_or_default();
                let recorder = self.recorder(&undo, &format!("replace {}", served.facts.name), new)?;
                let (undo, typed) = (recorder.as_ref(), typed.as_deref());
                let terms = Terms { forced: forced(&force)?, undo, typed, ..Terms::default() };
                let replacing = served.replace(&member, with.as_deref(), terms);
                let replaced = self.with_map(new, map, replacing).await;
                return self.done(replaced, recorder);
            }
            ServerRequest::Checkpoint { volume, name, remove } => self.checkpoint(&volume, &name, remove)?,
            ServerRequest::ClearReservations { volume } => self.clear_reservations(&volume).await?,
            ServerRequest::Check { array } => self.find(&array)?.check().await?,
            // Given by hand, and not by the policy: what the array holds now is taken for right.
            ServerRequest::Record { array, repair } => {
                let record = if repair { RecordJob::Repair } else { RecordJob::Accept };
                self.find(&array)?.record_scrub(record).await?
            }
            ServerRequest::Repair { array, source } => self.find(&array)?.repair(&source).await?,
            ServerRequest::ClearBadBlocks { array, member } => {
                self.find(&array)?.clear_bad_blocks(&member).await?
            }
            ServerRequest::Abort { array } => self.find(&array)?.abort().await?,
            ServerRequest::Pause { array, paused } => self.find(&array)?.pause(paused).await?,
            ServerRequest::Set { array, key, value } => self.set(&array, &key, &value).await?,
        };
        self.done(Ok(message.into()), None)
    }

    /// What came of an order, and the log that it left: what was written before it failed can be
    /// taken back too.
    fn done(&self, done: Result<Obeyed, Problem>, recorder: Option<Recorder>) -> Result<Response, Problem> {
        let undo_log = recorder.and_then(|recorder| recorder.saved.take().pop());
        match (done, undo_log) {
            (Ok(Obeyed { message, member }), undo_log) => Ok(Response::Done { message, undo_log, member }),
            (Err(problem), None) => Err(problem),
            (Err(problem), Some(log)) => Err(Problem {
                next: format!("{}; what was on it before: wattle undo {}", problem.next, log.display()),
                ..problem
            }),
        }
    }

    /// Takes a copy by the map that was named for it. If it is not taken, nothing was named.
    async fn with_map<T>(
        &self,
        member: &str,
        map: Option<MapOrder>,
        taking: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let Some(map) = map else { return taking.await };
        let before = self.access.name_map(member, Some(map.into()));
        let taken = taking.await;
        if taken.is_err() {
            self.access.name_map(member, before);
        }
        taken
    }

    /// What saves the content of a new member.
    fn recorder(&self, undo: &SavingOrder, what: &str, member: &str) -> Result<Option<Recorder>, Problem> {
        let given = [member.to_owned()];
        let now = self.core.wall_clock();
        self.saving.recorder(Some(undo), now, what, if member.is_empty() { &[] } else { &given })
    }

    /// What it serves, and how that is.
    pub async fn status(&self) -> ServerReport {
        let mut arrays = Vec::new();
        for served in self.arrays() {
            arrays.push(served.report().await);
        }
        // What is written to a volume is not counted by itself, what reaches its array is.
        let unwritten = !arrays.is_empty() && arrays.iter().all(|array| array.counters.writes == 0);
        let volume = |offered: &Offered| {
            let opened = offered.volume.open(&self.core).ok();
            VolumeReport {
                name: offered.name.clone(),
                size_bytes: offered.volume.size_bytes(),
                io_min_bytes: opened.as_ref().map_or(0, |volume| volume.io_min_bytes().into()),
                io_opt_bytes: opened.as_ref().map_or(0, |volume| volume.io_opt_bytes().into()),
                read_only: opened.is_some_and(|volume| volume.read_only()),
                blank: offered.is_blank && unwritten,
                exports: offered.exports.clone(),
            }
        };
        let volumes =
            if self.has_layers() { self.offered().iter().map(volume).collect() } else { Vec::new() };
        let (server, pid, qos) = (self.server.clone(), std::process::id(), self.qos().await);
        let mut report = ServerReport {
            server,
            pid,
            arrays,
            volumes,
            groups: self.groups.borrow().clone(),
            threads: threads::all(),
            cpu_ms: threads::process_cpu_ms(),
            qos,
            checkpoints: self.checkpoints(),
            reservations: self.reservations(),
            sole_array: self.sole_array.clone(),
            stopped: self.stopped.borrow().clone(),
        };
        let arrays = report.arrays.iter_mut().map(|array| (&array.name, &mut array.exports));
        let volumes = report.volumes.iter_mut().map(|volume| (&volume.name, &mut volume.exports));
        for (name, ways) in arrays.chain(volumes) {
            ways.retain(|way| !self.places().iter().any(|place| place.has_lost(name, way)));
        }
        report.with_places_that_fit()
    }

    /// Stops every array and lets go of it; nothing is served afterwards. The first problem, if
    /// there are any.
    ///
    /// # Errors
    /// An array could not be recorded clean.
    pub async fn end(&self) -> Result<(), Problem> {
        self.ending.set(true);
        self.feed.end();
        // A change that is being written down is finished first.
        let _turn = self.changing.acquire(1).await;
        let mut arrays = std::mem::take(&mut *self.arrays.borrow_mut());
        let stack = self.stack.take();
        layers::stop_all(&self.core, stack, &mut arrays).await
    }

    /// Tells the commands that wait for the end how it went.
    pub fn tell_end(&self, result: &Result<(), Problem>) {
        for waiting in self.waiting_for_end.take() {
            // A command that was interrupted does not wait any more.
            let _ = waiting.send(result.clone());
        }
    }

    /// The array of this name or UUID, or the only one that the group or volume of this name lies
    /// on, or that all lies on that the server of this name has.
    ///
    /// Invariant: an order that names an array never reaches another one, whatever was stopped
    /// before. So the server's name stands for an array only if there was never another.
    fn find(&self, name: &str) -> Result<Rc<Served>, Problem> {
        let arrays = self.arrays.borrow();
        let of = |name: &str| {
            arrays.iter().find(|s| s.facts.name == name || s.facts.uuid.as_deref() == Some(name)).cloned()
        };
        let groups = self.groups.borrow();
        let below = || match &below(&groups, name)[..] {
            [array] => of(array),
            [] if name == self.server && groups.iter().all(|group| group.name != name) => {
                self.sole_array.as_deref().and_then(of)
            }
            _ => None,
        };
        let found = of(name).or_else(below);
        found.filter(|_| !self.ending.get()).ok_or_else(|| being_stopped(name))
    }
}

/// The volume groups that are open.
fn groups_of(stack: &Stack) -> Vec<GroupReport> {
    let group = |group: &GroupScan| {
        let physical: Vec<_> = group.devices.iter().flatten().copied().collect();
        let arrays = stack.below(&physical).arrays.into_iter();
        let uuid = |array| stack.scan.arrays[array].assembly.array.set_uuid.to_string();
        let extent_bytes = group.vg.extent_sectors.saturating_mul(SECTOR_BYTES);
        let bytes = |extents: u64| extents.saturating_mul(extent_bytes);
        GroupReport {
            name: group.vg.name.clone(),
            uuid: group.vg.id.to_string(),
            arrays: arrays.map(uuid).collect(),
            size_bytes: bytes(group.vg.pvs.iter().map(|pv| pv.pe_count).fold(0, u64::saturating_add)),
            free_bytes: bytes(free_extents(&group.vg, &[])),
        }
    };
    stack.open_groups().map(group).collect()
}

fn being_stopped(name: &str) -> Problem {
    Problem::new(
        Code::ServerNotFound,
        format!("{name} is not being served any more"),
        "it is being stopped",
        "`wattle status` shows what is",
    )
}
