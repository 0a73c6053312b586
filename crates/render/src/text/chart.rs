//! Charts drawn with characters: areas with a resolution of an eighth of a character, and rows of
//! intervals and points in time.

/// Blocks that fill a character from below, by eighths.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns the lines of an area chart, top line first; the value `most` reaches the upper edge. Any
/// value above 0 is visible.
pub(crate) fn area(values: &[f64], height: usize, most: f64) -> Vec<String> {
    let full = (height * 8) as f64;
    let eighths = |&value: &f64| {
        if value > 0.0 && most > 0.0 {
            ((value / most * full).round() as usize).clamp(1, height * 8)
        } else {
            0
        }
    };
    let columns: Vec<usize> = values.iter().map(eighths).collect();
    let line = |row: usize| {
        let cell = |column: &usize| EIGHTHS[column.saturating_sub(row * 8).min(8)];
        columns.iter().map(cell).collect()
    };
    (0..height).rev().map(line).collect()
}

/// A text that covers some columns.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Its first column.
    pub(crate) column: usize,
    /// Its characters, one per column.
    pub(crate) text: Vec<char>,
}

/// Arranges pieces in as few lines as possible, each in the first line that has room.
pub(crate) fn lanes(mut pieces: Vec<Piece>, width: usize) -> Vec<String> {
    pieces.sort_by_key(|piece| piece.column);
    let mut lines: Vec<Vec<char>> = Vec::new();
    for piece in pieces {
        let free = |line: &&mut Vec<char>| line.len() <= piece.column;
        let line = match lines.iter_mut().find(free) {
            Some(line) => line,
            None => {
                lines.push(Vec::new());
                lines.last_mut().expect("one was put there")
            }
        };
        line.resize(piece.column, ' ');
        line.extend(piece.text.iter().take(width.saturating_sub(piece.column)));
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

/// Returns a line with texts centred at their columns. Texts are shifted to fit the width; those
/// that would overlap others are omitted.
pub(crate) fn ticks(texts: &[(usize, String)], width: usize) -> String {
    let mut line = String::new();
    let mut used = 0;
    for (column, text) in texts {
        let length = text.chars().count();
        let start = column.saturating_sub(length / 2).min(width.saturating_sub(length));
        if start >= used && length <= width {
            line.extend(std::iter::repeat_n(' ', start - used));
            line.push_str(text);
            used = start + length;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_rises_by_eighths() {
        assert_eq!(area(&[0.0, 1.0, 8.0, 12.0, 16.0], 2, 16.0), ["   ▄█", " ▁███"]);
        assert_eq!(area(&[0.001, 0.0], 1, 16.0), ["▁ "], "a little is seen");
        assert_eq!(area(&[f64::NAN, 99.0, -1.0], 1, 16.0), [" █ "]);
        assert_eq!(area(&[1.0], 1, 0.0), [" "]);
    }

    #[test]
    fn pieces_share_lines_where_they_can() {
        let piece = |column, text: &str| Piece { column, text: text.chars().collect() };
        let pieces = vec![piece(4, "B──"), piece(0, "A──┤"), piece(2, "C")];
        assert_eq!(lanes(pieces, 6), ["A──┤B─", "  C"]);
    }

    #[test]
    fn ticks_stay_inside_and_apart() {
        let texts = [(0, "0 s"), (10, "middle"), (12, "hidden"), (19, "end")];
        let texts = texts.map(|(column, text)| (column, text.to_owned()));
        assert_eq!(ticks(&texts, 20), "0 s    middle    end");
    }
}
