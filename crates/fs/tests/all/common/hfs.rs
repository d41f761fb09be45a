//! Makes volumes of HFS+ as TN1150 describes them: what no tool here makes, and empty ones for
//! Linux to fill. Catalogs are in the order of plain letters, which is Apple's for what is made
//! here.

use std::collections::BTreeMap;

pub const ROOT: u32 = 2;
/// 2001-09-09, in seconds since 1904.
pub const TIME: u32 = 2_082_844_800 + 1_000_000_000;

const NODE: usize = 4096;
const FILE_RECORD: usize = 248;
const DATA_FORK: usize = 88;
const RESOURCE_FORK: usize = 168;

/// A name as it is stored, and its record.
type NamedRecord = (Vec<u16>, Vec<u8>);
/// A key without its length, and what follows it.
type KeyedRecord = (Vec<u8>, Vec<u8>);
/// The first block, and how many.
type Extent = (usize, usize);

/// A volume that is being made.
pub struct Volume {
    pub image: Vec<u8>,
    pub block: usize,
    used: Vec<bool>,
    next: usize,
    next_id: u32,
    attributes_of_volume: u32,
    journal_info: u32,
    signature: [u8; 2],
    /// Records by parent and name, as they are compared.
    items: BTreeMap<(u32, Vec<u16>), NamedRecord>,
    overflow: BTreeMap<(u32, u8, u32), Vec<u8>>,
    attributes: BTreeMap<(u32, Vec<u16>, u32), Vec<u8>>,
}

pub fn be16(number: usize) -> [u8; 2] {
    (number as u16).to_be_bytes()
}

pub fn be32(number: usize) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

pub fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..at + new.len()].copy_from_slice(new);
}

fn units(name: &str) -> Vec<u16> {
    name.encode_utf16().collect()
}

fn folded(name: &[u16]) -> Vec<u16> {
    // Zeros are no letters to Apple's order, but in front of all others here.
    let lower = |unit: &u16| if *unit < 128 { u16::from((*unit as u8).to_ascii_lowercase()) } else { *unit };
    name.iter().map(lower).collect()
}

/// A name as keys have it.
fn name_bytes(name: &[u16]) -> Vec<u8> {
    be16(name.len()).into_iter().chain(name.iter().flat_map(|unit| unit.to_be_bytes())).collect()
}

impl Volume {
    /// An empty one of so many blocks.
    pub fn new(blocks: usize, block: usize) -> Self {
        let mut volume = Self {
            image: vec![0; blocks * block],
            block,
            used: vec![false; blocks],
            next: 0,
            next_id: 16,
            attributes_of_volume: 0x100,
            journal_info: 0,
            signature: *b"H+",
            items: BTreeMap::new(),
            overflow: BTreeMap::new(),
            attributes: BTreeMap::new(),
        };
        let head = 1536_usize.div_ceil(block);
        volume.used[..head].fill(true);
        volume.used[blocks - 1024_usize.div_ceil(block)..].fill(true);
        volume.next = head;
        volume.add(1, "made", ROOT, folder_record(ROOT));
        volume
    }

    /// With names that are told apart by case.
    #[allow(dead_code, reason = "the tests with a guest make one")]
    pub fn case_sensitive(mut self) -> Self {
        self.signature = *b"HX";
        self
    }

    /// Sets bits of the volume's attributes; 0x100, which is set, says that it was unmounted.
    pub fn flags(&mut self, set: u32, cleared: u32) {
        self.attributes_of_volume = self.attributes_of_volume & !cleared | set;
    }

    fn add(&mut self, parent: u32, name: &str, id: u32, record: Vec<u8>) {
        let name = units(name);
        let thread_type = if record[1] == 1 { 3 } else { 4 };
        let thread = [&be16(thread_type)[..], &[0; 2], &be32(parent as usize), &name_bytes(&name)].concat();
        self.items.insert((id, Vec::new()), (Vec::new(), thread));
        let is_there = self.items.insert((parent, folded(&name)), (name, record)).is_some();
        assert!(!is_there, "two of a name");
    }

    pub fn new_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub fn folder(&mut self, parent: u32, name: &str) -> u32 {
        let id = self.new_id();
        self.folder_of(parent, name, id)
    }

    pub fn folder_of(&mut self, parent: u32, name: &str, id: u32) -> u32 {
        self.add(parent, name, id, folder_record(id));
        id
    }

    pub fn file(&mut self, parent: u32, name: &str, data: &[u8]) -> u32 {
        self.fragmented(parent, name, data, 1)
    }

    /// A file in so many pieces, none beside the other.
    pub fn fragmented(&mut self, parent: u32, name: &str, data: &[u8], pieces: usize) -> u32 {
        let id = self.new_id();
        let mut record = vec![0; FILE_RECORD];
        put(&mut record, 0, &be16(2));
        put(&mut record, 8, &be32(id as usize));
        for at in [12, 16, 20, 24] {
            put(&mut record, at, &TIME.to_be_bytes());
        }
        put(&mut record, 32, &be32(501));
        put(&mut record, 36, &be32(20));
        put(&mut record, 42, &be16(0o100_640));
        let fork = self.fork(id, 0, data, pieces);
        put(&mut record, DATA_FORK, &fork);
        self.add(parent, name, id, record);
        id
    }

    /// The record of an item, to be changed.
    pub fn record(&mut self, id: u32) -> &mut Vec<u8> {
        let is_it = |record: &[u8]| record[1] < 3 && record[8..12] == id.to_be_bytes();
        let found = self.items.values_mut().find(|(_, record)| is_it(record));
        &mut found.expect("an item of that number").1
    }

    pub fn set(&mut self, id: u32, at: usize, bytes: &[u8]) {
        put(self.record(id), at, bytes);
    }

    pub fn mode(&mut self, id: u32, mode: usize) {
        self.set(id, 42, &be16(mode));
    }

    /// A link of files to what is kept with this number.
    pub fn link(&mut self, parent: u32, name: &str, number: u32) -> u32 {
        let id = self.file(parent, name, b"");
        self.set(id, 48, b"hlnkhfs+");
        self.set(id, 44, &number.to_be_bytes());
        id
    }

    pub fn link_of_folder(&mut self, parent: u32, name: &str, number: u32) -> u32 {
        let id = self.file(parent, name, b"");
        self.set(id, 48, b"fdrpMACS");
        self.set(id, 44, &number.to_be_bytes());
        self.set(id, 2, &be16(0x22));
        id
    }

    pub fn resource(&mut self, id: u32, data: &[u8], pieces: usize) {
        let fork = self.fork(id, 0xff, data, pieces);
        self.set(id, RESOURCE_FORK, &fork);
    }

    /// Marks a file as compressed; the header of it is the attribute's value.
    pub fn compressed(&mut self, id: u32, method: u32, size: u64, inline: &[u8]) {
        self.set(id, 41, &[0x20]);
        let value = [b"fpmc", &method.to_le_bytes()[..], &size.to_le_bytes(), inline].concat();
        self.attribute(id, "com.apple.decmpfs", &value);
    }

    pub fn attribute(&mut self, id: u32, name: &str, value: &[u8]) {
        let mut record = [&be32(0x10)[..], &[0; 8], &be32(value.len()), value].concat();
        record.resize(record.len().next_multiple_of(2), 0);
        self.attributes.insert((id, units(name), 0), record);
    }

    /// An attribute in blocks of its own.
    pub fn large_attribute(&mut self, id: u32, name: &str, value: &[u8], pieces: usize) {
        let extents = self.store(value, pieces);
        let fork = fork_record(value.len(), &extents);
        self.attributes.insert((id, units(name), 0), [&be32(0x20)[..], &[0; 4], &fork].concat());
        let mut first: usize = extents.iter().take(8).map(|extent| extent.1).sum();
        for further in extents.chunks(8).skip(1) {
            let record = [&be32(0x30)[..], &[0; 4], &extents_record(further)].concat();
            self.attributes.insert((id, units(name), first as u32), record);
            first += further.iter().map(|extent| extent.1).sum::<usize>();
        }
    }

    fn fork(&mut self, id: u32, kind: u8, data: &[u8], pieces: usize) -> Vec<u8> {
        let extents = self.store(data, pieces);
        let mut first: usize = extents.iter().take(8).map(|extent| extent.1).sum();
        for further in extents.chunks(8).skip(1) {
            self.overflow.insert((id, kind, first as u32), extents_record(further));
            first += further.iter().map(|extent| extent.1).sum::<usize>();
        }
        fork_record(data.len(), &extents)
    }

    /// Takes blocks for data.
    fn store(&mut self, data: &[u8], pieces: usize) -> Vec<Extent> {
        let blocks = data.len().div_ceil(self.block);
        let each = blocks.div_ceil(pieces).max(1);
        let mut extents = Vec::new();
        for (number, part) in data.chunks(each * self.block).enumerate() {
            self.next += usize::from(number > 0);
            let (start, count) = (self.next, part.len().div_ceil(self.block));
            self.used[start..start + count].fill(true);
            put(&mut self.image, start * self.block, part);
            extents.push((start, count));
            self.next += count;
        }
        extents
    }

    /// Space for a journal, and what says where it is; returns the place of the former.
    pub fn journal(&mut self, bytes: usize) -> usize {
        let (info, ring) = (self.store(&[0; 512], 1)[0].0, self.store(&vec![0; bytes], 1)[0].0);
        let at = info * self.block;
        put(&mut self.image, at, &be32(1));
        put(&mut self.image, at + 36, &((ring * self.block) as u64).to_be_bytes());
        put(&mut self.image, at + 44, &(bytes as u64).to_be_bytes());
        self.journal_info = info as u32;
        self.flags(0x2000, 0);
        ring * self.block
    }

    /// The image, with all its trees.
    pub fn build(mut self) -> Vec<u8> {
        let mut valences = BTreeMap::new();
        for ((parent, _), (_, record)) in &self.items {
            *valences.entry(*parent).or_insert(0_u32) += u32::from(record[1] < 3);
        }
        for (_, record) in self.items.values_mut().filter(|(_, record)| record[1] == 1) {
            let id = u32::from_be_bytes(record[8..12].try_into().expect("four bytes"));
            put(record, 4, &valences.get(&id).copied().unwrap_or(0).to_be_bytes());
        }
        let catalog = self.items.iter().map(|((parent, _), (name, record))| {
            let key = [&be32(*parent as usize)[..], &name_bytes(name)].concat();
            (key, record.clone())
        });
        let catalog: Vec<_> = catalog.collect();
        let overflow = self.overflow.iter().map(|((id, kind, first), record)| {
            let key = [&[*kind, 0][..], &be32(*id as usize), &be32(*first as usize)].concat();
            (key, record.clone())
        });
        let overflow: Vec<_> = overflow.collect();
        let attributes = self.attributes.iter().map(|((id, name, first), record)| {
            let key = [&[0; 2][..], &be32(*id as usize), &be32(*first as usize), &name_bytes(name)].concat();
            (key, record.clone())
        });
        let attributes: Vec<_> = attributes.collect();
        let compare = if self.signature == *b"HX" { 0xbc } else { 0 };
        let catalog = tree(&catalog, 516, compare, 16);
        let overflow = tree(&overflow, 10, 0, 4);
        let trees = [
            overflow,
            catalog,
            if attributes.is_empty() { Vec::new() } else { tree(&attributes, 266, 0, 4) },
        ];
        let trees = trees.map(|tree| (tree.len(), self.store(&tree, 1)));
        let bitmap_bytes = self.used.len().div_ceil(8);
        let bitmap = self.store(&vec![0; bitmap_bytes], 1);
        let mut bits = vec![0; bitmap_bytes];
        for (block, _) in self.used.iter().enumerate().filter(|(_, used)| **used) {
            bits[block / 8] |= 0x80 >> (block % 8);
        }
        put(&mut self.image, bitmap[0].0 * self.block, &bits);
        let header = self.header(&bitmap, bitmap_bytes, &trees);
        let end = self.image.len();
        put(&mut self.image, 1024, &header);
        put(&mut self.image, end - 1024, &header);
        self.image
    }

    fn header(&self, bitmap: &[Extent], bitmap_bytes: usize, trees: &[(usize, Vec<Extent>); 3]) -> Vec<u8> {
        let mut header = vec![0; 512];
        let free = self.used.iter().filter(|used| !**used).count();
        let count = |kind: u8| self.items.values().filter(|(_, record)| record[1] == kind).count();
        put(&mut header, 0, &self.signature);
        put(&mut header, 2, &be16(if self.signature == *b"HX" { 5 } else { 4 }));
        put(&mut header, 4, &self.attributes_of_volume.to_be_bytes());
        put(&mut header, 8, if self.journal_info == 0 { b"10.0" } else { b"HFSJ" });
        put(&mut header, 12, &self.journal_info.to_be_bytes());
        for at in [16, 20, 28] {
            put(&mut header, at, &TIME.to_be_bytes());
        }
        put(&mut header, 32, &be32(count(2)));
        put(&mut header, 36, &be32(count(1) - 1));
        put(&mut header, 40, &be32(self.block));
        put(&mut header, 44, &be32(self.used.len()));
        put(&mut header, 48, &be32(free));
        put(&mut header, 52, &be32(self.next));
        put(&mut header, 56, &be32(self.block));
        put(&mut header, 60, &be32(self.block));
        put(&mut header, 64, &be32(self.next_id as usize));
        put(&mut header, 104, b"\x01\x02\x03\x04\x05\x06\x07\x08");
        put(&mut header, 112, &fork_record(bitmap_bytes, bitmap));
        for (at, (len, extents)) in [192, 272, 352].into_iter().zip(trees) {
            put(&mut header, at, &fork_record(*len, extents));
            put(&mut header, at + 8, &be32(4 * NODE));
        }
        header
    }
}

/// A volume within an HFS wrapper, behind the third block of it.
pub fn wrapped(volume: &[u8]) -> Vec<u8> {
    const FIRST_SECTOR: usize = 40;
    const BLOCK: usize = 8192;
    const START: usize = 2;
    let base = FIRST_SECTOR * 512 + START * BLOCK;
    assert_eq!(volume.len() % BLOCK, 0);
    let mut image = vec![0; base + volume.len() + BLOCK];
    put(&mut image, base, volume);
    let block = &mut image[1024..1536];
    put(block, 0, b"BD");
    // It says that it is locked and has bad blocks spared, or Linux takes it for none.
    put(block, 10, &be16(0x8300));
    put(block, 18, &be16(START + volume.len() / BLOCK));
    put(block, 20, &be32(BLOCK));
    put(block, 28, &be16(FIRST_SECTOR));
    put(block, 124, b"H+");
    put(block, 126, &be16(START));
    put(block, 128, &be16(volume.len() / BLOCK));
    image
}

fn folder_record(id: u32) -> Vec<u8> {
    let mut record = vec![0; 88];
    put(&mut record, 0, &be16(1));
    put(&mut record, 8, &be32(id as usize));
    for at in [12, 16, 20, 24] {
        put(&mut record, at, &TIME.to_be_bytes());
    }
    put(&mut record, 42, &be16(0o040_755));
    record
}

fn extents_record(extents: &[Extent]) -> Vec<u8> {
    let mut record: Vec<u8> =
        extents.iter().take(8).flat_map(|(start, count)| [be32(*start), be32(*count)].concat()).collect();
    record.resize(64, 0);
    record
}

fn fork_record(len: usize, extents: &[Extent]) -> Vec<u8> {
    let blocks = extents.iter().map(|extent| extent.1).sum();
    [&(len as u64).to_be_bytes()[..], &[0; 4], &be32(blocks), &extents_record(extents)].concat()
}

/// A node of these records.
fn node(kind: u8, height: u8, next: usize, previous: usize, records: &[Vec<u8>]) -> Vec<u8> {
    let mut node = vec![0; NODE];
    put(&mut node, 0, &be32(next));
    put(&mut node, 4, &be32(previous));
    node[8] = kind;
    node[9] = height;
    put(&mut node, 10, &be16(records.len()));
    let mut at = 14;
    for (number, record) in records.iter().enumerate() {
        put(&mut node, at, record);
        put(&mut node, NODE - 2 * (number + 1), &be16(at));
        at += record.len();
    }
    put(&mut node, NODE - 2 * (records.len() + 1), &be16(at));
    node
}

/// A tree of these keys and records, which are in order, with so many nodes to spare.
fn tree(records: &[KeyedRecord], key_max: usize, compare: u8, spare: usize) -> Vec<u8> {
    let with_key = |key: &[u8], data: &[u8]| [&be16(key.len())[..], key, data].concat();
    let mut level: Vec<KeyedRecord> = records.to_vec();
    let (mut nodes, mut depth, mut leaves, mut root) = (Vec::new(), 0, 0, 0);
    while !level.is_empty() {
        depth += 1;
        let mut groups: Vec<Vec<KeyedRecord>> = Vec::new();
        let mut left = 0;
        for (key, data) in level {
            let takes = key.len() + data.len() + 4;
            if takes > left {
                groups.push(Vec::new());
                left = NODE - 16;
            }
            left -= takes;
            groups.last_mut().expect("one").push((key, data));
        }
        let first = nodes.len() + 1;
        let last = first + groups.len() - 1;
        let mut above = Vec::new();
        for (number, group) in (first..).zip(&groups) {
            let (next, previous) =
                (if number < last { number + 1 } else { 0 }, if number > first { number - 1 } else { 0 });
            let kind = if depth == 1 { 0xff } else { 0 };
            let records: Vec<_> = group.iter().map(|(key, data)| with_key(key, data)).collect();
            nodes.push(node(kind, depth, next, previous, &records));
            above.push((group[0].0.clone(), be32(number).to_vec()));
        }
        leaves = if depth == 1 { groups.len() } else { leaves };
        root = first;
        level = if groups.len() > 1 { above } else { Vec::new() };
    }
    let total = nodes.len() + 1 + spare;
    let mut head = vec![0; 106];
    put(&mut head, 0, &be16(depth.into()));
    put(&mut head, 2, &be32(root));
    put(&mut head, 6, &be32(records.len()));
    put(&mut head, 10, &be32(usize::from(leaves > 0)));
    put(&mut head, 14, &be32(leaves));
    put(&mut head, 18, &be16(NODE));
    put(&mut head, 20, &be16(key_max));
    put(&mut head, 22, &be32(total));
    put(&mut head, 26, &be32(spare));
    put(&mut head, 32, &be32(4 * NODE));
    head[37] = compare;
    put(&mut head, 38, &be32(if key_max == 10 { 2 } else { 6 }));
    let mut map = vec![0; NODE - 14 - 106 - 128 - 8];
    for used in 0..=nodes.len() {
        map[used / 8] |= 0x80 >> (used % 8);
    }
    let mut tree = node(1, 0, 0, 0, &[head, vec![0; 128], map]);
    tree.extend(nodes.concat());
    tree.resize(total * NODE, 0);
    tree
}
