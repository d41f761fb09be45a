//! Layers above one another, each with where its pieces start, to scale.

use super::{Anchor, BLACK, Color, Drawing, GREY, PALETTE, Picture, Shape, Size};

/// Layers and where their pieces start.
#[derive(Debug, Clone, PartialEq)]
pub struct Offsets {
    pub title: String,
    pub scales: Vec<Scale>,
    /// Below the picture.
    pub notes: Vec<String>,
}

/// Layers that share a scale, the lowest last.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// What the horizontal axis counts.
    pub name: String,
    /// Bytes from left to right.
    pub bytes: u64,
    pub rows: Vec<Row>,
    /// Places that everything above should be aligned to, drawn through all rows.
    pub lines: Vec<u64>,
}

/// A layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub name: String,
    pub pieces: Vec<LayerPiece>,
}

/// A part of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerPiece {
    pub start: u64,
    pub len: u64,
    pub name: String,
    pub kind: PieceKind,
}

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceKind {
    /// Metadata.
    Meta,
    /// Data, the one or the other of neighbours.
    Even,
    Odd,
    /// It does not start where what is below does.
    Misaligned,
}

const WIDTH: f64 = 980.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const ROW: f64 = 46.0;
const BOX: f64 = 30.0;
const HEAD: f64 = 30.0;
const FOOT: f64 = 44.0;
const LINE: f64 = 20.0;

impl PieceKind {
    fn color(self) -> Color {
        match self {
            Self::Meta => [0xc4, 0xc4, 0xc4],
            Self::Even => PALETTE[5],
            Self::Odd => [0xa8, 0xd8, 0xf4],
            Self::Misaligned => PALETTE[1],
        }
    }
}

impl Picture for Offsets {
    fn draw(&self) -> Drawing {
        let mut shapes = vec![text((20.0, TOP - 16.0), Anchor::Start, Size::Large, self.title.clone())];
        let mut y = TOP;
        for scale in &self.scales {
            y = scale.draw(y, &mut shapes);
        }
        for note in &self.notes {
            shapes.push(text((20.0, y + 14.0), Anchor::Start, Size::Small, note.clone()));
            y += LINE;
        }
        Drawing { width: WIDTH as u32, height: (y + 16.0) as u32, shapes }
    }
}

impl Scale {
    fn draw(&self, top: f64, shapes: &mut Vec<Shape>) -> f64 {
        let wide = WIDTH - LEFT - RIGHT;
        let x = |at: u64| LEFT + wide * (at.min(self.bytes) as f64 / self.bytes.max(1) as f64);
        shapes.push(text((20.0, top + 16.0), Anchor::Start, Size::Small, self.name.clone()));
        let first = top + HEAD;
        let bottom = first + ROW * self.rows.len() as f64;
        for (number, row) in self.rows.iter().enumerate() {
            let y = first + ROW * number as f64;
            shapes.push(text((LEFT - 10.0, y + 20.0), Anchor::End, Size::Small, row.name.clone()));
            for piece in &row.pieces {
                let (left, right) = (x(piece.start), x(piece.start.saturating_add(piece.len)));
                // A gap between neighbours, and something to be seen of the smallest.
                let width = (right - left - 1.0).max(1.0);
                let color = piece.kind.color();
                shapes.push(Shape::Bar { corner: (left, y), width, height: BOX, color });
                if Size::Small.letter().0 * piece.name.chars().count() as f64 <= width {
                    let middle = (left + width / 2.0, y + 20.0);
                    shapes.push(text(middle, Anchor::Middle, Size::Small, piece.name.clone()));
                }
            }
        }
        for at in &self.lines {
            let at = x(*at);
            shapes.push(Shape::Line {
                from: (at, first - 6.0),
                to: (at, bottom),
                width: 1.0,
                color: BLACK,
                dashed: true,
            });
        }
        shapes.push(Shape::Line {
            from: (LEFT, bottom),
            to: (WIDTH - RIGHT, bottom),
            width: 1.0,
            color: GREY,
            dashed: false,
        });
        for mark in 0..=4 {
            let at = self.bytes / 4 * mark;
            let anchor = if mark == 4 { Anchor::End } else { Anchor::Middle };
            let label = wattle_control::size::Iec(at).to_string();
            shapes.push(text((x(at), bottom + 16.0), anchor, Size::Small, label));
        }
        bottom + FOOT
    }
}

fn text(at: (f64, f64), anchor: Anchor, size: Size, text: String) -> Shape {
    Shape::Text { at, anchor, size, text }
}
