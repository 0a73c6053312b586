//! Overlays above the table: the help, and the list of processes.

use heaptide_render::shared::frames::file_name;
use heaptide_render::shared::names::{elide_middle, printable};
use heaptide_render::shared::quantity::bytes;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::help::KEYS;
use super::places::Places;
use super::style::Style;
use crate::model::app::{App, Image, Overlay};

/// Draws the overlay, if there is one.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, style: &Style, places: &mut Places) {
    match &app.overlay {
        Overlay::None | Overlay::Prompt { .. } => {}
        Overlay::Help => {
            let line = |(key, does): &(&'static str, &'static str)| {
                Line::from(vec![Span::styled(format!("{key:<15}"), style.title()), (*does).into()])
            };
            let lines = KEYS.iter().map(line).collect();
            over(frame, area, " keys ", lines);
        }
        Overlay::Processes { images, at } => {
            let width = usize::from(area.width).saturating_sub(4);
            let room = usize::from(area.height).saturating_sub(3).max(1);
            // Scroll so that the selected process is visible.
            let first = (at + 1).saturating_sub(room);
            let line = |(index, image): (usize, &Image)| {
                let text = elide_middle(&process(image), width);
                let look = if index == *at { style.chosen() } else { style.plain() };
                Line::from(Span::styled(format!("{text:<width$}"), look))
            };
            let lines = images.iter().enumerate().skip(first).map(line).collect();
            let inner = over(frame, area, " processes ", lines);
            // Clicks select by position from the first process, so they work only if that is
            // visible.
            places.rows = if first == 0 { inner } else { Rect::default() };
            places.views.clear();
            places.columns.clear();
        }
    }
}

fn process(image: &Image) -> String {
    let state = if image.is_running { "running" } else { "ended" };
    let program = printable(file_name(&image.program)).into_owned();
    let exec = if image.image == 0 { String::new() } else { format!(" image {}", image.image) };
    format!("{:>8}{exec}  {state:<8} peak {:>9}  {program}", image.pid, bytes(image.peak_bytes))
}

/// Draws lines in a box over everything except the last line; returns the area of the lines.
fn over(frame: &mut Frame, area: Rect, title: &'static str, lines: Vec<Line>) -> Rect {
    let longest = lines.iter().map(Line::width).max().unwrap_or(0) as u16;
    let width = (longest + 4).clamp(20, area.width.max(20)).min(area.width);
    let height = (lines.len() as u16 + 2).min(area.height.saturating_sub(1));
    let (x, y) =
        (area.x + (area.width - width) / 2, area.y + area.height.saturating_sub(1 + height) / 2);
    let place = Rect { x, y, width, height };
    let block = Block::bordered().title(title);
    let inner = block.inner(place);
    let text = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    frame.render_widget(Paragraph::new(lines), text);
    text
}
