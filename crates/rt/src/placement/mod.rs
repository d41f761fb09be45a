//! Where the cores of a runtime run.
//!
//! A machine may have several memory nodes: what lies at another one is reached slower. There every
//! core is kept to the processors of one node, so that its buffers and rings are where it works,
//! and a runtime that fits one node stays on one, if it can on the one that its drives are attached
//! to. Within the node the system moves cores as it likes. On request each core has a processor of
//! its own.
//!
//! What is no core (helper threads, children) goes where the process could go before.

mod processors;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

pub use processors::{NoProcessors, Processors};

/// What the process could use before its cores were placed. Never changes afterwards.
static EVERYWHERE: OnceLock<Processors> = OnceLock::new();

/// The memory nodes of a machine, with the processors of each that this process may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryNodes(Vec<(usize, Processors)>);

/// The processors of each core, by core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    cores: Vec<Processors>,
}

impl MemoryNodes {
    /// Those of this machine; none where the system does not tell.
    #[must_use]
    pub fn look() -> Self {
        Processors::allowed().map_or_else(
            |_| Self::default(),
            |allowed| Self::look_in(Path::new("/sys/devices/system/node"), &allowed),
        )
    }

    /// Those that directories `nodeN` in `dir` tell of, without what is not allowed.
    fn look_in(dir: &Path, allowed: &Processors) -> Self {
        let mut nodes = Vec::new();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_prefix("node")).and_then(|n| n.parse().ok());
            let list = fs::read_to_string(entry.path().join("cpulist"));
            // A node may have memory and no processor: its list is empty.
            let list = list.ok().and_then(|list| list.parse::<Processors>().ok());
            if let (Some(number), Some(list)) = (number, list) {
                nodes.push((number, list.of_both(allowed)));
            }
        }
        nodes.retain(|(_, processors)| processors.count() > 0);
        nodes.sort_by_key(|&(number, _)| number);
        Self(nodes)
    }

    /// The node that this thread runs on at this moment, if it is one of these.
    #[must_use]
    pub fn here(&self) -> Option<usize> {
        // SAFETY: sched_getcpu takes nothing.
        let processor = usize::try_from(unsafe { libc::sched_getcpu() }).ok()?;
        self.0.iter().find(|(_, processors)| processors.contains(processor)).map(|&(number, _)| number)
    }

    /// Where that many cores go. All on one node if they fit it: on `near` if possible, else on the
    /// one with the most processors. Else they are dealt out, `near` first, so that the nodes are
    /// equally full. `None`, that is anywhere, if there are not two nodes.
    #[must_use]
    pub fn place(&self, cores: usize, near: Option<usize>) -> Option<Placement> {
        if self.0.len() < 2 {
            return None;
        }
        let mut free: Vec<_> = self.0.iter().map(|(_, processors)| processors.count() as isize).collect();
        let is_near = |ix: usize| near == Some(self.0[ix].0);
        let fits = |ix: &usize| free[*ix] >= cores as isize;
        // Of equals, the first.
        let best = |free: &[isize], among: &mut dyn Iterator<Item = usize>| {
            among.max_by_key(|&ix| (free[ix], is_near(ix), std::cmp::Reverse(ix)))
        };
        let one = (0..self.0.len()).filter(fits).find(|&ix| is_near(ix));
        let one = one.or_else(|| best(&free, &mut (0..self.0.len()).filter(fits)));
        let mut nodes = match one {
            Some(ix) => vec![ix; cores],
            None => (0..cores)
                .filter_map(|_| {
                    let ix = best(&free, &mut (0..self.0.len()))?;
                    free[ix] -= 1;
                    Some(ix)
                })
                .collect(),
        };
        nodes.sort_unstable();
        Some(Placement { cores: nodes.into_iter().map(|ix| self.0[ix].1.clone()).collect() })
    }

    /// What a node has.
    #[must_use]
    pub fn processors(&self, node: usize) -> Option<&Processors> {
        self.0.iter().find(|&&(number, _)| number == node).map(|(_, processors)| processors)
    }
}

impl Placement {
    /// One processor for each core, in the order of their numbers, and over again if there are more
    /// cores.
    #[must_use]
    pub fn pinned(processors: &Processors, cores: usize) -> Self {
        Self { cores: processors.numbers().cycle().take(cores).map(Processors::one).collect() }
    }

    /// Takes this thread, that of a core, to its place.
    pub(crate) fn take(&self, core: usize) -> io::Result<()> {
        let Some(place) = self.cores.get(core) else { return Ok(()) };
        if EVERYWHERE.get().is_none() {
            let _ = EVERYWHERE.set(Processors::allowed()?);
        }
        place.keep_thread()
    }
}

/// Lets this thread, which a core may have started, go where the process could go before.
pub(crate) fn leave() {
    if let Some(everywhere) = EVERYWHERE.get() {
        // What could be used before and now cannot: then it stays where it is.
        let _ = everywhere.keep_thread();
    }
}

/// Lets this thread go everywhere again when dropped.
pub(crate) struct LeaveAtEnd;

impl Drop for LeaveAtEnd {
    fn drop(&mut self) {
        leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> Processors {
        list.parse().unwrap()
    }

    fn nodes(lists: &[&str]) -> MemoryNodes {
        MemoryNodes(lists.iter().map(|list| set(list)).enumerate().collect())
    }

    fn places(nodes: &MemoryNodes, cores: usize, near: Option<usize>) -> Vec<String> {
        let placement = nodes.place(cores, near).unwrap();
        placement.cores.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_node_is_no_place() {
        assert_eq!(nodes(&[]).place(4, None), None);
        assert_eq!(nodes(&["0-7"]).place(4, Some(0)), None);
    }

    #[test]
    fn cores_that_fit_a_node_share_one() {
        let machine = nodes(&["0-3", "4-7"]);
        assert_eq!(places(&machine, 2, Some(1)), ["4-7", "4-7"]);
        assert_eq!(places(&machine, 4, Some(0)), ["0-3"; 4]);
        assert_eq!(places(&machine, 2, None), ["0-3", "0-3"], "of equals the first");
        // The drives are at a small node: the cores stay together all the same.
        assert_eq!(places(&nodes(&["0-1", "2-9"]), 4, Some(0)), ["2-9"; 4]);
        assert_eq!(places(&machine, 1, Some(7)), ["0-3"], "a node that there is not");
    }

    #[test]
    fn cores_that_fit_no_node_fill_all_alike() {
        let machine = nodes(&["0-3", "4-7"]);
        let dealt = places(&machine, 6, Some(1));
        assert_eq!(dealt, ["0-3", "0-3", "0-3", "4-7", "4-7", "4-7"]);
        assert_eq!(places(&machine, 5, Some(1)), ["0-3", "0-3", "4-7", "4-7", "4-7"], "the odd one is near");
        let uneven = places(&nodes(&["0-1", "2-7"]), 8, None);
        assert_eq!(uneven.iter().filter(|place| *place == "0-1").count(), 2);
        // More cores than processors.
        assert_eq!(places(&nodes(&["0", "1"]), 5, None).len(), 5);
    }

    #[test]
    fn pinned_cores_have_a_processor_each() {
        let cores =
            |placement: Placement| placement.cores.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(cores(Placement::pinned(&set("2,5-6"), 3)), ["2", "5", "6"]);
        assert_eq!(cores(Placement::pinned(&set("2,5"), 3)), ["2", "5", "2"]);
    }

    #[test]
    fn the_system_tells_of_its_nodes() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path();
        for (node, list) in
            [("node0", "0-3,8-11\n"), ("node1", "4-7,12-15\n"), ("node2", "\n"), ("node10", "16\n")]
        {
            fs::create_dir_all(dir.join(node)).unwrap();
            fs::write(dir.join(node).join("cpulist"), list).unwrap();
        }
        fs::write(dir.join("online"), "0-2,10\n").unwrap();
        let all = MemoryNodes::look_in(dir, &set("0-15"));
        assert_eq!(
            all,
            MemoryNodes(vec![(0, set("0-3,8-11")), (1, set("4-7,12-15"))]),
            "memory without processors is no place"
        );
        assert_eq!(all.processors(1), Some(&set("4-7,12-15")));
        let some = MemoryNodes::look_in(dir, &set("2-5"));
        assert_eq!(some, MemoryNodes(vec![(0, set("2-3")), (1, set("4-5"))]));
        assert_eq!(MemoryNodes::look_in(dir, &set("0-2")).place(2, None), None, "kept to one node already");
        assert_eq!(MemoryNodes::look_in(&dir.join("gone"), &set("0-2")), MemoryNodes::default());
    }
}
