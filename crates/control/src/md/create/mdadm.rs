//! The command of mdadm's that makes the same array.

use wattle_engine::geometry::{Level, LevelKind, layout_name};
use wattle_format::md::defaults::WriteHoleRoom;

use super::CreateRequest;
use super::shape::Shape;
use crate::problem::shell_word;

/// The same array by mdadm.
pub(super) fn mdadm_command(request: &CreateRequest, shape: &Shape, clean: bool) -> String {
    let name = request.name.rsplit_once(':').map_or(request.name.as_str(), |(_, name)| name);
    let mut words = vec![format!(
        "mdadm --create {} --metadata={}",
        shell_word(&format!("/dev/md/{name}")),
        request.version
    )];
    if let Some((host, _)) = request.name.rsplit_once(':') {
        words.push(shell_word(&format!("--homehost={host}")));
    }
    words.push(format!("--level={} --raid-devices={}", request.level, request.members.len()));
    if !request.spares.is_empty() {
        words.push(format!("--spare-devices={}", request.spares.len()));
    }
    if shape.chunk_sectors != 0 {
        words.push(format!("--chunk={}K", shape.chunk_sectors / 2));
    }
    if let Some(layout) = layout_name(request.level, shape.layout) {
        let short = match request.level {
            Level::Raid10 => format!(
                "{}{}",
                if shape.layout & 0x10000 != 0 {
                    "o"
                } else if shape.layout & 0xff > 1 {
                    "n"
                } else {
                    "f"
                },
                if shape.layout & 0xff > 1 { shape.layout & 0xff } else { shape.layout >> 8 & 0xff }
            ),
            _ => layout,
        };
        words.push(format!("--layout={short}"));
    }
    if request.data_offset_bytes.is_some() {
        words.push(format!("--data-offset={}K", shape.data_offset_sectors / 2));
    }
    if request.size_bytes.is_some() {
        words.push(format!("--size={}K", shape.size_sectors / 2));
    }
    words.push(match shape.guard {
        WriteHoleRoom::Bitmap { .. } => {
            let sweep = request.bitmap_sweep_secs.map(|secs| format!(" --delay={secs}"));
            format!(
                "--bitmap=internal --bitmap-chunk={}K{}",
                shape.bitmap_chunk_bytes / 1024,
                sweep.unwrap_or_default()
            )
        }
        WriteHoleRoom::Ppl => "--consistency-policy=ppl".to_owned(),
        WriteHoleRoom::None => "--bitmap=none".to_owned(),
    });
    if clean && request.level.kind() != LevelKind::Striped {
        words.push("--assume-clean".to_owned());
    } else if matches!(request.level, Level::Raid4 | Level::Raid5) {
        words.push("--force".to_owned());
    }
    let members =
        request.members.iter().map(|member| member.as_ref().map_or("missing", |member| member.name.as_str()));
    let spares = request.spares.iter().map(|spare| spare.name.as_str());
    let mut flagged = false;
    for name in members.chain(spares) {
        // It holds for all that follow.
        let flag = request.write_mostly.iter().any(|other| other == name);
        if flag != flagged {
            words.push(if flag { "--write-mostly" } else { "--readwrite" }.to_owned());
            flagged = flag;
        }
        words.push(shell_word(name));
    }
    words.join(" ")
}
