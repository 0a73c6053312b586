//! Pictures of the first view of a recording's page, in three sizes, light and dark.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::program::Program;
use crate::commands;

const SIZES: [(u32, u32); 3] = [(1440, 900), (1920, 1080), (390, 844)];
/// Values of Chromium's setting `preferredColorScheme`.
const SCHEMES: [(&str, u32); 2] = [("light", 1), ("dark", 0)];
/// Chromium's windows are at least this wide; a narrower page is a frame in a page.
const NARROWEST: u32 = 500;

/// Exports the page of a recorded program and takes six pictures of it, beside the recording.
pub fn take(heaptide: &Path, place: &Path, program: &Program) -> Result<(), String> {
    let directory = program.directory(place);
    if !directory.join("recording").exists() {
        println!("{}: no recording", program.name);
        return Ok(());
    }
    let mut export = Command::new(heaptide);
    export.args(["export", "--format", "html", "recording"]).current_dir(&directory);
    let page = commands::output(&mut export)?;
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    write("page.html", &page)?;
    for (width, height) in SIZES {
        let mut file = "page.html";
        if width < NARROWEST {
            file = "frame.html";
            let frame = format!("style='border:0;width:{width}px;height:{height}px'");
            let text = format!("<body style='margin:0'><iframe src=page.html {frame}></iframe>");
            write(file, &text)?;
        }
        for (scheme, value) in SCHEMES {
            let mut browser = Command::new("chromium");
            browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
            browser.arg("--force-device-scale-factor=1").arg("--virtual-time-budget=5000");
            browser.arg(format!("--user-data-dir={}", place.join("browser").display()));
            browser.arg(format!("--blink-settings=preferredColorScheme={value}"));
            browser.arg(format!("--window-size={},{height}", width.max(NARROWEST)));
            browser.arg(format!("--screenshot={width}-{scheme}.png"));
            browser.arg(format!("file://{}", directory.join(file).display()));
            commands::output(browser.current_dir(&directory))?;
        }
    }
    println!("{}: six pictures in {}", program.name, directory.display());
    Ok(())
}
