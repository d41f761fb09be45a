//! What can be wrong with a block of thin or cache metadata.

/// Why a block cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// Less than a block.
    #[error("only {got} bytes of metadata block {block} could be read")]
    Truncated {
        /// The block.
        block: u64,
        /// Bytes given.
        got: usize,
    },
    /// Damaged, torn, or another kind of block.
    #[error("checksum of metadata block {block} is {stored:08x}, the bytes add up to {computed:08x}")]
    Checksum {
        /// The block.
        block: u64,
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Written for another place.
    #[error("metadata block {block} says that it is block {stored}")]
    WrongBlock {
        /// The block.
        block: u64,
        /// What it says.
        stored: u64,
    },
    /// Not this kind of metadata.
    #[error("the metadata's superblock has the magic {found}")]
    Magic {
        /// The stored value.
        found: u64,
    },
    /// A version to come.
    #[error("metadata version {found} is not known")]
    Version {
        /// The stored value.
        found: u32,
    },
    /// Features that must be understood.
    #[error("the metadata has features that are not known: {found:#x}")]
    Features {
        /// The stored bits.
        found: u32,
    },
    /// Sizes of blocks that no pool and no cache can have.
    #[error("metadata blocks of {metadata_sectors} sectors, data blocks of {data_sectors}")]
    BlockSize {
        /// Of metadata.
        metadata_sectors: u32,
        /// Of data.
        data_sectors: u32,
    },
    /// A node or array block whose counts contradict one another.
    #[error("counts in metadata block {block} do not fit")]
    Counts {
        /// The block.
        block: u64,
    },
    /// Keys out of order, or not those that the parent promises.
    #[error("keys in metadata block {block} are out of order")]
    Keys {
        /// The block.
        block: u64,
    },
    /// A pointer past the end.
    #[error("metadata block {block} points to block {child}, there are {blocks}")]
    Pointer {
        /// The block.
        block: u64,
        /// Where it points.
        child: u64,
        /// How many there are.
        blocks: u64,
    },
    /// Deeper than any tree of this size.
    #[error("the tree is too deep at metadata block {block}")]
    Depth {
        /// The block.
        block: u64,
    },
    /// No block was asked for.
    #[error("no metadata block is wanted")]
    NotWanted,
}
