//! Charts: panels below one another that share their horizontal axis.

use super::{Anchor, BLACK, Color, Drawing, GREY, PALETTE, Picture, Shape, Size};

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What goes to the right.
    pub axis: Axis,
    /// What goes up, one below the other.
    pub panels: Vec<Panel>,
}

/// What goes to the right.
#[derive(Debug, Clone, PartialEq)]
pub enum Axis {
    /// Numbers: points are joined by lines.
    Numbers { name: String, values: Vec<f64> },
    /// Names: there are bars.
    Names { name: String, names: Vec<String> },
}

/// One set of curves or bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What goes up, with its unit.
    pub name: String,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

/// A curve, or the bars of one colour.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// One by place on the axis; `None` where there is nothing.
    pub values: Vec<Option<f64>>,
    /// Not measured but reckoned, or measured by others: dashed, and of the colour of this other
    /// series if it belongs to one.
    pub beside: Option<usize>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const PANEL: f64 = 260.0;
/// Between panels: the name of the next one.
const GAP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const LEGEND_LINE: f64 = 20.0;

/// Marks along a vertical axis, about.
const MARKS: f64 = 5.0;

impl Axis {
    fn len(&self) -> usize {
        match self {
            Self::Numbers { values, .. } => values.len(),
            Self::Names { names, .. } => names.len(),
        }
    }

    /// Where a place is between left and right.
    fn x(&self, place: usize) -> f64 {
        let width = WIDTH - LEFT - RIGHT;
        match self {
            Self::Names { names, .. } => LEFT + width * (place as f64 + 0.5) / names.len() as f64,
            Self::Numbers { values, .. } => {
                let (least, most) = bounds(values);
                let span = if most > least { most - least } else { 1.0 };
                // The first and the last point are not on the edge.
                LEFT + width * (0.03 + 0.94 * (values[place] - least) / span)
            }
        }
    }

    fn label(&self, place: usize) -> String {
        match self {
            Self::Names { names, .. } => names[place].clone(),
            Self::Numbers { values, .. } => short(values[place]),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Numbers { name, .. } | Self::Names { name, .. } => name,
        }
    }
}

impl Picture for Chart {
    fn draw(&self) -> Drawing {
        let legend = self.panels.first().map_or(Vec::new(), |panel| self.legend(panel));
        let head = TOP + LEGEND_LINE * legend.len() as f64;
        let count = self.panels.len() as f64;
        let height = head + GAP / 2.0 + count * PANEL + (count - 1.0).max(0.0) * GAP + BOTTOM;
        let mut shapes = vec![text((LEFT, TOP - 14.0), Anchor::Start, Size::Large, self.title.clone())];
        for (line, row) in legend.into_iter().enumerate() {
            let y = TOP + LEGEND_LINE * (line as f64 + 0.5);
            row.into_iter().for_each(|entry| entry.draw(y, &mut shapes));
        }
        for (place, panel) in self.panels.iter().enumerate() {
            let top = head + GAP / 2.0 + place as f64 * (PANEL + GAP);
            self.panel(panel, top, &mut shapes);
        }
        let bottom = height - BOTTOM;
        self.below(bottom, &mut shapes);
        Drawing { width: WIDTH as u32, height: height as u32, shapes }
    }
}

impl Chart {
    fn bars(&self) -> bool {
        matches!(self.axis, Axis::Names { .. })
    }

    fn color(&self, panel: &Panel, series: usize) -> Color {
        match panel.series[series].beside {
            Some(other) if !self.bars() => PALETTE[other % PALETTE.len()],
            _ => PALETTE[series % PALETTE.len()],
        }
    }

    /// Rows of entries that fit side by side.
    fn legend(&self, panel: &Panel) -> Vec<Vec<Entry>> {
        let mut rows: Vec<Vec<Entry>> = Vec::new();
        let mut x = WIDTH;
        for (index, series) in panel.series.iter().enumerate() {
            let width = 40.0 + Size::Small.letter().0 * (series.name.chars().count() as f64 + 2.0);
            if x + width > WIDTH - RIGHT {
                rows.push(Vec::new());
                x = LEFT;
            }
            let dashed = series.beside.is_some();
            let entry = Entry {
                x,
                name: series.name.clone(),
                color: self.color(panel, index),
                dashed,
                bar: self.bars(),
            };
            rows.last_mut().expect("a row was just begun").push(entry);
            x += width;
        }
        rows
    }

    fn panel(&self, panel: &Panel, top: f64, shapes: &mut Vec<Shape>) {
        let values = panel.series.iter().flat_map(|series| series.values.iter().flatten());
        let most = values.copied().fold(0.0, f64::max);
        let step = step(most / MARKS);
        // What is hardly above a mark needs no further one.
        let marks = (most / step - 0.01).ceil().max(1.0);
        let bottom = top + PANEL;
        let y = |value: f64| bottom - (PANEL - 10.0) * value / (marks * step);
        shapes.push(text((LEFT, top - 4.0), Anchor::Start, Size::Small, panel.name.clone()));
        for mark in 0..=marks as u32 {
            let value = f64::from(mark) * step;
            let color = if mark == 0 { BLACK } else { GREY };
            shapes.push(line((LEFT, y(value)), (WIDTH - RIGHT, y(value)), 1.0, color));
            shapes.push(text((LEFT - 8.0, y(value) + 4.0), Anchor::End, Size::Small, short(value)));
        }
        if self.bars() {
            self.draw_bars(panel, &y, bottom, shapes);
        } else {
            self.draw_curves(panel, &y, shapes);
        }
    }

    fn draw_bars(&self, panel: &Panel, y: &dyn Fn(f64) -> f64, bottom: f64, shapes: &mut Vec<Shape>) {
        let room = (WIDTH - LEFT - RIGHT) / self.axis.len() as f64 * 0.8;
        let width = room / panel.series.len() as f64;
        for (index, series) in panel.series.iter().enumerate() {
            for (place, value) in series.values.iter().enumerate() {
                let Some(value) = *value else { continue };
                let x = self.axis.x(place) - room / 2.0 + width * index as f64;
                let color = self.color(panel, index);
                shapes.push(Shape::Bar {
                    corner: (x + 1.0, y(value)),
                    width: width - 2.0,
                    height: bottom - y(value),
                    color,
                });
            }
        }
    }

    fn draw_curves(&self, panel: &Panel, y: &dyn Fn(f64) -> f64, shapes: &mut Vec<Shape>) {
        for (index, series) in panel.series.iter().enumerate() {
            let color = self.color(panel, index);
            let points: Vec<_> = (0..self.axis.len())
                .zip(&series.values)
                .filter_map(|(place, value)| Some((self.axis.x(place), y((*value)?))))
                .collect();
            let dashed = series.beside.is_some();
            for pair in points.windows(2) {
                shapes.push(Shape::Line { from: pair[0], to: pair[1], width: 2.0, color, dashed });
            }
            if !dashed {
                let disc = |center| Shape::Disc { center, radius: 3.5, color };
                shapes.extend(points.into_iter().map(disc));
            }
        }
    }

    /// Labels of the horizontal axis, as many as have room.
    fn below(&self, bottom: f64, shapes: &mut Vec<Shape>) {
        let letter = Size::Small.letter().0;
        let mut free_from = 0.0;
        for place in 0..self.axis.len() {
            let (x, label) = (self.axis.x(place), self.axis.label(place));
            let half = letter * label.chars().count() as f64 / 2.0;
            shapes.push(line((x, bottom), (x, bottom + 5.0), 1.0, BLACK));
            if x - half >= free_from {
                free_from = x + half + letter;
                shapes.push(text((x, bottom + 18.0), Anchor::Middle, Size::Small, label));
            }
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        shapes.push(text((middle, bottom + 38.0), Anchor::Middle, Size::Small, self.axis.name().to_owned()));
    }
}

/// One entry of a legend.
struct Entry {
    x: f64,
    name: String,
    color: Color,
    dashed: bool,
    bar: bool,
}

impl Entry {
    fn draw(self, y: f64, shapes: &mut Vec<Shape>) {
        let Self { x, name, color, dashed, bar } = self;
        if bar {
            shapes.push(Shape::Bar { corner: (x + 8.0, y - 6.0), width: 12.0, height: 12.0, color });
        } else {
            shapes.push(Shape::Line { from: (x, y), to: (x + 28.0, y), width: 2.0, color, dashed });
        }
        shapes.push(text((x + 34.0, y + 4.0), Anchor::Start, Size::Small, name));
    }
}

fn line(from: (f64, f64), to: (f64, f64), width: f64, color: Color) -> Shape {
    Shape::Line { from, to, width, color, dashed: false }
}

fn text(at: (f64, f64), anchor: Anchor, size: Size, text: String) -> Shape {
    Shape::Text { at, anchor, size, text }
}

fn bounds(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(*value), most.max(*value))
    })
}

/// The smallest of 1, 2, 5, 10, 20, … (and 0.1, 0.2, …) that is not below `least`.
fn step(least: f64) -> f64 {
    let mut power = 1e-6;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if power * factor >= least {
                return power * factor;
            }
        }
        power *= 10.0;
    }
}

/// A number with k, M or G for thousands, millions and so on.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        for (least, found) in [(0.3, 0.5), (1.0, 1.0), (1.1, 2.0), (23.0, 50.0), (7_000.0, 10_000.0)] {
            assert!((step(least) - found).abs() < found * 1e-9, "{least}: {}", step(least));
        }
        for (value, text) in
            [(0.0, "0"), (0.25, "0.25"), (40_000.0, "40k"), (1_500_000.0, "1.5M"), (248.0, "248")]
        {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn everything_is_within_the_picture() {
        let series = |name: &str, beside| Series {
            name: name.to_owned(),
            values: vec![Some(1.0), None, Some(40_000.0)],
            beside,
        };
        let panel =
            Panel { name: "IOPS".to_owned(), series: vec![series("raid5", None), series("limit", Some(0))] };
        let numbers = Axis::Numbers { name: "members".to_owned(), values: vec![3.0, 4.0, 24.0] };
        let names =
            Axis::Names { name: "level".to_owned(), names: ["0", "5", "10"].map(str::to_owned).to_vec() };
        for axis in [numbers, names] {
            let chart = Chart { title: "a chart".to_owned(), axis, panels: vec![panel.clone(); 2] };
            let drawing = chart.draw();
            let within = |(x, y): (f64, f64)| {
                (0.0..=f64::from(drawing.width)).contains(&x)
                    && (0.0..=f64::from(drawing.height)).contains(&y)
            };
            assert!(drawing.shapes.iter().all(|shape| match shape {
                Shape::Line { from, to, .. } => within(*from) && within(*to),
                Shape::Disc { center, .. } => within(*center),
                Shape::Bar { corner, width, height, .. } =>
                    within(*corner) && within((corner.0 + width, corner.1 + height)),
                Shape::Text { at, .. } => within(*at),
            }));
        }
    }
}
