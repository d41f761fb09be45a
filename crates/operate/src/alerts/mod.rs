//! What has to be told, what was told, and the channels that it goes through.
