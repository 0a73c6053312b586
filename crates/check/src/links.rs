//! Paths of source files in a repository, and links to their lines.

use std::path::PathBuf;

use crate::values::Place;

/// The location of sources: the directory of the repository, and the server's format of links.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The directory of the repository.
    pub root: PathBuf,
    /// The address of a line, with placeholders `{file}` and `{line}`.
    pub template: Option<String>,
}

/// Variables of continuous integration servers. The first complete group is used.
const SERVERS: [Server; 2] = [
    Server {
        root: "GITHUB_WORKSPACE",
        parts: ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA"],
        template: "{0}/{1}/blob/{2}/{file}#L{line}",
    },
    Server {
        root: "CI_PROJECT_DIR",
        parts: ["CI_SERVER_URL", "CI_PROJECT_PATH", "CI_COMMIT_SHA"],
        template: "{0}/{1}/-/blob/{2}/{file}#L{line}",
    },
];

/// Variables that GitHub and GitLab set for their jobs.
struct Server {
    root: &'static str,
    parts: [&'static str; 3],
    template: &'static str,
}

impl Sources {
    /// Returns the sources that the environment describes: for a job on GitHub or GitLab the
    /// repository and its server, otherwise the current directory. `template` overrides that of the
    /// server.
    pub fn here(template: Option<String>, variable: impl Fn(&str) -> Option<String>) -> Sources {
        let here = || std::env::current_dir().unwrap_or_default();
        for server in &SERVERS {
            let [Some(url), Some(repository), Some(commit)] = server.parts.map(&variable) else {
                continue;
            };
            let of_server = server.template.replace("{0}", &url).replace("{1}", &repository);
            let of_server = of_server.replace("{2}", &commit);
            let root = variable(server.root).map_or_else(here, PathBuf::from);
            return Sources { root, template: template.or(Some(of_server)) };
        }
        Sources { root: here(), template }
    }

    /// Returns the path of a file relative to the repository; `None` if it is outside.
    pub fn relative(&self, place: &Place) -> Option<String> {
        let root = self.root.canonicalize().ok()?;
        // Compilers store relative paths, and absolute ones that contain `..`.
        let file = root.join(&*place.file).canonicalize().ok()?;
        Some(file.strip_prefix(root).ok()?.to_str()?.to_owned())
    }

    /// Returns the address of a line; `None` if the file is outside of the repository, or the
    /// server is unknown.
    pub fn link(&self, place: &Place) -> Option<String> {
        let file = self.relative(place)?;
        let template = self.template.as_ref()?;
        let file = file.replace('%', "%25").replace(' ', "%20").replace('#', "%23");
        Some(template.replace("{file}", &file).replace("{line}", &place.line.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_fixtures::Scratch;

    #[test]
    fn lines_in_the_repository_have_a_link() {
        let scratch = Scratch::new("links");
        std::fs::create_dir(scratch.join("src")).expect("a directory");
        let file = scratch.write("src/my rows.c", b"");
        let root = scratch.join("").display().to_string();
        let variable = |name: &str| match name {
            "GITHUB_SERVER_URL" => Some("https://forge".to_owned()),
            "GITHUB_REPOSITORY" => Some("me/app".to_owned()),
            "GITHUB_SHA" => Some("abc".to_owned()),
            "GITHUB_WORKSPACE" => Some(root.clone()),
            _ => None,
        };
        let sources = Sources::here(None, variable);
        let place = |file: &str| Place { file: file.into(), line: 7 };
        let link = "https://forge/me/app/blob/abc/src/my%20rows.c#L7";
        assert_eq!(sources.link(&place(&file.display().to_string())).as_deref(), Some(link));
        assert_eq!(sources.link(&place("src/my rows.c")).as_deref(), Some(link));
        assert_eq!(sources.relative(&place("/usr/include/stdlib.h")), None);
        assert_eq!(sources.relative(&place("../src/rows.c")), None);
        let sources = Sources::here(Some("x/{line}".to_owned()), variable);
        assert_eq!(sources.link(&place("src/my rows.c")).as_deref(), Some("x/7"));
    }
}
