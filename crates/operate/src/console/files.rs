//! Which files lie where the last check of an array found something: looked for once for each run,
//! one array after the other, on a thread of its own, because that takes as long as reading the
//! tree of a file system.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use wattle_server::socket::client::Servers;

use super::documents::ConsoleDocuments;
use super::view;
use crate::scrub_files::{ScrubFiles, to_be_named};

/// The array, and what lies there.
type Named = (String, ScrubFiles);

/// What was asked, and what answers.
pub struct FileNaming {
    /// By array: the run whose files were looked for last.
    asked: BTreeMap<String, u64>,
    is_busy: bool,
    found: (Sender<Named>, Receiver<Named>),
}

impl Default for FileNaming {
    fn default() -> Self {
        Self { asked: BTreeMap::new(), is_busy: false, found: mpsc::channel() }
    }
}

impl FileNaming {
    /// What was found since, by array.
    pub fn found(&mut self) -> Vec<(String, ScrubFiles)> {
        let found: Vec<_> = self.found.1.try_iter().collect();
        self.is_busy &= found.is_empty();
        found
    }

    /// Has the files of one array looked for of which they are not known, unless another is under
    /// way.
    pub fn ask(&mut self, servers: &Servers, documents: &Arc<dyn ConsoleDocuments>) {
        let all = servers
            .reports()
            .flat_map(|server| server.arrays.iter().map(move |array| (server, array)))
            .map(|(server, array)| (view::key(&server.server, array), server, array));
        let all: Vec<_> = all.collect();
        self.asked.retain(|key, _| all.iter().any(|(known, ..)| known == key));
        if self.is_busy {
            return;
        }
        let next = all.into_iter().find_map(|(key, server, array)| {
            let run = to_be_named(array).filter(|run| self.asked.get(&key) != Some(&run.run))?;
            Some((key, server, array, run))
        });
        let Some((key, server, array, run)) = next else { return };
        let (documents, sender) = (documents.clone(), self.found.0.clone());
        let (server, array, of, number) = (server.clone(), array.clone(), key.clone(), run.run);
        let run = run.clone();
        let work = move || {
            let found = catch_unwind(AssertUnwindSafe(|| documents.files(&server, &array, &run)));
            let none = |_| ScrubFiles {
                run: number,
                notes: vec!["files there cannot be named: looking for them failed".to_owned()],
                ..ScrubFiles::default()
            };
            let _ = sender.send((of, found.unwrap_or_else(none)));
        };
        // Without a thread it is tried again at the next look.
        if wattle_rt::helper_thread("wattle-files", work).is_ok() {
            self.is_busy = true;
            self.asked.insert(key, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::time::Duration;

    use serde_json::Value;
    use wattle_control::Problem;
    use wattle_server::fixtures::array;
    use wattle_server::protocol::report::{ArrayReport, ScrubReport, ServerReport};

    use super::*;

    /// Counts what it is asked, and fails for arrays of one name.
    #[derive(Default)]
    struct Names(Mutex<Vec<(String, u64)>>);

    impl ConsoleDocuments for Names {
        fn status(&self) -> Value {
            Value::Null
        }

        fn why(&self, _: Option<&str>) -> Result<Value, Problem> {
            Ok(Value::Null)
        }

        fn audit(&self) -> Result<Value, Problem> {
            Ok(Value::Null)
        }

        fn files(&self, _: &ServerReport, array: &ArrayReport, run: &ScrubReport) -> ScrubFiles {
            self.0.lock().unwrap().push((array.name.clone(), run.run));
            assert_ne!(array.name, "panics", "a test");
            ScrubFiles { run: run.run, ..ScrubFiles::default() }
        }
    }

    fn servers(runs: &[(&str, u64)]) -> Servers {
        let of = |(name, run): &(&str, u64)| {
            let scrub = format!(
                r#"{{"run":{run},"action":"check","started":"2026-01-01T00:00:00Z","outcome":"done","unreadable_sectors":8}}"#
            );
            let mut array = array(name, "raid1", &["a", "b"]);
            array.uuid = None;
            array.scrubs = vec![serde_json::from_str(&scrub).unwrap()];
            array
        };
        let server = ServerReport {
            server: "data".to_owned(),
            pid: 7,
            arrays: runs.iter().map(of).collect(),
            volumes: Vec::new(),
            groups: Vec::new(),
            threads: Vec::new(),
            cpu_ms: None,
            qos: Vec::new(),
            checkpoints: Vec::new(),
            reservations: Vec::new(),
            sole_array: None,
            stopped: Vec::new(),
        };
        Servers { answered: vec![(PathBuf::from("/run/data.sock"), server)], ..Servers::default() }
    }

    #[test]
    fn each_run_is_asked_once_and_one_that_fails_holds_back_no_other() {
        let named = Arc::new(Names::default());
        let documents: Arc<dyn ConsoleDocuments> = named.clone();
        let mut naming = FileNaming::default();
        let mut all = BTreeMap::new();
        for (runs, known) in [(&[("panics", 1), ("b", 1)][..], 2), (&[("panics", 1), ("b", 2)], 2)] {
            let servers = servers(runs);
            for _ in 0..3 {
                naming.ask(&servers, &documents);
                naming.ask(&servers, &documents);
                if naming.is_busy {
                    let found = naming.found.1.recv_timeout(Duration::from_secs(60)).unwrap();
                    naming.found.0.send(found).unwrap();
                }
                all.extend(naming.found());
            }
            assert_eq!(all.len(), known);
        }
        let asked = [("panics", 1), ("b", 1), ("b", 2)].map(|(name, run)| (name.to_owned(), run));
        assert_eq!(*named.0.lock().unwrap(), asked);
        assert!(all["data/panics"].notes[0].contains("failed"));
        assert_eq!(all["data/b"].run, 2);
    }
}
