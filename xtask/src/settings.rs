//! Writes the table of environment variables in `docs/environment.md` from `heaptide-format`.

use std::path::Path;

use heaptide_format::settings::Setting;

use crate::problem::Problem;
use crate::text::Text;

/// The document that explains every variable.
pub const PAGE: &str = "docs/environment.md";
/// The lines above the rows.
const HEAD: &str = "| variable | read by | value | default |\n|---|---|---|---|\n";

/// Writes the table.
pub fn write(root: &Path) -> Result<(), String> {
    let path = root.join(PAGE);
    let failed = |e| format!("{PAGE}: {e}");
    let page = std::fs::read_to_string(&path).map_err(failed)?;
    let page = updated(&page).ok_or_else(|| format!("{PAGE}: no table of variables"))?;
    std::fs::write(path, page).map_err(failed)
}

/// Returns a problem if the document has a different table.
pub fn check(texts: &[Text]) -> Vec<Problem> {
    let page = texts.iter().find(|text| text.path == PAGE).map(|text| &text.content);
    let is_current = page.is_none_or(|page| updated(page).as_ref() == Some(page));
    let what =
        "its table of variables differs from heaptide-format; `cargo xtask options` writes it";
    if is_current { Vec::new() } else { vec![Problem::new(PAGE, 0, what)] }
}

/// Returns the document with the current rows; `None` if it has no table.
fn updated(page: &str) -> Option<String> {
    let start = page.find(HEAD)? + HEAD.len();
    let end = start + page[start..].find("\n\n")? + 1;
    Some(format!("{}{}{}", &page[..start], rows(), &page[end..]))
}

fn rows() -> String {
    let row = |setting: &Setting| {
        let (variable, reader) = (setting.variable(), setting.reader());
        let (value, default) = (setting.value(), setting.default_value());
        format!("| `{variable}` | {reader} | {value} | {default} |\n")
    };
    Setting::ALL.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_the_table_are_replaced() {
        let page = format!("a\n\n{HEAD}| old |\n\nb\n");
        assert_eq!(updated(&page), Some(format!("a\n\n{HEAD}{}\nb\n", rows())));
        assert_eq!(updated("a\n"), None);
        let texts = [Text { path: PAGE.to_owned(), content: page }];
        assert_eq!(check(&texts).len(), 1);
    }
}
