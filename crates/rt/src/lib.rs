//! The runtime: one executor per core, ops that own their buffers, and backends for io_uring, plain system calls and simulated drives.
