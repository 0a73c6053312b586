//! The table: a head, and a line per row.

use heaptide_render::shared::quantity::{bytes, short_count};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::change::signed_bytes;
use super::places::Places;
use super::style::Style;
use crate::model::app::{App, Status};
use crate::model::numbers::{Moments, Numbers};
use crate::model::page::{Order, Row};
use crate::model::view::Column;

/// Characters of indentation per tree level, and the deepest level that is still indented further.
const INDENT: usize = 2;
const LEVELS_MAX: usize = 30;

/// Draws the table.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, style: &Style, places: &mut Places) {
    let columns = Column::fitting(area.width);
    draw_head(frame, Rect { height: 1, ..area }, app, style, (&columns, places));
    let rows = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    places.rows = rows;
    let lines: Vec<Line> = match (app.moments(), &app.status) {
        (Some(moments), _) if app.tables.is_some() && app.page.len() > 0 => {
            let line = |(place, row)| {
                let is_selected = place == app.scroll.at;
                line(app, &row, &columns, &moments, rows.width, style, is_selected)
            };
            app.rows().map(line).collect()
        }
        (_, Status::Reading(what)) => vec![Line::from(what.clone())],
        _ if app.filter.is_some() => vec![Line::from("nothing matches the filter")],
        _ => vec![Line::from("nothing was allocated")],
    };
    frame.render_widget(Paragraph::new(lines), rows);
}

fn draw_head(
    frame: &mut Frame,
    area: Rect,
    app: &App,
    style: &Style,
    (columns, places): (&[Column], &mut Places),
) {
    let mut spans = Vec::new();
    let mut x = area.x;
    for &column in columns {
        let is_chosen = column == app.column;
        let mark = match (is_chosen, app.order) {
            (false, _) => "",
            (true, Order::LargestFirst) => "▼",
            (true, Order::SmallestFirst) => "▲",
        };
        let width = column.width();
        let title = format!("{mark}{}", column.title());
        spans.push(Span::styled(right(&title, width), style.head(is_chosen)));
        spans.push(Span::styled(" ", style.head(false)));
        let left = (area.x + area.width).saturating_sub(x);
        places.columns.push((Rect { x, width: width.min(left), ..area }, column));
        x += width + 1;
    }
    let what = if app.has_tree() { "function" } else { app.view.name() };
    let left = usize::from((area.x + area.width).saturating_sub(x));
    spans.push(Span::styled(format!("{what:<left$}"), style.head(false)));
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn line(
    app: &App,
    row: &Row,
    columns: &[Column],
    moments: &Moments,
    width: u16,
    style: &Style,
    is_selected: bool,
) -> Line<'static> {
    let mut spans = Vec::new();
    let mut left = usize::from(width);
    for &column in columns {
        let text = right(&cell(column, &row.numbers, moments), column.width());
        let look = match column {
            Column::Growth => style.change(row.numbers.growth_bytes),
            _ => style.plain(),
        };
        spans.extend([Span::styled(text, look), Span::raw(" ")]);
        left = left.saturating_sub(usize::from(column.width()) + 1);
    }
    let indent = INDENT * row.depth.min(LEVELS_MAX);
    let indent = indent.min(left / 2);
    let tables = app.tables.as_ref();
    let name = tables.map(|tables| tables.name(row.key, left - indent)).unwrap_or_default();
    let name = format!("{}{name}", " ".repeat(indent));
    spans.push(Span::raw(format!("{name:<left$}")));
    let line = Line::from(spans);
    if is_selected {
        line.patch_style(style.chosen().remove_modifier(Modifier::BOLD))
    } else {
        line
    }
}

/// Formats a number of a row; empty if it is 0 and 0 has no meaning.
fn cell(column: Column, numbers: &Numbers, moments: &Moments) -> String {
    match column {
        Column::Live => bytes(numbers.live_bytes),
        Column::Blocks => short_count(numbers.live_blocks),
        Column::Growth if numbers.growth_bytes == 0 && !moments.is_marked => String::new(),
        Column::Growth => signed_bytes(numbers.growth_bytes),
        Column::Allocations => match moments.per_second(numbers.allocations) {
            0 => String::new(),
            count => short_count(count),
        },
        Column::Bytes => match moments.per_second(numbers.allocated_bytes) {
            0 => String::new(),
            count => bytes(count),
        },
        Column::AtPeak => bytes(numbers.at_peak_bytes),
    }
}

/// Right-aligns a text, truncating it if it is too long.
fn right(text: &str, width: u16) -> String {
    let width = usize::from(width);
    let text: String = text.chars().take(width).collect();
    format!("{text:>width$}")
}
