//! Source files as they are named in a repository, and links to their lines.

use std::path::PathBuf;

use crate::values::Place;

/// Where the source is: the directory of the repository, and how its server shows a line.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The directory with the repository.
    pub root: PathBuf,
    /// The address of a line, with `{file}` and `{line}` in it.
    pub template: Option<String>,
}

/// Variables of continuous integration. The first group that is whole counts.
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

/// What GitHub and GitLab tell their jobs.
struct Server {
    root: &'static str,
    parts: [&'static str; 3],
    template: &'static str,
}

impl Sources {
    /// Those that the environment names: of a job on GitHub or GitLab the repository and its
    /// server, otherwise the current directory. `template` is used in place of the server's.
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

    /// The path of a file in the repository; none if it is not in it.
    pub fn relative(&self, place: &Place) -> Option<String> {
        let root = self.root.canonicalize().ok()?;
        // Compilers have relative paths, and absolute ones with `..` in them.
        let file = root.join(&*place.file).canonicalize().ok()?;
        Some(file.strip_prefix(root).ok()?.to_str()?.to_owned())
    }

    /// The address of a line; none if the file is not in the repository or no server is known.
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
