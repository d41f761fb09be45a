//! Problems for people.

use wattle_control::Problem;

use super::style::Style;
use super::text::printable;

/// `error[WTL-0042]: what`, then why and what next, each on lines of their own.
pub fn render(problem: &Problem, style: Style) -> String {
    let head = style.red(&format!("error[{}]", problem.code));
    let mut text = format!("{head}: {}\n", printable(&problem.what));
    for (label, sentence) in [("why", &problem.why), ("next", &problem.next)] {
        if !sentence.is_empty() {
            text.push_str(&format!("  {}: {}\n", style.bold(label), printable(sentence)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use wattle_control::Code;

    use super::*;

    #[test]
    fn an_error_says_what_why_and_what_next() {
        let problem = Problem::new(Code::Locked, "a.img: it is in use", "two owners", "stop the other");
        let text = "error[WTL-0026]: a.img: it is in use\n  why: two owners\n  next: stop the other\n";
        assert_eq!(render(&problem, Style::PLAIN), text);
    }
}
