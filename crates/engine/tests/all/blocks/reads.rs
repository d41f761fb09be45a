//! Reads, and the reads of writes: a block that its member delivers comes from this member and is
//! left alone, whatever becomes of the blocks beside it.

use wattle_engine::MemberState;
use wattle_engine::geometry::Level;
use wattle_engine::units::Sector;
use wattle_rt::{Buf, Durability};

use super::*;

const REDUNDANT: [Level; 5] = [Level::Raid1, Level::Raid10, Level::Raid4, Level::Raid5, Level::Raid6];

/// How a sector comes to be unreadable.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unreadable {
    /// Nothing is known of it: reads of it fail.
    Latent,
    /// It is in the member's list.
    Listed,
}

/// All zeros; the redundancy of the first sector is silently wrong, and sector 20 of the member
/// that holds it cannot be read.
#[test]
fn a_readable_neighbour_of_an_unreadable_sector_comes_from_its_member_and_stays() {
    for level in REDUNDANT {
        for unreadable in [Unreadable::Latent, Unreadable::Listed] {
            let mut fixture = Fixture::new(level);
            let first = fixture.first();
            let mut spec = fixture.spec();
            let member = fixture.drive(first.data[0]);
            first.redundant.iter().for_each(|slot| fixture.drive(*slot).poke(0, b"X"));
            match unreadable {
                Unreadable::Latent => member.latent(20),
                Unreadable::Listed => list(&mut spec.members[first.data[0]], 20..21),
            }
            run(&mut fixture.world, spec, async move |core, array, volume| {
                // Copies are read in turn: enough reads begin at every copy.
                for _ in 0..6 {
                    let bytes = read(&volume, 0, CHUNK as usize).await.unwrap();
                    assert!(bytes[SECTOR..].iter().all(|byte| *byte == 0), "{level} {unreadable:?}");
                    if !matches!(level, Level::Raid1 | Level::Raid10) {
                        assert_eq!(bytes[0], 0, "{level} {unreadable:?}");
                    }
                }
                assert_eq!(member.peek(0, 1), [0], "{level} {unreadable:?}: a good sector was overwritten");
                if unreadable == Unreadable::Latent && !matches!(level, Level::Raid1 | Level::Raid10) {
                    assert!(!member.is_unreadable(20), "{level}: the sector that failed is written again");
                }
                array.stop(&core).await.unwrap();
            });
        }
    }
}

/// After a crash, before the resync, copies may differ. Which copy answers for a sector does not
/// depend on what else is read with it.
#[test]
fn before_a_resync_the_size_of_a_read_does_not_choose_the_copy() {
    for level in [Level::Raid1, Level::Raid10] {
        for unreadable in [Unreadable::Latent, Unreadable::Listed] {
            let mut fixture = Fixture::new(level);
            let mut spec = fixture.spec();
            spec.synced_below = Sector(0);
            spec.unclean = true;
            let (a, b) = (fixture.drive(0), fixture.drive(1));
            a.poke(0, &[b'A'; 32 * SECTOR]);
            b.poke(0, &[b'B'; 32 * SECTOR]);
            match unreadable {
                Unreadable::Latent => a.latent(24),
                Unreadable::Listed => list(&mut spec.members[0], 24..32),
            }
            let seen = run(&mut fixture.world, spec, async move |core, array, volume| {
                let mut seen = String::new();
                for sectors in [8, 32, 8, 32] {
                    let bytes = read(&volume, 0, sectors).await.unwrap();
                    seen.push(char::from(bytes[0]));
                    if sectors == 32 {
                        seen.push(char::from(bytes[24 * SECTOR]));
                    }
                }
                array.stop(&core).await.unwrap();
                (seen, char::from(a.peek(0, 1)[0]))
            });
            assert_eq!(seen, ("AABAAB".to_owned(), 'A'), "{level} {unreadable:?}");
        }
    }
}

/// A member that is being filled is current up to a position: what lies below is its own.
#[test]
fn what_lies_below_the_position_of_a_rebuild_comes_from_the_member() {
    for level in REDUNDANT {
        let mut fixture = Fixture::new(level);
        let first = fixture.first();
        let mut spec = fixture.spec();
        // Mirrors: the first copy that can be read answers.
        let mirrored = matches!(level, Level::Raid1 | Level::Raid10);
        if mirrored {
            spec.synced_below = Sector(0);
            spec.unclean = true;
        }
        spec.members[first.data[0]].state = MemberState::Rebuilding { valid_below: Sector(16) };
        first.redundant.iter().for_each(|slot| fixture.drive(*slot).poke(0, b"X"));
        run(&mut fixture.world, spec, async move |core, array, volume| {
            for sectors in [8, CHUNK as usize, 8] {
                assert_eq!(read(&volume, 0, sectors).await.unwrap()[0], 0, "{level}: {sectors} sectors");
            }
            array.stop(&core).await.unwrap();
        });
    }
}

/// A write to one chunk reads others for the parity. The written chunk and another one have an
/// unreadable sector each, so that all ways but recovery are shut; P is silently wrong in the first
/// sector.
#[test]
fn a_write_that_recovers_one_sector_leaves_its_neighbours_alone() {
    for unreadable in [Unreadable::Latent, Unreadable::Listed] {
        let mut fixture = Fixture::new(Level::Raid6);
        let first = fixture.first();
        let mut spec = fixture.spec();
        let (written, other) = (fixture.drive(first.data[0]), fixture.drive(first.data[2]));
        let parity = fixture.drive(first.redundant[0]);
        parity.poke(0, b"X");
        match unreadable {
            Unreadable::Latent => {
                written.latent(3);
                other.latent(20);
            }
            Unreadable::Listed => {
                list(&mut spec.members[first.data[0]], 3..4);
                list(&mut spec.members[first.data[2]], 20..21);
            }
        }
        run(&mut fixture.world, spec, async move |core, array, volume| {
            let ones = BufMut::copy_of(&[1; CHUNK as usize * SECTOR]).freeze();
            volume.write(0, ones, Durability::Cached).await.unwrap();
            assert_eq!(other.peek(0, 1), [0], "{unreadable:?}: a good sector was overwritten");
            // The other data blocks are zeros: new parity is the new data, from what members hold.
            assert_eq!(parity.peek(0, 1), [1], "{unreadable:?}");
            let bytes = read(&volume, 0, 3 * CHUNK as usize).await.unwrap();
            let (new, old) = bytes.split_at(CHUNK as usize * SECTOR);
            assert!(new.iter().all(|byte| *byte == 1) && old.iter().all(|byte| *byte == 0));
            array.stop(&core).await.unwrap();
        });
    }
}

/// Beyond redundancy only what cannot be had is an error.
#[test]
fn past_redundancy_only_the_blocks_that_cannot_be_had_make_errors() {
    for level in [Level::Raid1, Level::Raid5] {
        let mut fixture = Fixture::new(level);
        let first = fixture.first();
        let member = fixture.drive(first.data[0]);
        let mut spec = fixture.spec();
        spec.members[first.redundant[0]] = MemberSpec::missing();
        member.poke(0, &[7; CHUNK as usize * SECTOR]);
        member.latent(20);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            for sector in 0..CHUNK {
                let bytes = read(&volume, sector * 512, 1).await;
                let right = if sector == 20 { Err(VolumeError::Unreadable) } else { Ok(vec![7; SECTOR]) };
                assert!(bytes == right, "{level}: sector {sector}");
            }
            assert_eq!(read(&volume, 0, CHUNK as usize).await, Err(VolumeError::Unreadable));
            // A new content makes it readable.
            volume.write(20 * 512, Buf::zeros(512), Durability::Cached).await.unwrap();
            assert!(read(&volume, 0, CHUNK as usize).await.is_ok());
            array.stop(&core).await.unwrap();
        });
    }
}
