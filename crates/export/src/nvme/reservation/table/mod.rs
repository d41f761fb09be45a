//! Who is registered, who holds the reservation, and what an order makes of that.

use std::collections::BTreeMap;

use crate::nvme::command::{NvmeCommand, NvmeStatus};
use crate::nvme::subsystem::Host;

/// What a reservation forbids others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// The holder writes, all read.
    WriteExclusive = 1,
    /// The holder alone reads and writes.
    ExclusiveAccess = 2,
    /// Registrants write, all read.
    WriteExclusiveRegistrants = 3,
    /// Registrants alone read and write.
    ExclusiveAccessRegistrants = 4,
    /// The same as 3, and every registrant is a holder.
    WriteExclusiveAll = 5,
    /// The same as 4, and every registrant is a holder.
    ExclusiveAccessAll = 6,
}

impl ReservationType {
    /// From its number.
    pub fn decode(number: u8) -> Option<Self> {
        use ReservationType as Type;
        let all = [
            Type::WriteExclusive,
            Type::ExclusiveAccess,
            Type::WriteExclusiveRegistrants,
            Type::ExclusiveAccessRegistrants,
            Type::WriteExclusiveAll,
            Type::ExclusiveAccessAll,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }

    fn is_of_all(self) -> bool {
        self as u8 >= Self::WriteExclusiveAll as u8
    }

    fn lets_registrants(self) -> bool {
        self as u8 >= Self::WriteExclusiveRegistrants as u8
    }

    fn lets_all_read(self) -> bool {
        self as u8 % 2 == 1
    }
}

/// What a command does to data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataAccess {
    /// It reads.
    Read,
    /// It writes, or makes writes durable.
    Write,
}

/// What a host is told that an order of another host changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationNotice {
    /// It is registered no more.
    RegistrationPreempted = 1,
    /// The reservation was released.
    ReservationReleased = 2,
    /// The reservation was taken away.
    ReservationPreempted = 3,
}

/// An order of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationOrder {
    /// Register, unregister, or change the key.
    Register(Register, RegisterKeys),
    /// Reserve.
    Acquire(ReservationType, u64),
    /// Unregister others, and take the reservation of one of them.
    Preempt(ReservationType, u64, u64),
    /// Give the reservation back.
    Release(u8, u64),
    /// Give it back, and unregister everyone.
    Clear(u64),
    /// Whether all this outlasts the server.
    Persist(bool),
}

/// What becomes of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// It is made.
    Add,
    /// It ends.
    Remove,
    /// It gets another key.
    Replace,
}

/// The keys of an order to register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterKeys {
    /// The key so far need not be right.
    pub ignores_current: bool,
    /// The key so far.
    pub current: u64,
    /// The key to be.
    pub new: u64,
    /// Whether all this outlasts the server, if that is to change.
    pub persists: Option<bool>,
}

/// Commands about reservations.
pub mod opcodes {
    /// Register.
    pub const REGISTER: u8 = 0x0d;
    /// Report.
    pub const REPORT: u8 = 0x0e;
    /// Acquire.
    pub const ACQUIRE: u8 = 0x11;
    /// Release.
    pub const RELEASE: u8 = 0x15;
}

impl ReservationOrder {
    /// The bytes of data that an order has. A host may send more, as Linux before 6.13 does, which
    /// has a buffer of one length for all of them: they mean nothing.
    pub fn data_bytes(opcode: u8) -> usize {
        if opcode == opcodes::RELEASE { 8 } else { 16 }
    }

    /// From a command and its data.
    ///
    /// # Errors
    /// A field that cannot be.
    pub fn decode(command: &NvmeCommand, data: &[u8]) -> Result<Self, NvmeStatus> {
        const IGNORE_KEY: u32 = 1 << 3;
        let word = command.word(10);
        if data.len() < Self::data_bytes(command.opcode()) {
            return Err(NvmeStatus::INVALID_LENGTH);
        }
        let key = |at: usize| data[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (action, kind) = (word & 0b111, (word >> 8) as u8);
        let ignores = word & IGNORE_KEY != 0;
        let reserved = || ReservationType::decode(kind).ok_or(NvmeStatus::INVALID_FIELD);
        match command.opcode() {
            opcodes::REGISTER => {
                let persists = match word >> 30 {
                    0 => None,
                    2 => Some(false),
                    3 => Some(true),
                    _ => return Err(NvmeStatus::INVALID_FIELD),
                };
                let what = match action {
                    0 => Register::Add,
                    1 => Register::Remove,
                    2 => Register::Replace,
                    _ => return Err(NvmeStatus::INVALID_FIELD),
                };
                let keys = RegisterKeys { ignores_current: ignores, current: key(0), new: key(8), persists };
                Ok(Self::Register(what, keys))
            }
            _ if ignores => Err(NvmeStatus::INVALID_FIELD),
            opcodes::ACQUIRE => match action {
                0 => Ok(Self::Acquire(reserved()?, key(0))),
                // Those under way end first either way.
                1 | 2 => Ok(Self::Preempt(reserved()?, key(0), key(8))),
                _ => Err(NvmeStatus::INVALID_FIELD),
            },
            opcodes::RELEASE => match action {
                0 => Ok(Self::Release(kind, key(0))),
                1 => Ok(Self::Clear(key(0))),
                _ => Err(NvmeStatus::INVALID_FIELD),
            },
            _ => Err(NvmeStatus::INVALID_OPCODE),
        }
    }
}

/// The reservation that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What it forbids.
    pub kind: ReservationType,
    /// Whose it is; `None` where it is every registrant's.
    pub holder: Option<Host>,
}

impl Held {
    /// Whether it is a registrant's.
    pub fn is_of(&self, host: &Host) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder == host)
    }
}

/// Registrants and reservation of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReservationTable {
    /// Hosts and their keys.
    pub registrants: BTreeMap<Host, u64>,
    /// The reservation.
    pub held: Option<Held>,
    /// Counts changes of registrations.
    pub generation: u32,
    /// It outlasts the server.
    pub persists: bool,
}

/// What other hosts are to be told.
pub type Notices = Vec<(Host, ReservationNotice)>;

impl ReservationTable {
    /// Whether a host may do that now.
    pub fn may(&self, host: &Host, access: DataAccess) -> bool {
        let Some(held) = &self.held else { return true };
        held.holder.as_ref() == Some(host)
            || held.kind.lets_registrants() && self.registrants.contains_key(host)
            || access == DataAccess::Read && held.kind.lets_all_read()
    }

    /// Does what a host orders.
    ///
    /// # Errors
    /// It may not, or the order cannot be; nothing has changed then.
    pub fn apply(&mut self, host: &Host, order: &ReservationOrder) -> Result<Notices, NvmeStatus> {
        let mut notices = Vec::new();
        match *order {
            ReservationOrder::Register(what, keys) => self.register(host, what, keys, &mut notices)?,
            ReservationOrder::Acquire(kind, key) => self.acquire(host, kind, key)?,
            ReservationOrder::Preempt(kind, key, victims) => {
                self.preempt(host, kind, key, victims, &mut notices)?;
            }
            ReservationOrder::Release(kind, key) => {
                self.needs_key(host, key)?;
                if let Some(held) = self.held.as_ref().filter(|held| held.is_of(host)) {
                    if held.kind as u8 != kind {
                        return Err(NvmeStatus::INVALID_FIELD);
                    }
                    self.release(host, &mut notices);
                }
            }
            ReservationOrder::Clear(key) => {
                self.needs_key(host, key)?;
                notices = self.forget(Some(host));
            }
            ReservationOrder::Persist(persists) => {
                // The specification does not say whose matter that is. Whatever the hosts rely on
                // that are registered, no other host takes away.
                if !self.registrants.is_empty() && !self.registrants.contains_key(host) {
                    return Err(NvmeStatus::RESERVATION_CONFLICT);
                }
                self.persists = persists;
            }
        }
        Ok(notices)
    }

    /// Forgets all registrants and the reservation; all but the one that orders it are told.
    pub fn forget(&mut self, by: Option<&Host>) -> Notices {
        if self.registrants.is_empty() {
            return Notices::new();
        }
        self.held = None;
        self.count();
        let ended = std::mem::take(&mut self.registrants).into_keys().filter(|host| Some(host) != by);
        ended.map(|host| (host, ReservationNotice::ReservationPreempted)).collect()
    }

    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    fn needs_key(&self, host: &Host, key: u64) -> Result<(), NvmeStatus> {
        match self.registrants.get(host) {
            Some(registered) if *registered == key => Ok(()),
            _ => Err(NvmeStatus::RESERVATION_CONFLICT),
        }
    }

    fn register(
        &mut self,
        host: &Host,
        what: Register,
        keys: RegisterKeys,
        notices: &mut Notices,
    ) -> Result<(), NvmeStatus> {
        let registered = self.registrants.get(host).copied();
        let is_right = |key| keys.ignores_current || key == keys.current;
        match (what, registered) {
            (Register::Add, None) => {
                if self.registrants.len() >= REGISTRANTS_MAX {
                    return Err(NvmeStatus::CAPACITY);
                }
                self.registrants.insert(host.clone(), keys.new);
            }
            (Register::Add, Some(key)) if key == keys.new || keys.ignores_current => {
                self.registrants.insert(host.clone(), keys.new);
            }
            // A key of its own is what makes a host one that is registered.
            (Register::Replace, None) if keys.ignores_current => {
                if self.registrants.len() >= REGISTRANTS_MAX {
                    return Err(NvmeStatus::CAPACITY);
                }
                self.registrants.insert(host.clone(), keys.new);
            }
            (Register::Replace, Some(key)) if is_right(key) => {
                self.registrants.insert(host.clone(), keys.new);
            }
            (Register::Remove, Some(key)) if is_right(key) => self.unregister(host, host, notices),
            _ => return Err(NvmeStatus::RESERVATION_CONFLICT),
        }
        if let Some(persists) = keys.persists {
            self.persists = persists;
        }
        self.count();
        Ok(())
    }

    /// Ends a registration by order of `by`; a reservation ends with its last holder.
    fn unregister(&mut self, host: &Host, by: &Host, notices: &mut Notices) {
        self.registrants.remove(host);
        let ends = self.held.as_ref().is_some_and(|held| match &held.holder {
            Some(holder) => holder == host,
            None => self.registrants.is_empty(),
        });
        if ends {
            self.release(by, notices);
        }
    }

    /// Ends the reservation by order of `by`: registrants that it let through hear of it.
    fn release(&mut self, by: &Host, notices: &mut Notices) {
        let Some(held) = self.held.take() else { return };
        if held.kind.lets_registrants() {
            let others = self.registrants.keys().filter(|other| *other != by);
            notices.extend(others.map(|other| (other.clone(), ReservationNotice::ReservationReleased)));
        }
    }

    fn acquire(&mut self, host: &Host, kind: ReservationType, key: u64) -> Result<(), NvmeStatus> {
        self.needs_key(host, key)?;
        match &self.held {
            None => {
                self.held = Some(Self::held_by(host, kind));
                Ok(())
            }
            Some(held) if held.kind == kind && held.is_of(host) => Ok(()),
            Some(_) => Err(NvmeStatus::RESERVATION_CONFLICT),
        }
    }

    fn held_by(host: &Host, kind: ReservationType) -> Held {
        Held { kind, holder: (!kind.is_of_all()).then(|| host.clone()) }
    }

    fn preempt(
        &mut self,
        host: &Host,
        kind: ReservationType,
        key: u64,
        victims: u64,
        notices: &mut Notices,
    ) -> Result<(), NvmeStatus> {
        self.needs_key(host, key)?;
        // Whether the reservation changes hands, and not just registrations end.
        let takes = match &self.held {
            None => false,
            Some(Held { holder: None, .. }) => victims == 0,
            Some(_) if victims == 0 => return Err(NvmeStatus::INVALID_FIELD),
            Some(Held { holder: Some(holder), .. }) => self.registrants.get(holder) == Some(&victims),
        };
        let of_all = takes && victims == 0;
        let is_victim =
            |(other, key): &(&Host, &u64)| (of_all || **key == victims) && !(takes && *other == host);
        let ended: Vec<Host> =
            self.registrants.iter().filter(is_victim).map(|(other, _)| other.clone()).collect();
        if ended.is_empty() && !takes {
            return Err(NvmeStatus::RESERVATION_CONFLICT);
        }
        let was = if takes { self.held.take() } else { None };
        for victim in &ended {
            self.unregister(victim, host, notices);
            if victim != host {
                notices.push((victim.clone(), ReservationNotice::RegistrationPreempted));
            }
        }
        if takes {
            self.held = Some(Self::held_by(host, kind));
            // Those that stay may do less than before.
            if was.is_some_and(|was| was.kind != kind && was.kind.lets_registrants()) {
                let others = self.registrants.keys().filter(|other| *other != host);
                notices.extend(others.map(|other| (other.clone(), ReservationNotice::ReservationReleased)));
            }
        }
        self.count();
        Ok(())
    }

    /// The data of Report, for hosts whose identifiers have 128 bits.
    pub fn report(&self) -> Vec<u8> {
        const HEADER_BYTES: usize = 64;
        /// No controller is the only one of a host.
        const ANY_CONTROLLER: u16 = u16::MAX;
        let mut data = vec![0; HEADER_BYTES];
        data[..4].copy_from_slice(&self.generation.to_le_bytes());
        data[4] = self.held.as_ref().map_or(0, |held| held.kind as u8);
        data[5..7].copy_from_slice(&(self.registrants.len() as u16).to_le_bytes());
        data[9] = u8::from(self.persists);
        for (host, key) in &self.registrants {
            let holds = self.held.as_ref().is_some_and(|held| held.is_of(host));
            let mut entry = [0; 64];
            entry[..2].copy_from_slice(&ANY_CONTROLLER.to_le_bytes());
            entry[2] = u8::from(holds);
            entry[8..16].copy_from_slice(&key.to_le_bytes());
            entry[16..32].copy_from_slice(&host.id);
            data.extend(entry);
        }
        data
    }
}

/// Hosts that may be registered with a namespace: what they make the server keep is bounded.
pub const REGISTRANTS_MAX: usize = 256;

#[cfg(test)]
mod tests;
