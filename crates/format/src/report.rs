//! The reports that `HEAPTIDE_REPORT` and `heaptide run --report` request: entries `FORMAT:TARGET`,
//! separated by `;`.

/// The placeholder for the process id in a target.
pub const PID: &[u8] = b"%p";

/// The prefix of a query, which continues up to the target.
pub const QUERY: &[u8] = b"query:";

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The format: `text`, `json`, `query:CALQL`, …
    pub format: &'a [u8],
    /// A path, `stdout` or `stderr`.
    pub target: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns the entries of a list, except empty ones. An entry that cannot be parsed is `Err`
    /// with its text.
    pub fn each(list: &'a [u8]) -> impl Iterator<Item = Result<Request<'a>, &'a [u8]>> {
        let entries = list.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        entries.filter(|entry| !entry.is_empty()).map(|entry| Request::parse(entry).ok_or(entry))
    }

    /// In `query:CALQL:TARGET` the last colon is the one before the target. Without a target it is
    /// standard error.
    fn parse(text: &[u8]) -> Option<Request<'_>> {
        const DEFAULT: &[u8] = b"stderr";
        let colon = if text.starts_with(QUERY) {
            text.iter().rposition(|&b| b == b':').filter(|&at| at >= QUERY.len())
        } else {
            text.iter().position(|&b| b == b':')
        };
        let (format, target) = match colon {
            Some(at) => (text[..at].trim_ascii_end(), text[at + 1..].trim_ascii_start()),
            None => (text, DEFAULT),
        };
        (!format.is_empty() && !target.is_empty()).then_some(Request { format, target })
    }

    /// Returns whether each process has a target of its own.
    pub fn is_of_each_process(&self) -> bool {
        self.target.windows(PID.len()).any(|word| word == PID)
    }

    /// Passes the target to `push` in pieces, with `digits` instead of [`PID`] and `%` instead of
    /// `%%`.
    pub fn expand(&self, digits: &[u8], mut push: impl FnMut(&[u8])) {
        let mut rest = self.target;
        while let Some(at) = rest.iter().position(|&b| b == b'%') {
            push(&rest[..at]);
            let (piece, length) = match rest.get(at + 1) {
                Some(b'p') => (digits, PID.len()),
                Some(b'%') => (&b"%"[..], PID.len()),
                _ => (&b"%"[..], 1),
            };
            push(piece);
            rest = &rest[at + length..];
        }
        push(rest);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::String;
    use std::vec::Vec;

    use super::*;

    fn parsed(text: &str) -> Option<(&str, &str)> {
        let text_of = |bytes| core::str::from_utf8(bytes).expect("text");
        let request = Request::parse(text.as_bytes())?;
        Some((text_of(request.format), text_of(request.target)))
    }

    #[test]
    fn entries_have_a_format_and_a_target() {
        assert_eq!(parsed("text:stderr"), Some(("text", "stderr")));
        assert_eq!(parsed("json : a:b.json"), Some(("json", "a:b.json")));
        assert_eq!(parsed("text --by scope"), Some(("text --by scope", "stderr")));
        let with_colon = "query:SELECT x WHERE y=\"a:b\":/tmp/q";
        assert_eq!(parsed(with_colon), Some(("query:SELECT x WHERE y=\"a:b\"", "/tmp/q")));
        assert_eq!(parsed("query:SELECT x"), Some(("query:SELECT x", "stderr")));
        assert_eq!([parsed("text:"), parsed(":stderr")], [None, None]);
    }

    #[test]
    fn empty_entries_of_a_list_are_skipped() {
        let list: Vec<_> = Request::each(b"text;; json:a ;dot:;").collect();
        let json = Request { format: b"json", target: b"a" };
        let text = Request { format: b"text", target: b"stderr" };
        assert_eq!(list, [Ok(text), Ok(json), Err(&b"dot:"[..])]);
    }

    #[test]
    fn targets_may_contain_the_process_id() {
        let expanded = |target: &str| {
            let mut text = Vec::new();
            let request = Request { format: b"json", target: target.as_bytes() };
            request.expand(b"12", |piece| text.extend_from_slice(piece));
            String::from_utf8(text).expect("text")
        };
        assert_eq!(expanded("a.%p.json"), "a.12.json");
        assert_eq!(expanded("%%p %x %"), "%p %x %");
        assert_eq!(expanded("%p%p"), "1212");
    }
}
