//! Parses names that JIT compilers give to their code: function, file and line in one text.

use std::borrow::Cow;

/// The parts of a name.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct JitName<'a> {
    /// The function.
    pub(crate) function: Cow<'a, str>,
    /// The source file.
    pub(crate) file: Option<&'a str>,
    /// The line at which the function begins.
    pub(crate) line: Option<u32>,
}

impl<'a> JitName<'a> {
    /// Parses a name of V8 or CPython; other names are functions.
    pub(crate) fn parse(name: &'a str) -> JitName<'a> {
        let whole = || JitName { function: name.into(), file: None, line: None };
        let python = |rest| JitName::python(name, rest);
        let parsed = name.strip_prefix(PYTHON).and_then(python).or_else(|| JitName::v8(name));
        parsed.unwrap_or_else(whole)
    }

    /// Returns whether the code only calls the interpreter of CPython for a function, as with `-X
    /// perf`.
    pub(crate) fn is_python(name: &str) -> bool {
        name.starts_with(PYTHON)
    }

    /// Parses `py::FUNCTION:FILE`.
    fn python(name: &'a str, rest: &'a str) -> Option<JitName<'a>> {
        let (function, file) = rest.split_once(':')?;
        let function = &name[..PYTHON.len() + function.len()];
        Some(JitName { function: function.into(), file: Some(file), line: None })
    }

    /// Parses `JS:*FUNCTION FILE:LINE:COLUMN`, where `*` is the compilation tier, which is removed,
    /// so that a function has the same name in all tiers.
    fn v8(name: &'a str) -> Option<JitName<'a>> {
        let (kind, rest) = name.split_once(':')?;
        if !V8_KINDS.contains(&kind) {
            return None;
        }
        let rest = rest.strip_prefix(V8_TIERS).unwrap_or(rest);
        let starts = V8_FILES.iter().filter_map(|start| rest.find(start));
        let at = starts.min().or_else(|| rest.rfind(' '))?;
        let (function, place) = (&rest[..at], &rest[at + 1..]);
        let (file, last) = place.rsplit_once(':')?;
        let last: u32 = last.parse().ok()?;
        let before = file.rsplit_once(':').and_then(|(file, n)| Some((file, n.parse().ok()?)));
        let (file, line, column) = match before {
            Some((file, line)) => (file, line, Some(last)),
            None => (file, last, None),
        };
        let short = file.rsplit('/').next().unwrap_or(file);
        let function = match (function, line, column) {
            ("", 1, Some(1)) => format!("<module {short}>").into(),
            ("", ..) => format!("<anonymous {short}:{line}>").into(),
            (function, ..) => function.into(),
        };
        Some(JitName { function, file: Some(file), line: Some(line) })
    }
}

const PYTHON: &str = "py::";
/// V8's kinds of code of a script.
const V8_KINDS: [&str; 6] = ["JS", "Eval", "Script", "Function", "LazyCompile", "Callback"];
/// V8's letters for interpreted, Sparkplug, Maglev and TurboFan code.
const V8_TIERS: [char; 5] = ['~', '^', '+', '*', '?'];
/// Beginnings of files after the function: names and paths can contain spaces.
const V8_FILES: [&str; 3] = [" /", " node:", " file:"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let cases = [
            ("JS:*made app.js:7", "made", Some("app.js"), Some(7)),
            ("JS:^parse /tmp/a b/app.js:3:15", "parse", Some("/tmp/a b/app.js"), Some(3)),
            (
                "LazyCompile:~get size node:internal/url:9:2",
                "get size",
                Some("node:internal/url"),
                Some(9),
            ),
            ("JS:~ /tmp/app.js:1:1", "<module app.js>", Some("/tmp/app.js"), Some(1)),
            ("JS:~ /tmp/app.js:4:17", "<anonymous app.js:4>", Some("/tmp/app.js"), Some(4)),
            ("py::Reader.next:/srv/x.py", "py::Reader.next", Some("/srv/x.py"), None),
            ("py::f", "py::f", None, None),
            ("Builtin:CEntry", "Builtin:CEntry", None, None),
            ("JS:*nothing", "JS:*nothing", None, None),
            ("JS:* 7:x", "JS:* 7:x", None, None),
            ("java.lang.Object.hashCode()I", "java.lang.Object.hashCode()I", None, None),
        ];
        for (name, function, file, line) in cases {
            assert_eq!(JitName::parse(name), JitName { function: function.into(), file, line });
        }
    }
}
