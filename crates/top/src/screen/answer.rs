//! What holds most memory, and which process is shown, below the sums.

use heaptide_render::shared::names::elide_middle;
use heaptide_render::text::screen::paragraph;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::model::app::App;

/// The number of columns from which a sentence fits on one line less.
const COLUMNS_WIDE: u16 = 140;

/// Returns the number of lines, which does not change with the numbers.
pub(super) fn height(area: Rect, app: &App) -> u16 {
    let has_runtime = app.tables.as_ref().is_some_and(|tables| tables.has_runtime());
    let sentences = 2 + u16::from(has_runtime) - u16::from(area.width >= COLUMNS_WIDE);
    sentences + u16::from(app.subject.is_some())
}

/// Draws the lines: the last one names the process.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let width = usize::from(area.width);
    let subject = app.subject.as_ref().map(|says| elide_middle(&format!("subject {says}"), width));
    let room = usize::from(area.height).saturating_sub(usize::from(subject.is_some()));
    let text = app.sentence.as_deref().unwrap_or_default();
    let broken = paragraph(text, width);
    let mut lines: Vec<String> = broken.lines().take(room).map(str::to_owned).collect();
    if broken.lines().count() > room
        && let Some(last) = lines.last_mut()
    {
        *last = last.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    lines.resize(room, String::new());
    lines.extend(subject);
    frame
        .render_widget(Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>()), area);
}
