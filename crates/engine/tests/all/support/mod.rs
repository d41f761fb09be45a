//! What tests build arrays of, and members that fail as they are told.

pub mod case;
pub mod commits;
pub mod drives;
pub mod members;
pub mod plain;
pub mod run;
pub mod zeros;
