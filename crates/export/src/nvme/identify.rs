//! What a controller says of itself and of its namespaces: the data of Identify, and log pages.
//! Pure.
//!
//! Source: NVM Express Base Specification 2.0 (sections 5.16 and 5.17), NVM Command Set
//! Specification 1.0 (section 4.1.5), NVM Express over Fabrics 1.1 (section 5, for discovery).

use std::net::SocketAddr;

use super::command::{BLOCK_BYTES, BLOCK_SHIFT};
use super::limits::{
    CHANGED_NAMESPACES_MAX, EVENT_REQUESTS_MAX, IN_CAPSULE_BYTES_MAX, KEEP_ALIVE_UNIT, MDTS, NAMESPACES_MAX,
    NSID_MAX, QUEUE_ENTRIES_MAX,
};
use super::pdu::ENTRY_BYTES;

/// The data of Identify.
pub const IDENTIFY_BYTES: usize = 4096;
/// The version that controllers speak: 1.4.
pub const VERSION: u32 = 0x0001_0400;
/// The one group of namespaces that share their state on every path.
const ANA_GROUP: u32 = 1;
/// Namespaces may change: bit of the events that a controller has (OAES), and of those asked for.
pub const EVENT_NAMESPACES: u32 = 1 << 8;

/// What tells a controller from others.
#[derive(Debug, Clone, Copy)]
pub struct ControllerFacts<'a> {
    /// The subsystem's name.
    pub nqn: &'a str,
    /// Its serial number.
    pub serial: &'a str,
    /// The controller's number.
    pub id: u16,
    /// It tells where subsystems are, and has no namespaces.
    pub is_discovery: bool,
}

/// What a namespace is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// What tells it from every other namespace, wherever that is.
    pub guid: [u8; 16],
    /// Its size.
    pub size_bytes: u64,
    /// What is read and written at no extra cost.
    pub block_bytes: u32,
    /// What keeps every drive busy; 0 for nothing such.
    pub optimal_bytes: u32,
    /// Every write is refused.
    pub read_only: bool,
    /// Reservations can outlast the server.
    pub keeps_reservations: bool,
}

struct Fields([u8; IDENTIFY_BYTES]);

impl Fields {
    fn new() -> Self {
        Self([0; IDENTIFY_BYTES])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    /// Text, filled up with spaces.
    fn text(&mut self, at: usize, length: usize, text: &str) {
        self.0[at..at + length].fill(b' ');
        let bytes = text.as_bytes();
        self.put(at, &bytes[..bytes.len().min(length)]);
    }

    /// Text that ends with a zero.
    fn name(&mut self, at: usize, length: usize, text: &str) {
        let bytes = text.as_bytes();
        self.put(at, &bytes[..bytes.len().min(length - 1)]);
    }

    fn into_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// Identify Controller (CNS 01h).
pub fn controller(facts: &ControllerFacts<'_>) -> Vec<u8> {
    const MULTIPLE_PORTS: u8 = 1 << 0;
    const MULTIPLE_CONTROLLERS: u8 = 1 << 1;
    const REPORTS_ANA: u8 = 1 << 3;
    const HOST_ID_128: u32 = 1 << 0;
    const DATASET_MANAGEMENT: u16 = 1 << 2;
    const WRITE_ZEROES: u16 = 1 << 3;
    const RESERVATIONS: u16 = 1 << 5;
    const COMMANDS_LOG: u8 = 1 << 1;
    const LONG_LOGS: u8 = 1 << 2;
    const CACHE_AND_FLUSH_OF_ALL: u8 = 0b111;
    const DATA_IN_CAPSULE: u32 = 1 | 1 << 20;
    let mut fields = Fields::new();
    fields.text(4, 20, facts.serial);
    fields.text(24, 40, if facts.is_discovery { "wattle discovery" } else { "wattle" });
    fields.text(64, 8, env!("CARGO_PKG_VERSION"));
    fields.0[77] = MDTS;
    fields.u16(78, facts.id);
    fields.u32(80, VERSION);
    fields.u32(96, HOST_ID_128);
    fields.0[111] = if facts.is_discovery { 2 } else { 1 };
    fields.0[259] = EVENT_REQUESTS_MAX as u8 - 1;
    fields.0[261] = LONG_LOGS;
    fields.u16(320, KEEP_ALIVE_UNIT);
    fields.u16(514, QUEUE_ENTRIES_MAX);
    fields.u32(536, DATA_IN_CAPSULE);
    fields.name(768, 256, facts.nqn);
    if facts.is_discovery {
        return fields.into_vec();
    }
    fields.0[76] = MULTIPLE_PORTS | MULTIPLE_CONTROLLERS | REPORTS_ANA;
    fields.u32(92, EVENT_NAMESPACES);
    fields.0[260] = 0b11; // One slot of firmware, which is only read.
    fields.0[261] = COMMANDS_LOG | LONG_LOGS;
    fields.0[342] = 10; // ANATT, in seconds: a change of state takes no longer.
    fields.0[343] = 1 | 1 << 6; // Optimized, and namespaces stay in their group.
    fields.u32(344, ANA_GROUP);
    fields.u32(348, ANA_GROUP);
    fields.0[512] = 0x66;
    fields.0[513] = 0x44;
    fields.u32(516, NSID_MAX);
    fields.u16(520, DATASET_MANAGEMENT | WRITE_ZEROES | RESERVATIONS);
    fields.0[525] = CACHE_AND_FLUSH_OF_ALL;
    fields.u32(540, NAMESPACES_MAX);
    fields.u32(1792, ((ENTRY_BYTES + IN_CAPSULE_BYTES_MAX) / 16) as u32);
    fields.u32(1796, 1);
    fields.0[1803] = 1; // One descriptor of data.
    fields.into_vec()
}

/// Identify Namespace (CNS 00h); `None` for one that is not there, which is all zeros.
pub fn namespace(facts: Option<&NamespaceFacts>) -> Vec<u8> {
    const OPTIMAL_FIELDS: u8 = 1 << 4;
    const SHARED: u8 = 1 << 0;
    const ZEROES_DEALLOCATE: u8 = 1 << 3;
    const EVERY_RESERVATION: u8 = 0b111_1110;
    const KEEPS_RESERVATIONS: u8 = 1 << 0;
    const IGNORES_KEYS: u8 = 1 << 7;
    let mut fields = Fields::new();
    let Some(facts) = facts else { return fields.into_vec() };
    let blocks = facts.size_bytes / BLOCK_BYTES;
    for at in [0, 8, 16] {
        fields.u64(at, blocks);
    }
    fields.0[24] = OPTIMAL_FIELDS;
    fields.0[30] = SHARED;
    let keeps = if facts.keeps_reservations { KEEPS_RESERVATIONS } else { 0 };
    fields.0[31] = EVERY_RESERVATION | IGNORES_KEYS | keeps;
    fields.0[33] = ZEROES_DEALLOCATE;
    let in_blocks = |bytes: u32| (u64::from(bytes) / BLOCK_BYTES).clamp(1, 1 << 16) as u32 - 1;
    for at in [64, 66, 68, 70] {
        fields.u16(at, in_blocks(facts.block_bytes) as u16);
    }
    if facts.optimal_bytes > 0 {
        fields.u16(72, in_blocks(facts.optimal_bytes) as u16);
    }
    fields.u32(92, ANA_GROUP);
    fields.0[99] = u8::from(facts.read_only);
    fields.put(104, &facts.guid);
    fields.0[130] = BLOCK_SHIFT;
    fields.into_vec()
}

/// The namespaces with an NSID above `after` (CNS 02h), from all in order.
pub fn namespace_list(nsids: impl Iterator<Item = u32>, after: u32) -> Vec<u8> {
    let mut fields = Fields::new();
    for (ix, nsid) in nsids.filter(|nsid| *nsid > after).take(IDENTIFY_BYTES / 4).enumerate() {
        fields.u32(ix * 4, nsid);
    }
    fields.into_vec()
}

/// What tells a namespace from others (CNS 03h): NGUID, UUID and command set.
pub fn descriptors(facts: &NamespaceFacts) -> Vec<u8> {
    let mut fields = Fields::new();
    fields.put(0, &[2, 16, 0, 0]);
    fields.put(4, &facts.guid);
    fields.put(20, &[3, 16, 0, 0]);
    fields.put(24, &facts.guid);
    fields.put(40, &[4, 1, 0, 0, 0]);
    fields.into_vec()
}

/// The command sets of each combination (CNS 1Ch): one, of the NVM command set.
pub fn command_sets() -> Vec<u8> {
    let mut fields = Fields::new();
    fields.0[0] = 1;
    fields.into_vec()
}

/// What other hosts' orders changed of reservations (log page 80h): how many of such there were,
/// the first that was not read, and how many come after it.
pub fn reservation_log(count: u64, first: Option<(u32, u8)>, left: usize) -> Vec<u8> {
    let mut log = vec![0; 64];
    let Some((nsid, kind)) = first else { return log };
    log[..8].copy_from_slice(&count.to_le_bytes());
    log[8] = kind;
    log[9] = left.min(255) as u8;
    log[12..16].copy_from_slice(&nsid.to_le_bytes());
    log
}

/// No errors are logged (log page 01h).
pub fn error_log() -> Vec<u8> {
    vec![0; 64]
}

/// The state of the drive (log page 02h): what an array is like `wattle status` tells.
pub fn health_log() -> Vec<u8> {
    let mut log = vec![0; 512];
    // 300 K: hosts take zero for a broken sensor.
    log[1..3].copy_from_slice(&300_u16.to_le_bytes());
    log[3] = 100;
    log[4] = 10;
    log
}

/// The firmware (log page 03h): this version, in the only slot.
pub fn firmware_log() -> Vec<u8> {
    let mut log = vec![0; 512];
    log[0] = 1;
    log[8..16].fill(b' ');
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    log[8..8 + version.len().min(8)].copy_from_slice(&version[..version.len().min(8)]);
    log
}

/// Which namespaces changed since this was last read (log page 04h).
pub fn changed_log(changed: &[u32]) -> Vec<u8> {
    let mut log = vec![0; CHANGED_NAMESPACES_MAX * 4];
    if changed.len() > CHANGED_NAMESPACES_MAX {
        log[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        return log;
    }
    for (slot, nsid) in log.chunks_exact_mut(4).zip(changed) {
        slot.copy_from_slice(&nsid.to_le_bytes());
    }
    log
}

/// Which commands there are, and what they do (log page 05h).
pub fn commands_log(admin: &[u8], io: &[(u8, bool)]) -> Vec<u8> {
    const SUPPORTED: u32 = 1 << 0;
    const CHANGES_CONTENT: u32 = 1 << 1;
    let mut log = vec![0; 4096];
    let mut put = |at: usize, effects: u32| log[at..at + 4].copy_from_slice(&effects.to_le_bytes());
    for opcode in admin {
        put(usize::from(*opcode) * 4, SUPPORTED);
    }
    for (opcode, changes) in io {
        put(1024 + usize::from(*opcode) * 4, SUPPORTED | if *changes { CHANGES_CONTENT } else { 0 });
    }
    log
}

/// How namespaces are reached by this path (log page 0Ch): all of them as well as can be.
pub fn ana_log(nsids: &[u32], changes: u64, groups_only: bool) -> Vec<u8> {
    const OPTIMIZED: u8 = 1;
    let listed = if groups_only { &[] } else { nsids };
    let mut log = vec![0; 48];
    log[..8].copy_from_slice(&changes.to_le_bytes());
    log[8] = 1;
    log[16..20].copy_from_slice(&ANA_GROUP.to_le_bytes());
    log[20..24].copy_from_slice(&(listed.len() as u32).to_le_bytes());
    log[24..32].copy_from_slice(&changes.to_le_bytes());
    log[32] = OPTIMIZED;
    log.extend(listed.iter().flat_map(|nsid| nsid.to_le_bytes()));
    log
}

/// Where the subsystem is found (log page 70h): the discovery service itself at `here`, and the
/// subsystem of this name at each address.
pub fn discovery_log(generation: u64, nqn: &str, here: SocketAddr, ports: &[(u16, SocketAddr)]) -> Vec<u8> {
    const ENTRY: usize = 1024;
    let entry = |subtype: u8, port: u16, address: SocketAddr, nqn: &str| {
        const TCP: u8 = 3;
        const NO_FLOW_CONTROL: u8 = 1 << 2;
        let mut fields = Fields::new();
        fields.0[0] = TCP;
        fields.0[1] = if address.is_ipv4() { 1 } else { 2 };
        fields.0[2] = subtype;
        fields.0[3] = NO_FLOW_CONTROL;
        fields.u16(4, port);
        fields.u16(6, u16::MAX);
        fields.u16(8, 32);
        fields.text(32, 32, &address.port().to_string());
        fields.name(256, 256, nqn);
        fields.text(512, 256, &address.ip().to_string());
        fields.0[..ENTRY].to_vec()
    };
    let here = ports.iter().find(|(_, address)| *address == here).copied().unwrap_or((0, here));
    let mut log = vec![0; ENTRY];
    log[..8].copy_from_slice(&generation.to_le_bytes());
    log[8..16].copy_from_slice(&(ports.len() as u64 + 1).to_le_bytes());
    log.extend(entry(3, here.0, here.1, super::subsystem::DISCOVERY_NQN));
    for (port, address) in ports {
        log.extend(entry(2, *port, *address, nqn));
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn a_controller_says_what_it_takes() {
        let facts = ControllerFacts { nqn: "nqn.x", serial: "abc", id: 7, is_discovery: false };
        let data = controller(&facts);
        assert_eq!(&data[4..24], b"abc                 ");
        assert_eq!(&data[768..774], b"nqn.x\0");
        assert_eq!((data[78], data[111], data[76] & 8), (7, 1, 8));
        assert_eq!(u32_at(&data, 1792) as usize * 16, 64 + IN_CAPSULE_BYTES_MAX);
        assert_eq!(data[520] & 1 << 5, 1 << 5, "reservations");
        let discovery = controller(&ControllerFacts { is_discovery: true, ..facts });
        assert_eq!((discovery[111], u32_at(&discovery, 516)), (2, 0));
    }

    #[test]
    fn a_namespace_is_told_by_its_blocks() {
        let facts = NamespaceFacts {
            guid: [9; 16],
            size_bytes: 1 << 20,
            block_bytes: 4096,
            optimal_bytes: 3 << 16,
            read_only: true,
            keeps_reservations: false,
        };
        let data = namespace(Some(&facts));
        assert_eq!((u32_at(&data, 0), data[130], data[99]), (2048, 9, 1));
        assert_eq!(data[31], 0xfe);
        assert_eq!(namespace(Some(&NamespaceFacts { keeps_reservations: true, ..facts }))[31], 0xff);
        assert_eq!((data[64], u32_at(&data, 72) & 0xffff), (7, 383));
        assert_eq!(data[104..120], [9; 16]);
        assert_eq!(namespace(None), vec![0; 4096]);
        assert_eq!(descriptors(&facts)[..4], [2, 16, 0, 0]);
    }

    #[test]
    fn lists_go_on_after_what_is_known() {
        let list = namespace_list([3, 8, 900].into_iter(), 3);
        assert_eq!([u32_at(&list, 0), u32_at(&list, 4), u32_at(&list, 8)], [8, 900, 0]);
        let log = ana_log(&[3, 8], 5, false);
        assert_eq!((log.len(), u32_at(&log, 20), log[32]), (56, 2, 1));
        assert_eq!(ana_log(&[3, 8], 5, true).len(), 48);
        assert_eq!(u32_at(&changed_log(&[1; 1025]), 0), u32::MAX);
    }

    #[test]
    fn every_address_is_found() {
        let ports = [(1, "127.0.0.1:4420".parse().unwrap()), (2, "[::1]:4421".parse().unwrap())];
        let log = discovery_log(3, "nqn.x", ports[0].1, &ports);
        assert_eq!((log.len(), log[0], log[8]), (4096, 3, 3));
        assert_eq!(log[1024 + 2], 3);
        assert_eq!(log[2048..2052], [3, 1, 2, 4]);
        assert_eq!(&log[2048 + 32..2048 + 37], b"4420 ");
        assert_eq!(&log[3072 + 512..3072 + 516], b"::1 ");
    }
}
