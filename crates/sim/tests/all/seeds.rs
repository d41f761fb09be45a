//! Seeds that found bugs, each with the bug; and a range of seeds, for those to come.

use wattle_sim::{RunOptions, Scenario, run};

#[track_caller]
fn passes(seed: u64) {
    let report = run(&Scenario::new(seed), RunOptions::default());
    assert_eq!(report.wrong, None, "seed {seed}; replay: cargo run --release -p wattle-sim -- {seed}");
}

/// Also at the other speed of jobs: it was drawn differently when some of the bugs were found.
#[track_caller]
fn passes_at_either_speed(seed: u64) {
    passes(seed);
    let drawn = Scenario::new(seed);
    let other = Scenario { slow_jobs: !drawn.slow_jobs, ..drawn };
    assert_eq!(
        run(&other, RunOptions::default()).wrong,
        None,
        "seed {seed} with slow jobs: {}",
        other.slow_jobs
    );
}

macro_rules! seeds {
    ($($(#[$bug:meta])* $name:ident: $($seed:literal),*;)*) => {$(
        $(#[$bug])*
        #[test]
        fn $name() {
            $(passes_at_either_speed($seed);)*
        }
    )*};
}

seeds! {
    /// An unaligned write, a discard or a zeroing did not count as in flight: the array was
    /// recorded clean in the middle of it.
    exclusive_writes_keep_the_array_dirty: 26, 75, 168, 176, 180;
    /// A member that vanished from an idle array made the stop fail, although redundancy covers it.
    a_stop_survives_a_member_that_is_gone: 98, 6270;
    /// An array that broke while it was being recorded dirty was stopped as if in good order.
    a_broken_array_is_not_stopped_in_good_order: 381, 3198, 4710;
    /// Parity of the write that broke the array was used to reconstruct, and gave bytes that no
    /// client wrote.
    a_broken_array_reconstructs_nothing: 6036, 9681, 18033, 23748, 28134;
    /// Two bad sectors on two members, in different rows of a stripe or chunk, were taken for two
    /// losses in every row.
    bad_sectors_of_several_members_are_read_around: 184, 251, 559, 754, 839;
    /// The same in writes, which read before they write.
    bad_sectors_of_several_members_do_not_stop_writes: 585, 824;
    /// Reads of other clients that had come in the same batch failed with the one that could not be
    /// served.
    a_request_fails_for_its_own_sectors_only: 29236, 30512;
    /// A return to clean that a member did not take left it with the event count that the next
    /// round used to count it out.
    a_generation_has_one_meaning: 452, 1271, 2941, 3826, 4953, 5108;
    /// Two crashes while the array was recorded dirty left whole members two events behind, and the
    /// array was refused.
    two_crashes_in_a_row_leave_no_member_stale: 5999, 33770;
    /// The replacement of a member that had failed beside it was left out of a stripe's writes, and
    /// took the slot all the same.
    a_replacement_takes_the_writes_of_a_failed_member: 636;
    /// Whether a device sits elsewhere in the array was asked of the wrong seat: it took two.
    nobody_sits_in_two_seats: 1534;
    /// A read that was answered late is not where it was in its request's buffer, and could not be
    /// joined to the rest.
    late_reads_are_put_together: 34, 71, 222;
    /// A mirror started with its last copy counted as in sync, so that a flush did not count out
    /// the copies that were away.
    a_flush_counts_out_who_may_return: 1151, 10897;
    /// A device admitted while a record was being written was forgotten by it, and joined without a
    /// superblock.
    who_joins_during_a_record_is_not_forgotten: 393, 423, 459;
    /// A spare that was offered again was known twice, and its superblock as a spare written over
    /// the one it had as a replacement.
    a_spare_that_is_offered_again_is_one_device: 31566, 44103, 54437;
    /// Every record of a degraded 0.90 array moved its failed members on in the table, until it was
    /// full and the array broke.
    failed_members_stay_in_one_place_of_an_old_table: 78292;
    /// A resync was recorded as finished on the others while the member that had taken its writes
    /// failed to flush them: back after a power cut it counted as clean.
    what_a_member_does_not_flush_is_recorded_by_nobody: 5008565, 5029889, 5078747;
    /// Parity was written in the middle of a range of bad sectors, and there was no room to record
    /// that: the resync began anew for ever.
    a_resync_passes_what_it_has_no_room_to_record: 5106940;
    /// After a crash a partial parity log was followed, and a replacement that had what its member
    /// had lost in the cache took the slot.
    replacements_are_copied_anew_beside_a_log: 10006667;
    /// A resync that had nothing to read knew no speed to have a share of beside clients, and never
    /// went on.
    jobs_that_read_nothing_go_on_beside_clients: 7508, 8423;
    /// With a partial parity log, single bad sectors were taken for whole pages: beyond redundancy
    /// where nothing was lost.
    bad_sectors_are_read_around_beside_a_log: 1124, 1866, 4370, 118688;
    /// A device that was named while it took over a slot was looked up in the old seat: the member
    /// it replaced left, and it was forgotten.
    who_takes_over_a_slot_is_not_removed_for_whom_it_replaces: 5009754, 5061565, 5021796, 5050942, 5108382;
    /// Following a log, reads were begun before it was clear that a source was missing, and nothing
    /// waited for them.
    nothing_is_in_flight_after_a_replay_that_lacks_a_source: 106374;
    /// The model took an array for synced whose log was cut short: that is resynced, and until then
    /// nothing makes up for a member.
    a_log_that_was_cut_short_is_resynced: 30187866;
    /// What plays the kernel resynced the drives that had been in the slots before the last
    /// replacement.
    a_resync_is_of_the_drives_in_the_slots: 30373098;
    /// A drive that nothing made up for lost its cache when it was plugged in again, and was held
    /// to what it had acknowledged.
    a_drive_of_a_broken_array_keeps_its_cache: 40023457;
    /// A read that was under way when a drive lost its power was answered from what was left.
    a_drive_without_power_answers_nothing: 40188724;
    /// Parity that a resync could not make was recorded as bad on its member and not on the
    /// replacement of that, which took the slot and with it what was never made: data was
    /// reconstructed from it.
    parity_that_nobody_can_make_is_bad_on_the_replacement_too: 50154409;
    /// The member of a slot failed beside a replacement with a partial parity log: parity went to
    /// the replacement without an entry.
    a_replacement_takes_the_log_too: 50036863;
    /// The model knew of no second copy where there is parity: after a crash, a sector of a member
    /// that had become unreadable was in its replacement as it had been written last.
    a_replacement_is_a_copy_of_a_member_with_parity_too: 70075483;
    /// Of two members with as many events, the one that the other had gone on without was taken for
    /// current.
    whom_the_array_went_on_without_is_out_at_equal_events: 2008568;
    /// The simulator's own superblocks chose one of two that had gone on without each other.
    two_that_went_on_without_each_other_are_refused: 910083442;
    /// Two crashes while a member was taken in: one that did not know it yet was taken for the
    /// other half of a split.
    a_member_that_is_taken_in_splits_nothing: 100580288;
    /// After a log was followed, the power went while that was recorded: some superblocks said
    /// clean, and a replacement's still said how far it had been copied before the crash.
    a_replacement_is_recorded_as_no_copy_before_the_array_is_clean: 110817151;
    /// An entry whose parity was copied in part when the power went was followed in no part of it.
    an_entry_is_followed_as_far_as_its_parity_has_been_copied: 80093536;
    /// While one core let requests in again after a discard, another's cache still had what was
    /// discarded: parity was made from it.
    no_core_lets_requests_in_before_all_caches_are_empty: 70499573;
    /// A member came back to be filled, and the power went when its list of bad sectors had been
    /// emptied and its old superblock was still there, which said how far it had been filled
    /// before.
    nobody_believes_a_member_whose_list_of_bad_sectors_was_emptied: 140190833;
    /// The model asked of an array that a failed flush had broken what that flush had dropped from
    /// the drive's cache.
    a_broken_array_promises_nothing_that_was_not_flushed: 141038418;
    /// The model counted a member out for good whose return was recorded by a program that was
    /// killed then, and that was whole when the power went.
    who_is_found_joining_is_counted_in: 154004968;
    /// Two members were filled together and one of them failed: the other's write was under way
    /// when its range was given back, and when the array had been stopped.
    nothing_is_given_back_while_a_write_is_under_way: 160749482;
    /// The program was killed before it had recorded that a mirror's first member was away, which
    /// came back without what it had in its cache: the model knew of no power cut.
    who_comes_back_uncounted_has_what_it_had: 160966013;
    /// A drive went with many reads of single blocks at it, the first of which told so: the model
    /// took the others, which nothing waits for, for work that a stopped array still does.
    reads_left_at_a_drive_that_is_gone_are_no_work: 6902913;
    /// An order to put a bitmap on that had waited while the array was stopped wrote it on members
    /// that were another server's by then.
    an_order_that_waited_for_a_stop_writes_nothing: 2093;
}

#[test]
fn the_first_seeds_pass() {
    (0..4000).for_each(passes);
}

/// A seed that is replayed must tell the same story.
#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..40 {
        let once = || run(&Scenario::new(seed), RunOptions::default());
        let (first, second) = (once(), once());
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(format!("{:?}", first.stats), format!("{:?}", second.stats), "seed {seed}");
    }
}

/// What is never reached is not tested: the first seeds reach every state that the checks are
/// about.
#[test]
fn the_first_seeds_reach_everything() {
    let mut stats = wattle_sim::client::Stats::default();
    (0..400).for_each(|seed| stats += run(&Scenario::new(seed), RunOptions::default()).stats);
    let reached = [
        stats.cuts,
        stats.kills,
        stats.errors,
        stats.degraded,
        stats.clean_degraded,
        stats.unsynced,
        stats.write_hole_refusals,
        stats.not_enough,
        stats.commits,
        stats.audits,
        stats.seen,
    ];
    assert!(reached.iter().all(|&count| count > 10), "{stats:?}");
}
