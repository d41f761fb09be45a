//! The step of a round that opens what is encrypted. It comes before anything is opened without a
//! member that it lacks: the member may be in there.

use wattle_format::probe::SignatureKind;
use wattle_rt::Core;

use super::Stack;
use crate::crypt::{Decrypted, Encryption, LockState};
use crate::members::{Keyring, Member, MemberError};
use crate::nodes::MemberId;
use crate::problem::{Code, Problem};
use crate::scan::{MemberOrigin, MemberScan};

/// What an open member's name ends with.
const SUFFIX: &str = ":luks";

impl Stack {
    /// Opens the encrypted members for which there is a key; what is in them.
    pub(super) async fn unlock(&mut self, core: &Core) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
        let mut found = Vec::new();
        for ix in self.find_encrypted(core).await? {
            let seen = &self.scan.members[ix];
            let Some(encryption) = seen.encryption.clone() else { continue };
            if !self.wants(|wanted| wanted.encrypted.contains(&encryption.header.uuid)) {
                continue;
            }
            let (member, keys) = (seen.member.clone(), self.options.keys.clone());
            let opened = core.offload({
                let (encryption, member) = (encryption.clone(), member.clone());
                move || encryption.open(&member, &keys)
            });
            let began = core.now();
            let opened = opened.await.map_err(Problem::no_thread)?;
            let state = match opened {
                Ok(None) => LockState::Locked,
                Err(out) => LockState::Refused(out.problem(&member.name, core.now() - began)),
                Ok(Some(opened)) => match self.decrypt(core, ix, &encryption, opened.cipher).await {
                    Err(problem) => LockState::Refused(problem),
                    Ok(inside) => {
                        found.push((inside, MemberOrigin::Decrypted { of: ix }));
                        LockState::Unlocked { slot: opened.slot }
                    }
                },
            };
            if let Some(encryption) = &mut self.scan.members[ix].encryption {
                encryption.state = state;
            }
        }
        Ok(found)
    }

    /// Looks at the members that were not looked at before; those that are encrypted.
    async fn find_encrypted(&mut self, core: &Core) -> Result<Vec<MemberId>, Problem> {
        let looked = &self.looked;
        let new: Vec<_> = self.scan.members.ids().filter(|id| !looked.contains(id)).collect();
        self.looked.extend(&new);
        let keys = self.options.keys.clone();
        self.beside(core, move |scan| {
            let mut found = Vec::new();
            for ix in new {
                let seen = &mut scan.members[ix];
                match look(seen, &keys) {
                    None => {}
                    Some(Ok(encryption)) => {
                        seen.encryption = Some(encryption);
                        found.push(ix);
                    }
                    Some(Err(problem)) => _ = seen.problem.get_or_insert(problem),
                }
            }
            found
        })
        .await
    }

    async fn decrypt(
        &mut self,
        core: &Core,
        ix: MemberId,
        encryption: &Encryption,
        cipher: wattle_crypt::SectorCipher,
    ) -> Result<Member, Problem> {
        let name = self.scan.members[ix].member.name.clone();
        let segment = encryption.segment(&name)?;
        let below = self.volume(core, ix).await?;
        // Before it was claimed, while a passphrase was typed or a key was made, another program
        // may have encrypted it anew.
        let member = self.scan.members[ix].member.clone();
        let on = self.options.keys.header_of(&name);
        let again = core.offload(move || Encryption::read(&member, on.as_deref()));
        if again.await.map_err(Problem::no_thread)??.header != encryption.header {
            return Err(MemberError::Changed { name }.into());
        }
        let inside = format!("{name}{SUFFIX}");
        match Decrypted::device(core, &inside, below, cipher, segment) {
            Ok(Some(device)) => Ok(Member::layer(inside, device)),
            Ok(None) => Err(cut_off(&name, segment.offset_bytes)),
            Err(error) => Err(Problem::new(
                Code::VolumeFailed,
                format!("{name}: {error}"),
                "what is encrypted on it cannot be reached",
                "see what is wrong with its members (`wattle scan`)",
            )),
        }
    }
}

/// Looks whether a member is encrypted: where its header is recognised, where one was named for it,
/// and where nothing else is recognised and the second header of LUKS2 may be left.
fn look(seen: &MemberScan, keys: &Keyring) -> Option<Result<Encryption, Problem>> {
    if seen.facts.is_some() || seen.physical.is_some() || seen.container.is_some() {
        return None;
    }
    if let Some(on) = keys.header_of(&seen.member.name) {
        return Some(Encryption::read(&seen.member, Some(&on)));
    }
    let is_luks =
        |kind: Option<SignatureKind>| matches!(kind, Some(SignatureKind::Luks1 | SignatureKind::Luks2));
    if seen.signatures.iter().any(|signature| is_luks(signature.kind)) {
        return Some(Encryption::read(&seen.member, None));
    }
    // A drive whose start was wiped by mistake has this one left.
    let is_second = |kind: Option<SignatureKind>| kind == Some(SignatureKind::Luks2Second);
    let is_blank = seen.signatures.iter().all(|signature| is_second(signature.kind))
        && seen.superblocks.is_empty()
        && seen.table.is_none()
        && seen.problem.is_none();
    if !is_blank {
        return None;
    }
    Encryption::read(&seen.member, None).ok().map(Ok)
}

/// What is encrypted begins or ends behind the member's end.
fn cut_off(name: &str, offset_bytes: u64) -> Problem {
    Problem::new(
        Code::TooSmall,
        format!("{name}: what is encrypted on it begins at byte {offset_bytes} and does not fit"),
        "the device is smaller than its header says",
        "check the copy or download it came from",
    )
    .of_member(name)
}
