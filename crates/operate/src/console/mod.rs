//! The page of a machine's arrays.
