//! The data plane: geometry, plans, stripes, mirrors and degraded I/O.
