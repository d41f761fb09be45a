//! Drawings as PNG: lines and discs with soft edges, letters from a font of pixels, so that no font
//! has to be installed.

use embedded_graphics::mono_font::ascii::{FONT_7X13, FONT_9X18};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::BinaryColor;
use embedded_graphics::prelude::{DrawTarget, Drawable, OriginDimensions, Pixel, Point};
use embedded_graphics::text::Text;

use super::{Anchor, BLACK, Color, Drawing, Picture, Shape, Size, WHITE, dashes};

/// The chart as a PNG file.
///
/// # Errors
/// It cannot be encoded.
pub fn png(picture: &impl Picture) -> Result<Vec<u8>, ::png::EncodingError> {
    let canvas = Canvas::of(&picture.draw());
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, canvas.width, canvas.height);
    encoder.set_color(::png::ColorType::Rgb);
    encoder.set_depth(::png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&canvas.pixels)?;
    Ok(bytes)
}

/// Pixels, three bytes each.
struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    fn of(drawing: &Drawing) -> Self {
        let Drawing { width, height, shapes } = drawing;
        let pixels = WHITE.repeat((width * height) as usize);
        let mut canvas = Self { width: *width, height: *height, pixels };
        shapes.iter().for_each(|shape| canvas.draw(shape));
        canvas
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { from, to, width, color, dashed: false } => self.line(*from, *to, *width, *color),
            Shape::Line { from, to, width, color, dashed: true } => {
                for (from, to) in dashes(*from, *to) {
                    self.line(from, to, *width, *color);
                }
            }
            Shape::Disc { center, radius, color } => self.line(*center, *center, 2.0 * radius, *color),
            Shape::Bar { corner, width, height, color } => {
                let middle = corner.1 + height / 2.0;
                let (left, right) = ((corner.0, middle), (corner.0 + width, middle));
                self.cover(left, right, height / 2.0 + 1.0, *color, |(x, y)| {
                    let inside = |value: f64, from: f64, to: f64| {
                        ((value + 0.5).min(to) - (value - 0.5).max(from)).clamp(0.0, 1.0)
                    };
                    inside(x, corner.0, corner.0 + width) * inside(y, corner.1, corner.1 + height)
                });
            }
            Shape::Text { at, anchor, size, text } => self.text(*at, *anchor, *size, text),
        }
    }

    /// A line with round ends: as much of a pixel as it is near.
    fn line(&mut self, from: (f64, f64), to: (f64, f64), width: f64, color: Color) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let squared = dx * dx + dy * dy;
        self.cover(from, to, width / 2.0 + 1.0, color, |(x, y)| {
            let along = if squared > 0.0 {
                (((x - from.0) * dx + (y - from.1) * dy) / squared).clamp(0.0, 1.0)
            } else {
                0.0
            };
            let (away_x, away_y) = (x - from.0 - along * dx, y - from.1 - along * dy);
            (width / 2.0 + 0.5 - (away_x * away_x + away_y * away_y).sqrt()).clamp(0.0, 1.0)
        });
    }

    /// Paints what lies within `margin` of a line's bounds, each pixel as much as `part` says of
    /// its middle.
    fn cover(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        margin: f64,
        color: Color,
        part: impl Fn((f64, f64)) -> f64,
    ) {
        let range = |a: f64, b: f64, end: u32| {
            let low = (a.min(b) - margin).floor().max(0.0) as u32;
            low..((a.max(b) + margin).ceil().max(0.0) as u32 + 1).min(end)
        };
        for y in range(from.1, to.1, self.height) {
            for x in range(from.0, to.0, self.width) {
                self.paint(x, y, color, part((f64::from(x) + 0.5, f64::from(y) + 0.5)));
            }
        }
    }

    fn paint(&mut self, x: u32, y: u32, color: Color, part: f64) {
        let at = 3 * (y * self.width + x) as usize;
        for (pixel, wanted) in self.pixels[at..at + 3].iter_mut().zip(color) {
            *pixel = (f64::from(*pixel) * (1.0 - part) + f64::from(wanted) * part).round() as u8;
        }
    }

    fn text(&mut self, at: (f64, f64), anchor: Anchor, size: Size, text: &str) {
        let font: &MonoFont<'_> = match size {
            Size::Small => &FONT_7X13,
            Size::Large => &FONT_9X18,
        };
        let width = f64::from(font.character_size.width) * text.chars().count() as f64;
        let left = match anchor {
            Anchor::Start => at.0,
            Anchor::Middle => at.0 - width / 2.0,
            Anchor::End => at.0 - width,
        };
        let style = MonoTextStyle::new(font, BinaryColor::On);
        let drawn = Text::new(text, Point::new(left.round() as i32, at.1.round() as i32), style).draw(self);
        drawn.unwrap_or_else(|never| match never {});
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> embedded_graphics::prelude::Size {
        embedded_graphics::prelude::Size::new(self.width, self.height)
    }
}

/// For letters, which are black.
impl DrawTarget for Canvas {
    type Color = BinaryColor;
    type Error = std::convert::Infallible;

    fn draw_iter<I>(&mut self, pixels: I) -> Result<(), Self::Error>
    where
        I: IntoIterator<Item = Pixel<Self::Color>>,
    {
        for Pixel(point, color) in pixels {
            let within = u32::try_from(point.x).ok().zip(u32::try_from(point.y).ok());
            if let Some((x, y)) = within.filter(|(x, y)| *x < self.width && *y < self.height)
                && color.is_on()
            {
                self.paint(x, y, BLACK, 1.0);
            }
        }
        Ok(())
    }
}
