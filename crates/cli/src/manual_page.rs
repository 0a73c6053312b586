//! A manual page: sections generated from the table of options, and those of
//! [`manual_tables`](crate::manual_tables).

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use heaptide_format::settings::Setting;

use crate::manual_tables::{FILES, Row, STATUSES, VARIABLES, pages_of};

/// The date of the last change of the texts, which some readers show.
const DATE: &str = "2026-11-25";

/// The first lines of a page. They define an apostrophe for each formatter.
const PREAMBLE: [&str; 2] = [".ie \\n(.g .ds Aq \\(aq", ".el .ds Aq '"];

/// Writes the page of a command, on which `Command::build` was called.
///
/// # Errors
///
/// Those of the writer.
pub fn write(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    let name = display_name(command);
    let source = format!("Heaptide {}", env!("CARGO_PKG_VERSION"));
    let title = name.to_uppercase();
    let head = [&*title, "1", DATE, &*source, "Heaptide manual"];
    Roff::new().control("TH", head).to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let words = name.split_once('-').map_or("", |(_, words)| words).replace('-', " ");
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    examples(&help).to_writer(&mut page)?;
    rows("EXIT STATUS", STATUSES, &words, &[]).to_writer(&mut page)?;
    rows("FILES", FILES, &words, &[]).to_writer(&mut page)?;
    rows("ENVIRONMENT", VARIABLES, &words, &settings(&words)).to_writer(&mut page)?;
    if !words.is_empty() {
        let see = [bold("heaptide"), roman("(1)")];
        Roff::new().control("SH", ["SEE ALSO"]).text(see).to_writer(&mut page)?;
    }
    out.write_all(settled(&String::from_utf8_lossy(&page)).as_bytes())
}

/// Returns the name of a page, such as `heaptide-ctl-snapshot`.
pub fn display_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns the sections for the text after the options of a help: examples and what follows.
fn examples(help: &str) -> Roff {
    let mut page = Roff::new();
    for part in help.split("\n\n").filter(|part| !part.trim().is_empty()) {
        let (heading, lines) = match part.split_once(":\n  ") {
            Some(("Example", lines)) => ("EXAMPLES".to_owned(), Some(lines)),
            Some((heading, lines)) if !heading.contains(' ') => {
                (heading.to_uppercase(), Some(lines))
            }
            _ => ("NOTES".to_owned(), None),
        };
        // `STATUSES` has the exit statuses.
        if part.starts_with("Exit status:") {
            continue;
        }
        page.control("SH", [&*heading]);
        match lines {
            None => {
                page.text(marked(&part.replace('\n', " ")));
            }
            Some(lines) => {
                page.control("RS", ["4"]).control("nf", []);
                lines.lines().for_each(|line| _ = page.text([roman(line.trim())]));
                page.control("fi", []).control("RE", []);
            }
        }
    }
    page
}

/// Returns a section with the rows of a table for a page, after the rows of `more`.
fn rows(heading: &str, table: &[Row], words: &str, more: &[(String, String)]) -> Roff {
    let mut page = Roff::new();
    page.control("SH", [heading]);
    let own = table.iter().filter(|(_, _, on)| on.is_on(words));
    let own = own.map(|(term, text, _)| ((*term).to_owned(), (*text).to_owned()));
    for (term, text) in more.iter().cloned().chain(own) {
        page.control("TP", []).text([bold(term)]).text(marked(&text));
    }
    page
}

/// Returns a row for each variable of Heaptide on a page, with value and default.
fn settings(words: &str) -> Vec<(String, String)> {
    let own = |setting: &&Setting| pages_of(setting.reader(), setting.flags()).is_on(words);
    let row = |setting: &Setting| {
        let (value, default) = (setting.value(), setting.default_value());
        let text = format!("Read by {}: {value} [default: {default}]", setting.reader());
        (setting.variable().to_owned(), without_links(&text))
    };
    Setting::ALL.iter().filter(own).map(row).collect()
}

/// Returns a Markdown text without the targets of its links.
fn without_links(text: &str) -> String {
    let mut parts = text.split('[');
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        match part.split_once("](") {
            Some((name, rest)) => {
                plain += name;
                plain += rest.split_once(')').map_or("", |(_, rest)| rest);
            }
            None => plain += &format!("[{part}"),
        }
    }
    plain
}

/// Makes text between backquotes bold.
fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(i, part)| if i % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

/// Returns the page in a form that formatters accept without warnings: one preamble, no trailing
/// blanks, no line breaks next to an empty line, ASCII only.
fn settled(page: &str) -> String {
    let lines = page.lines().filter(|line| !PREAMBLE.contains(line));
    let text: String =
        PREAMBLE.into_iter().chain(lines).map(|l| format!("{}\n", l.trim_end())).collect();
    let text = text.replace(".br\n\n.br\n", ".sp\n");
    let escaped = |c: char| {
        if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) }
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_code_are_taken_apart() {
        assert_eq!(without_links("a [b](c.md) [d] e"), "a b [d] e");
        assert_eq!(marked("a `b` c").len(), 3);
    }

    #[test]
    fn a_page_is_ascii_without_blanks_at_ends() {
        let page = format!("{}\na \n{0}\n.br\n\n.br\n…\n", PREAMBLE.join("\n"));
        assert_eq!(settled(&page), format!("{}\na\n.sp\n\\[u2026]\n", PREAMBLE.join("\n")));
    }

    #[test]
    fn the_end_of_a_help_text_is_sections() {
        let page =
            examples("Example:\n  a -x\n  b\n\nA note\nof two lines.\n\nWords:\n  c").to_roff();
        let expected = ".SH EXAMPLES\n.RS 4\n.nf\na \\-x\nb\n.fi\n.RE\n.SH NOTES\nA note of two lines.\n\
                        .SH WORDS\n.RS 4\n.nf\nc\n.fi\n.RE\n";
        assert_eq!(page, expected);
    }
}
