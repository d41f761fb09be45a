//! File systems that lie on several devices: which of these are here, and how their files are had.

use serde::Serialize;
use wattle_control::members::Member;
use wattle_control::{Code, Problem, Stack};
use wattle_fs::{FsDevices, ReadAt};
use wattle_rt::Core;
use wattle_server::protocol::ErrorReport;

use crate::commands::files::reader::MemberReader;
use crate::commands::loss::FsDeviceReport;
use crate::output::Screen;
use crate::output::text::{printable, table};

/// A file system on several devices.
#[derive(Serialize)]
pub struct ScannedFsReport {
    kind: &'static str,
    label: String,
    uuid: String,
    /// By number; where the file system cannot be opened only those that are here.
    devices: Vec<FsDeviceReport>,
    /// Of the space that is given to data and metadata, what is on missing devices alone: whatever
    /// lies there cannot be read.
    lost_bytes: u64,
    /// All of that space.
    allocated_bytes: u64,
    problem: Option<ErrorReport>,
    /// Why a script should stop.
    #[serde(skip)]
    pub stop: Option<Problem>,
}

/// The file systems on several devices of which some are members of the stack.
///
/// # Errors
/// A [`Problem`] of the machine.
pub async fn found(core: &Core, stack: &Stack) -> Result<Vec<ScannedFsReport>, Problem> {
    let file_systems = stack.file_systems();
    let kind = wattle_format::probe::SignatureKind::Btrfs;
    let first = file_systems.iter().find(|(_, found)| *found == kind);
    let Some(first) = first.and_then(|(volume, _)| volume.member.as_ref().ok()) else {
        return Ok(Vec::new());
    };
    let ids = [*first].into_iter().chain(stack.further_devices(*first));
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    let members = ids.iter().map(|&ix| stack.scan.members[ix].member.clone()).collect();
    // Members may be volumes, which the core serves.
    core.offload(move || look(members)).await.map_err(Problem::no_thread)
}

/// The same of members that may hold a btrfs. Reads wait for the drives.
pub fn look(members: Vec<Member>) -> Vec<ScannedFsReport> {
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let readers = members.into_iter().map(|member| Box::new(MemberReader(member)) as Box<dyn ReadAt>);
    let found = wattle_fs::on_several_devices(readers.collect());
    found.iter().map(|found| ScannedFsReport::of(found, &names)).collect()
}

impl ScannedFsReport {
    fn of(found: &FsDevices, names: &[String]) -> Self {
        let uuid = wattle_fs::uuid_text(found.uuid);
        let devices: Vec<_> = found.devices.iter().map(|device| FsDeviceReport::of(device, names)).collect();
        let stop = match &found.problem {
            Some(error) => Some(cannot_be_opened(&uuid, &error.to_string())),
            None => (found.lost_bytes > 0).then(|| partly_lost(&uuid, &devices)),
        };
        Self {
            kind: found.kind,
            label: String::from_utf8_lossy(&found.label).into_owned(),
            uuid,
            devices,
            lost_bytes: found.lost_bytes,
            allocated_bytes: found.allocated_bytes,
            problem: stop.as_ref().map(ErrorReport::from),
            stop,
        }
    }

    /// The members that it is on, the one that comes first first.
    pub fn members(&self) -> Vec<&str> {
        let used = self.devices.iter().filter(|device| device.state != "seed");
        used.filter_map(|device| device.member.as_deref()).collect()
    }

    /// What it is called: by its label, or else by its UUID.
    pub fn name(&self) -> String {
        let label = if self.label.is_empty() { &self.uuid } else { &self.label };
        format!("{} {}", self.kind, printable(label))
    }

    pub fn render(&self, screen: Screen) -> String {
        let Screen { units, style, .. } = screen;
        let count = |state: &str| self.devices.iter().filter(|device| device.state == state).count();
        let (missing, stale) = (count("missing"), count("stale"));
        let mut what = vec![format!("{} devices", self.devices.len())];
        what.extend((missing > 0).then(|| style.yellow(&format!("{missing} missing"))));
        what.extend((stale > 0).then(|| style.yellow(&format!("{stale} stale"))));
        what.push(format!("uuid {}", self.uuid));
        if self.lost_bytes > 0 {
            let (lost, all) = (units.show(self.lost_bytes), units.show(self.allocated_bytes));
            what.push(style.red(&format!("{lost} of {all} on missing devices alone")));
        }
        let mut text = format!("{}  {}\n", style.bold(&self.name()), what.join(", "));
        let mut rows = vec![FsDeviceReport::HEAD.map(str::to_owned).to_vec()];
        rows.extend(self.devices.iter().map(|device| {
            let mut row = device.row(units).map(|word| printable(&word)).to_vec();
            if !device.is_good() {
                row[1] = style.yellow(&row[1]);
            }
            row
        }));
        text.push_str(&table("  ", &rows));
        text.extend(self.problem.as_ref().map(|problem| super::render_problem(problem, screen)));
        text
    }
}

fn cannot_be_opened(uuid: &str, error: &str) -> Problem {
    Problem::new(
        Code::FsDeviceMissing,
        format!("btrfs {uuid}: {error}"),
        "it lies on several devices, and with those that are here it cannot be opened",
        "give its other devices too",
    )
}

fn partly_lost(uuid: &str, devices: &[FsDeviceReport]) -> Problem {
    let missing = devices.iter().filter(|device| device.state == "missing");
    let missing: Vec<String> = missing.map(FsDeviceReport::title).collect();
    Problem::new(
        Code::FsDeviceMissing,
        format!("btrfs {uuid} lacks devices that have what no other has: {}", missing.join(", ")),
        "more of its devices are missing than its copies and parity make up for",
        "give these too; `ls` and `get` read what is left without them, and name what they cannot read",
    )
}
