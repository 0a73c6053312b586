//! Splits texts into statements.

/// A statement of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The text up to its end. Everything before the statement is replaced by spaces, so that
    /// locations in it are those in the whole text.
    pub text: String,
}

/// Splits a text at `;`.
pub fn split(text: &str) -> Vec<Statement> {
    let mut starts = vec![0];
    starts.extend(semicolons(text).into_iter().map(|at| at + 1));
    let ends = starts.iter().skip(1).map(|at| at - 1).chain([text.len()]);
    let part = |(&start, end): (&usize, usize)| {
        let before = text[..start].chars().map(|c| if c == '\n' { '\n' } else { ' ' });
        let is_there = !uncommented(&text[start..end]).trim().is_empty();
        is_there.then(|| Statement { text: before.chain(text[start..end].chars()).collect() })
    };
    starts.iter().zip(ends).filter_map(part).collect()
}

/// Returns whether a text, without comments, ends with `;`.
pub fn ends(text: &str) -> bool {
    semicolons(text).last().is_some_and(|&at| uncommented(&text[at + 1..]).trim().is_empty())
}

/// Returns the byte offsets of `;` outside of quotes and comments.
fn semicolons(text: &str) -> Vec<usize> {
    plain(text).filter(|(_, c)| *c == ';').map(|(at, _)| at).collect()
}

/// Returns the text without comments and without the contents of quotes.
fn uncommented(text: &str) -> String {
    plain(text).map(|(_, c)| c).collect()
}

/// Iterates over characters outside of quotes and comments, including the quotes, with byte
/// offsets.
fn plain(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut characters = text.char_indices().peekable();
    let mut inside = Inside::Nothing;
    std::iter::from_fn(move || {
        loop {
            let (at, c) = characters.next()?;
            let next = characters.peek().map(|(_, next)| *next);
            match (inside, c) {
                (Inside::Nothing, '\'' | '"') => {
                    inside = Inside::Quotes(c);
                    return Some((at, c));
                }
                (Inside::Nothing, '-') if next == Some('-') => inside = Inside::Line,
                (Inside::Nothing, '/') if next == Some('*') => {
                    characters.next();
                    inside = Inside::Comment;
                }
                (Inside::Nothing, _) => return Some((at, c)),
                (Inside::Quotes(quote), _) if quote == c => inside = Inside::Nothing,
                (Inside::Line, '\n') => inside = Inside::Nothing,
                (Inside::Comment, '*') if next == Some('/') => {
                    characters.next();
                    inside = Inside::Nothing;
                }
                _ => {}
            }
        }
    })
}

#[derive(Clone, Copy)]
enum Inside {
    Nothing,
    Quotes(char),
    Line,
    Comment,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_at_semicolons_that_end_statements() {
        let texts = |text| split(text).into_iter().map(|part| part.text).collect::<Vec<_>>();
        assert_eq!(texts("a; b;"), ["a", "   b"]);
        assert_eq!(texts("a 'x;''y' \";\" -- ;\n/* ; */ b"), ["a 'x;''y' \";\" -- ;\n/* ; */ b"]);
        assert_eq!(texts(" ;; -- nothing\n"), Vec::<String>::new());
        assert_eq!(texts("a\n;b"), ["a\n", " \n b"]);
        assert!(ends("a; -- done") && !ends("a; b") && !ends("a ';"));
    }
}
