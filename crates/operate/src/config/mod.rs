//! What a service shall run: the files of `wattle up`.
