//! Old mirrors, and what a pvmove in progress is made of. The others are copied from the first leg,
//! so it is right wherever any is. Without it another leg is right where the mirror's log, if it
//! has one on disk, says that the legs are alike, and nowhere else.

use wattle_engine::volume::{Leg, MapSegment, SegmentTarget};
use wattle_format::dm::mirror::{BITS_OFFSET_BYTES, HEADER_BYTES, MirrorLog};
use wattle_format::lvm::segment::Stripe;

use super::open::{Opener, Plan, read};
use super::overlay::RUNS_MAX;
use super::problems;
use crate::problem::{Code, Problem};

/// No mirror that LVM2 makes has as many: a region of the usual 512 KiB for each of 8 TiB.
const REGIONS_MAX: u64 = 1 << 24;

impl Opener<'_> {
    /// `log`: the volume with the log, and the size of a region in sectors.
    pub(super) async fn mirror(
        &mut self,
        full_name: &str,
        len_bytes: u64,
        legs: &[Stripe],
        log: Option<(&str, u64)>,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        let mut other = None;
        for (ix, stripe) in legs.iter().enumerate() {
            let mut alone = Plan::default();
            match self.leg(stripe, len_bytes, &mut alone).await {
                Ok(_) if alone.partial || alone.outdated => continue,
                Err(problem) if problem.code == Code::OlderPhysical => continue,
                found => found?,
            };
            let leg = self.leg(stripe, len_bytes, plan).await?;
            if ix == 0 {
                plan.segments.push(MapSegment { len_bytes, target: SegmentTarget::Linear(leg) });
                return Ok(());
            }
            other = Some(leg);
            break;
        }
        let in_doubt = |why: &str| problems::mirror_in_doubt(full_name, why);
        let Some(leg) = other else { return Err(in_doubt("so are the others")) };
        let Some((log, region_sectors)) = log else {
            return Err(in_doubt("it has no log on disk"));
        };
        let region_bytes = region_sectors.saturating_mul(512);
        let regions = len_bytes.checked_div(region_bytes).map_or(u64::MAX, |whole| whole.saturating_add(1));
        if regions > REGIONS_MAX {
            return Err(problems::not_mapped(full_name, "its log has too many regions"));
        }
        let log = self.open_part(log).await?;
        if log.partial || log.outdated {
            return Err(in_doubt("its log is, too"));
        }
        let reader = self.reader(&log)?;
        let header = MirrorLog::decode(&read(&reader, 0, HEADER_BYTES).await?);
        let header = header.map_err(|error| in_doubt(&error.to_string()))?;
        let bits = read(&reader, BITS_OFFSET_BYTES, regions.div_ceil(8) as usize).await?;
        let segments = alike(len_bytes, region_bytes, leg, |region| header.is_clean(&bits, region));
        let segments = segments.ok_or_else(|| problems::too_scattered(full_name))?;
        let complete = segments.iter().all(|segment| segment.target != SegmentTarget::Missing);
        if segments.iter().all(|segment| segment.target == SegmentTarget::Missing) {
            return Err(in_doubt("its log says of no region that the legs are alike"));
        }
        plan.partial |= !complete;
        plan.notes.push(format!(
            "{full_name}: the first leg of the mirror is missing; another one is read where the log says that they are alike"
        ));
        plan.segments.extend(segments);
        Ok(())
    }
}

/// One leg, where it is known to be like the first one; `None` if these places are too many.
fn alike(
    len_bytes: u64,
    region_bytes: u64,
    leg: Leg,
    is_clean: impl Fn(u64) -> bool,
) -> Option<Vec<MapSegment>> {
    let mut segments: Vec<MapSegment> = Vec::new();
    let mut at = 0;
    while at < len_bytes {
        let len = region_bytes.min(len_bytes - at);
        let clean = is_clean(at / region_bytes);
        match segments.last_mut() {
            Some(last) if (last.target != SegmentTarget::Missing) == clean => last.len_bytes += len,
            _ => {
                let offset_bytes = leg.offset_bytes.saturating_add(at);
                let target = if clean {
                    SegmentTarget::Linear(Leg { offset_bytes, ..leg })
                } else {
                    SegmentTarget::Missing
                };
                segments.push(MapSegment { len_bytes: len, target });
                if segments.len() > RUNS_MAX {
                    return None;
                }
            }
        }
        at += len;
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_alike_is_read() {
        let leg = Leg { below: 3, offset_bytes: 1 << 20 };
        let linear = |at: u64| SegmentTarget::Linear(Leg { offset_bytes: (1 << 20) + at, ..leg });
        let segments = alike(4 * 8192 + 512, 8192, leg, |region| region != 1).unwrap();
        let expected =
            [(8192, linear(0)), (8192, SegmentTarget::Missing), (2 * 8192 + 512, linear(2 * 8192))];
        let expected = expected.map(|(len_bytes, target)| MapSegment { len_bytes, target });
        assert_eq!(segments, expected);
        let missing = MapSegment { len_bytes: 10_240, target: SegmentTarget::Missing };
        assert_eq!(alike(10_240, 8192, leg, |_| false), Some(vec![missing]));
    }

    /// A log that says the opposite of each region and the next makes a map as large as the text
    /// says that the mirror is, on a few kilobytes of it.
    #[test]
    fn a_log_that_scatters_the_leg_is_no_map() {
        let leg = Leg { below: 0, offset_bytes: 0 };
        let of = |regions: u64| alike(regions * 512, 512, leg, |region| region % 2 == 0);
        assert_eq!(of(1000).map(|segments| segments.len()), Some(1000));
        assert_eq!(of(RUNS_MAX as u64 + 1), None);
    }
}
