//! The common style of flame graphs: colours and words of the HTML page, outermost at the top.

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};

// Colours of the page: background, text, and search matches.
const GROUND: Color = Color { r: 0xf4, g: 0xf6, b: 0xf9 };
const INK: Color = Color { r: 0x1b, g: 0x24, b: 0x30 };
const FOUND: &str = "#f2992e";
/// Colour of boxes that merge several branches.
pub(super) const REST: Color = Color { r: 0xc9, g: 0xd0, b: 0xd8 };

/// Additional CSS of the picture: a dark theme, and a visible search button.
const STYLE: &str = "
#search { opacity:0.6; }
@media (prefers-color-scheme: dark) {
  svg > rect { fill:#0e131a; }
  svg > text { fill:#e4e9f0; }
  #frames text { fill:#1b2430; }
}
";

/// Returns the options that all flame graphs share.
pub(super) fn options() -> Options<'static> {
    let mut options = Options::default();
    options.direction = Direction::Inverted;
    options.bgcolors = Some(BackgroundColor::Flat(GROUND));
    options.uicolor = INK;
    options.search_color = FOUND.parse().unwrap_or(options.search_color);
    options.text_truncate_direction = TextTruncateDirection::Right;
    // Keeps the order of the lines, which other modes sort or require to be sorted by name.
    options.flame_chart = true;
    options
}

/// Draws folded lines in their order.
///
/// Errors: those of `out`; `InvalidData` if no line has a value.
pub(super) fn draw(
    out: &mut dyn Write,
    mut options: Options<'_>,
    lines: &[String],
) -> io::Result<()> {
    const END: &[u8] = b"</style>";
    let mut svg = Vec::new();
    // Flame charts reverse their lines.
    let lines = lines.iter().rev().map(String::as_str);
    flamegraph::from_lines(&mut options, lines, &mut svg).map_err(io::Error::other)?;
    let svg = with_word_of_all(&svg);
    let Some(at) = svg.windows(END.len()).position(|part| part == END) else {
        return out.write_all(&svg);
    };
    let (before, after) = svg.split_at(at);
    out.write_all(before)?;
    out.write_all(STYLE.as_bytes())?;
    out.write_all(after)
}

/// Gives the outermost box the name that it has on the page. No other title can be the same, since
/// a box with all values is the first one.
fn with_word_of_all(svg: &[u8]) -> Vec<u8> {
    const TITLE: &[u8] = b"<title>all (";
    let Some(at) = svg.windows(TITLE.len()).position(|part| part == TITLE) else {
        return svg.to_vec();
    };
    [&svg[..at], b"<title>everything (", &svg[at + TITLE.len()..]].concat()
}
