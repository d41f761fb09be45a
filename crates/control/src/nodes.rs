//! What a stack is made of, each thing under an id of its own: members, arrays, volume groups.
//! Logical volumes have LVM's ids.
//!
//! Invariant: an id means the same thing as long as the stack lives. When a thing leaves, its id is
//! not given again, and the ids of the others stay.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An id of one kind of thing.
pub trait NodeId: Copy {
    /// The id of the thing that came after `at` others.
    fn after(at: usize) -> Self;

    /// How many came before it.
    fn slot(self) -> usize;
}

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident),*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The id of the thing that came after `at` others. For plans that are made without a
            /// stack.
            ///
            /// # Panics
            /// Past 2^32.
            #[must_use]
            pub fn nth(at: usize) -> Self {
                Self(u32::try_from(at).expect("a stack has fewer"))
            }
        }

        impl NodeId for $name {
            fn after(at: usize) -> Self {
                Self::nth(at)
            }

            fn slot(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A member of a stack.
    MemberId,
    /// An array of a stack.
    ArrayId,
    /// A volume group of a stack.
    GroupId
}

/// Things by id. In order of id, they are in the order in which they came.
#[derive(Debug)]
pub struct Nodes<I, T> {
    /// Empty where a thing has left.
    slots: Vec<Option<T>>,
    ids: PhantomData<I>,
}

impl<I, T> Default for Nodes<I, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), ids: PhantomData }
    }
}

impl<I: NodeId, T> Nodes<I, T> {
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

    /// The things.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// The things, to be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// The things with their ids.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        self.slots.iter().enumerate().filter_map(|(at, node)| Some((I::after(at), node.as_ref()?)))
    }

    /// Their ids.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> {
        self.entries().map(|(id, _)| id)
    }

    /// The first of which `is` is true.
    pub fn find(&self, is: impl Fn(&T) -> bool) -> Option<I> {
        self.entries().find(|(_, node)| is(node)).map(|(id, _)| id)
    }

    /// The id that the next one gets.
    #[must_use]
    pub(crate) fn next_id(&self) -> I {
        I::after(self.slots.len())
    }

    /// Adds one.
    pub(crate) fn push(&mut self, node: T) -> I {
        let id = self.next_id();
        self.slots.push(Some(node));
        id
    }

    /// Takes one away. Its id means nothing any more.
    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        self.slots.get_mut(id.slot())?.take()
    }
}

impl<I, T> IntoIterator for Nodes<I, T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Option<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.slots.into_iter().flatten()
    }
}

impl<'a, I, T> IntoIterator for &'a Nodes<I, T> {
    type Item = &'a T;
    type IntoIter = std::iter::Flatten<std::slice::Iter<'a, Option<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.slots.iter().flatten()
    }
}

impl<I: NodeId, T> Index<I> for Nodes<I, T> {
    type Output = T;

    /// # Panics
    /// If it has left.
    fn index(&self, id: I) -> &T {
        self.slots[id.slot()].as_ref().expect("what this id means is there")
    }
}

impl<I: NodeId, T> IndexMut<I> for Nodes<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.slots[id.slot()].as_mut().expect("what this id means is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_when_others_leave_and_is_not_given_again() {
        let mut nodes: Nodes<MemberId, _> = Nodes::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| nodes.push(name));
        assert_eq!(nodes.remove(b), Some("b"));
        assert_eq!(nodes.remove(b), None);
        let d = nodes.push("d");
        assert_eq!([a, c, d].map(|id| nodes[id]), ["a", "c", "d"]);
        assert_eq!((nodes.len(), nodes.find(|name| *name == "b")), (3, None));
        assert!(nodes.ids().eq([a, c, d]));
    }
}
