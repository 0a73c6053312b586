//! The book: `docs/SUMMARY.md` with its pages, built by mdBook, and every link of the result
//! checked.
//!
//! Pages link to files of the whole repository. So the sources of the book are a copy of what is
//! linked, in the same folders; files that browsers would not show are texts there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{shown, target};
use crate::links;

/// The version that builds the book.
const MDBOOK: &str = "0.5.4";
/// The table of contents, and the settings of mdBook.
const SUMMARY: &str = "docs/SUMMARY.md";
const SETTINGS: &str = "docs/book.toml";
/// Files that settings name.
const THEME: [&str; 2] = ["docs/book/book.css", "docs/book/commands.js"];
/// Endings of linked files that browsers show as they are.
const SHOWN: [&str; 4] = [".html", ".png", ".svg", ".json"];

/// Builds the book into `book` in the target directory, and checks its links.
pub fn build(root: &Path) -> Result<(), String> {
    let (source, built) = (target(root).join("book-source"), target(root).join("book"));
    stage(root, &source)?;
    if built.exists() {
        fs::remove_dir_all(&built).map_err(|e| format!("{}: {e}", built.display()))?;
    }
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(&source).arg("--dest-dir").arg(&built);
    let install = format!("`cargo install --locked mdbook@{MDBOOK}` installs it");
    let done = mdbook.output().map_err(|error| format!("mdbook: {error}; {install}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() || said.contains("WARN") || said.contains("ERROR") {
        return Err(format!("{}: {}\n{said}", shown(&mdbook), done.status));
    }
    let pages = html(&built)?;
    let problems = dead_links(&built, &pages);
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    if !problems.is_empty() {
        return Err(format!("book: {} dead links, listed above", problems.len()));
    }
    println!("book: {} pages in {}, all links lead somewhere", pages.len(), built.display());
    Ok(())
}

/// Copies pages, and what they link to.
fn stage(root: &Path, source: &Path) -> Result<(), String> {
    if source.exists() {
        fs::remove_dir_all(source).map_err(|e| format!("{}: {e}", source.display()))?;
    }
    for file in THEME {
        write(&source.join(placed(file)), read(&root.join(file))?)?;
    }
    write(&source.join("book.toml"), read(&root.join(SETTINGS))?)?;
    let summary = read(&root.join(SUMMARY))?;
    let pages: BTreeSet<String> = pages_of(&summary).collect();
    let staging = Staging { root, source, pages };
    write(&source.join("SUMMARY.md"), staging.relinked(SUMMARY, &summary)?)?;
    for page in &staging.pages {
        let text = staging.relinked(page, &read(&root.join(page))?)?;
        write(&source.join(placed(page)), text)?;
    }
    Ok(())
}

/// The pages that the table of contents lists, by their paths from the root.
fn pages_of(summary: &str) -> impl Iterator<Item = String> {
    links::targets(summary).into_iter().map(|(_, page)| links::resolve(SUMMARY, page))
}

/// Where a document is in the book: what is in `docs` is at its root.
fn placed(path: &str) -> String {
    match (path.strip_prefix("docs/"), path.strip_suffix("/README.md")) {
        (Some("README.md"), _) => "index.md".to_owned(),
        (Some(path), _) => path.to_owned(),
        (None, Some(folder)) => format!("{folder}.md"),
        (None, None) if path == "README.md" => "repository.md".to_owned(),
        (None, None) if path.ends_with(".md") => path.to_lowercase(),
        (None, None) => format!("files/{path}"),
    }
}

/// The sources of the book in the making.
struct Staging<'a> {
    root: &'a Path,
    source: &'a Path,
    pages: BTreeSet<String>,
}

impl Staging<'_> {
    /// The text of a page with links as they are in the book. What they lead to is copied.
    fn relinked(&self, page: &str, text: &str) -> Result<String, String> {
        let above = "../".repeat(placed(page).matches('/').count());
        let mut relinked = text.to_owned();
        for (_, link) in links::targets(text) {
            let (file, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let target = self.copied(&links::resolve(page, file))?;
            let new = format!("]({above}{target}{anchor})");
            relinked = relinked.replace(&format!("]({link})"), &new);
        }
        Ok(relinked)
    }

    /// Copies what a page links to, unless it is a page; where it is in the book.
    fn copied(&self, path: &str) -> Result<String, String> {
        let from = self.root.join(path);
        if self.pages.contains(path) {
            return Ok(placed(path));
        }
        if from.is_dir() {
            return self.listed(path);
        }
        let is_shown = SHOWN.iter().any(|ending| path.ends_with(ending));
        let name = match placed(path) {
            name if is_shown => name,
            name if name.ends_with(".md") => format!("files/{path}.txt"),
            name => format!("{name}.txt"),
        };
        let bytes = fs::read(&from).map_err(|error| format!("{path}: {error}"))?;
        write(&self.source.join(&name), bytes)?;
        Ok(name)
    }

    /// Copies the files of a directory; where the list of them is.
    fn listed(&self, path: &str) -> Result<String, String> {
        let entries = fs::read_dir(self.root.join(path)).map_err(|e| format!("{path}: {e}"))?;
        let entries = entries.flatten().filter(|entry| entry.path().is_file());
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let mut list =
            format!("<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>{path}</title>\n<ul>\n");
        let name = format!("files/{path}/index.html");
        let above = "../".repeat(name.matches('/').count());
        for file in names {
            let copied = self.copied(&format!("{path}/{file}"))?;
            list += &format!("<li><a href=\"{above}{copied}\">{file}</a></li>\n");
        }
        write(&self.source.join(&name), list + "</ul>\n")?;
        Ok(name)
    }
}

/// The pages of a built book, by their paths.
fn html(built: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let (mut pages, mut folders) = (BTreeMap::new(), vec![built.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "html") {
                let text = read(&path)?;
                pages.insert(path, text);
            }
        }
    }
    Ok(pages)
}

/// A line for each link of the pages that leads nowhere. All pages in one (`print.html`) and the
/// page for addresses that are not there (`404.html`) have links as from other places.
fn dead_links(built: &Path, pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in pages {
        let name = path.strip_prefix(built).unwrap_or(path).display().to_string();
        // A page of a recording brings its links with its script.
        if ["print.html", "404.html"].contains(&&*name)
            || !text.contains("<nav id=\"mdbook-sidebar")
        {
            continue;
        }
        for link in attributes(text, &["href", "src"]) {
            let link = link.replace("&amp;", "&");
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            if file.contains(':') || file.starts_with("//") {
                continue;
            }
            let folder = path.parent().unwrap_or(built);
            let target = if file.is_empty() { path.clone() } else { plain(&folder.join(file)) };
            let has = |text: &String| attributes(text, &["id", "name"]).any(|id| id == anchor);
            let is_there = match pages.get(&target) {
                Some(text) => anchor.is_empty() || has(text),
                None => target.exists(),
            };
            if !is_there {
                problems.push(format!("book: {name}: `{link}` leads nowhere"));
            }
        }
    }
    problems
}

/// The values of these attributes.
fn attributes<'a>(html: &'a str, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
    names.iter().flat_map(move |name| {
        let start = format!(" {name}=\"");
        let values = html.match_indices(&*start).map(|(at, start)| at + start.len());
        let values: Vec<usize> = values.collect();
        values.into_iter().filter_map(|at| html[at..].split('"').next())
    })
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            std::path::Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    fs::write(path, bytes).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_built_pages_are_checked() {
        let page = |body: &str| format!("<nav id=\"mdbook-sidebar\"></nav>{body}");
        let a =
            "<a href=\"b/c.html#here\"></a><a href=\"b/c.html#gone\"></a><a href=\"x.html\"></a>";
        let c = "<h1 id=\"here\"></h1><a href=\"../a.html\"></a><a href=\"https://h.org/y\"></a>";
        let built = Path::new("/nowhere/book");
        let pages = [("a.html", page(a)), ("b/c.html", page(c))];
        let pages = pages.into_iter().map(|(path, text)| (built.join(path), text)).collect();
        let expected = ["`b/c.html#gone`", "`x.html`"];
        let problems = dead_links(built, &pages);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems.iter().zip(expected).all(|(problem, link)| problem.contains(link)));
    }

    #[test]
    fn documents_have_places_in_the_book() {
        let places = ["docs/README.md", "docs/tasks/a.md", "README.md", "python/README.md"];
        let expected = ["index.md", "tasks/a.md", "repository.md", "python.md"];
        assert_eq!(places.map(placed), expected);
        assert_eq!(placed("DESIGN.md"), "design.md");
        assert_eq!(placed("examples/c/heat.c"), "files/examples/c/heat.c");
    }

    #[test]
    fn every_page_of_the_book_is_there_and_every_document_is_in_it() {
        let root = crate::root();
        let summary = read(&root.join(SUMMARY)).expect("the table of contents");
        let pages: BTreeSet<String> = pages_of(&summary).collect();
        let texts = crate::text::all(&root).expect("the sources can be listed");
        let is_page =
            |path: &str| path.starts_with("docs/") && path.ends_with(".md") && path != SUMMARY;
        let missing: Vec<&String> = texts
            .iter()
            .map(|text| &text.path)
            .filter(|p| is_page(p) && !pages.contains(*p))
            .collect();
        assert_eq!(missing, Vec::<&String>::new(), "add them to {SUMMARY}");
    }
}
