//! The world around wattle: crashes, faults, schedules, a model and its checkers.
