//! A drive with an MBR and no superblock.

/// What `--examine` prints of it.
pub fn partitions(name: &str, sector: &[u8]) -> Option<String> {
    if sector.get(510..512)? != [0x55, 0xaa] {
        return None;
    }
    let mut text = format!("{name}:\n   MBR Magic : aa55\n");
    for (index, entry) in sector.get(446..510)?.chunks_exact(16).enumerate() {
        let word =
            |at: usize| entry[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        if word(12) > 0 {
            let (first, len, kind) = (word(8), word(12), entry[4]);
            text.push_str(&format!(
                "Partition[{index}] : {len:12} sectors at {first:12} (type {kind:02x})\n"
            ));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As mdadm 4.2 printed it.
    #[test]
    fn an_mbr_is_listed() {
        let mut sector = [0; 512];
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector[446..462].copy_from_slice(&[0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 8, 0, 0, 0, 0x28, 0, 0]);
        let text =
            "a.img:\n   MBR Magic : aa55\nPartition[0] :        10240 sectors at         2048 (type fd)\n";
        assert_eq!(partitions("a.img", &sector).as_deref(), Some(text));
        assert_eq!(partitions("a.img", &[0; 512]), None);
    }
}
