//! Sectors that cannot be read, at more members than one.

use super::*;

/// Two members with one bad sector each, at different places of the same stripe (or megabyte):
/// every sector can be had.
#[test]
fn bad_sectors_of_two_members_at_different_places_are_both_recovered() {
    for level in [Level::Raid1, Level::Raid5] {
        let members = if level == Level::Raid1 { 2 } else { 4 };
        let mut fixture = Fixture::new(level, members, 1);
        let pattern = fixture.fill();
        let places = match level {
            Level::Raid1 => [(0, 3), (1, 40)],
            _ => [fixture.place(3), fixture.place(CHUNK + 20)],
        };
        for (slot, sector) in places {
            fixture.drive(slot).latent(sector);
        }
        let spec = fixture.spec(&[]);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            let bytes = read(&volume, 0, pattern.len()).await;
            assert!(bytes.as_ref() == Ok(&pattern), "{level:?}: {:?}", bytes.err());
            array.stop(&core).await.unwrap();
        });
    }
}

#[test]
fn a_write_survives_bad_sectors_of_two_members_at_different_places() {
    let mut fixture = Fixture::new(Level::Raid5, 4, 1);
    let mut pattern = fixture.fill();
    let places = [fixture.place(3), fixture.place(CHUNK + 20)];
    for (slot, sector) in places {
        fixture.drive(slot).latent(sector);
    }
    let spec = fixture.spec(&[]);
    run(&mut fixture.world, spec, async move |core, array, volume| {
        // Chunk 0 and half a block of chunk 1: the rest of the stripe is read for the parity.
        let new = [0x77; CHUNK as usize * 512 + 512];
        pattern[..new.len()].copy_from_slice(&new);
        assert_eq!(write(&volume, 0, &new).await, Ok(()));
        assert!(read(&volume, 0, pattern.len()).await == Ok(pattern));
        array.stop(&core).await.unwrap();
    });
}

/// What cannot be recovered is the error of the requests for it, not of those that came at the
/// same time.
#[test]
fn a_bad_row_is_nobody_elses_error() {
    let mut fixture = Fixture::new(Level::Raid5, 4, 1);
    let pattern = fixture.fill();
    let (lost, _) = fixture.place(0);
    let (slot, sector) = fixture.place(CHUNK + 20);
    fixture.drive(slot).latent(sector);
    let spec = fixture.spec(&[lost]);
    run(&mut fixture.world, spec, async move |core, array, volume| {
        let at = |sector: u64| {
            let volume = volume.clone();
            core.spawn(async move { read(&volume, sector * 512, 4096).await })
        };
        // The first is alone; the others wait for it and leave together.
        let mut reads = vec![at(8)];
        core.sleep(Duration::from_micros(20)).await;
        reads.extend([0, 16, 24].map(at));
        let mut results = Vec::new();
        for one in reads {
            results.push(one.await);
        }
        assert!(results[0].as_deref() == Ok(&pattern[8 * 512..16 * 512]));
        assert!(results[1].as_deref() == Ok(&pattern[..4096]), "{:?}", results[1].as_ref().err());
        assert_eq!(results[2], Err(VolumeError::Unreadable));
        assert!(results[3].as_deref() == Ok(&pattern[24 * 512..32 * 512]), "{:?}", results[3].as_ref().err());

        let at = |sector: u64| {
            let volume = volume.clone();
            core.spawn(async move { write(&volume, sector * 512, &[1; 4096]).await })
        };
        let mut writes = vec![at(CHUNK * 2 + 8)];
        core.sleep(Duration::from_micros(20)).await;
        writes.extend([0, 16, 24].map(at));
        let mut results = Vec::new();
        for one in writes {
            results.push(one.await);
        }
        assert_eq!(results, [Ok(()), Ok(()), Err(VolumeError::Unreadable), Ok(())]);
        array.stop(&core).await.unwrap();
    });
}

/// Bad sectors of the only copy cost what is in them, not the array.
#[test]
fn many_bad_sectors_of_the_last_copy_do_not_break_the_array() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let mut fixture = Fixture::new(level, members, 1);
        fixture.fill();
        let other = if level == Level::Raid1 { 0 } else { fixture.place(0).0 };
        let last = (other + 1) % members;
        for sector in 0..60 {
            fixture.drive(last).latent(sector * 4);
        }
        let spec = fixture.spec(&[other]);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            for sector in 0..volume.size_bytes() / 512 {
                let _ = read(&volume, sector * 512, 512).await;
            }
            let status = array.status(&core).await;
            assert!(!status.broken, "{level:?}: {status:?}");
            array.stop(&core).await.unwrap();
        });
    }
}

/// A scrub of members of which each has more bad sectors than a member may have: none is failed,
/// since the others have what it lacks, and it has what they lack.
#[test]
fn many_bad_sectors_of_several_members_are_all_mended() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let mut fixture = Fixture::new(level, members, 1);
        let pattern = fixture.fill();
        for member in 0..members {
            for nth in 0..30 {
                fixture.drive(member).latent(nth * 8 + 2 * member as u64);
            }
        }
        let spec = fixture.spec(&[]);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            array.start_job(&core, Job::Check { range: None }).await.unwrap();
            while array.report(&core).await.is_none_or(|report| report.action != JobKind::Check) {
                core.sleep(Duration::from_millis(1)).await;
            }
            assert!(read(&volume, 0, pattern.len()).await == Ok(pattern), "{level:?}");
            let status = array.status(&core).await;
            assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{level:?}");
            array.stop(&core).await.unwrap();
        });
        let left = |member| (0..MEMBER_SECTORS).any(|sector| fixture.drive(member).is_unreadable(sector));
        assert!(!(0..members).any(left), "{level:?}");
    }
}
