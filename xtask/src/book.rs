//! The book: `docs/SUMMARY.md` with its pages, built by mdBook, and every link of the result checked.
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
/// The table of contents, and what mdBook is told.
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
    let summary = read(&root.join(SUMMARY))?;
    let pages: BTreeSet<String> =
        links::targets(&summary).into_iter().map(|(_, page)| links::resolve(SUMMARY, page)).collect();
    let staged = links::targets(&summary).into_iter().fold(summary.clone(), |text, (_, page)| {
        text.replace(&format!("]({page})"), &format!("]({})", links::resolve(SUMMARY, page)))
    });
    write(&source.join("SUMMARY.md"), &staged)?;
    write(&source.join("book.toml"), &read(&root.join(SETTINGS))?)?;
    for file in THEME {
        write(&source.join(file), &read(&root.join(file))?)?;
    }
    for page in &pages {
        let mut text = read(&root.join(page))?;
        for (_, link) in links::targets(&text.clone()) {
            let (file, _) = link.split_once('#').unwrap_or((link, ""));
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let path = links::resolve(page, file);
            if let Some(renamed) = copied(root, source, &path, &pages)? {
                let above = "../".repeat(page.matches('/').count());
                text = text.replace(&format!("]({link})"), &format!("]({above}{renamed})"));
            }
        }
        write(&source.join(page), &text)?;
    }
    Ok(())
}

/// Copies what a page links to, unless it is a page; its path if that is another one now.
fn copied(
    root: &Path,
    source: &Path,
    path: &str,
    pages: &BTreeSet<String>,
) -> Result<Option<String>, String> {
    let from = root.join(path);
    if pages.contains(path) {
        return Ok(None);
    }
    if from.is_dir() {
        return directory(root, source, path).map(Some);
    }
    let is_shown = SHOWN.iter().any(|ending| path.ends_with(ending));
    let name = if is_shown { path.to_owned() } else { format!("{path}.txt") };
    let bytes = fs::read(&from).map_err(|e| format!("{path}: {e}"))?;
    write(&source.join(&name), bytes)?;
    Ok((!is_shown).then_some(name))
}

/// A list of the files of a directory, which are copied.
fn directory(root: &Path, source: &Path, path: &str) -> Result<String, String> {
    let entries = fs::read_dir(root.join(path)).map_err(|e| format!("{path}: {e}"))?;
    let entries = entries.flatten().filter(|entry| entry.path().is_file());
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let mut list = format!("<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>{path}</title>\n<ul>\n");
    for name in names {
        let file = format!("{path}/{name}");
        let shown = copied(root, source, &file, &BTreeSet::new())?.unwrap_or(file);
        let href = shown.rsplit('/').next().unwrap_or(&shown);
        list += &format!("<li><a href=\"{href}\">{name}</a></li>\n");
    }
    let name = format!("{path}/index.html");
    write(&source.join(&name), list + "</ul>\n")?;
    Ok(name)
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
        if ["print.html", "404.html"].contains(&&*name) || !text.contains("<nav id=\"mdbook-sidebar") {
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
        let a = "<a href=\"b/c.html#here\"></a><a href=\"b/c.html#gone\"></a><a href=\"x.html\"></a>";
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
    fn every_page_of_the_book_is_there_and_every_document_is_in_it() {
        let root = crate::root();
        let summary = read(&root.join(SUMMARY)).expect("the table of contents");
        let pages: BTreeSet<String> = links::targets(&summary)
            .into_iter()
            .map(|(_, page)| links::resolve(SUMMARY, page))
            .collect();
        let texts = crate::text::all(&root).expect("the sources can be listed");
        let is_page = |path: &str| path.starts_with("docs/") && path.ends_with(".md") && path != SUMMARY;
        let missing: Vec<&String> =
            texts.iter().map(|text| &text.path).filter(|p| is_page(p) && !pages.contains(*p)).collect();
        assert_eq!(missing, Vec::<&String>::new(), "add them to {SUMMARY}");
    }
}
