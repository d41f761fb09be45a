//! Typed access to the keys of a section, and putting typed values back without touching the rest.

use super::error::{GroupPart, VgError};
use super::id::Id;
use super::text::{Item, Scalar, Section, TextValue};

/// The keys of one section, with errors that say whose.
pub(super) struct Fields<'a> {
    pub section: &'a Section,
    pub place: GroupPart,
}

impl Fields<'_> {
    fn value<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        convert: impl Fn(&TextValue) -> Option<T>,
    ) -> Result<Option<T>, VgError> {
        let Some(value) = self.section.value(key) else { return Ok(None) };
        match convert(value) {
            Some(value) => Ok(Some(value)),
            None => Err(VgError::Value { place: self.place.clone(), key, expected }),
        }
    }

    pub fn number(&self, key: &'static str) -> Result<Option<u64>, VgError> {
        self.value(key, "a number that is not negative", |value| value.as_int()?.try_into().ok())
    }

    pub fn text(&self, key: &'static str) -> Result<Option<String>, VgError> {
        self.value(key, "a string", |value| Some(value.as_str()?.to_owned()))
    }

    /// Strings; none when the key is missing.
    pub fn words(&self, key: &'static str) -> Result<Vec<String>, VgError> {
        let strings = |value: &TextValue| {
            value.scalars().iter().map(|scalar| Some(scalar.as_str()?.to_owned())).collect::<Option<Vec<_>>>()
        };
        Ok(self.value(key, "a list of strings", strings)?.unwrap_or_default())
    }

    pub fn id(&self) -> Result<Id, VgError> {
        let id = self.value("id", "an LVM2 id", |value| value.as_str()?.parse().ok())?;
        self.need(id, "id")
    }

    /// Alternating names and numbers.
    pub fn places(&self, key: &'static str) -> Result<Vec<super::segment::Stripe>, VgError> {
        let pairs = |value: &TextValue| {
            let (pairs, rest) = value.scalars().as_chunks::<2>();
            let pair = |pair: &[Scalar; 2]| match pair {
                [name, Scalar::Int(extent)] => Some(super::segment::Stripe {
                    name: name.as_str()?.to_owned(),
                    extent: (*extent).try_into().ok()?,
                }),
                _ => None,
            };
            rest.is_empty().then(|| pairs.iter().map(pair).collect::<Option<Vec<_>>>())?
        };
        let places = self.value(key, "a list of names and extents", pairs)?;
        self.need(places, key)
    }

    pub fn need<T>(&self, value: Option<T>, key: &'static str) -> Result<T, VgError> {
        value.ok_or_else(|| VgError::Missing { place: self.place.clone(), key })
    }

    pub fn need_number(&self, key: &'static str) -> Result<u64, VgError> {
        let number = self.number(key)?;
        self.need(number, key)
    }

    pub fn need_text(&self, key: &'static str) -> Result<String, VgError> {
        let text = self.text(key)?;
        self.need(text, key)
    }
}

/// What a key shall have; `None` removes it.
pub(super) type Known = (&'static str, Option<Node>);

pub(super) enum Node {
    Value(TextValue),
    Section(Section),
}

pub(super) fn number(value: u64) -> Option<Node> {
    // Past 63 bits LVM2 would read it as something else; `problems` has said so before any caller
    // writes.
    let scalar = i64::try_from(value).map_or_else(|_| Scalar::Word(value.to_string()), Scalar::Int);
    Some(Node::Value(TextValue::One(scalar)))
}

pub(super) fn text(text: &str) -> Option<Node> {
    Some(Node::Value(TextValue::text(text)))
}

pub(super) fn words(words: &[String]) -> Option<Node> {
    Some(Node::Value(TextValue::List(words.iter().map(|word| Scalar::from(word.as_str())).collect())))
}

/// `kept` with the known keys set: what stays as it was is not touched, what is not known stays
/// where it was, and new keys follow the known one before them. A comment goes with the line that
/// it no longer describes.
pub(super) fn merge(kept: &Section, known: Vec<Known>) -> Section {
    let mut nodes: Vec<(&'static str, Option<Node>, bool)> =
        known.into_iter().map(|(key, node)| (key, node, false)).collect();
    let mut out: Vec<(Option<usize>, Item)> = Vec::with_capacity(kept.items.len() + nodes.len());
    let mut stale = false;
    for item in &kept.items {
        let (Item::Value(key, _) | Item::Section(key, _)) = item else {
            if !(stale && matches!(item, Item::Comment { trailing: true, .. })) {
                out.push((None, item.clone()));
            }
            continue;
        };
        stale = false;
        let Some(index) = nodes.iter().position(|(known, ..)| known == key) else {
            out.push((None, item.clone()));
            continue;
        };
        let (_, node, placed) = &mut nodes[index];
        *placed = true;
        match node.take().map(|node| as_item(key, node)) {
            Some(new) => {
                stale = new != *item;
                out.push((Some(index), new));
            }
            None => stale = true,
        }
    }
    for (index, (key, node, placed)) in nodes.into_iter().enumerate() {
        if let Some(node) = node.filter(|_| !placed) {
            let before = out.iter().rposition(|(known, _)| known.is_some_and(|known| known < index));
            let at = before.map_or(0, |before| {
                let trailing = |(_, item): &(_, Item)| matches!(item, Item::Comment { trailing: true, .. });
                before + 1 + usize::from(out.get(before + 1).is_some_and(trailing))
            });
            out.insert(at, (Some(index), as_item(key, node)));
        }
    }
    Section { items: out.into_iter().map(|(_, item)| item).collect() }
}

fn as_item(key: &str, node: Node) -> Item {
    match node {
        Node::Value(value) => Item::Value(key.to_owned(), value),
        Node::Section(section) => Item::Section(key.to_owned(), section),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Section {
        Section::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn only_what_changed_changes() {
        let kept = parse("new = 'x'\na = 1 # one\nodd {\nz=1\n}\nb = 2 # two\nc = 3 # three\n# end\n");
        let known = vec![
            ("a", number(1)),
            ("between", number(9)),
            ("b", number(7)),
            ("c", None),
            ("last", text("end")),
            ("none", None),
        ];
        let merged =
            parse("new = 'x'\na = 1 # one\nbetween = 9\nodd {\nz=1\n}\nb = 7\nlast = \"end\"\n# end\n");
        assert_eq!(merge(&kept, known), merged);
        let duplicate = merge(&parse("a = 1\na = 2\n"), vec![("a", number(3))]);
        assert_eq!(duplicate, parse("a = 3\n"), "the first one counted");
    }
}
