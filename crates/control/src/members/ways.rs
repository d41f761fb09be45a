//! Several block devices that are ways to one drive: found by the WWID or serial number that the
//! drive tells, then by what it shows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wattle_rt::{BackendError, Device, IoError, OpenError, OpenOptions, beside};

use super::drive_id::Comparison;
use super::paths::{FoundPath, drive};
use super::{Identity, MemberError, drive_id, open, open_error};
use crate::claim::Claim;

/// A drive that was found by several ways.
#[derive(Debug)]
pub(super) struct Ways {
    /// What the drive tells of itself.
    pub(super) id: String,
    paths: Vec<PathBuf>,
    size_bytes: u64,
    /// Where sysfs is.
    sys: PathBuf,
}

impl Ways {
    /// Looks at the drive by each way that is there.
    pub(super) fn look(
        name: &str,
        paths: &[PathBuf],
        sys: &Path,
    ) -> Result<(Device, Identity, Arc<Self>), MemberError> {
        let unknown = |why: String| MemberError::PathsUnknown { name: name.to_owned(), why };
        let mut found: Option<(Device, Identity, String)> = None;
        let mut absent = None;
        for path in paths {
            let shown = path.display().to_string();
            let device = match open(&shown, path, OpenOptions::default()) {
                Ok(device) => device,
                Err(error) if is_absent(&error) => {
                    absent = absent.or(Some(error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(rdev) = device.block_device_number() else {
                return Err(unknown(format!("{shown} is no block device")));
            };
            let id = drive_id::drive_id(sys, rdev);
            let id = id.ok_or_else(|| unknown(format!("{shown} tells no WWID and no serial number")))?;
            match &found {
                None => found = Some((device, Identity::Block { rdev }, id)),
                Some((first, _, own)) => {
                    let seen = drive_id::compare(first, &device);
                    if *own != id || seen == Comparison::Different {
                        return Err(MemberError::PathsDiffer { name: name.to_owned(), path: shown });
                    }
                    if seen == Comparison::Blank {
                        return Err(unknown(format!(
                            "nothing is on it that tells it from another drive with the number {id}"
                        )));
                    }
                }
            }
        }
        let Some((device, identity, id)) = found else {
            return Err(absent.unwrap_or_else(|| unknown("it has no path".to_owned())));
        };
        let (paths, size_bytes) = (paths.to_vec(), device.size_bytes());
        let ways = Self { id, paths, size_bytes, sys: sys.to_owned() };
        Ok((device, identity, Arc::new(ways)))
    }

    /// Opens the drive to use it, by each way that is there, with a lock on each.
    pub(super) fn claim(&self, name: &str, claim: Claim) -> Result<Device, MemberError> {
        let mut found: Vec<FoundPath> = Vec::new();
        for path in &self.paths {
            let shown = path.display().to_string();
            let device = match open(&shown, path, claim.options()) {
                Ok(device) => Some(device),
                Err(error) if is_absent(&error) => None,
                Err(error) => return Err(error),
            };
            if let Some(device) = &device {
                let rdev = device.block_device_number();
                let id = rdev.and_then(|rdev| drive_id::drive_id(&self.sys, rdev));
                if id.as_ref() != Some(&self.id) || device.size_bytes() != self.size_bytes {
                    return Err(MemberError::Changed { name: name.to_owned() });
                }
                let mut others = found.iter().filter_map(|path| path.device.as_ref());
                let is_same = |first| drive_id::compare(first, device) == Comparison::Same;
                if !others.next().is_none_or(is_same) {
                    return Err(MemberError::PathsDiffer { name: name.to_owned(), path: shown });
                }
                if !device.direct() {
                    let why = format!("{shown} goes through a cache of its own");
                    return Err(MemberError::PathsUnknown { name: name.to_owned(), why });
                }
            }
            found.push(FoundPath { name: shown, device, open: self.opener(path.clone(), claim) });
        }
        let Some(first) = found.iter().find_map(|path| path.device.clone()) else {
            return Err(open_error(name, OpenError::NotFound));
        };
        let no_thread = |source: IoError| MemberError::NoThread { name: name.to_owned(), source };
        let core = beside().map_err(|error| {
            no_thread(match error {
                BackendError::UringForbidden { errno } | BackendError::Resources { errno } => {
                    IoError::from_errno(errno)
                }
                _ => IoError::UNSUPPORTED,
            })
        })?;
        drive(&core, name, &first, found).map_err(no_thread)
    }

    /// Opens a way anew that was lost, if it leads to the same drive.
    fn opener(&self, path: PathBuf, claim: Claim) -> Arc<super::paths::OpenPath> {
        let (sys, id, size_bytes) = (self.sys.clone(), self.id.clone(), self.size_bytes);
        Arc::new(move || {
            let device = Device::open(&path, claim.options()).ok()?;
            let found = drive_id::drive_id(&sys, device.block_device_number()?)?;
            (found == id && device.size_bytes() == size_bytes && device.direct()).then_some(device)
        })
    }
}

/// A way that is not there now may be later; one that another holds, or that this user may not use,
/// is a reason to stop.
fn is_absent(error: &MemberError) -> bool {
    matches!(
        error,
        MemberError::Open { source: OpenError::NotFound | OpenError::Empty | OpenError::Other { .. }, .. }
    )
}
