//! Extracts the paths in a Rust source, to find the modules that it imports.

/// A module by its path from the root of the crate, which is empty.
pub type Module = Vec<String>;

/// A source with the properties that matter for imports.
pub struct Source<'a> {
    /// Its path from the root of the repository.
    pub path: &'a str,
    /// The module that it defines.
    pub module: Module,
    /// The paths in it, outside of tests.
    pub paths: Vec<NamedPath>,
    /// Modules in separate files that only tests use.
    pub test_modules: Vec<Module>,
}

/// A path in a source, with its location.
pub struct NamedPath {
    /// The line, from 1.
    pub line: usize,
    /// The module that contains it, which may be an inline module.
    within: Module,
    segments: Vec<String>,
}

impl Source<'_> {
    /// Reads a source; `None` if its path is not that of a module.
    pub fn read<'a>(path: &'a str, content: &str) -> Option<Source<'a>> {
        let module = module_of(path)?;
        let mut reader = Reader {
            tokens: tokens(content),
            at: 0,
            within: vec![module.clone()],
            paths: Vec::new(),
            test_modules: Vec::new(),
        };
        reader.read();
        let Reader { paths, test_modules, .. } = reader;
        Some(Source { path, module, paths, test_modules })
    }
}

impl NamedPath {
    /// Returns the module that it refers to; `None` if that is not in this crate. `exists` returns
    /// whether a module has a file.
    pub fn target(&self, exists: impl Fn(&Module) -> bool) -> Option<Module> {
        let mut segments = self.segments.iter().map(String::as_str).peekable();
        let mut module = self.within.clone();
        match *segments.peek()? {
            "crate" => module.clear(),
            "self" | "super" => {}
            child => {
                let mut below = module.clone();
                below.push(child.to_string());
                if !exists(&below) {
                    return None;
                }
            }
        }
        while let Some(step) = segments.next_if(|s| ["crate", "self", "super"].contains(s)) {
            if step == "super" {
                module.pop();
            }
        }
        for segment in segments {
            module.push(segment.to_string());
            if !exists(&module) {
                module.pop();
                break;
            }
        }
        // An inline module belongs to the file of its parent.
        while !exists(&module) {
            module.pop()?;
        }
        Some(module)
    }
}

/// Returns the module of a file in `src`.
fn module_of(path: &str) -> Option<Module> {
    let (_, inside) = path.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    if inside == "lib" || inside == "main" {
        return Some(Module::new());
    }
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    Some(inside.split('/').map(str::to_string).collect())
}

/// A word or a sign, and its line.
#[derive(Debug)]
struct Token {
    line: usize,
    text: String,
}

/// Returns the tokens of a source that can form paths, without comments and literals.
fn tokens(content: &str) -> Vec<Token> {
    let chars: Vec<char> = content.chars().collect();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    let get = |at: usize| chars.get(at).copied().unwrap_or('\0');
    while at < chars.len() {
        let start = at;
        let c = chars[at];
        if c == '/' && get(at + 1) == '/' {
            at = end_where(&chars, at, |at| get(at) == '\n');
        } else if c == '/' && get(at + 1) == '*' {
            at = end_where(&chars, at + 2, |at| (get(at - 1), get(at)) == ('*', '/')) + 1;
        } else if c == '"' {
            at = end_of_string(&chars, at);
        } else if let Some(end) = end_of_raw_string(&chars, at) {
            at = end;
        } else if c == '\'' {
            at = end_of_quote(&chars, at);
        } else if c.is_alphanumeric() || c == '_' {
            at = end_where(&chars, at, |at| !(get(at).is_alphanumeric() || get(at) == '_'));
            tokens.push(Token { line, text: chars[start..at].iter().collect() });
        } else if c == ':' && get(at + 1) == ':' {
            at += 2;
            tokens.push(Token { line, text: "::".to_string() });
        } else {
            at += 1;
            if !c.is_whitespace() {
                tokens.push(Token { line, text: c.to_string() });
            }
        }
        line += chars[start..at.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

/// Returns the first position from `at` on where the condition holds, or the end.
fn end_where(chars: &[char], at: usize, holds: impl Fn(usize) -> bool) -> usize {
    (at..chars.len()).find(|&at| holds(at)).unwrap_or(chars.len())
}

/// Returns the end of the string that starts here.
fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the end of the raw string that starts here, if any.
fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let before = start.checked_sub(1).map_or(' ', |before| chars[before]);
    if before.is_alphanumeric() || before == '_' {
        return None;
    }
    let prefix = usize::from(chars[start] == 'b' || chars[start] == 'c');
    if chars.get(start + prefix) != Some(&'r') {
        return None;
    }
    let hashes = chars[start + prefix + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + prefix + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let is_end = |at: usize| {
        let after = chars[at + 1..].iter().take_while(|c| **c == '#').count();
        chars[at] == '"' && after >= hashes
    };
    Some(end_where(chars, open + 1, is_end) + 1 + hashes)
}

/// Returns the end of the character literal that starts here, or of the quote of a lifetime.
fn end_of_quote(chars: &[char], start: usize) -> usize {
    match (chars.get(start + 1), chars.get(start + 2)) {
        (Some('\\'), _) => end_where(chars, start + 3, |at| chars[at] == '\'') + 1,
        (Some(_), Some('\'')) => start + 3,
        _ => start + 1,
    }
}

/// Extracts paths from tokens.
struct Reader {
    tokens: Vec<Token>,
    at: usize,
    /// The module of the file, followed by the enclosing inline modules.
    within: Vec<Module>,
    paths: Vec<NamedPath>,
    test_modules: Vec<Module>,
}

impl Reader {
    fn read(&mut self) {
        // For each open brace, whether it is that of a module.
        let mut braces = Vec::new();
        while self.at < self.tokens.len() {
            if self.starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
                self.skip_test_item();
            } else if self.text(0) == "use" && self.text(1) != "<" {
                self.at += 1;
                self.use_tree(&mut Vec::new());
            } else if self.text(0) == "mod" && self.text(2) == "{" {
                let inner = self.below(self.text(1));
                self.within.push(inner);
                braces.push(true);
                self.at += 3;
            } else if self.text(0) == "{" {
                braces.push(false);
                self.at += 1;
            } else if self.text(0) == "}" {
                if braces.pop() == Some(true) {
                    self.within.pop();
                }
                self.at += 1;
            } else if self.text(1) == "::" && is_word(self.text(0)) {
                self.inline_path();
            } else if ["::", "$"].contains(&self.text(0)) {
                // The rest of a path after something else, such as a type; or `$crate` of a macro,
                // which is a path in the code that calls the macro.
                self.at += 2;
            } else {
                self.at += 1;
            }
        }
    }

    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| &token.text)
    }

    fn starts_with(&self, texts: &[&str]) -> bool {
        texts.iter().enumerate().all(|(ahead, text)| self.text(ahead) == *text)
    }

    fn below(&self, name: &str) -> Module {
        let mut module = self.module();
        module.push(name.to_string());
        module
    }

    fn module(&self) -> Module {
        self.within.last().cloned().unwrap_or_default()
    }

    /// Skips an item after `#[cfg(test)]`: up to a semicolon, or its closing brace.
    fn skip_test_item(&mut self) {
        self.at += 7;
        while self.text(0) == "#" {
            let end = self.tokens[self.at..].iter().position(|token| token.text == "]");
            self.at += end.map_or(1, |end| end + 1);
        }
        if self.text(0) == "mod" && self.text(2) == ";" {
            let module = self.below(self.text(1));
            self.test_modules.push(module);
        }
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            let closes = depth == 0 && [";", "}"].contains(&self.text(0));
            self.at += 1;
            if closes {
                return;
            }
        }
    }

    /// Reads the tree after `use`, or inside of its braces, with the preceding path.
    fn use_tree(&mut self, before: &mut Vec<String>) {
        let (length, line) = (before.len(), self.tokens.get(self.at).map_or(0, |token| token.line));
        loop {
            match self.text(0) {
                "{" => {
                    self.at += 1;
                    while !["}", ""].contains(&self.text(0)) {
                        self.use_tree(before);
                        self.at += usize::from(self.text(0) == ",");
                    }
                    self.at += 1;
                    before.truncate(length);
                    return;
                }
                "::" => self.at += 1,
                "as" => self.at += 2,
                "," | "}" | "" => break,
                ";" => {
                    self.at += 1;
                    break;
                }
                word => {
                    let word = word.to_string();
                    before.push(word);
                    self.at += 1;
                }
            }
        }
        self.add(line, before.clone());
        before.truncate(length);
    }

    fn inline_path(&mut self) {
        let (line, mut segments) = (self.tokens[self.at].line, vec![self.text(0).to_string()]);
        self.at += 1;
        while self.text(0) == "::" && is_word(self.text(1)) {
            segments.push(self.text(1).to_string());
            self.at += 2;
        }
        self.add(line, segments);
    }

    fn add(&mut self, line: usize, segments: Vec<String>) {
        let within = self.module();
        self.paths.push(NamedPath { line, within, segments });
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the paths of a source, with their lines.
    fn paths(content: &str) -> Vec<(usize, String)> {
        let source = Source::read("c/src/a/b.rs", content).expect("a module");
        source.paths.into_iter().map(|path| (path.line, path.segments.join("::"))).collect()
    }

    fn at(line: usize, path: &str) -> (usize, String) {
        (line, path.to_string())
    }

    #[test]
    fn grouped_imports_are_expanded() {
        let content = "use crate::{a, b::c, d::{self, e as f}};\npub use super::g::*;\n\
                       pub(crate) use std::{\n    fmt,\n};\n";
        let expected = [
            at(1, "crate::a"),
            at(1, "crate::b::c"),
            at(1, "crate::d::self"),
            at(1, "crate::d::e"),
            at(2, "super::g::*"),
            at(4, "std::fmt"),
        ];
        assert_eq!(paths(content), expected);
    }

    #[test]
    fn paths_in_code_are_found_and_those_in_literals_are_not() {
        let content = "fn f<'a>(x: &'a str) -> crate::a::B {\n    // crate::c\n    \
                       g(\"crate::d\", r#\"\"crate::e\"#, '\"', '\\'');\n    super::h::i(x)\n}\n\
                       /* crate::j */ fn k() -> impl Fn() + use<'a> {}\n";
        assert_eq!(paths(content), [at(1, "crate::a::B"), at(4, "super::h::i")]);
    }

    #[test]
    fn items_of_tests_are_skipped() {
        let content = "#[cfg(test)]\nuse crate::a;\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    \
                       fn f() { crate::b::c() }\n}\n#[cfg(test)]\nmod made;\nuse crate::d;\n";
        assert_eq!(paths(content), [at(10, "crate::d")]);
        let source = Source::read("c/src/a/mod.rs", content).expect("a module");
        assert_eq!(source.test_modules, [["a", "made"]]);
    }

    #[test]
    fn paths_lead_to_modules() {
        let modules = [vec![], vec!["a"], vec!["a", "b"], vec!["a", "b", "child"], vec!["d"]];
        let exists = |module: &Module| modules.iter().any(|known| known == module);
        let target = |path: &str| {
            let source = Source::read("c/src/a/b.rs", &format!("use {path};")).expect("a module");
            source.paths[0].target(exists).map(|module| module.join("/"))
        };
        let to = |module: &str| Some(module.to_string());
        assert_eq!(target("crate::a::X"), to("a"));
        assert_eq!(target("crate::a::b::x::Y"), to("a/b"));
        assert_eq!(target("crate::X"), to(""));
        assert_eq!(target("super::X"), to("a"));
        assert_eq!(target("super::super::d::X"), to("d"));
        assert_eq!(target("child::X"), to("a/b/child"));
        assert_eq!(target("self::child::X"), to("a/b/child"));
        assert_eq!(target("std::fmt"), None);
        let inner = "mod inner {\n    fn f() { super::child::g() }\n}\nuse child::h;\n";
        let source = Source::read("c/src/a/b.rs", inner).expect("a module");
        let targets: Vec<_> = source.paths.iter().map(|path| path.target(exists)).collect();
        let child = ["a", "b", "child"].map(str::to_string).to_vec();
        assert_eq!(targets, [Some(child.clone()), Some(child)]);
    }

    #[test]
    fn files_are_modules() {
        assert_eq!(module_of("c/src/lib.rs"), Some(vec![]));
        assert_eq!(module_of("c/src/a/mod.rs"), Some(vec!["a".to_string()]));
        assert_eq!(module_of("c/src/a/b.rs"), Some(vec!["a".to_string(), "b".to_string()]));
        assert_eq!(module_of("c/tests/a.rs"), None);
    }
}
