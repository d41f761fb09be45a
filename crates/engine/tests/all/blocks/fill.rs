//! Filling a member: what a source can deliver comes from it, block by block.

use std::time::Duration;

use wattle_engine::ArrayHandle;
use wattle_engine::geometry::Level;
use wattle_engine::units::Sector;
use wattle_rt::Core;

use super::*;

/// The member that is being replaced has a list with one sector in it; the redundancy of another
/// one is silently wrong.
#[test]
fn a_replacement_gets_from_others_only_what_the_replaced_member_cannot_deliver() {
    for level in [Level::Raid1, Level::Raid10, Level::Raid5, Level::Raid6] {
        let mut fixture = Fixture::new(level);
        let first = fixture.first();
        let mut spec = fixture.spec();
        spec.tuning.sync.frozen = false;
        let slot = first.data[0];
        list(&mut spec.members[slot], 20..21);
        let slots = fixture.slots();
        spec.replacements = (0..slots).map(|_| MemberSpec::missing()).collect();
        spec.replacements[slot] = MemberSpec::blank(fixture.spare(), Sector(0));
        first.redundant.iter().for_each(|slot| fixture.drive(*slot).poke(0, b"X"));
        let replacement = fixture.drive(slots);
        replacement.poke(0, &[9; CHUNK as usize * SECTOR]);
        let run = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            while array.status(&core).await.replacements[slot].state.writable() {
                core.sleep(Duration::from_millis(10)).await;
            }
            assert!(replacement.peek(0, CHUNK as usize * SECTOR).iter().all(|byte| *byte == 0), "{level}");
            array.stop(&core).await.unwrap();
        });
        run.expect_done();
    }
}
