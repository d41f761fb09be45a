use super::*;

fn bytes(content: &Content, sector: u64) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    content.fill(sector, &mut bytes);
    bytes
}

fn read(model: &mut VolumeHistory, sector: u64, content: &Content) -> Result<(), Wrong> {
    let reading = model.begin_read(sector);
    model.end_read(&reading, &bytes(content, sector), SectorView::default())
}

fn write(model: &mut VolumeHistory, forced: bool) -> Content {
    let version = model.next_version();
    let writing = model.begin_write(0..1, &version).unwrap();
    model.end_write(&writing, true, forced);
    version
}

#[test]
fn untouched_sectors_are_zeros_for_ever() {
    let mut model = VolumeHistory::new(4);
    let version = write(&mut model, false);
    model.power_cut();
    assert_eq!(read(&mut model, 1, &Content::Zeros), Ok(()));
    assert!(read(&mut model, 1, &version).is_err());
}

#[test]
fn an_acknowledged_write_is_what_is_read_and_another_sectors_version_is_not() {
    let mut model = VolumeHistory::new(4);
    let old = write(&mut model, false);
    let new = write(&mut model, false);
    assert!(read(&mut model, 0, &Content::Zeros).is_err());
    assert!(read(&mut model, 0, &old).is_err());
    assert_eq!(read(&mut model, 0, &new), Ok(()));
    let reading = model.begin_read(0);
    assert!(model.end_read(&reading, &bytes(&new, 1), SectorView::default()).is_err());
}

#[test]
fn a_broken_array_keeps_what_was_flushed_and_the_next_power_cut_still_counts() {
    for seen in [0, 1] {
        let mut model = VolumeHistory::new(1);
        let flushed = write(&mut model, false);
        let began = model.begin_flush();
        model.end_flush(began, true);
        let versions = [flushed, write(&mut model, false)];
        model.broke();
        assert!(read(&mut model, 0, &Content::Zeros).is_err());
        assert_eq!(read(&mut model, 0, &versions[seen]), Ok(()));
        assert!(read(&mut model, 0, &versions[1 - seen]).is_err());
        model.power_cut();
        assert_eq!(read(&mut model, 0, &versions[0]), Ok(()));
    }
}

#[test]
fn a_power_cut_leaves_any_version_since_the_last_flush_and_then_the_same_one() {
    for (left, flushed) in [(0, false), (1, false), (2, false), (2, true)] {
        let mut model = VolumeHistory::new(1);
        let versions = [Content::Zeros, write(&mut model, false), write(&mut model, false)];
        if flushed {
            let began = model.begin_flush();
            model.end_flush(began, true);
        }
        model.power_cut();
        if flushed {
            assert!(read(&mut model, 0, &versions[1]).is_err());
        }
        assert_eq!(read(&mut model, 0, &versions[left]), Ok(()));
        model.power_cut();
        assert!(read(&mut model, 0, &versions[(left + 1) % 3]).is_err());
        assert_eq!(read(&mut model, 0, &versions[left]), Ok(()));
    }
}

#[test]
fn a_flush_covers_only_what_was_acknowledged_before_it_began() {
    let mut model = VolumeHistory::new(1);
    let version = model.next_version();
    let writing = model.begin_write(0..1, &version).unwrap();
    let began = model.begin_flush();
    model.end_write(&writing, true, false);
    model.end_flush(began, true);
    model.power_cut();
    assert_eq!(read(&mut model, 0, &Content::Zeros), Ok(()));
}

#[test]
fn a_forced_write_survives() {
    let mut model = VolumeHistory::new(1);
    let old = write(&mut model, false);
    let forced = write(&mut model, true);
    model.power_cut();
    assert!(read(&mut model, 0, &Content::Zeros).is_err());
    assert!(read(&mut model, 0, &old).is_err());
    assert_eq!(read(&mut model, 0, &forced), Ok(()));
}

#[test]
fn of_two_writes_at_once_either_wins_but_not_both_in_turn() {
    let mut model = VolumeHistory::new(1);
    let (a, b) = (model.next_version(), model.next_version());
    let first = model.begin_write(0..1, &a).unwrap();
    let second = model.begin_write(0..1, &b).unwrap();
    model.end_write(&first, true, false);
    model.end_write(&second, true, false);
    assert_eq!(read(&mut model, 0, &a), Ok(()));
    assert!(read(&mut model, 0, &b).is_err());
}

#[test]
fn a_killed_program_loses_nothing_that_was_acknowledged_until_the_power_goes() {
    let mut model = VolumeHistory::new(1);
    let version = write(&mut model, false);
    model.killed();
    assert!(read(&mut model, 0, &Content::Zeros).is_err());
    assert_eq!(read(&mut model, 0, &version), Ok(()));
    model.power_cut();
    assert_eq!(read(&mut model, 0, &Content::Zeros), Ok(()));
}

#[test]
fn the_other_copy_shows_only_after_a_loss() {
    let mut model = VolumeHistory::new(1);
    let version = write(&mut model, false);
    model.power_cut();
    let unsynced = SectorView { copies_may_differ: true, ..SectorView::default() };
    let reading = model.begin_read(0);
    assert_eq!(model.end_read(&reading, &bytes(&version, 0), unsynced), Ok(()));
    let reading = model.begin_read(0);
    assert!(model.end_read(&reading, &bytes(&Content::Zeros, 0), unsynced).is_err());
    let reading = model.begin_read(0);
    let lost = SectorView { copy_lost: true, ..unsynced };
    assert_eq!(model.end_read(&reading, &bytes(&Content::Zeros, 0), lost), Ok(()));
}
