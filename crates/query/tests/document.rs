//! The documentation of queries lists the columns of tables. `UPDATE_EXPECT=1` rewrites the lists.

use std::path::Path;

use heaptide_query::tables::Source;

#[test]
fn the_documentation_lists_every_column() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/query.md");
    let page = std::fs::read_to_string(&path).expect("docs/query.md");
    let first = format!("\n### `{}`", Source::all()[0].name);
    let (head, _) = page.split_once(&first).unwrap_or((&page, ""));
    let list = |source: &Source| {
        format!("\n### `{}`\n\nContents: {}.\n\n{}", source.name, source.says, source.markdown())
    };
    let every = || Source::all().iter().chain(Source::of_queries());
    let expected = format!("{head}{}", every().map(list).collect::<String>());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, expected).expect("docs/query.md");
    } else {
        assert!(page == expected, "docs/query.md is not what --describe says; UPDATE_EXPECT=1");
    }
}
