//! A guest's memory, as its hypervisor shares it: where in which mapping an address lies.
//!
//! A guest names its memory by its own physical addresses, the hypervisor names rings by its own
//! virtual ones. Whatever they name is looked up before it is touched.

use std::sync::Arc;

use wattle_rt::SharedMemory;

/// Bytes that a guest named and that its hypervisor does not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {at:#x} lie outside of the memory that is shared")]
pub struct OutsideMemory {
    /// The address, as it was named.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
}

/// A part of a guest's memory, in one mapping.
#[derive(Debug, Clone)]
pub struct GuestRegion {
    /// Its address for the guest.
    pub guest: u64,
    /// Its address for the hypervisor.
    pub user: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The mapping that has it, and where it begins there.
    pub memory: Arc<SharedMemory>,
    /// In bytes.
    pub at: usize,
}

/// Bytes of one mapping, from `at` on.
#[derive(Debug, Clone)]
pub struct RingPart {
    /// The mapping.
    pub memory: Arc<SharedMemory>,
    /// In bytes.
    pub at: usize,
}

/// All memory of a guest that is shared.
#[derive(Debug, Clone, Default)]
pub struct GuestMemory {
    /// In no order: there are few.
    regions: Vec<GuestRegion>,
}

impl GuestMemory {
    /// Adds a part. One that overlaps another is found after it.
    pub fn add(&mut self, region: GuestRegion) {
        self.regions.push(region);
    }

    /// Removes the part at these addresses; whether there was one.
    pub fn remove(&mut self, guest: u64, user: u64, len: u64) -> bool {
        let before = self.regions.len();
        self.regions.retain(|region| (region.guest, region.user, region.len) != (guest, user, len));
        self.regions.len() < before
    }

    /// How many parts there are.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// The region that has the guest's address, where in its mapping that is, and how many bytes of
    /// the region follow.
    fn find(&self, guest: u64) -> Option<(&GuestRegion, usize, u64)> {
        self.regions.iter().find_map(|region| {
            let inside = guest.checked_sub(region.guest).filter(|inside| *inside < region.len)?;
            Some((region, region.at + inside as usize, region.len - inside))
        })
    }

    /// Where a ring lies that the hypervisor names by its own address.
    ///
    /// # Errors
    /// It does not lie whole in one region.
    pub fn area(&self, user: u64, len: u64) -> Result<RingPart, OutsideMemory> {
        let found = self.regions.iter().find_map(|region| {
            let inside = user.checked_sub(region.user).filter(|inside| *inside < region.len)?;
            let fits = len <= region.len - inside;
            fits.then(|| RingPart { memory: region.memory.clone(), at: region.at + inside as usize })
        });
        found.ok_or(OutsideMemory { at: user, len })
    }

    /// Whether all of a range is shared.
    pub fn has(&self, at: u64, len: u64) -> bool {
        self.each(at, len as usize, |_, _, _| {}).is_ok()
    }

    /// Copies bytes out of the guest's memory.
    ///
    /// # Errors
    /// Some of them are not shared, or not any more: then some may have been copied.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), OutsideMemory> {
        let len = into.len();
        let mut gone = false;
        self.each(at, len, |memory, from, range| {
            memory.read(from, &mut into[range]);
            gone |= memory.is_broken();
        })?;
        if gone { Err(OutsideMemory { at, len: len as u64 }) } else { Ok(()) }
    }

    /// Copies bytes into the guest's memory.
    ///
    /// # Errors
    /// Some of them are not shared; then some may have been copied.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), OutsideMemory> {
        self.each(at, bytes.len(), |memory, to, range| memory.write(to, &bytes[range]))
    }

    /// Visits the pieces of a range, which lie in one mapping each.
    fn each(
        &self,
        at: u64,
        len: usize,
        mut visit: impl FnMut(&SharedMemory, usize, std::ops::Range<usize>),
    ) -> Result<(), OutsideMemory> {
        let outside = OutsideMemory { at, len: len as u64 };
        let mut done = 0;
        while done < len {
            let next = at.checked_add(done as u64).ok_or(outside)?;
            let (region, place, left) = self.find(next).ok_or(outside)?;
            let count = (len - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            visit(&region.memory, place, done..done + count);
            done += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two regions that follow each other for the guest, and lie apart for the hypervisor.
    fn two() -> GuestMemory {
        let mut memory = GuestMemory::default();
        for (guest, user) in [(0x1000, 0x7000_0000), (0x3000, 0x9000_0000)] {
            let (shared, _) = SharedMemory::create(0x4000).unwrap();
            memory.add(GuestRegion { guest, user, len: 0x2000, memory: Arc::new(shared), at: 0x1000 });
        }
        memory
    }

    #[test]
    fn bytes_are_found_across_regions() {
        let memory = two();
        memory.write(0x2ffe, b"abcd").unwrap();
        let mut read = [0; 4];
        memory.read(0x2ffe, &mut read).unwrap();
        assert_eq!(&read, b"abcd");
        let second = memory.area(0x9000_0000, 2).unwrap();
        let mut read = [0; 2];
        second.memory.read(second.at, &mut read);
        assert_eq!(&read, b"cd");
    }

    #[test]
    fn what_is_not_shared_is_refused() {
        let memory = two();
        for (at, len) in [(0xfff, 1), (0xfff, 2), (0x4fff, 2), (0x5000, 1), (u64::MAX, 2), (0, 1 << 40)] {
            assert!(!memory.has(at, len), "{at:#x}");
            assert!(memory.read(at, &mut vec![0; (len as usize).min(4)]).is_err(), "{at:#x}");
        }
        assert!(memory.has(0x1000, 0x4000) && memory.has(0x1000, 0));
        assert!(memory.area(0x7000_1fff, 2).is_err(), "a ring lies in one region");
        assert!(memory.area(0x7000_1fff, 1).is_ok());
        assert!(memory.area(u64::MAX, 2).is_err());
    }

    #[test]
    fn a_region_goes_by_its_addresses() {
        let mut memory = two();
        assert!(!memory.remove(0x1000, 0x7000_0000, 0x1000));
        assert!(memory.remove(0x1000, 0x7000_0000, 0x2000));
        assert_eq!((memory.regions(), memory.has(0x1000, 1), memory.has(0x3000, 1)), (1, false, true));
    }
}
