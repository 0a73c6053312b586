//! Chart of blocks by size: a bar for each class of sizes, with its live part in a darker colour.

use std::io::{self, Write};

use heaptide_analysis::model::Process;
use heaptide_analysis::views::sizes::{Class, Sizes};
use plotters::element::{Rectangle, Text};
use plotters::prelude::DrawingBackend;
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, BAR, Chart, Failure, Format, INK, LIVE, MARGIN, ROW, SOFT, TEXT, font};
use crate::shared::command_line::command_line;
use crate::shared::quantity::{bytes, count, counted, percent, size_range};

/// Width of the sizes left of the bars, and of the numbers right of them, in pixels.
const SIZES: i32 = 150;
const NUMBERS: i32 = 250;
/// Height of a bar in pixels.
const BAR_HEIGHT: i32 = 15;

/// Writes the chart of one process with a width of `width` pixels.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, format: Format, width: u32) -> io::Result<()> {
    let sizes = Sizes::of(process);
    super::write(out, format, &Picture { process, sizes, width })
}

struct Picture<'a> {
    process: &'a Process,
    sizes: Sizes,
    width: u32,
}

impl Chart for Picture<'_> {
    fn size(&self) -> (u32, u32) {
        let rows = self.sizes.classes.len() as i32 + 3;
        (self.width, (2 * MARGIN + rows * ROW) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<'_, DB>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let across = self.width as i32;
        let totals = &self.process.totals;
        let title = command_line(self.process, (across / 10) as usize);
        area.draw(&Text::new(title, (MARGIN, MARGIN), font(TEXT + 3, INK)))?;
        let [requested, live] = [totals.requested_bytes, totals.live_bytes].map(bytes);
        let blocks = counted(totals.allocations, "block");
        let who = self.process.who();
        let subtitle = format!("{who}: {blocks} by size; {requested} requested, {live} live");
        area.draw(&Text::new(subtitle, (MARGIN, MARGIN + ROW + 2), font(TEXT, SOFT)))?;
        let top = MARGIN + 2 * ROW + ROW / 2;
        let right = across - MARGIN;
        let at_right = font(TEXT, SOFT).pos(Pos::new(HPos::Right, VPos::Top));
        let heads = [
            (MARGIN + SIZES, "size"),
            (right, "live"),
            (right - 80, "share"),
            (right - 150, "blocks"),
        ];
        for (x, head) in heads {
            area.draw(&Text::new(head, (x, top), at_right.clone()))?;
        }
        let classes = &self.sizes.classes;
        let most = classes.iter().map(|class| class.counts.requested).max().unwrap_or(0).max(1);
        let whole = classes.iter().fold(0u64, |sum, c| sum.saturating_add(c.counts.requested));
        for (row, class) in (1..).zip(classes) {
            self.class(area, class, top + row * ROW, (most, whole))?;
        }
        Ok(())
    }
}

impl Picture<'_> {
    fn class<DB: DrawingBackend>(
        &self,
        area: &Area<'_, DB>,
        class: &Class,
        y: i32,
        (most, whole): (u64, u64),
    ) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let counts = &class.counts;
        let right = self.width as i32 - MARGIN;
        let at_right = font(TEXT, INK).pos(Pos::new(HPos::Right, VPos::Top));
        let size = size_range(counts.size_min, counts.size_max);
        area.draw(&Text::new(size, (MARGIN + SIZES, y), at_right.clone()))?;
        let left = MARGIN + SIZES + 12;
        let room = f64::from((right - NUMBERS - left).max(1));
        let wide = |blocks: u64| (blocks as f64 / most as f64 * room).round() as i32;
        let live = class.live.map(|(blocks, _)| blocks);
        for (blocks, colour) in [(counts.requested, BAR), (live.unwrap_or(0), LIVE)] {
            if blocks > 0 {
                let end = left + wide(blocks).max(1);
                let bar = [(left, y - 2), (end, y - 2 + BAR_HEIGHT)];
                area.draw(&Rectangle::new(bar, colour.filled()))?;
            }
        }
        let numbers = [
            (right, live.map_or("-".to_owned(), count)),
            (right - 80, percent(counts.requested, whole)),
            (right - 150, count(counts.requested)),
        ];
        for (x, number) in numbers {
            area.draw(&Text::new(number, (x, y), at_right.clone()))?;
        }
        Ok(())
    }
}
