//! What the operator of a volume says of its use: whether it is written, left out, started by
//! itself. Pure.

use wattle_format::lvm::{Lv, Vg};

use super::edit::{bad, next, plain_volume, visible_volume};
use crate::problem::{Code, Problem};

const WRITE: &str = "WRITE";
const SKIP: &str = "ACTIVATION_SKIP";
const NOT_BY_ITSELF: &str = "NOAUTOACTIVATE";

/// What is to be said from now on; `None` for what stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeFlagChanges {
    /// It is not written (`lvchange --permission r`).
    pub read_only: Option<bool>,
    /// It is left out unless it is named (`lvchange --setactivationskip y`).
    pub skipped: Option<bool>,
    /// Systems activate it when they start (`lvchange --setautoactivation y`).
    pub by_itself: Option<bool>,
}

/// The group with a volume of which this is said.
///
/// # Errors
/// A [`Problem`]: it cannot be changed here, or all of it is said already.
pub fn set_flags(vg: &Vg, name: &str, flags: VolumeFlagChanges) -> Result<Vg, Problem> {
    let lv = visible_volume(vg, name)?;
    if flags.read_only.is_some() {
        let lv = plain_volume(vg, name)?;
        if lv.flags.iter().any(|flag| flag == "WRITE_LOCKED") {
            return Err(Problem::new(
                Code::NotSupportedYet,
                format!("{}/{name} has the flag WRITE_LOCKED", vg.name),
                "only an operator that knows why may let it be written",
                "change it with LVM2",
            ));
        }
    }
    let mut changed = lv.clone();
    if let Some(read_only) = flags.read_only {
        changed.status.retain(|word| word != WRITE);
        if !read_only {
            // Where LVM2 writes it.
            let at = changed.status.iter().position(|word| word == "READ").map_or(0, |at| at + 1);
            changed.status.insert(at, WRITE.to_owned());
        }
    }
    for (flag, is_set) in
        [(SKIP, flags.skipped), (NOT_BY_ITSELF, flags.by_itself.map(|by_itself| !by_itself))]
    {
        let Some(is_set) = is_set else { continue };
        changed.flags.retain(|known| known != flag);
        if is_set {
            changed.flags.push(flag.to_owned());
        }
    }
    let said = |lv: &Lv| (lv.is_writable(), is_skipped(lv), starts_by_itself(lv));
    if said(&changed) == said(lv) {
        return Err(bad(
            format!("{}/{name} is so already", vg.name),
            "nothing would change",
            "see `wattle lv list -o +lv_permissions,lv_skip_activation,lv_autoactivation`",
        ));
    }
    let mut vg = next(vg)?;
    for known in vg.lvs.iter_mut().filter(|known| known.id == changed.id) {
        *known = changed.clone();
    }
    Ok(vg)
}

/// Whether a volume is left out unless it is named.
#[must_use]
pub fn is_skipped(lv: &Lv) -> bool {
    lv.flags.iter().any(|flag| flag == SKIP)
}

/// Whether systems activate a volume when they start.
#[must_use]
pub fn starts_by_itself(lv: &Lv) -> bool {
    lv.flags.iter().all(|flag| flag != NOT_BY_ITSELF)
}
