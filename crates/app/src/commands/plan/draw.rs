//! A plan as a picture: what lies where, to scale, and what does not start where it should.

use std::path::Path;

use wattle_advise::plan::{ArrayPlan, FileSystemOptions, PlanShape, PlannedStack, first_member};
use wattle_control::units::Units;
use wattle_control::{Code, Problem};

use super::reasons::uneven;
use super::report::Names;
use super::wish::PlanRequest;
use crate::output::plot::{LayerPiece, Offsets, PieceKind, Row, Scale, svg};

/// Stripes of data that are shown.
const STRIPES: u64 = 3;

/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, asked: &PlanRequest, stack: &PlannedStack, names: &Names) -> Result<(), Problem> {
    let picture = picture(asked, stack, names);
    std::fs::write(path, svg(&picture)).map_err(|error| {
        Problem::new(
            Code::OutputFailed,
            format!("{}: {error}", path.display()),
            "the picture could not be written",
            "name a file in a directory that can be written",
        )
    })
}

/// The first array of a stack, with what lies on it.
fn picture(asked: &PlanRequest, stack: &PlannedStack, names: &Names) -> Offsets {
    let array = &stack.arrays[0];
    let mut scales = vec![volume(asked, stack)];
    if array.shape != PlanShape::Plain {
        scales.push(member(array));
    }
    let uneven =
        uneven(stack, names).into_iter().map(|(array, why)| format!("not aligned on {array}: {why}"));
    let mut notes: Vec<String> = uneven.collect();
    if notes.is_empty() {
        notes.push("Every layer starts where the one below does: nothing is misaligned.".to_owned());
    }
    Offsets { title: format!("{} over {} drives", array.shape, array.drives.len()), scales, notes }
}

/// One member: metadata, then data.
fn member(array: &ArrayPlan) -> Scale {
    let offset = array.place.data_offset_bytes;
    let aligned = offset.is_multiple_of(1 << 20);
    let kind = if aligned { PieceKind::Even } else { PieceKind::Misaligned };
    let piece = |start, len, name: &str, kind| LayerPiece { start, len, name: name.to_owned(), kind };
    Scale {
        name: "each member, from its beginning".to_owned(),
        bytes: offset * 2,
        rows: vec![Row {
            name: "member".to_owned(),
            pieces: vec![
                piece(0, offset, "superblock, bitmap, room for reshapes", PieceKind::Meta),
                piece(offset, offset, "data", kind),
            ],
        }],
        lines: vec![offset],
    }
}

/// The array's bytes (or a drive's, where there is none): chunks, extents, stripe units.
fn volume(asked: &PlanRequest, stack: &PlannedStack) -> Scale {
    let array = &stack.arrays[0];
    let members = array.drives.len() as u32;
    let start = array.pe_start_bytes();
    let plain = array.shape == PlanShape::Plain;
    let unit = if array.chunk_bytes > 0 { array.chunk_bytes } else { start };
    let stripe = array.stripe_bytes().max(unit);
    let bytes = start + STRIPES * stripe;
    let misaligned = |ok: bool, number: u64| match (ok, number % 2) {
        (false, _) => PieceKind::Misaligned,
        (true, 0) => PieceKind::Even,
        (true, _) => PieceKind::Odd,
    };
    let mut rows = Vec::new();
    if let FileSystemOptions::Xfs(xfs) = FileSystemOptions::of(&asked.wish, stack)
        && let Some((unit, width)) = xfs.stripe
    {
        let pieces = (0..(bytes - start).div_ceil(unit)).map(|number| {
            let at = start + number * unit;
            let ok = plain
                || !number.is_multiple_of(u64::from(width))
                || at.is_multiple_of(array.stripe_bytes().max(1));
            let name = if number.is_multiple_of(u64::from(width)) {
                "su 0".to_owned()
            } else {
                format!("{}", number % u64::from(width))
            };
            LayerPiece { start: at, len: unit, name, kind: misaligned(ok, number / u64::from(width)) }
        });
        rows.push(Row { name: format!("xfs, sw={width}"), pieces: pieces.collect() });
    }
    let extent = stack.extent_bytes;
    let pieces = (0..(bytes - start).div_ceil(extent)).map(|number| {
        let at = start + number * extent;
        let name = format!("extent {number} of {}", Units::Iec.show(extent));
        LayerPiece {
            start: at,
            len: extent,
            name,
            kind: misaligned(at.is_multiple_of(array.stripe_bytes().max(1)), number),
        }
    });
    rows.push(Row { name: "volume".to_owned(), pieces: pieces.collect() });
    let meta = LayerPiece { start: 0, len: start, name: "LVM2 metadata".to_owned(), kind: PieceKind::Meta };
    let data = LayerPiece {
        start,
        len: bytes - start,
        name: "physical extents".to_owned(),
        kind: misaligned(start.is_multiple_of(array.stripe_bytes().max(1)), 0),
    };
    rows.push(Row { name: "physical volume".to_owned(), pieces: vec![meta, data] });
    if !plain && array.chunk_bytes > 0 {
        let width = u64::from(array.shape.width(members));
        let pieces = (0..bytes.div_ceil(unit)).map(|chunk| LayerPiece {
            start: chunk * unit,
            len: unit,
            name: format!("m{}", first_member(array.shape, members, chunk)),
            kind: misaligned(true, chunk / width),
        });
        rows.push(Row { name: "chunks, on member".to_owned(), pieces: pieces.collect() });
    }
    let lines = if array.stripe_bytes() > 0 {
        (0..=bytes / stripe).map(|number| number * stripe).collect()
    } else {
        vec![start]
    };
    let name = match plain {
        true => "each drive, from its beginning".to_owned(),
        false => format!("the array, from its beginning; dashed: its stripes of {}", Units::Iec.show(stripe)),
    };
    Scale { name, bytes, rows, lines }
}
