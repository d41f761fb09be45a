//! Where notes for people go.

use std::fmt;
use std::rc::Rc;

/// Takes notes for people, one line each. The process decides what becomes of them.
#[derive(Clone)]
pub struct ServerLog(Rc<dyn Fn(&str)>);

impl ServerLog {
    /// Notes go to `sink`.
    pub fn new(sink: impl Fn(&str) + 'static) -> Self {
        Self(Rc::new(sink))
    }

    /// Takes one line. It may hold names from drives and clients: the sink makes it safe to show.
    pub fn note(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}
