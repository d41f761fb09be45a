//! Plots: a chart, or a stack of layers, becomes shapes, and shapes become an SVG or a PNG that
//! look alike.

mod chart;
mod layers;
mod offsets;
mod raster;
mod vector;

pub use chart::{Axis, Chart, Panel, Series};
pub use layers::{Layer, LayerPlot, Tone};
pub use offsets::{LayerPiece, Offsets, PieceKind, Row, Scale};
pub use raster::png;
pub use vector::svg;

/// Red, green, blue.
type Color = [u8; 3];

const BLACK: Color = [0x22, 0x22, 0x22];
const GREY: Color = [0xdd, 0xdd, 0xdd];
const WHITE: Color = [0xff, 0xff, 0xff];

/// Colours that can be told apart also with colour blindness (Okabe and Ito).
const PALETTE: [Color; 7] = [
    [0x00, 0x72, 0xb2],
    [0xd5, 0x5e, 0x00],
    [0x00, 0x9e, 0x73],
    [0xcc, 0x79, 0xa7],
    [0xe6, 0x9f, 0x00],
    [0x56, 0xb4, 0xe9],
    [0x66, 0x66, 0x66],
];

/// Something that can be drawn.
pub trait Picture {
    /// It as shapes.
    fn draw(&self) -> Drawing;
}

/// A drawing, in pixels from the upper left corner.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    width: u32,
    height: u32,
    shapes: Vec<Shape>,
}

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Line { from: (f64, f64), to: (f64, f64), width: f64, color: Color, dashed: bool },
    Disc { center: (f64, f64), radius: f64, color: Color },
    Bar { corner: (f64, f64), width: f64, height: f64, color: Color },
    Text { at: (f64, f64), anchor: Anchor, size: Size, text: String },
}

/// Which point of a text lies where it is put; that point is on its base line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// How large letters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

impl Size {
    /// Width and height of a letter in pixels.
    fn letter(self) -> (f64, f64) {
        match self {
            Self::Small => (7.0, 13.0),
            Self::Large => (9.0, 18.0),
        }
    }
}

/// The pieces of a dashed line.
fn dashes(from: (f64, f64), to: (f64, f64)) -> Vec<((f64, f64), (f64, f64))> {
    const ON: f64 = 6.0;
    const OFF: f64 = 4.0;
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = (dx * dx + dy * dy).sqrt();
    let point = |at: f64| {
        let part = if length > 0.0 { (at / length).min(1.0) } else { 0.0 };
        (from.0 + dx * part, from.1 + dy * part)
    };
    let count = (length / (ON + OFF)).ceil() as u32;
    (0..count)
        .map(|piece| {
            let start = f64::from(piece) * (ON + OFF);
            (point(start), point(start + ON))
        })
        .collect()
}
