//! Drawings as SVG.

use std::fmt::Write;

use super::{Anchor, Color, Drawing, Picture, Shape, Size};

/// The picture as an SVG document.
#[must_use]
pub fn svg(picture: &impl Picture) -> String {
    document(&picture.draw())
}

fn document(drawing: &Drawing) -> String {
    let Drawing { width, height, shapes } = drawing;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for shape in shapes {
        text.push_str(&element(shape));
        text.push('\n');
    }
    text.push_str("</svg>\n");
    text
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Line { from, to, width, color, dashed } => {
            let dash = if *dashed { " stroke-dasharray=\"6 4\"" } else { "" };
            format!(
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"{width}\"{dash}/>",
                from.0,
                from.1,
                to.0,
                to.1,
                hex(*color)
            )
        }
        Shape::Disc { center, radius, color } => {
            format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{}\"/>",
                center.0,
                center.1,
                hex(*color)
            )
        }
        Shape::Bar { corner, width, height, color } => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\"/>",
            corner.0,
            corner.1,
            hex(*color)
        ),
        Shape::Text { at, anchor, size, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let size = match size {
                Size::Small => 13,
                Size::Large => 17,
            };
            format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"#222222\">{}</text>",
                at.0,
                at.1,
                escaped(text)
            )
        }
    }
}

fn hex(color: Color) -> String {
    color.iter().fold("#".to_owned(), |mut text, part| {
        let _ = write!(text, "{part:02x}");
        text
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_xml_is_escaped() {
        assert_eq!(escaped("a<b & c>d"), "a&lt;b &amp; c&gt;d");
        assert_eq!(hex([0, 114, 255]), "#0072ff");
    }
}
