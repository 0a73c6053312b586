//! Resources of metrics and profiles: processes and this server, named by the semantic conventions.

use std::fs;

use heaptide_render::export::otlp::{Resource, Value};
use heaptide_render::shared::names::printable;

use crate::collector::Listed;

/// The resource of a process.
pub(crate) fn of_process(listed: &Listed) -> Resource {
    let mut attributes =
        vec![("service.name", Value::from(&*listed.program)), ("host.name", Value::from(&*host()))];
    if let Some(image) = &listed.image {
        let summary = &image.summary;
        // Process ids are reused, so the start time makes the id unique.
        let instance = format!("{}-{}", listed.pid, summary.start_realtime_ns / 1_000_000);
        attributes.push(("service.instance.id", Value::from(&*instance)));
        attributes.push(("process.pid", Value::from(u64::from(summary.pid))));
        attributes.push(("process.executable.name", Value::from(&*listed.program)));
        let path = printable(&summary.program);
        attributes.push(("process.executable.path", Value::from(&*path)));
    }
    Resource { attributes }
}

/// The resource of this server.
pub(crate) fn of_server(version: &str) -> Resource {
    let instance = format!("{}-{}", host(), std::process::id());
    let attributes = vec![
        ("service.name", Value::from("heaptide")),
        ("service.version", Value::from(version)),
        ("service.instance.id", Value::from(&*instance)),
        ("host.name", Value::from(&*host())),
    ];
    Resource { attributes }
}

fn host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}
