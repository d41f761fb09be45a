//! What `wattle why` says: for every decision what, why with numbers, and a command that helps.

use wattle_control::assemble::{Degraded, Policy, assemble};
use wattle_control::facts::{BadBlockEntry, DeviceRole, Features, MemberFacts, PplFacts, PplNewest};
use wattle_control::why::{Decision, Why, explain};
use wattle_control::{Check, Code, Forced, Problem};

use crate::support::{EVENTS, array, each, with_bitmap, without};

fn why(members: &[MemberFacts], policy: impl Into<Policy>) -> Why {
    explain(members, &assemble(members, policy).unwrap(), &[])
}

fn of<'a>(why: &'a Why, member: &str) -> &'a Decision {
    why.decisions.iter().find(|decision| decision.member.as_deref() == Some(member)).unwrap()
}

#[track_caller]
fn says<'a>(why: &'a Why, what: &str, evidence: &str, next: Option<&str>) -> &'a Decision {
    let found = why.decisions.iter().find(|decision| decision.what.contains(what));
    let found = found.unwrap_or_else(|| panic!("nothing says `{what}`: {why:#?}"));
    assert!(found.why.contains(evidence), "`{evidence}` is not in `{}`", found.why);
    assert_eq!(found.next.as_deref(), next, "{what}");
    found
}

#[test]
fn a_healthy_array_needs_nothing() {
    let why = why(&array(5, 4), Forced::default());
    assert_eq!((why.array.as_str(), why.decisions.len()), ("data", 6));
    let evidence = "m0, the freshest: 20 events, written 1970-01-01T00:33:20Z; 4 of 4 slots are in sync";
    says(&why, "may be read and written", evidence, None);
    says(&why, "nothing is to be resynced", "say clean at 20 events", None);
    says(&why, "in sync in slot 2", "20 events, as many as the freshest", None);
    assert!(why.decisions.iter().all(|decision| decision.next.is_none()));
}

#[test]
fn what_a_resync_rests_on() {
    let mut members = array(5, 4);
    each(&mut members, |superblock| superblock.resync_offset = 0);
    let serve = Some("wattle serve m0 m1 m2 m3");
    says(&why(&members, Forced::default()), "all of it is to be resynced", "dirty at 20 events", serve);
    with_bitmap(&mut members, 17, &[1, 2]);
    let bits = "2 of 112 bits set, last cleared at 17 events";
    says(&why(&members, Forced::default()), "2 of 112 regions are to be resynced", bits, serve);
    members.iter_mut().for_each(|member| member.bitmap_content.as_mut().unwrap().events = 12);
    let behind = "its bitmap has 12 events and the superblocks 20";
    says(&why(&members, Forced::default()), "all of it is to be resynced", behind, serve);
    each(&mut members, |superblock| superblock.resync_offset = 4096);
    says(&why(&members, Forced::default()), "from sector 4096 on", "in sync below sector 4096", serve);

    let mut members = array(5, 4);
    each(&mut members, |superblock| {
        superblock.resync_offset = 0;
        superblock.features = Features::PPL;
    });
    for member in &mut members {
        let newest = PplNewest::Header { generation: 8, entries: 3 };
        member.ppl = Some(PplFacts { start_sector: 16, len_sectors: 1024, newest });
    }
    let log = "the log of m1 has 3 entries at generation 8";
    says(&why(&members, Forced::default()), "partial parity logs are replayed", log, serve);
}

#[test]
fn members_that_may_come_back_say_what_they_lack() {
    for (behind, evidence) in [
        (4, "bits were last cleared at 14 events, so that it lacks only the 1 of 112 regions"),
        (9, "bits were cleared at 14 events, when it was gone: all of it is written again"),
    ] {
        let mut members = array(5, 4);
        with_bitmap(&mut members, 14, &[5]);
        members[2].superblock.events -= behind;
        each(&mut members[..2], |superblock| superblock.roles[2] = DeviceRole::Faulty);
        each(&mut members[3..], |superblock| superblock.roles[2] = DeviceRole::Faulty);
        members[2].name = "it's old".to_owned();
        let why = why(&members, Forced::default());
        let back = of(&why, "it's old");
        assert!(
            back.why.contains(evidence) && back.why.contains("it was recorded as failed"),
            "{}",
            back.why
        );
        assert!(
            back.why.contains(&format!("{} events, {behind} behind m0", EVENTS - behind)),
            "{}",
            back.why
        );
        let add = Some("serve it, then wattle add data 'it'\\''s old'");
        assert_eq!(back.next.as_deref(), add);
        says(&why, "slot 2 is empty", "it's old was in it", add);
    }
    let missing = without(array(5, 4), &[1]);
    says(
        &why(&missing, Forced::default()),
        "slot 1 is empty",
        "no member given",
        Some("serve it, then wattle add data NEW"),
    );
}

#[test]
fn what_keeps_an_array_from_being_used_has_a_command() {
    let mut dirty = array(5, 4);
    each(&mut dirty, |superblock| superblock.resync_offset = 0);
    let dirty = without(dirty, &[0]);
    let forced = Some("wattle serve --force=dirty-degraded m1 m2 m3");
    says(&why(&dirty, Forced::default()), "WTL-0049", "parity that does not fit", forced);
    let overridden = why(&dirty, Forced::default().with(Check::DirtyDegraded));
    says(&overridden, "goes on in spite of this", "--force=dirty-degraded was given", None);

    let never = Policy { forced: Forced::default(), degraded: Degraded::Never };
    let auto = Some("wattle serve --degraded=auto m0 m1 m2");
    says(&why(&without(array(5, 4), &[3]), never), "WTL-0061", "--degraded=never", auto);

    let mut twice = array(5, 4);
    twice.push(MemberFacts { name: "copy".to_owned(), ..twice[1].clone() });
    let one = Some("wattle serve m0 m1 m2 m3");
    says(&why(&twice, Forced::default()), "WTL-0045", "only one can be right", one);

    let mut reshaping = array(5, 4);
    each(&mut reshaping, |superblock| superblock.features = Features::RESHAPE);
    let kernel = Some("mdadm --assemble /dev/md/data m0 m1 m2 m3");
    says(&why(&reshaping, Forced::default()), "a reshape is in progress", "old geometry", kernel);

    let mut split = array(1, 2);
    split[0].superblock.roles[1] = DeviceRole::Faulty;
    split[1].superblock.roles[0] = DeviceRole::Faulty;
    let side = Some("wattle serve --force=split-brain m0 m1");
    says(&why(&split, Forced::default()), "WTL-0046", "changes of its own", side);
}

#[test]
fn bad_sectors_recoveries_and_members_that_cannot_be_used() {
    let mut members = array(1, 3);
    members[1].superblock.features = Features::BAD_BLOCKS;
    members[1].bad_blocks = Some(vec![
        BadBlockEntry { start_sector: 3000, len_sectors: 8 },
        BadBlockEntry { start_sector: 4000, len_sectors: 8 },
    ]);
    with_bitmap(&mut members, 14, &[5, 6]);
    let own = &mut members[2].superblock;
    own.features = own.features | Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP;
    own.recovery_offset = Some(128);
    let told = why(&members, Forced::default());
    assert!(of(&told, "m1").why.contains("8 KiB of its data in 2 ranges"), "{}", of(&told, "m1").why);
    let serve = Some("wattle serve m0 m1 m2");
    says(&told, "in slot 2, valid below sector 128", "only 2 of 112 regions are written again", serve);

    let damaged = Problem::new(Code::DamagedSuperblock, "m9: checksum", "it does not hold", "leave it out");
    let assembly = assemble(&members, Forced::default()).unwrap();
    let told = explain(&members, &assembly, &[damaged.of_member("m9")]);
    says(&told, "not used: m9: checksum", "it does not hold", Some("wattle examine m9"));
}
