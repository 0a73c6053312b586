//! Output for continuous integration servers: limits as tests, in JUnit's XML format.

use std::io::{self, Write};

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::OWNERS;
use crate::result::{Finding, Findings};

/// The class of all tests, by which servers group them.
const CLASS: &str = "heaptide.check";

/// Writes the results.
///
/// # Errors
///
/// Those of `out`.
pub fn write(out: &mut dyn Write, findings: &Findings) -> io::Result<()> {
    let (tests, failures) = (findings.all.len().to_string(), findings.exceeded().to_string());
    let counts = [("tests", &*tests), ("failures", &*failures), ("errors", "0")];
    let mut xml = Writer::new_with_indent(&mut *out, b' ', 2);
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    xml.create_element("testsuites").with_attributes(counts).write_inner_content(|xml| {
        let suite = xml.create_element("testsuite").with_attribute(("name", &*findings.subject));
        suite.with_attributes(counts).write_inner_content(|xml| {
            findings.all.iter().try_for_each(|finding| test(xml, finding))?;
            let notes = findings.notes.join("\n");
            if !notes.is_empty() {
                xml.create_element("system-err").write_text_content(BytesText::new(&notes))?;
            }
            Ok(())
        })?;
        Ok(())
    })?;
    out.write_all(b"\n")
}

fn test<W: Write>(xml: &mut Writer<W>, finding: &Finding) -> io::Result<()> {
    let names = [("classname", CLASS), ("name", &*finding.name)];
    let test = xml.create_element("testcase").with_attributes(names);
    if !finding.is_exceeded {
        test.write_empty()?;
        return Ok(());
    }
    let message = finding.sentence();
    let owners = finding.owners.iter().take(OWNERS).map(|owner| {
        let place = owner.place.as_ref();
        let place = place.map_or(String::new(), |p| format!("  {}:{}", p.file, p.line));
        format!("{}{place}\n", finding.shown(owner))
    });
    let owners: String = owners.collect();
    test.write_inner_content(|xml| {
        let failure = xml.create_element("failure").with_attribute(("message", &*message));
        failure.write_text_content(BytesText::new(&owners))?;
        Ok(())
    })?;
    Ok(())
}
