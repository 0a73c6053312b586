//! `heaptide.toml`: what a project says once, in place of options with every command.

use std::io;
use std::path::{Path, PathBuf};

use heaptide_analysis::files::input;
use heaptide_analysis::selection::rules::SETS;
use serde::Deserialize;

use crate::error::Error;

/// Its name.
const NAME: &str = "heaptide.toml";
/// The largest that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// What it says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// Functions, modules and source files that are the program's own code, as with `--own`.
    #[serde(default)]
    pub own: Vec<String>,
    /// Files of rules and built-in sets, as with `--rules`, for views for people. A file is looked
    /// for in the directory of the project file.
    #[serde(default)]
    rules: Vec<String>,
    /// What `heaptide check` checks.
    #[serde(default)]
    pub check: Check,
    /// Findings that are known and meant, as with `heaptide advise --suppress`.
    #[serde(default)]
    pub suppress: Vec<String>,
    /// Where it is; empty if there is none.
    #[serde(skip)]
    path: PathBuf,
}

/// What `heaptide check` checks without `--max`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// As `--baseline`; looked for in the directory of the project file.
    baseline: Option<PathBuf>,
    /// Limits, by what they are on.
    #[serde(default)]
    pub limits: Vec<Limits>,
}

/// Limits on a part of a program.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// As `--max`.
    pub max: Vec<String>,
    /// As `--scope`.
    pub scope: Option<String>,
    /// As `--owner`.
    pub owner: Option<String>,
    /// As `--thread`.
    pub thread: Option<String>,
}

impl Project {
    /// That of the current directory or of the nearest above it that has one; an empty one if none
    /// has.
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

    /// The rules: built-in sets by their names, files by their paths.
    pub fn rules(&self) -> Vec<String> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let file = |name: &String| directory.join(name).to_string_lossy().into_owned();
        let is_set = |name: &str| SETS.iter().any(|(set, _)| *set == name);
        let rules = self.rules.iter();
        rules.map(|name| if is_set(name) { name.clone() } else { file(name) }).collect()
    }

    /// The baseline of `heaptide check`.
    pub fn baseline(&self) -> Option<PathBuf> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        self.check.baseline.as_ref().map(|baseline| directory.join(baseline))
    }

    /// What messages call it.
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
