//! Colours: emphasis only. Everything a colour says is also said in words.

use std::io::IsTerminal;

use crate::cli::ColorArg;

/// Whether to colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    on: bool,
}

impl Style {
    /// No colours: files, pipes, tests, and before the command line is understood.
    pub const PLAIN: Self = Self { on: false };

    /// `auto` is on for terminals, unless `NO_COLOR` is set to anything or the terminal is dumb.
    pub fn decide(arg: ColorArg, stream: &impl IsTerminal) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let on = match arg {
            ColorArg::Always => true,
            ColorArg::Never => false,
            ColorArg::Auto => {
                stream.is_terminal()
                    && set("NO_COLOR").is_none()
                    && set("TERM").is_none_or(|term| term != "dumb")
            }
        };
        Self { on }
    }

    /// Names and headings.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Good.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Look at it.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Bad.
    pub fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
