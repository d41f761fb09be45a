//! Volumes offered to clients: the NBD server.
