//! Scan, assemble, create and commit metadata: what an array is, and who may use it.
