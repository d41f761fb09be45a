//! The members of a stack, each under an id of its own.
//!
//! Invariant: an id means the same member as long as the stack lives. When a member leaves, its id
//! is not given again, and the ids of the others stay.

use std::ops::{Index, IndexMut};

/// A member of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u32);

impl MemberId {
    /// The id of the member that came after `at` others. For plans that are made without a stack.
    ///
    /// # Panics
    /// Past 2^32.
    #[must_use]
    pub fn nth(at: usize) -> Self {
        Self(u32::try_from(at).expect("a stack has fewer members"))
    }

    fn slot(self) -> usize {
        self.0 as usize
    }
}

/// Members by id. In order of id, they are in the order in which they came.
#[derive(Debug)]
pub struct Nodes<T> {
    /// Empty where a member has left.
    slots: Vec<Option<T>>,
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> Nodes<T> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The members.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// The members, to be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// The members with their ids.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (MemberId, &T)> {
        self.slots.iter().enumerate().filter_map(|(at, node)| Some((MemberId::nth(at), node.as_ref()?)))
    }

    /// Their ids.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = MemberId> {
        self.entries().map(|(id, _)| id)
    }

    /// The first member of which `is` is true.
    pub fn find(&self, is: impl Fn(&T) -> bool) -> Option<MemberId> {
        self.entries().find(|(_, node)| is(node)).map(|(id, _)| id)
    }

    /// The id that the next member gets.
    #[must_use]
    pub(crate) fn next_id(&self) -> MemberId {
        MemberId::nth(self.slots.len())
    }

    /// Adds a member.
    pub(crate) fn push(&mut self, node: T) -> MemberId {
        let id = self.next_id();
        self.slots.push(Some(node));
        id
    }

    /// Takes a member away. Its id means nothing any more.
    pub(crate) fn remove(&mut self, id: MemberId) -> Option<T> {
        self.slots.get_mut(id.slot())?.take()
    }
}

impl<T> IntoIterator for Nodes<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Option<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.slots.into_iter().flatten()
    }
}

impl<'a, T> IntoIterator for &'a Nodes<T> {
    type Item = &'a T;
    type IntoIter = std::iter::Flatten<std::slice::Iter<'a, Option<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.slots.iter().flatten()
    }
}

impl<T> Index<MemberId> for Nodes<T> {
    type Output = T;

    /// # Panics
    /// If the member has left.
    fn index(&self, id: MemberId) -> &T {
        self.slots[id.slot()].as_ref().expect("this member is there")
    }
}

impl<T> IndexMut<MemberId> for Nodes<T> {
    fn index_mut(&mut self, id: MemberId) -> &mut T {
        self.slots[id.slot()].as_mut().expect("this member is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_when_others_leave_and_is_not_given_again() {
        let mut nodes = Nodes::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| nodes.push(name));
        assert_eq!(nodes.remove(b), Some("b"));
        assert_eq!(nodes.remove(b), None);
        let d = nodes.push("d");
        assert_eq!([a, c, d].map(|id| nodes[id]), ["a", "c", "d"]);
        assert_eq!((nodes.len(), nodes.find(|name| *name == "b")), (3, None));
        assert!(nodes.ids().eq([a, c, d]));
    }
}
