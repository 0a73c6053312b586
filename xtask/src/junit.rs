//! Reads the results that nextest writes as JUnit's XML.

use std::path::Path;

/// The file of results of nextest's profile `suite`, in the target directory.
const RESULTS: &str = "nextest/suite/junit.xml";

/// Options of nextest for the profile that writes results.
pub const PROFILE: [&str; 2] = ["--profile", "suite"];

/// The result of a test.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The test binary, as nextest names it: `heaptide-cli::record`.
    pub binary: String,
    pub test: String,
    pub seconds: f64,
    pub has_failed: bool,
}

/// Removes results of an earlier run, so that [`read`] does not return them.
pub fn remove(target: &Path) {
    // There are none before the first run.
    let _ = std::fs::remove_file(target.join(RESULTS));
}

/// Returns the results of the last run.
///
/// # Errors
///
/// The file cannot be read, or a test has no name or time.
pub fn read(target: &Path) -> Result<Vec<Case>, String> {
    let path = target.join(RESULTS);
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses a file of results. Texts and attributes contain no `<`, which is escaped there.
fn parse(text: &str) -> Result<Vec<Case>, String> {
    text.split("<testcase ").skip(1).map(case).collect()
}

fn case(element: &str) -> Result<Case, String> {
    let head = element.split('>').next().unwrap_or_default();
    let field = |name: &str| {
        let value = attribute(head, name);
        value.ok_or_else(|| format!("`<testcase {head}>`: expected an attribute `{name}`"))
    };
    let seconds = field("time")?;
    let seconds =
        seconds.parse().map_err(|_| format!("time `{seconds}`: expected a number of seconds"))?;
    let has_failed = ["<failure", "<error"].iter().any(|tag| element.contains(tag));
    Ok(Case { binary: field("classname")?, test: field("name")?, seconds, has_failed })
}

/// Returns the value of an attribute without escapes.
fn attribute(head: &str, name: &str) -> Option<String> {
    let start = head.match_indices(&format!("{name}=\"")).find_map(|(at, found)| {
        let is_whole = at == 0 || head[..at].ends_with(' ');
        is_whole.then_some(at + found.len())
    })?;
    let (value, _) = head[start..].split_once('"')?;
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    Some(escapes.iter().fold(value.to_owned(), |value, (from, to)| value.replace(from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="2" failures="1" time="0.553">
    <testsuite name="nx" tests="2" failures="1">
        <testcase name="m::c" classname="nx::bin/nx" timestamp="2026-11-27" time="0.016"/>
        <testcase name="m::&lt;b&gt;" classname="nx" timestamp="2026-11-27" time="1.220">
            <failure message="x" type="test failure">x &lt;testcase name=&quot;y&quot;</failure>
        </testcase>
    </testsuite>
</testsuites>
"#;

    #[test]
    fn tests_have_binaries_times_and_results() {
        let case = |binary: &str, test: &str, seconds, has_failed| Case {
            binary: binary.to_owned(),
            test: test.to_owned(),
            seconds,
            has_failed,
        };
        let expected = [case("nx::bin/nx", "m::c", 0.016, false), case("nx", "m::<b>", 1.22, true)];
        assert_eq!(parse(RESULTS).unwrap(), expected);
    }

    #[test]
    fn a_test_without_a_time_is_an_error() {
        let error = parse(r#"<testcase name="a" classname="b"/>"#).unwrap_err();
        assert!(error.contains("`time`"), "{error}");
        let error = parse(r#"<testcase name="a" classname="b" time="x"/>"#).unwrap_err();
        assert!(error.contains("seconds"), "{error}");
    }
}
