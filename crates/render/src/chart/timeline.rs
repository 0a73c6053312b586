//! Chart of a process over time: live bytes and resident memory with the peak, windows, marks and
//! snapshots, and the rate of allocations below.

use std::io::{self, Write};

use heaptide_analysis::model::{Mark, Process, Window};
use heaptide_analysis::recording::snapshot::Snapshot;
use heaptide_analysis::views::timeline::{Series, Timeline};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::types::RangedCoordf64;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{Cartesian2d, DrawingBackend};
use plotters::series::{AreaSeries, LineSeries};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor, ShapeStyle};

use super::scale::Unit;
use super::{
    Area, Chart, Failure, Format, INK, LINE, LIVE, MARGIN, PEAK, RATE, RESIDENT, ROW, SOFT, TEXT,
    WINDOW, font,
};
use crate::shared::annotations::{mark_says, marks_shown, windows_shown};
use crate::shared::command_line::command_line;
use crate::shared::names::elide_middle;
use crate::shared::quantity::{bytes, duration};
use crate::shared::views::Moment;

/// Height of the chart of bytes and of the chart of rates, in pixels.
const HIGH: i32 = 340;
const LOW: i32 = 130;
/// Width of the labels left of the charts and height of those below, in pixels.
const LABELS: (i32, i32) = (90, 26);
/// Characters of a name.
const NAME: usize = 60;
/// Pixels per character in the widest font.
const LETTER: f64 = 8.0;

/// Writes the chart of one process with a width of `width` pixels. `snapshots` are its own.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    snapshots: &[Snapshot],
    format: Format,
    width: u32,
) -> io::Result<()> {
    let snapshots = snapshots.iter().map(|snapshot| snapshot.time_ns).collect();
    let timeline = Timeline::of(process);
    let subtitle = process.who();
    let letters = true;
    super::write(out, format, &Picture { process, timeline, snapshots, subtitle, letters, width })
}

/// Writes the chart of what matches `site`, over the snapshots and the end.
///
/// Errors: those of `out`.
pub fn write_site(
    out: &mut dyn Write,
    process: &Process,
    site: &str,
    moments: &[Moment],
    format: Format,
    width: u32,
) -> io::Result<()> {
    let points = moments.iter().map(|moment| (moment.time_ns, moment.live_bytes));
    let live = Series::of(points.chain([(0, 0)]).collect());
    let duration_ns = moments.iter().map(|moment| moment.time_ns).max().unwrap_or(0).max(1);
    let timeline = Timeline {
        duration_ns,
        live,
        resident: Series::default(),
        allocations: Series::default(),
        undated_allocations: 0,
    };
    let snapshots = moments.iter().filter(|moment| moment.snapshot.is_some());
    let snapshots = snapshots.map(|moment| moment.time_ns).collect();
    let subtitle = format!("{}, sites matching {}", process.who(), elide_middle(site, NAME));
    let letters = false;
    super::write(out, format, &Picture { process, timeline, snapshots, subtitle, letters, width })
}

/// The data to draw.
struct Picture<'a> {
    process: &'a Process,
    timeline: Timeline,
    snapshots: Vec<u64>,
    subtitle: String,
    /// Whether windows and marks are drawn, each with a letter.
    letters: bool,
    width: u32,
}

type Context<'a, DB> = ChartContext<'a, DB, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Chart for Picture<'_> {
    fn size(&self) -> (u32, u32) {
        let rates = if self.timeline.allocations.is_empty() { 0 } else { LOW + ROW };
        let rows = self.legend().len() as i32 * ROW;
        (self.width, (2 * MARGIN + 3 * ROW + HIGH + rates + rows) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<'_, DB>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let across = self.width as i32;
        let title = command_line(self.process, (across / 10) as usize);
        area.draw(&Text::new(title, (MARGIN, MARGIN), font(TEXT + 3, INK)))?;
        area.draw(&Text::new(self.subtitle.clone(), (MARGIN, MARGIN + ROW + 2), font(TEXT, SOFT)))?;
        self.keys(area, across)?;
        let top = MARGIN + 2 * ROW + ROW / 2;
        let of = |from: i32, to: i32| {
            let down = area.clone().shrink((0, from), (self.width, (to - from) as u32));
            down.margin(0, 0, 0, MARGIN)
        };
        self.bytes(&of(top, top + HIGH))?;
        let mut at = top + HIGH;
        if !self.timeline.allocations.is_empty() {
            let caption = Text::new("allocations a second", (LABELS.0, at), font(TEXT, SOFT));
            area.draw(&caption)?;
            self.rates(&of(at + ROW, at + ROW + LOW))?;
            at += ROW + LOW;
        }
        for (row, line) in self.legend().into_iter().enumerate() {
            let place = (LABELS.0, at + ROW / 2 + row as i32 * ROW);
            area.draw(&Text::new(line, place, font(TEXT, INK)))?;
        }
        Ok(())
    }
}

impl Picture<'_> {
    /// Draws the meaning of the colours at the right of the second line.
    fn keys<DB: DrawingBackend>(&self, area: &Area<'_, DB>, across: i32) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let mut keys = vec![("live bytes", LIVE)];
        if !self.timeline.resident.is_empty() {
            keys.push(("resident memory", RESIDENT));
        }
        let mut right = across - MARGIN;
        let y = MARGIN + ROW + 2;
        for (name, colour) in keys.into_iter().rev() {
            let left = right - (name.len() as f64 * LETTER) as i32;
            area.draw(&Text::new(name, (left, y), font(TEXT, INK)))?;
            let square = [(left - 18, y + 2), (left - 7, y + 13)];
            area.draw(&Rectangle::new(square, colour.filled()))?;
            right = left - 36;
        }
        Ok(())
    }

    fn bytes<DB: DrawingBackend>(&self, area: &Area<'_, DB>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let timeline = &self.timeline;
        let (peak_ns, peak) = timeline.live.top();
        let most = (timeline.resident.top().1.max(peak) as f64 * 1.12).max(1.0);
        let unit = Unit::of_bytes(most);
        let (mut chart, time) = self.axes(area, most / unit.size, &|value| unit.label(value))?;
        let high = most / unit.size;
        for (_, window) in self.windows() {
            let end = if window.open { timeline.duration_ns } else { window.end_time_ns };
            let corners =
                [(window.begin_time_ns as f64 / time.size, 0.0), (end as f64 / time.size, high)];
            chart.draw_series([Rectangle::new(corners, WINDOW.mix(0.16).filled())])?;
        }
        let of =
            |series: &Series| self.points(time, |from, to| series.highest(from, to) / unit.size);
        if !timeline.resident.is_empty() {
            chart.draw_series(LineSeries::new(of(&timeline.resident), stroke(RESIDENT)))?;
        }
        let live = AreaSeries::new(of(&timeline.live), 0.0, LIVE.mix(0.16));
        chart.draw_series(live.border_style(stroke(LIVE)))?;
        for (letter, mark) in self.marks() {
            let at = mark.time_ns as f64 / time.size;
            chart.draw_series([PathElement::new([(at, 0.0), (at, high)], SOFT.stroke_width(1))])?;
            let style = font(TEXT, SOFT).pos(Pos::new(HPos::Left, VPos::Top));
            chart.draw_series([Text::new(format!(" {letter}"), (at, high), style)])?;
        }
        for (letter, window) in self.windows() {
            let at = window.begin_time_ns as f64 / time.size;
            let style = font(TEXT, INK).pos(Pos::new(HPos::Left, VPos::Top));
            chart.draw_series([Text::new(format!(" {letter}"), (at, high), style)])?;
        }
        self.snapshots(&chart, time)?;
        let place = (peak_ns as f64 / time.size, peak as f64 / unit.size);
        chart.draw_series([Circle::new(place, 4, PEAK.filled())])?;
        let says = format!(" peak {} after {} ", bytes(peak), duration(peak_ns));
        let (x, y) = chart.backend_coord(&place);
        let room = (self.width as i32 - MARGIN - x) as f64;
        let side =
            if says.chars().count() as f64 * LETTER < room { HPos::Left } else { HPos::Right };
        let style = font(TEXT, PEAK).pos(Pos::new(side, VPos::Bottom));
        let origin = area.get_base_pixel();
        area.draw(&Text::new(says, (x - origin.0, y - origin.1), style))?;
        Ok(())
    }

    fn rates<DB: DrawingBackend>(&self, area: &Area<'_, DB>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let rate = |from, to| self.timeline.rate((from, to));
        let raw = self.points(Unit::of_time(1.0), rate);
        let most = raw.iter().map(|point| point.1).fold(1.0, f64::max) * 1.05;
        let unit = Unit::of_count(most);
        let (mut chart, time) = self.axes(area, most / unit.size, &|value| unit.label(value))?;
        let points = self.points(time, |from, to| rate(from, to) / unit.size);
        let rates = AreaSeries::new(points, 0.0, RATE.mix(0.16));
        chart.draw_series(rates.border_style(stroke(RATE)))?;
        Ok(())
    }

    /// Draws the axes, from the start to the end and from 0 to the maximum. Returns the chart and
    /// its unit of time.
    fn axes<'a, DB: DrawingBackend + 'a>(
        &self,
        area: &Area<'a, DB>,
        most: f64,
        label: &dyn Fn(f64) -> String,
    ) -> Result<(Context<'a, DB>, Unit), Failure>
    where
        DB::ErrorType: 'static,
    {
        let duration_ns = self.timeline.duration_ns as f64;
        let time = Unit::of_time(duration_ns);
        let mut chart = ChartBuilder::on(area)
            .set_label_area_size(plotters::chart::LabelAreaPosition::Left, LABELS.0)
            .set_label_area_size(plotters::chart::LabelAreaPosition::Bottom, LABELS.1)
            .build_cartesian_2d(0.0..duration_ns / time.size, 0.0..most)?;
        let rows = area.dim_in_pixel().1 / 55;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(LINE.mix(0.0))
            .bold_line_style(LINE)
            .axis_style(LINE)
            .label_style(font(TEXT - 1, SOFT))
            .x_labels((self.width / 120) as usize)
            .y_labels(rows.max(2) as usize)
            .x_label_formatter(&|value| time.label(*value))
            .y_label_formatter(&|value| label(*value))
            .draw()?;
        Ok((chart, time))
    }

    /// Returns a point for each horizontal pixel.
    fn points(&self, time: Unit, value: impl Fn(u64, u64) -> f64) -> Vec<(f64, f64)> {
        let columns = self.timeline.columns(self.width as usize - LABELS.0 as usize);
        let point = |(from, to)| ((from as f64 + to as f64) / 2.0 / time.size, value(from, to));
        columns.into_iter().map(point).collect()
    }

    /// Draws a triangle below the axis for each snapshot.
    fn snapshots<DB: DrawingBackend>(
        &self,
        chart: &Context<'_, DB>,
        time: Unit,
    ) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let area = chart.plotting_area().strip_coord_spec();
        let origin = area.get_base_pixel();
        for &at in &self.snapshots {
            let (x, y) = chart.backend_coord(&(at as f64 / time.size, 0.0));
            let (x, y) = (x - origin.0, y - origin.1);
            let corners = [(x, y - 7), (x - 4, y), (x + 4, y)];
            area.draw(&Polygon::new(corners, SOFT.filled()))?;
        }
        Ok(())
    }

    fn windows(&self) -> impl Iterator<Item = (char, &Window)> {
        windows_shown(self.process).filter(|_| self.letters)
    }

    fn marks(&self) -> impl Iterator<Item = (char, &Mark)> {
        marks_shown(self.process).filter(|_| self.letters)
    }

    /// Returns the meaning of the letters.
    fn legend(&self) -> Vec<String> {
        let window = |(letter, window): (char, &Window)| {
            let (begin, peak) = (duration(window.begin_time_ns), bytes(window.peak_bytes));
            let name = elide_middle(&window.name, NAME);
            format!("{letter}  window {name}, from {begin}, peak {peak}")
        };
        let mark = |(letter, mark): (char, &Mark)| {
            let (time, live) = (duration(mark.time_ns), bytes(mark.live_bytes));
            format!("{letter}  {}, at {time}, live {live}", mark_says(mark))
        };
        self.windows().map(window).chain(self.marks().map(mark)).collect()
    }
}

fn stroke(colour: RGBColor) -> ShapeStyle {
    colour.stroke_width(2)
}
