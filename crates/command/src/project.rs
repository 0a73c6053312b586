//! `heaptide.toml`: settings of a project, instead of options of every command.

use std::io;
use std::path::{Path, PathBuf};

use heaptide_analysis::files::input;
use heaptide_analysis::selection::rules::SETS;
use serde::Deserialize;

use crate::error::Error;

/// Its name.
const NAME: &str = "heaptide.toml";
/// The largest file to read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// Functions, modules and source files that are the program's own code, like `--own`.
    #[serde(default)]
    pub own: Vec<String>,
    /// Files of rules and built-in sets, like `--rules`, for views for people. Files are relative
    /// to the directory of the project file.
    #[serde(default)]
    rules: Vec<String>,
    /// The settings of `heaptide check`.
    #[serde(default)]
    pub check: Check,
    /// Suppressions of known findings, like `heaptide advise --suppress`.
    #[serde(default)]
    pub suppress: Vec<String>,
    /// The path of the file; empty if there is none.
    #[serde(skip)]
    path: PathBuf,
}

/// The settings of `heaptide check` without `--max`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Like `--baseline`; relative to the directory of the project file.
    baseline: Option<PathBuf>,
    /// Limits, with the parts that they apply to.
    #[serde(default)]
    pub limits: Vec<Limits>,
}

/// Limits on a part of a program.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Like `--max`.
    pub max: Vec<String>,
    /// Like `--scope`.
    pub scope: Option<String>,
    /// Like `--owner`.
    pub owner: Option<String>,
    /// Like `--thread`.
    pub thread: Option<String>,
}

impl Project {
    /// Reads the project file of the current directory or its nearest parent that has one; empty if
    /// there is none.
    ///
    /// Errors: it cannot be read.
    pub fn here() -> Result<Project, Error> {
        let Ok(here) = std::env::current_dir() else {
            return Ok(Project::default());
        };
        for directory in here.ancestors() {
            if let Some(project) = Project::read(&directory.join(NAME))? {
                return Ok(project);
            }
        }
        Ok(Project::default())
    }

    /// Returns the rules: names of built-in sets, and paths of files.
    pub fn rules(&self) -> Vec<String> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let file = |name: &String| directory.join(name).to_string_lossy().into_owned();
        let is_set = |name: &str| SETS.iter().any(|(set, _)| *set == name);
        let rules = self.rules.iter();
        rules.map(|name| if is_set(name) { name.clone() } else { file(name) }).collect()
    }

    /// Returns the baseline of `heaptide check`.
    pub fn baseline(&self) -> Option<PathBuf> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        self.check.baseline.as_ref().map(|baseline| directory.join(baseline))
    }

    /// Returns its name in messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn read(path: &Path) -> Result<Option<Project>, Error> {
        let text = match input::read(path, BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(path, "read it", error)),
        };
        let project = toml::from_slice::<Project>(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                1 + text.iter().take(span.start).filter(|&&byte| byte == b'\n').count()
            });
            let what = error.message().replace('\n', " ");
            Error::new(format!("{}:{line}: {what}", path.display()))
        })?;
        Ok(Some(Project { path: path.to_owned(), ..project }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_fixtures::Scratch;

    #[test]
    fn project_files_are_parsed_and_errors_have_a_line() {
        let scratch = Scratch::new("project");
        let read = |text: &str| Project::read(&scratch.write(NAME, text.as_bytes()));
        let project = read("own = [\"module:libapp\", \"^app::\"]\n").unwrap().unwrap();
        assert_eq!(project.own, ["module:libapp", "^app::"]);
        assert!(read("").unwrap().unwrap().own.is_empty());
        let project = read("rules = [\"std\", \"ours.rules\", \"./std\"]").unwrap().unwrap();
        let here = |name: &str| scratch.join(name).to_string_lossy().into_owned();
        assert_eq!(project.rules(), ["std".to_owned(), here("ours.rules"), here("./std")]);
        let text = "[check]\nbaseline = \"main.json\"\n[[check.limits]]\nscope = \"a\"\nmax = [\"peak=1\"]";
        let project = read(text).unwrap().unwrap();
        assert_eq!(project.baseline(), Some(scratch.join("main.json")));
        assert_eq!(project.check.limits[0].scope.as_deref(), Some("a"));
        assert!(Project::read(Path::new("nowhere/heaptide.toml")).unwrap().is_none());
        let wrong = read("own = [\n\"a\",\n\nowned = 2").unwrap_err().to_string();
        assert!(wrong.contains("heaptide.toml:4: "), "{wrong}");
        let wrong = read("# a\nowns = []").unwrap_err().to_string();
        assert!(wrong.contains("heaptide.toml:2: unknown field `owns`"), "{wrong}");
    }
}
