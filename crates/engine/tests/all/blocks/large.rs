//! Ranges of which much cannot be read: how long that takes.

use std::time::Duration;

use wattle_engine::geometry::Level;

use super::*;

/// Sectors of the range.
const SECTORS: u64 = 1024;

fn big(level: Level) -> Fixture {
    Fixture::on(level, &DriveConfig { size_bytes: 2 << 20, ..DriveConfig::default() })
}

/// Every sector of a long range has to be tried by itself; drives try several at a time.
#[test]
fn a_long_unreadable_range_is_not_tried_one_sector_after_the_other() {
    for level in [Level::Raid1, Level::Raid5] {
        let mut fixture = big(level);
        let member = fixture.drive(fixture.first().data[0]);
        (0..SECTORS).for_each(|sector| member.latent(sector));
        let mut spec = fixture.spec();
        spec.tuning.read_errors_max = 1000;
        run(&mut fixture.world, spec, async move |core, array, volume| {
            let (began, before) = (core.now(), member.ops());
            let bytes = read(&volume, 0, SECTORS as usize).await.unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
            // A tenth of a millisecond each.
            let took = core.now() - began;
            assert!(took < Duration::from_millis(60), "{level}: {took:?}");
            assert!(member.ops() - before < 2 * SECTORS + 200, "{level}: {}", member.ops() - before);
            array.stop(&core).await.unwrap();
        });
    }
}

/// A drive that takes a second for each sector it cannot read is not asked for all of them while
/// redundancy can answer.
#[test]
fn a_drive_that_takes_long_to_fail_is_given_up_after_the_deadline() {
    for level in [Level::Raid1, Level::Raid5] {
        let mut fixture = big(level);
        let member = fixture.drive(fixture.first().data[0]);
        (0..SECTORS).for_each(|sector| member.latent(sector));
        let mut spec = fixture.spec();
        spec.tuning.read_errors_max = 1000;
        let deadline = spec.tuning.read_deadline;
        run(&mut fixture.world, spec, async move |core, array, volume| {
            member.slow(10_000);
            let began = core.now();
            let bytes = read(&volume, 0, CHUNK as usize).await.unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
            let took = core.now() - began;
            assert!(took < 5 * deadline, "{level}: {took:?}");
            member.slow(1);
            array.stop(&core).await.unwrap();
        });
    }
}
