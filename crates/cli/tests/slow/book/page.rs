//! Parses pages of the book: what a page needs, and its commands with their outputs.
//!
//! A page is Markdown. Comments at its beginning list what its commands need:
//!
//! ```text
//! <!-- files: examples/book/service -->  files to copy into the directory of the commands
//! <!-- needs: g++, curl -->              programs, or names of `cargo xtask setup --check`
//! <!-- writes: a.html, b.png of a.html -->
//! ```
//!
//! `writes` lists files that the commands write, or a picture of such an HTML page. They are stored
//! in the directory next to the page with the same name.
//!
//! A fenced block of the language `console` contains commands, each after `$ `, continued after `>
//! `, and their outputs. An output that ends with the line `…` is only the beginning of the actual
//! one. `console,about` compares numbers within 5 %, for programs whose counts are not exact, and
//! `console,shape` masks all numbers, for formats that consist of times and addresses.
//! `console,varies` compares nothing, for charts over time. `console,sql` is only run if
//! `heaptide-sql` is next to the command.

/// The beginning of blocks whose commands are run.
const LANGUAGE: &str = "```console";
/// Suffixes of the language, for numbers that are compared roughly or not at all.
const ABOUT: &str = ",about";
const SHAPE: &str = ",shape";
const VARIES: &str = ",varies";
/// The suffix for commands that need `heaptide-sql`, which most builds do not have.
const SQL: &str = ",sql";
/// The last line of a truncated output.
const CUT: &str = "…";

/// How to compare an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// Everything except what differs between runs.
    Exactly,
    /// Numbers within 5 %; differences of numbers are ignored.
    About,
    /// With all numbers masked.
    Shape,
    /// No comparison.
    Varies,
}

/// A part of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Lines without commands, including fences.
    Text(String),
    /// A command with its output.
    Step(Step),
}

/// A command with its output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Lines of the command, without prompts.
    pub command: String,
    /// Lines of the output.
    pub output: Vec<String>,
    /// Whether the command prints more than `output`.
    pub is_cut: bool,
    /// How to compare the output.
    pub compared: Compared,
    /// Whether the command needs `heaptide-sql`.
    pub needs_sql: bool,
}

/// A parsed page.
#[derive(Debug)]
pub struct Page {
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Files and directories of the repository that the commands work with.
    pub files: Vec<String>,
    /// What the machine must have.
    pub needs: Vec<String>,
    /// Files that the commands write.
    pub writes: Vec<String>,
}

impl Page {
    /// Parses the text of a page.
    pub fn parse(text: &str) -> Page {
        let mut parts = Vec::new();
        let mut block = None;
        for line in text.split_inclusive('\n') {
            let bare = line.trim_end_matches('\n');
            block = match block {
                None => opened(bare),
                Some(_) if bare == "```" => None,
                Some(ref step) => {
                    add_line(&mut parts, bare, step);
                    continue;
                }
            };
            match parts.last_mut() {
                Some(Part::Text(text)) => text.push_str(line),
                _ => parts.push(Part::Text(line.to_owned())),
            }
        }
        let [files, needs, writes] = ["files", "needs", "writes"].map(|key| listed(text, key));
        Page { parts, files, needs, writes }
    }

    /// Returns the commands in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().filter_map(|part| match part {
            Part::Step(step) => Some(step),
            Part::Text(_) => None,
        })
    }

    /// Returns the text of the page, with each output replaced for which `same` is false.
    pub fn with_outputs(&self, outputs: &[String], same: impl Fn(&Step, &str) -> bool) -> String {
        let mut outputs = outputs.iter();
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(lines) => text.push_str(lines),
                Part::Step(step) => {
                    let output = outputs.next().map_or("", String::as_str);
                    let own = step.output.join("\n");
                    let kept = if same(step, output) { &own } else { output };
                    text.push_str(&step.with_output(kept));
                }
            }
        }
        text
    }
}

impl Step {
    /// Returns the lines of an output that the page shows.
    pub fn shown<'a>(&self, output: &'a str) -> Vec<&'a str> {
        let lines = output.lines().map(str::trim_end);
        if self.is_cut { lines.take(self.output.len()).collect() } else { lines.collect() }
    }

    fn with_output(&self, output: &str) -> String {
        let mut text = String::new();
        for (number, line) in self.command.lines().enumerate() {
            let prompt = if number == 0 { "$ " } else { "> " };
            text += &format!("{}\n", format!("{prompt}{line}").trim_end());
        }
        let shown = self.shown(output);
        shown.iter().for_each(|line| text += &format!("{line}\n"));
        if self.is_cut {
            text += &format!("{CUT}\n");
        }
        text
    }
}

/// Returns a step without lines, with the properties of the block that a line opens, if the block's
/// commands are run.
fn opened(line: &str) -> Option<Step> {
    let kind = line.strip_prefix(LANGUAGE)?;
    let compared = match kind {
        "" | SQL => Compared::Exactly,
        ABOUT => Compared::About,
        SHAPE => Compared::Shape,
        VARIES => Compared::Varies,
        other => panic!("`{LANGUAGE}{other}`: no such kind of block"),
    };
    let (command, output) = (String::new(), Vec::new());
    Some(Step { command, output, is_cut: false, compared, needs_sql: kind == SQL })
}

fn add_line(parts: &mut Vec<Part>, line: &str, block: &Step) {
    if let Some(command) = line.strip_prefix("$ ") {
        return parts.push(Part::Step(Step { command: command.to_owned(), ..block.clone() }));
    }
    let Some(Part::Step(step)) = parts.last_mut() else {
        panic!("expected `$ COMMAND` as the first line of the block, found `{line}`")
    };
    match line.strip_prefix("> ").or((line == ">").then_some("")) {
        Some(more) if step.output.is_empty() => step.command += &format!("\n{more}"),
        _ if line == CUT => step.is_cut = true,
        _ => step.output.push(line.to_owned()),
    }
}

/// Returns the values of the comments `<!-- KEY: VALUE, … -->`.
fn listed(text: &str, key: &str) -> Vec<String> {
    let start = format!("<!-- {key}: ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&*start)?.strip_suffix(" -->"));
    lines.flat_map(|line| line.split(", ")).map(str::to_owned).collect()
}

#[test]
fn a_page_has_commands_and_their_outputs() {
    let text = "<!-- needs: a, b -->\n# T\n\n```console\n$ x 1\n> y\nout\n…\n$ z\n```\n\n```sh\n$ no\n```\n";
    let page = Page::parse(text);
    assert_eq!(page.needs, ["a", "b"]);
    let steps: Vec<&Step> = page.steps().collect();
    assert_eq!(steps.len(), 2);
    assert_eq!((&*steps[0].command, &steps[0].output[..]), ("x 1\ny", &["out".to_owned()][..]));
    assert!(steps[0].is_cut && !steps[1].is_cut && steps[1].output.is_empty());
    let outputs = ["new  \nand more\n".to_owned(), "one\n".to_owned()];
    let expected = text.replace("out\n", "new\n").replace("$ z\n", "$ z\none\n");
    assert_eq!(page.with_outputs(&outputs, |_, _| false), expected);
    let is_first = |step: &Step, _: &str| step.is_cut;
    assert_eq!(page.with_outputs(&outputs, is_first), expected.replace("new\n", "out\n"));
}
