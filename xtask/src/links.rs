//! Links between the documents: what they lead to is in the repository, and has the heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::problem::Problem;
use crate::text::Text;

/// A problem for each link that leads nowhere.
pub fn check(texts: &[Text]) -> Vec<Problem> {
    let paths: BTreeSet<&str> = texts.iter().map(|text| text.path.as_str()).collect();
    let documents = || texts.iter().filter(|text| text.path.ends_with(".md"));
    let headings: BTreeMap<&str, BTreeSet<String>> =
        documents().map(|text| (&*text.path, anchors(&text.content))).collect();
    let exists = |path: &str| {
        let inside = format!("{path}/");
        paths.contains(path) || paths.iter().any(|p| p.starts_with(&inside))
    };
    let mut problems = Vec::new();
    for text in documents() {
        for (n, target) in targets(&text.content) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let path = if file.is_empty() { text.path.clone() } else { resolve(&text.path, file) };
            if !exists(&path) {
                let says = format!("links to `{target}`, which is not in the repository");
                problems.push(Problem::new(&text.path, n, says));
            } else if !anchor.is_empty()
                && headings.get(&*path).is_some_and(|there| !there.contains(anchor))
            {
                let says = format!("links to `{target}`, but {path} has no such heading");
                problems.push(Problem::new(&text.path, n, says));
            }
        }
    }
    problems
}

/// The targets of the links of a document, outside of code, with their lines.
pub fn targets(content: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    for (n, line) in outside_code(content) {
        let spoken =
            line.match_indices("](").filter(|(at, _)| line[..*at].matches('`').count() % 2 == 0);
        let target = |(at, _): (usize, &str)| line[at + 2..].split(')').next();
        targets.extend(spoken.filter_map(target).map(|target| (n, target)));
    }
    targets
}

/// Lines with their numbers, from 1, without fenced blocks.
fn outside_code(content: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    content.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((i + 1, line))
    })
}

/// What headings of a document are called in addresses, by hosts of code and by mdBook.
pub fn anchors(content: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in outside_code(content) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let name = slug(title.trim());
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|n| !anchors.contains(n));
        anchors.extend(free);
    }
    anchors
}

fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The path from the root of a link in the document `from`.
pub fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = Path::new(from)
        .parent()
        .into_iter()
        .flat_map(|directory| directory.iter().filter_map(|part| part.to_str()))
        .collect();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, content: &str) -> Text {
        Text { path: path.to_string(), content: content.to_string() }
    }

    #[test]
    fn a_dead_link_is_found() {
        let texts = [
            text("docs/a.md", "see [b](b.md#a-part), [c](../c.md), [d](../d), [w](https://w.org)"),
            text("docs/b.md", "# B\n\n## A part\n"),
            text("d/e.rs", ""),
        ];
        let said: Vec<String> = check(&texts).iter().map(Problem::to_string).collect();
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("`../c.md`"), "{said:?}");
    }

    #[test]
    fn a_link_to_a_heading_that_is_not_there_is_found() {
        let page = "# A\n[b](#b), [c](#c)\n\n## B\n```sh\n# c\n[d](d.md)\n```\n`[e](e.md)`\n";
        let said: Vec<String> =
            check(&[text("a.md", page)]).iter().map(Problem::to_string).collect();
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("`#c`"), "{said:?}");
    }

    #[test]
    fn headings_have_the_names_of_their_addresses() {
        let page = "# What `run` does, and why\n## A_b-c\n## A_b-c\n#no heading\n";
        let expected = ["a_b-c", "a_b-c-1", "what-run-does-and-why"];
        assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expected);
    }
}
