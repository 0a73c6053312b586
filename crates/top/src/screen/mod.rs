//! Draws the state.

mod answer;
mod change;
mod chart;
mod help;
mod overlays;
mod places;
mod style;
mod table;

use heaptide_render::shared::names::{elide_middle, printable};
use heaptide_render::shared::quantity::{bytes, count, duration, short_count};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::model::app::{App, Overlay, Status};
use crate::model::view::View;
use change::signed_bytes;
pub(crate) use places::Places;
pub(crate) use style::Style;

/// The number of lines from which there is a chart.
const LINES_WITH_CHART: u16 = 18;
/// The number of lines from which the chart is tall.
const LINES_WITH_TALL_CHART: u16 = 32;

/// Draws the state, and returns the positions of clickable parts.
pub(crate) fn draw(frame: &mut Frame, app: &mut App, style: &Style) -> Places {
    let mut places = Places::default();
    let area = frame.area();
    let chart_height = match area.height {
        LINES_WITH_TALL_CHART.. => 9,
        LINES_WITH_CHART.. => 5,
        _ => 0,
    };
    let has_room = area.height >= LINES_WITH_CHART;
    let heads = if area.height < 8 { 1 } else { 2 };
    let [head, answer, chart, views, table, foot] = Layout::vertical([
        Constraint::Length(heads),
        Constraint::Length(if has_room { answer::height(area, app) } else { 0 }),
        Constraint::Length(chart_height),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    app.refresh(usize::from(table.height.saturating_sub(1)));
    draw_head(frame, head, app, style);
    answer::draw(frame, answer, app);
    if chart_height > 0 {
        chart::draw(frame, chart, app, style);
    }
    draw_views(frame, views, app, style, &mut places);
    table::draw(frame, table, app, style, &mut places);
    draw_foot(frame, foot, app, style);
    overlays::draw(frame, area, app, style, &mut places);
    places
}

/// Draws program and state, with the sums below.
fn draw_head(frame: &mut Frame, area: Rect, app: &App, style: &Style) {
    let state = match &app.status {
        Status::Reading(what) => what.clone(),
        Status::Running if app.is_paused => "paused".to_owned(),
        Status::Running => "running".to_owned(),
        Status::Ended(how) => how.clone(),
        Status::Replay { stop, stops, name } => {
            let playing = if app.is_playing { "playing" } else { "replay" };
            let name = if name.is_empty() { String::new() } else { format!("  {name}") };
            format!("{playing} {}/{stops}{name}", stop + 1)
        }
    };
    let time = app.now().map_or_else(String::new, |now| format!("  {}", duration(now.time_ns)));
    let is_sampled = app.tables.as_ref().is_some_and(|tables| tables.process.sampling.is_some());
    let sampled = if is_sampled { ", sampled: estimates" } else { "" };
    let right = format!("{}{sampled}{time}", printable(&state));
    let width = usize::from(area.width);
    let left = width.saturating_sub(right.chars().count() + 2);
    let title = elide_middle(&app.title, left.max(10));
    let gap = width.saturating_sub(title.chars().count() + right.chars().count());
    let first = Line::from(vec![
        Span::styled(title, style.title()),
        Span::raw(" ".repeat(gap)),
        Span::styled(right, style.state()),
    ]);
    let lines = vec![first, Line::from(sums(app, width))];
    frame.render_widget(Paragraph::new(lines), area);
}

/// Formats the sums of the rows, as many as fit. Before the first rows are known, it has what is
/// known without them.
fn sums(app: &App, width: usize) -> String {
    let Some(moments) = app.moments() else { return String::new() };
    let sum = &app.page.sum;
    let has_rows = app.tables.is_some();
    let mut parts = Vec::new();
    if has_rows {
        let (live, blocks) = (bytes(sum.live_bytes), count(sum.live_blocks));
        parts.push(format!("live {live} in {blocks} blocks"));
    }
    if app.filter.is_none() && app.zooms.is_empty() {
        let peak = moments.now.peak_bytes.max(sum.live_bytes);
        parts.push(format!("peak {}", bytes(peak)));
        if moments.now.resident_bytes > 0 {
            parts.push(format!("resident {}", bytes(moments.now.resident_bytes)));
        }
        if moments.now.device_bytes > 0 {
            parts.push(format!("device {}", bytes(moments.now.device_bytes)));
        }
    }
    if moments.is_marked || sum.growth_bytes != 0 {
        parts.push(format!("growth {}", signed_bytes(sum.growth_bytes)));
    }
    if has_rows {
        let per_second = moments.per_second(sum.allocations);
        parts.push(format!("{} allocs/s", short_count(per_second)));
        parts.push(format!("{}/s", bytes(moments.per_second(sum.allocated_bytes))));
    }
    let mut line = String::new();
    for part in parts {
        let gap = if line.is_empty() { "" } else { "   " };
        if line.chars().count() + gap.len() + part.chars().count() > width {
            break;
        }
        line = line + gap + &part;
    }
    line
}

/// Draws the names of the views, or the zoomed rows; and the filter.
fn draw_views(frame: &mut Frame, area: Rect, app: &App, style: &Style, places: &mut Places) {
    let mut spans = Vec::new();
    let mut x = area.x;
    for view in View::ALL {
        let text = format!(" {} ", view.title());
        let width = text.chars().count() as u16;
        let left = (area.x + area.width).saturating_sub(x);
        let place = Rect { x, y: area.y, width: width.min(left), height: 1 };
        places.views.push((place, view));
        let is_shown = view == app.view && !app.has_tree();
        spans.push(Span::styled(text, if is_shown { style.chosen() } else { style.plain() }));
        x += width;
    }
    let mut rest = app.path().into_iter().map(|part| format!(" › {part}")).collect::<String>();
    if let Some(filter) = &app.filter {
        rest += &format!("  filter {}", filter.text);
    }
    let left = (area.x + area.width).saturating_sub(x);
    if !rest.is_empty() && left < 20 {
        // The current position is more important than the other views.
        let line = elide_middle(&printable(rest.trim_start()), usize::from(area.width));
        places.views.clear();
        frame.render_widget(Paragraph::new(Span::styled(line, style.title())), area);
        return;
    }
    let rest = elide_middle(&printable(&rest), usize::from(left));
    spans.push(Span::styled(rest, style.title()));
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

/// Draws the last message, or the keys.
fn draw_foot(frame: &mut Frame, area: Rect, app: &App, style: &Style) {
    let width = usize::from(area.width);
    if let Overlay::Prompt { text, wrong } = &app.overlay {
        let line = match wrong {
            Some(wrong) => elide_middle(&format!("filter {wrong}"), width),
            None => format!("filter: {text}"),
        };
        let shown = line.chars().count().saturating_sub(width.saturating_sub(1));
        let line: String = printable(&line).chars().skip(shown).collect();
        let end = area.x + (line.chars().count() as u16).min(area.width.saturating_sub(1));
        frame.render_widget(Paragraph::new(Span::styled(line, style.title())), area);
        frame.set_cursor_position(Position::new(end, area.y));
        return;
    }
    if let Some(message) = &app.message {
        let line = elide_middle(&printable(message), width);
        frame.render_widget(Paragraph::new(Span::styled(line, style.title())), area);
        return;
    }
    frame.render_widget(Paragraph::new(Line::from(help::keys(app, width, style))), area);
}

#[cfg(test)]
mod tests;
