//! Stand-in for the page of `heaptide_render`, until that is there.

use heaptide_analysis::model::Process;

/// The page without data.
pub(crate) fn shell(title: &str) -> String {
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!("<!doctype html><meta charset=\"utf-8\"><title>{title}</title><script>1;</script>")
}

/// The tables of a process.
pub(crate) fn data(process: &Process) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = heaptide_render::export::csv::write(&mut bytes, process);
    bytes
}
