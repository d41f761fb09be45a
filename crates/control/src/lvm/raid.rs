//! RAID volumes: md's levels over images that are volumes themselves. RAID 0 is a map; the others
//! run as arrays that are only read.
//!
//! Which images count is what dm-raid wrote to the volume beside each (docs/formats.md §12). Its
//! rules: the superblocks with the most events say which images failed, and an image that failed
//! stays out when it is back; each image's own superblock says how far it was rebuilt; the bitmap
//! says where parity and copies may differ. Where nothing was written yet the array is new: every
//! image counts, and none agrees with another.

use std::collections::BTreeMap;

use wattle_engine::geometry::{Geometry, Level, LevelKind, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::volume::{MapSegment, SegmentTarget};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, MemberState, Regions};
use wattle_format::dm::raid::{BITMAP_OFFSET_BYTES, SUPERBLOCK_BYTES, Superblock};
use wattle_format::lvm::{Image, LvSegment, Raid, SegmentKind};
use wattle_format::md::bitmap;

use super::open::{Opener, Plan, read};
use super::{older, problems};
use crate::layer::Layer;
use crate::md::facts::BitmapContent;
use crate::problem::{Check, Code, Forced, Problem};

/// A bitmap is bounded by the volume that it is on, which is an extent; this is one of the largest.
const BITMAP_BYTES_MAX: u64 = 64 << 20;

/// What is known of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// The text wants it to be rebuilt at the next activation.
    rebuild: bool,
    superblock: Option<Superblock>,
    bitmap: Option<BitmapContent>,
    /// A part of it is on a physical volume that the group went on without.
    left_behind: bool,
}

impl Known {
    fn events(&self) -> u64 {
        self.superblock.as_ref().map_or(0, Superblock::events)
    }
}

/// What becomes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    InSync,
    Rebuilding {
        valid_below: u64,
    },
    /// A part of it is on a physical volume that is missing or was cut short, or what is beside it
    /// cannot be read.
    Missing,
    /// It is on a physical volume whose text is older than the group's, or that the group went on
    /// without, and no other image tells that it is in sync.
    Older,
    /// The others say that it failed.
    Failed,
    /// The others went on without it.
    Stale,
    /// It was put in and nothing was written to it yet.
    New,
}

/// What the images are together.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    standings: Vec<Standing>,
    /// Redundancy was never made, or is being made from here on; `u64::MAX`: it is there.
    resync_from: u64,
    /// An image was out before: bits are then kept for its sake, too.
    was_degraded: bool,
}

/// Why the images are no array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// Between two shapes.
    #[error("its shape is being changed (`lvconvert`), or was and left its data elsewhere in the images")]
    Reshaping,
    /// Text and superblock contradict each other.
    #[error("the superblock beside image {image} describes another array than the volume group's text")]
    Foreign {
        /// Which.
        image: usize,
    },
    /// Which image is new is not known.
    #[error("the images that are there were never written to, and others are missing")]
    AllNew,
}

impl Opener<'_> {
    pub(super) async fn raid(
        &mut self,
        full_name: &str,
        segment: &LvSegment,
        raid: &Raid,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        if raid.raid_type.level == 0 {
            return self.raid0(segment, raid, plan).await;
        }
        let refused = |refusal: Refusal| problems::raid_refused(full_name, refusal);
        // Where nothing is moved to another place the reserve of a reshape is behind the data.
        let extents = raid.usable_extents(segment.extents).unwrap_or(0);
        let image_extents = raid.image_extents(extents).unwrap_or(0);
        let component = Sector(self.bytes(image_extents) / 512);
        let geometry = geometry(full_name, raid, component)?;
        let (mut known, mut members, mut older) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (ix, image) in raid.images.iter().enumerate() {
            let found = match self.image(image, &mut plan.notes).await {
                Err(problem) if problem.code == Code::OlderPhysical => {
                    older.insert(ix, problem);
                    None
                }
                found => found?,
            };
            let (what, member) =
                found.map_or((None, MemberSpec::missing()), |(what, member)| (Some(what), member));
            known.push(what);
            members.push(member);
        }
        if !self.forced.has(Check::OlderPhysical) {
            for image in left_behind(&known) {
                older.insert(image, older::left_behind(&raid.images[image].data, &self.group.vg));
                known[image] = None;
            }
        }
        if raid.images.iter().any(|image| self.has_checksums(&image.data)) {
            plan.notes.push(format!(
                "{full_name}: its images have checksums (dm-integrity), which are not compared with what is read"
            ));
        }
        let first_older = || older.values().next().cloned();
        let verdict = judge(raid, geometry.array_sectors(), &known);
        let mut verdict = verdict.map_err(|refusal| first_older().unwrap_or_else(|| refused(refusal)))?;
        older.keys().for_each(|&image| verdict.standings[image] = Standing::Older);
        for ((member, standing), image) in members.iter_mut().zip(&verdict.standings).zip(0..) {
            match standing {
                Standing::InSync => {}
                Standing::Rebuilding { valid_below } => {
                    member.state = MemberState::Rebuilding { valid_below: Sector(*valid_below) };
                }
                Standing::Missing | Standing::Older | Standing::Failed | Standing::Stale | Standing::New => {
                    *member = MemberSpec::missing();
                }
            }
            plan.notes.extend(standing.note(full_name, image));
        }
        let lost: MemberSet = (0..)
            .zip(&members)
            .filter(|(_, member)| member.state != MemberState::InSync)
            .map(|(ix, _)| MemberIx(ix))
            .collect();
        plan.images_out += lost.iter().count();
        if !geometry.survives(&lost) {
            let why: Vec<_> =
                verdict.standings.iter().enumerate().filter_map(|(ix, standing)| standing.why(ix)).collect();
            return Err(first_older().unwrap_or_else(|| problems::too_few_images(full_name, &why)));
        }
        let mut untrusted = untrusted(raid, &geometry, &verdict, &known, self.is_unsynced(full_name));
        if !lost.is_empty() && geometry.kind() == LevelKind::Parity {
            let (note, needs) = without_parity(full_name, untrusted, self.forced);
            plan.notes.extend(note);
            untrusted = needs;
        }
        if !lost.is_empty() && verdict.was_degraded && geometry.kind() == LevelKind::Parity {
            plan.notes.push(format!(
                "{full_name}: an image was out before it was stopped, and nothing says whether it was stopped in good order: \
                 where it was being written when a machine crashed, what is computed may be wrong"
            ));
        }
        let spec = ArraySpec {
            read_only: true,
            synced_below: Sector(0),
            needs: Some(untrusted),
            ..ArraySpec::new(full_name, geometry, members)
        };
        let array = ArrayHandle::start(self.core, spec, Box::new(NoMetadata)).await;
        self.running.push(Layer::Array(array.clone()));
        let leg = plan.leg(full_name, &array.volume(), 0);
        plan.segments.push(MapSegment { len_bytes: self.bytes(extents), target: SegmentTarget::Linear(leg) });
        Ok(())
    }

    async fn raid0(&mut self, segment: &LvSegment, raid: &Raid, plan: &mut Plan) -> Result<(), Problem> {
        let mut legs = Vec::new();
        for image in &raid.images {
            legs.push(self.part(&image.data, plan).await?.0);
        }
        let stripe_bytes = raid.stripe_sectors.unwrap_or(0).saturating_mul(512);
        let len_bytes = self.bytes(segment.extents);
        plan.segments.push(MapSegment { len_bytes, target: SegmentTarget::Striped { stripe_bytes, legs } });
        Ok(())
    }

    /// An image and what is beside it; `None` where a part of either is missing or cannot be read.
    async fn image(
        &mut self,
        image: &Image,
        notes: &mut Vec<String>,
    ) -> Result<Option<(Known, MemberSpec)>, Problem> {
        let Some(meta) = &image.meta else { return Ok(None) };
        // What `vgreduce --removemissing` leaves of an image that was lost.
        if self.is_error(&image.data) || self.is_error(meta) {
            return Ok(None);
        }
        let data = self.open_part(&image.data).await?;
        let meta = self.open_part(meta).await?;
        if data.partial || meta.partial {
            return Ok(None);
        }
        let reader = self.reader(&meta)?;
        let superblock = match read(&reader, 0, SUPERBLOCK_BYTES).await {
            // As the kernel does: what is no superblock is one that was not written yet.
            Ok(bytes) => Superblock::decode(&bytes).unwrap_or(None),
            Err(problem) => {
                notes.push(problem.what);
                return Ok(None);
            }
        };
        let header = read(&reader, BITMAP_OFFSET_BYTES, bitmap::HEADER_BYTES).await.ok();
        let header = header.and_then(|bytes| bitmap::Header::decode(&bytes).ok());
        let bitmap = match header.as_ref().and_then(bitmap::Header::image_bytes) {
            Some(len) if len <= BITMAP_BYTES_MAX => {
                let bytes = read(&reader, BITMAP_OFFSET_BYTES, len as usize).await.ok();
                header.zip(bytes).and_then(|(header, bytes)| BitmapContent::of(&header, &bytes))
            }
            _ => None,
        };
        let rebuild = self.group.vg.lv(&image.data).is_some_and(|lv| lv.has_status("REBUILD"));
        let device = data.volume.device(self.core, data.volume.name());
        let device = device.map_err(|error| problems::unreadable(data.volume.name(), 0, error))?;
        let left_behind = data.outdated || meta.outdated;
        let known = Known { rebuild, superblock, bitmap, left_behind };
        Ok(Some((known, MemberSpec::in_sync(device, Sector(0)))))
    }

    fn is_error(&self, name: &str) -> bool {
        let segments = self.group.vg.lv(name).map(|lv| &lv.segments[..]).unwrap_or_default();
        segments.iter().any(|segment| segment.kind == SegmentKind::Error)
    }

    fn has_checksums(&self, image: &str) -> bool {
        let segments = self.group.vg.lv(image).map(|lv| &lv.segments[..]).unwrap_or_default();
        segments.iter().any(|segment| matches!(segment.kind, SegmentKind::Integrity { .. }))
    }

    /// Whether it was made without making redundancy.
    fn is_unsynced(&self, full_name: &str) -> bool {
        let lv = self.group.vg.lvs.iter().find(|lv| self.group.full_name(lv) == full_name);
        lv.is_some_and(|lv| lv.has_status("NOTSYNCED"))
    }
}

fn geometry(full_name: &str, raid: &Raid, component: Sector) -> Result<Geometry, Problem> {
    let level = Level::from_md(raid.raid_type.level)
        .ok_or_else(|| problems::not_mapped(full_name, "its level is not known"))?;
    let params = Params {
        level,
        layout: layout(raid),
        chunk: Sector(raid.stripe_sectors.unwrap_or(0)),
        raid_disks: u32::try_from(raid.images.len()).unwrap_or(u32::MAX),
        component_size: component,
        member_sizes: Vec::new(),
    };
    Geometry::new(&params).map_err(|error| problems::not_mapped(full_name, &error.to_string()))
}

fn layout(raid: &Raid) -> u32 {
    let copies = match raid.raid_type.level {
        10 => u32::try_from(raid.data_copies.unwrap_or(2)).unwrap_or(u32::MAX),
        _ => 0,
    };
    raid.raid_type.layout | copies
}

/// The images that were left behind, where nothing tells that the others still count on them: no
/// image that was written to since is as new.
fn left_behind(known: &[Option<Known>]) -> Vec<usize> {
    let told = known.iter().flatten().filter(|known| !known.left_behind).map(Known::events).max();
    let is_untold = |known: &Known| known.left_behind && told.is_none_or(|events| known.events() > events);
    let all = known.iter().enumerate();
    all.filter(|(_, known)| known.as_ref().is_some_and(is_untold)).map(|(ix, _)| ix).collect()
}

/// What images are worth, by what is beside them; `None` for one that is missing. `size` is that of
/// the array by the text.
fn judge(raid: &Raid, size: Sector, known: &[Option<Known>]) -> Result<Verdict, Refusal> {
    for (image, superblock) in
        known.iter().enumerate().filter_map(|(ix, known)| Some((ix, known.as_ref()?.superblock.as_ref()?)))
    {
        check(raid, size, image, superblock)?;
    }
    let superblocks = || known.iter().flatten().filter_map(|known| known.superblock.as_ref());
    let Some(events) = superblocks().map(Superblock::events).max() else {
        if known.contains(&None) {
            return Err(Refusal::AllNew);
        }
        let standings = vec![Standing::InSync; known.len()];
        return Ok(Verdict { standings, resync_from: 0, was_degraded: false });
    };
    let newest = || superblocks().filter(|superblock| superblock.events() == events);
    let is_failed = |image: usize| newest().any(|superblock| superblock.is_failed(image as u32));
    let standing = |(image, known): (usize, &Option<Known>)| match known {
        None => Standing::Missing,
        _ if is_failed(image) => Standing::Failed,
        Some(Known { superblock: None, .. }) => Standing::New,
        // A crash may come between the superblocks of two images.
        Some(Known { superblock: Some(superblock), .. })
            if superblock.events().saturating_add(1) < events =>
        {
            Standing::Stale
        }
        Some(Known { rebuild: true, .. }) => Standing::Rebuilding { valid_below: 0 },
        Some(Known { superblock: Some(superblock), .. }) => match superblock.recovery_offset() {
            u64::MAX => Standing::InSync,
            valid_below => Standing::Rebuilding { valid_below },
        },
    };
    Ok(Verdict {
        standings: known.iter().enumerate().map(standing).collect(),
        resync_from: newest().map(Superblock::resync_offset).min().unwrap_or(0),
        was_degraded: (0..known.len()).any(is_failed),
    })
}

/// Whether a superblock is that of an image of this array, which is not between two shapes.
fn check(raid: &Raid, size: Sector, image: usize, superblock: &Superblock) -> Result<(), Refusal> {
    let shape = superblock.shape();
    if superblock.is_reshaping() || superblock.data_offsets() != (0, 0) {
        return Err(Refusal::Reshaping);
    }
    let striped = raid.raid_type.level != 1;
    let same = shape.devices as usize == raid.images.len()
        && superblock.position() as usize == image
        && shape.level == raid.raid_type.level
        && (!striped
            || shape.layout == layout(raid)
                && u64::from(shape.stripe_sectors) == raid.stripe_sectors.unwrap_or(0));
    // A reserve that is not what the text says would put the array's end elsewhere. Without one a
    // change of the size may not have reached the superblocks yet. `device_sectors` says nothing:
    // after more stripes Linux has there what they would be with fewer.
    let has_reserve = raid.reserve_extents.is_some_and(|reserve| reserve > 0);
    let same = same && (!has_reserve || [0, size.0].contains(&shape.array_sectors));
    if same { Ok(()) } else { Err(Refusal::Foreign { image }) }
}

/// Where parity and copies may differ.
fn untrusted(
    raid: &Raid,
    geometry: &Geometry,
    verdict: &Verdict,
    known: &[Option<Known>],
    never_synced: bool,
) -> Regions {
    let total = geometry.sync_sectors();
    let in_use = known.iter().zip(&verdict.standings).filter(|(_, standing)| **standing == Standing::InSync);
    let bitmaps: Option<Vec<_>> =
        in_use.map(|(known, _)| known.as_ref().and_then(|known| known.bitmap.as_ref())).collect();
    let size = Sector(raid.region_sectors.unwrap_or(0).max(1));
    let fits = |bitmap: &&BitmapContent| {
        !bitmap.stale && bitmap.covered_sectors == total.0 && bitmap.region_sectors == size.0
    };
    let Some(bitmaps) = bitmaps.filter(|bitmaps| bitmaps.iter().all(fits) && !never_synced) else {
        return Regions::full(total, total);
    };
    let mut regions = Regions::new(size, total);
    if !verdict.was_degraded {
        bitmaps.iter().flat_map(|bitmap| bitmap.set()).for_each(|region| regions.insert(region));
    }
    if verdict.resync_from < total.0 {
        regions.indexes_of(Sector(verdict.resync_from)..total).for_each(|region| regions.insert(region));
    }
    regions
}

/// What its operator is told of a volume that lacks an image, where parity may be wrong in
/// `untrusted`; and where it counts as wrong then. What lies on the images that are there is read
/// in any case.
fn without_parity(full_name: &str, untrusted: Regions, forced: Forced) -> (Option<String>, Regions) {
    let count = untrusted.iter().count();
    if count == 0 {
        return (None, untrusted);
    }
    let force = Check::DirtyDegraded;
    let fact = format!(
        "{full_name}: an image is missing, and in {count} of {} regions parity was never made, or a resync of it did not end",
        untrusted.count()
    );
    if forced.has(force) {
        let note = format!("{fact}; --force={force}: what is computed there may be wrong");
        return (Some(note), Regions::new(untrusted.size(), untrusted.total()));
    }
    let note = format!(
        "{fact}: what the missing image had there cannot be read; --force={force} computes it and may return wrong data"
    );
    (Some(note), untrusted)
}

impl Standing {
    fn why(self, image: usize) -> Option<String> {
        let why = match self {
            Self::InSync => return None,
            Self::Rebuilding { .. } => "is being rebuilt",
            Self::Missing => "is missing, or not all of it is there",
            Self::Older => {
                "is on a physical volume with an older text of the group, or that it went on without"
            }
            Self::Failed => "failed, as the others say",
            Self::Stale => "is out of date: the others went on without it",
            Self::New => "was put in and never filled",
        };
        Some(format!("image {image} {why}"))
    }

    fn note(self, full_name: &str, image: usize) -> Option<String> {
        self.why(image).map(|why| format!("{full_name}: {why}; what it holds is read from the others"))
    }
}

#[cfg(test)]
mod tests {
    use wattle_format::dm::raid::DmRaidShape;
    use wattle_format::lvm::RAID_TYPES;

    use super::*;

    /// A RAID 5 of three images.
    fn raid() -> Raid {
        let image = |ix: usize| Image { meta: Some(format!("m{ix}")), data: format!("i{ix}") };
        Raid {
            raid_type: *RAID_TYPES.iter().find(|raid| raid.name == "raid5").unwrap(),
            stripe_sectors: Some(128),
            region_sectors: Some(1024),
            data_copies: None,
            data_offset_sectors: None,
            reserve_extents: None,
            images: (0..3).map(image).collect(),
        }
    }

    fn image(position: u32, change: impl FnOnce(&mut Superblock)) -> Option<Known> {
        let shape = DmRaidShape {
            devices: 3,
            level: 5,
            layout: 2,
            stripe_sectors: 128,
            array_sectors: 8192,
            device_sectors: 4096,
        };
        let mut superblock = Superblock::new(&shape, position, u64::MAX);
        superblock.set_events(10);
        change(&mut superblock);
        Some(Known { rebuild: false, superblock: Some(superblock), bitmap: None, left_behind: false })
    }

    fn standings(images: &[Option<Known>]) -> Vec<Standing> {
        judge(&raid(), Sector(8192), images).unwrap().standings
    }

    #[test]
    fn which_images_count() {
        use Standing::{Failed, InSync, Missing, New, Rebuilding, Stale};
        let good = |position| image(position, |_| ());
        let new = || Some(Known { rebuild: false, superblock: None, bitmap: None, left_behind: false });
        assert_eq!(standings(&[good(0), good(1), good(2)]), [InSync; 3]);
        assert_eq!(standings(&[good(0), None, good(2)]), [InSync, Missing, InSync]);
        assert_eq!(standings(&[good(0), new(), good(2)]), [InSync, New, InSync]);
        let filling = image(1, |superblock| superblock.set_recovery_offset(512));
        let filled = Rebuilding { valid_below: 512 };
        assert_eq!(standings(&[good(0), filling, good(2)]), [InSync, filled, InSync]);
        let failing = |position| image(position, |superblock| superblock.set_failed(1, true));
        assert_eq!(standings(&[failing(0), good(1), failing(2)]), [InSync, Failed, InSync]);
        for (events, standing) in [(9, InSync), (8, Stale)] {
            let older = image(1, |superblock| superblock.set_events(events));
            assert_eq!(standings(&[good(0), older, good(2)]), [InSync, standing, InSync]);
        }
        // What an older superblock says of others does not count.
        let older = image(1, |superblock| {
            superblock.set_events(9);
            superblock.set_failed(0, true);
        });
        assert_eq!(standings(&[good(0), older, good(2)]), [InSync; 3]);
        let rebuild = good(1).map(|known| Known { rebuild: true, ..known });
        let from_the_start = Rebuilding { valid_below: 0 };
        assert_eq!(standings(&[good(0), rebuild, good(2)]), [InSync, from_the_start, InSync]);
    }

    #[test]
    fn an_image_that_was_left_behind_counts_if_a_newer_one_counts_on_it() {
        let at = |position, events| image(position, |superblock| superblock.set_events(events));
        let behind = |events| at(1, events).map(|known| Known { left_behind: true, ..known });
        assert_eq!(left_behind(&[None, behind(10), None]), [1], "nothing tells");
        for (events, left) in [(9, &[][..]), (10, &[]), (11, &[1])] {
            assert_eq!(left_behind(&[at(0, 10), behind(events), None]), left, "{events} events");
        }
        assert_eq!(left_behind(&[at(0, 10), at(1, 12), None]), [0_usize; 0]);
    }

    #[test]
    fn what_is_no_array() {
        let good = |position| image(position, |_| ());
        let new = || Some(Known { rebuild: false, superblock: None, bitmap: None, left_behind: false });
        let fresh = judge(&raid(), Sector(8192), &[new(), new(), new()]).unwrap();
        assert_eq!((fresh.standings, fresh.resync_from), (vec![Standing::InSync; 3], 0));
        assert_eq!(judge(&raid(), Sector(8192), &[new(), None, new()]), Err(Refusal::AllNew));
        assert_eq!(
            judge(&raid(), Sector(8192), &[good(0), good(2), good(1)]),
            Err(Refusal::Foreign { image: 1 })
        );
        let other = Raid { stripe_sectors: Some(64), ..raid() };
        let all = [good(0), good(1), good(2)];
        assert_eq!(judge(&other, Sector(8192), &all), Err(Refusal::Foreign { image: 0 }));
        // With extents in reserve the superblocks have to agree on where the array ends.
        let reserving = Raid { reserve_extents: Some(1), ..raid() };
        assert!(judge(&reserving, Sector(8192), &all).is_ok() && judge(&raid(), Sector(9216), &all).is_ok());
        assert_eq!(judge(&reserving, Sector(9216), &all), Err(Refusal::Foreign { image: 0 }));
    }

    #[test]
    fn where_parity_is_not_trusted() {
        let raid = raid();
        let geometry = geometry("vg/lv", &raid, Sector(4096)).unwrap();
        let known = |bits: u8| -> Vec<_> {
            let bitmap = BitmapContent {
                events: 10,
                events_cleared: 10,
                stale: false,
                region_sectors: 1024,
                covered_sectors: 4096,
                sweep_secs: 5,
                bits: vec![bits],
            };
            let with = |known: Known| Known { bitmap: Some(bitmap.clone()), ..known };
            (0..3).map(|position| image(position, |_| ()).map(with)).collect()
        };
        let regions = |known: &[Option<Known>], never_synced, resync_from, was_degraded| {
            let standings = vec![Standing::InSync; 3];
            let verdict = Verdict { standings, resync_from, was_degraded };
            let untrusted = untrusted(&raid, &geometry, &verdict, known, never_synced);
            (0..4).map(|region| untrusted.any_in(Sector(region * 1024)..Sector(region * 1024 + 1))).collect()
        };
        let clean: Vec<bool> = regions(&known(0), false, u64::MAX, false);
        assert_eq!(clean, [false; 4]);
        assert_eq!(regions(&known(1 << 1), false, u64::MAX, false), [false, true, false, false]);
        assert_eq!(
            regions(&known(1 << 1), false, u64::MAX, true),
            [false; 4],
            "kept for an image that failed"
        );
        assert_eq!(regions(&known(0), false, 2048, false), [false, false, true, true]);
        assert_eq!(regions(&known(0), true, u64::MAX, false), [true; 4], "made without redundancy");
        let without: Vec<_> = (0..3).map(|position| image(position, |_| ())).collect();
        assert_eq!(regions(&without, false, u64::MAX, false), [true; 4], "no bitmap that can be read");
    }

    #[test]
    fn what_only_untrusted_parity_has_is_read_when_that_is_forced() {
        let total = Sector(4096);
        let (plain, forced) = (Forced::default(), Forced::default().with(Check::DirtyDegraded));
        let (note, needs) = without_parity("vg/lv", Regions::full(total, total), plain);
        assert!(needs.any_in(Sector(0)..total), "not a guess");
        assert!(note.is_some_and(|note| note.contains("vg/lv") && note.contains("--force=dirty-degraded")));
        let (note, needs) = without_parity("vg/lv", Regions::full(total, total), forced);
        assert!(!needs.any_in(Sector(0)..total));
        assert!(note.is_some_and(|note| note.contains("may be wrong")));
        for forced in [plain, forced] {
            let (note, needs) = without_parity("vg/lv", Regions::new(total, total), forced);
            assert!(note.is_none() && needs.iter().next().is_none(), "all parity is right");
        }
    }
}
