//! The chart: live and resident bytes over time.

use heaptide_render::shared::quantity::{bytes, duration};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};

use super::style::Style;
use crate::model::app::{App, Point, RECENT_NS};

/// Returns the highest values in each of `parts` parts of a time range, one per dot of the chart.
fn highest(points: &[Point], from_ns: u64, to_ns: u64, parts: usize) -> Vec<[u64; 2]> {
    let mut found = vec![[0; 2]; parts];
    let span = (to_ns - from_ns).max(1);
    for point in points.iter().filter(|point| (from_ns..=to_ns).contains(&point.time_ns)) {
        let part = u128::from(point.time_ns - from_ns) * parts as u128 / u128::from(span);
        let [live, resident] = &mut found[(part as usize).min(parts - 1)];
        *live = (*live).max(point.live_bytes);
        *resident = (*resident).max(point.resident_bytes);
    }
    found
}

/// Draws the chart.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, style: &Style) {
    let last_ns = app.points.iter().map(|point| point.time_ns).max().unwrap_or(0);
    let from_ns = if app.chart_is_recent { last_ns.saturating_sub(RECENT_NS) } else { 0 };
    let parts = usize::from(area.width).max(1) * 2;
    let dots = highest(&app.points, from_ns, last_ns, parts);
    let lines: [Vec<(f64, f64)>; 2] = [0, 1].map(|which| {
        let values = dots.iter().enumerate().filter(|(_, dot)| dot[which] > 0);
        values.map(|(at, dot)| (at as f64, dot[which] as f64)).collect()
    });
    let top = dots.iter().flatten().copied().max().unwrap_or(0).max(1);
    let [live, resident] = &lines;
    let datasets = vec![
        Dataset::default()
            .name(Span::raw("resident"))
            .marker(Marker::Dot)
            .graph_type(GraphType::Scatter)
            .style(style.resident())
            .data(resident),
        Dataset::default()
            .name(Span::raw("live"))
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(style.live())
            .data(live),
    ];
    let time = |ns: u64| Line::from(duration(ns));
    let chart = Chart::new(datasets)
        .x_axis(
            Axis::default()
                .bounds([0.0, (parts - 1).max(1) as f64])
                .labels([time(from_ns), time(last_ns)]),
        )
        .y_axis(
            Axis::default()
                .bounds([0.0, top as f64])
                .labels([Line::from("0"), Line::from(bytes(top))]),
        )
        .legend_position(None);
    frame.render_widget(chart, area);
    // The legend, to the right of the time axis.
    let legend = Line::from(vec![
        Span::styled("⣿ live", style.live()),
        Span::raw("  "),
        Span::styled("• resident", style.resident()),
    ]);
    let width = legend.width() as u16;
    let times = (duration(from_ns).chars().count() + duration(last_ns).chars().count()) as u16;
    if area.width > width + times + 24 {
        let x = area.x + (area.width - width) / 2;
        let place = Rect { x, y: area.y + area.height - 1, width, height: 1 };
        frame.render_widget(legend, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_highest_point() {
        let point = |time_ns, live_bytes| Point { time_ns, live_bytes, resident_bytes: 7 };
        let points = [point(0, 5), point(40, 9), point(49, 8), point(100, 3), point(200, 99)];
        assert_eq!(highest(&points, 0, 100, 4), [[5, 7], [9, 7], [0, 0], [3, 7]]);
    }
}
