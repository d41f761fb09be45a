//! What has to do with what: volumes, groups and arrays that share a layer stop together, and what
//! shares none with them is apart.

use std::collections::BTreeSet;
use std::rc::Rc;

use wattle_control::{ArrayId, MemberId, Stack};
use wattle_format::lvm::Id;

use crate::array::Served;
use crate::exports::Offered;

/// A layer that several things may lie on. A drive is none: its partitions are each for itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SharedLayer {
    Array(ArrayId),
    Group(Id),
    Encrypted(String),
    Layered(String),
    /// What is offered under this name, itself.
    Volume(String),
}

/// Something that runs, which an operator may name.
struct NamedThing {
    name: String,
    also: Option<String>,
    kind: ThingKind,
    layers: BTreeSet<SharedLayer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThingKind {
    Array,
    Group,
    Volume,
}

impl NamedThing {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.also.as_deref() == Some(name)
    }

    fn shares(&self, layers: &BTreeSet<SharedLayer>) -> bool {
        !self.layers.is_disjoint(layers)
    }

    /// Whether something else stands for it: the array or the group that it lies on.
    fn lies_on_another(&self) -> bool {
        let is_other = |layer: &SharedLayer| matches!(layer, SharedLayer::Array(_) | SharedLayer::Group(_));
        self.kind == ThingKind::Volume && self.layers.iter().any(is_other)
    }
}

/// What runs of a stack and shares no layer with what has a name, by name; `None` if nothing there
/// has it.
pub fn apart_from(
    stack: &Stack,
    arrays: &[Rc<Served>],
    offered: &[Offered],
    name: &str,
) -> Option<Vec<String>> {
    let things = things(stack, arrays, offered);
    let named = things.iter().filter(|thing| thing.is_called(name));
    let mut touched: BTreeSet<_> = named.flat_map(|thing| thing.layers.iter().cloned()).collect();
    if touched.is_empty() {
        return None;
    }
    let mut known = 0;
    while known < touched.len() {
        known = touched.len();
        let near = things.iter().filter(|thing| thing.shares(&touched)).collect::<Vec<_>>();
        touched.extend(near.into_iter().flat_map(|thing| thing.layers.iter().cloned()));
    }
    let apart = things.iter().filter(|thing| !thing.shares(&touched) && !thing.lies_on_another());
    Some(apart.map(|thing| thing.name.clone()).collect())
}

/// Whether all that is offered lies on an array. Without a stack what is offered are the arrays.
pub fn is_below_all(stack: Option<&Stack>, array: &Served, offered: &[Offered]) -> bool {
    let Some(stack) = stack else { return true };
    let Some(array) = id_of(stack, array) else { return false };
    offered.iter().all(|offered| volume(stack, offered).layers.contains(&SharedLayer::Array(array)))
}

fn things(stack: &Stack, arrays: &[Rc<Served>], offered: &[Offered]) -> Vec<NamedThing> {
    let arrays = arrays.iter().filter_map(|served| {
        let id = id_of(stack, served)?;
        let mut layers = below(stack, &stack.scan.arrays[id].members);
        layers.insert(SharedLayer::Array(id));
        let (name, also) = (served.facts.name.clone(), served.facts.uuid.clone());
        Some(NamedThing { name, also, kind: ThingKind::Array, layers })
    });
    let groups = stack.open_groups().map(|group| {
        let mut layers = below(stack, &group.devices.iter().flatten().copied().collect::<Vec<_>>());
        layers.insert(SharedLayer::Group(group.vg.id));
        let (name, also) = (group.vg.name.clone(), Some(group.vg.id.to_string()));
        NamedThing { name, also, kind: ThingKind::Group, layers }
    });
    arrays.chain(groups).chain(offered.iter().map(|offered| volume(stack, offered))).collect()
}

fn volume(stack: &Stack, offered: &Offered) -> NamedThing {
    let member = stack.member_at(&offered.volume);
    let mut layers = below(stack, member.as_slice());
    let name = offered.name.clone();
    layers.insert(SharedLayer::Volume(name.clone()));
    NamedThing { name, also: None, kind: ThingKind::Volume, layers }
}

fn below(stack: &Stack, members: &[MemberId]) -> BTreeSet<SharedLayer> {
    let below = stack.below(members);
    let arrays = below.arrays.into_iter().map(SharedLayer::Array);
    let groups = below.wanted.groups.into_iter().map(SharedLayer::Group);
    let encrypted = below.wanted.encrypted.into_iter().map(SharedLayer::Encrypted);
    arrays
        .chain(groups)
        .chain(encrypted)
        .chain(below.wanted.layered.into_iter().map(SharedLayer::Layered))
        .collect()
}

/// Which array of the stack it is: of several with its UUID the lower one runs.
fn id_of(stack: &Stack, served: &Served) -> Option<ArrayId> {
    let uuid = served.facts.uuid.as_deref()?;
    stack.scan.arrays.find(|array| array.assembly.array.set_uuid.to_string() == uuid)
}
