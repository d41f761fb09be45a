//! What lies on what: boxes in columns, from the lowest layer on the left to the highest on the
//! right, and lines between them.

use super::{Anchor, Color, Drawing, GREY, Picture, Shape, Size};

/// Boxes and what each lies on.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerPlot {
    /// What it shows.
    pub title: String,
    /// Below before above.
    pub boxes: Vec<Layer>,
}

/// A box.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// What it is called.
    pub name: String,
    /// What there is to say of it, line by line.
    pub lines: Vec<String>,
    /// How it is. What the colour says is also among the lines.
    pub tone: Tone,
    /// The boxes that it lies on; all of them come before it.
    pub on: Vec<usize>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Degraded,
    Unusable,
    /// It is not there.
    Absent,
}

impl Tone {
    fn color(self) -> Color {
        match self {
            Self::Plain => [0x56, 0xb4, 0xe9],
            Self::Good => [0x00, 0x9e, 0x73],
            Self::Degraded => [0xe6, 0x9f, 0x00],
            Self::Unusable => [0xd5, 0x5e, 0x00],
            Self::Absent => [0xbb, 0xbb, 0xbb],
        }
    }
}

const MARGIN: f64 = 20.0;
const HEAD: f64 = 50.0;
const WIDTH: f64 = 260.0;
/// Between columns, for the lines.
const COLUMN_GAP: f64 = 70.0;
const ROW_GAP: f64 = 14.0;
const LINE: f64 = 18.0;
/// The stripe on the left of a box, which has its colour.
const STRIPE: f64 = 6.0;
const FILL: Color = [0xf4, 0xf4, 0xf4];

/// Where a box is.
#[derive(Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
    height: f64,
}

impl Place {
    fn middle(self) -> f64 {
        self.y + self.height / 2.0
    }
}

impl Picture for LayerPlot {
    fn draw(&self) -> Drawing {
        let places = self.places();
        let right = places.iter().map(|place| place.x + WIDTH).fold(WIDTH, f64::max);
        let bottom = places.iter().map(|place| place.y + place.height).fold(HEAD, f64::max);
        let title = Shape::Text {
            at: (MARGIN, HEAD - 20.0),
            anchor: Anchor::Start,
            size: Size::Large,
            text: self.title.clone(),
        };
        let mut shapes = vec![title];
        // Lines first: boxes are drawn over their ends.
        for (layer, place) in self.boxes.iter().zip(&places) {
            for &on in &layer.on {
                let from = (places[on].x + WIDTH, places[on].middle());
                let to = (place.x, place.middle());
                shapes.push(Shape::Line { from, to, width: 1.5, color: [0x99, 0x99, 0x99], dashed: false });
            }
        }
        for (layer, place) in self.boxes.iter().zip(&places) {
            layer.draw(*place, &mut shapes);
        }
        Drawing { width: (right + MARGIN) as u32, height: (bottom + MARGIN) as u32, shapes }
    }
}

impl LayerPlot {
    /// How many layers lie below each box.
    fn columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = Vec::with_capacity(self.boxes.len());
        for layer in &self.boxes {
            columns.push(layer.on.iter().map(|&on| columns[on] + 1).max().unwrap_or(0));
        }
        columns
    }

    /// Each box as near as possible to the middle of what it lies on, without touching the one
    /// above it.
    fn places(&self) -> Vec<Place> {
        let columns = self.columns();
        let mut places = vec![Place { x: 0.0, y: 0.0, height: 0.0 }; self.boxes.len()];
        for column in 0..=columns.iter().copied().max().unwrap_or(0) {
            let within = (0..self.boxes.len()).filter(|&ix| columns[ix] == column);
            let mut wanted: Vec<(f64, usize)> =
                within.map(|ix| (self.wanted(ix, column, &places), ix)).collect();
            wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut free_from = HEAD;
            for (middle, ix) in wanted {
                let height = LINE * (self.boxes[ix].lines.len() as f64 + 1.0) + 12.0;
                let y = (middle - height / 2.0).max(free_from);
                places[ix] = Place { x: MARGIN + column as f64 * (WIDTH + COLUMN_GAP), y, height };
                free_from = y + height + ROW_GAP;
            }
        }
        places
    }

    /// Where the middle of a box should be; what lies on nothing goes from top to bottom.
    fn wanted(&self, ix: usize, column: usize, places: &[Place]) -> f64 {
        let on = &self.boxes[ix].on;
        match column {
            0 => ix as f64,
            _ => on.iter().map(|&on| places[on].middle()).sum::<f64>() / on.len() as f64,
        }
    }
}

impl Layer {
    fn draw(&self, place: Place, shapes: &mut Vec<Shape>) {
        let Place { x, y, height } = place;
        shapes.push(Shape::Bar {
            corner: (x - 1.0, y - 1.0),
            width: WIDTH + 2.0,
            height: height + 2.0,
            color: GREY,
        });
        shapes.push(Shape::Bar { corner: (x, y), width: WIDTH, height, color: FILL });
        shapes.push(Shape::Bar { corner: (x, y), width: STRIPE, height, color: self.tone.color() });
        let lines = std::iter::once((Size::Large, &self.name))
            .chain(self.lines.iter().map(|line| (Size::Small, line)));
        for (at, (size, line)) in lines.enumerate() {
            let base = y + LINE * (at as f64 + 1.0) + 2.0;
            let text = shortened(line, ((WIDTH - STRIPE - 16.0) / size.letter().0) as usize);
            shapes.push(Shape::Text { at: (x + STRIPE + 8.0, base), anchor: Anchor::Start, size, text });
        }
    }
}

/// The end of a name tells more than its beginning.
fn shortened(text: &str, letters: usize) -> String {
    let count = text.chars().count();
    match count.checked_sub(letters) {
        None | Some(0) => text.to_owned(),
        Some(more) => std::iter::once('…').chain(text.chars().skip(more + 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &str, on: &[usize]) -> Layer {
        Layer { name: name.to_owned(), lines: vec!["1 GiB".to_owned()], tone: Tone::Plain, on: on.to_vec() }
    }

    #[test]
    fn boxes_do_not_touch_and_lie_right_of_what_they_lie_on() {
        let boxes = vec![
            layer("a", &[]),
            layer("b", &[]),
            layer("c", &[]),
            layer("array", &[0, 1]),
            layer("group", &[3, 2]),
            layer("home", &[4]),
            layer("root", &[4]),
        ];
        let layers = LayerPlot { title: "t".to_owned(), boxes };
        let places = layers.places();
        for (ix, a) in places.iter().enumerate() {
            for b in &places[..ix] {
                assert!(a.x != b.x || a.y >= b.y + b.height + ROW_GAP || b.y >= a.y + a.height + ROW_GAP);
            }
            for &on in &layers.boxes[ix].on {
                assert!(places[on].x + WIDTH < a.x);
            }
        }
        let drawing = layers.draw();
        assert!(f64::from(drawing.width) > places[6].x + WIDTH && f64::from(drawing.height) > places[2].y);
        assert_eq!(LayerPlot { title: String::new(), boxes: Vec::new() }.draw().shapes.len(), 1);
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("/dev/sda", 8), "/dev/sda");
        assert_eq!(shortened("/dev/disk/by-id/wwn-7", 6), "…wwn-7");
    }
}
