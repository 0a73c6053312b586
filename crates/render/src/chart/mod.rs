//! Charts for reports, as SVG or PNG, drawn by plotters.

use std::io::{self, Write};
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::{BitMapBackend, DrawingArea, DrawingBackend, IntoDrawingArea, SVGBackend};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, TextStyle, register_font};

pub mod histogram;
mod scale;
pub mod timeline;

/// File format of a chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Vector graphics; the viewer draws text in its own font.
    Svg,
    /// An image of pixels.
    Png,
}

/// Default width of a chart in pixels.
pub const WIDTH: u32 = 1200;
/// Minimum and maximum width in pixels.
pub const WIDTHS: (u32, u32) = (400, 10_000);

// Colours of the HTML page.
const GROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);
const INK: RGBColor = RGBColor(0x1b, 0x24, 0x30);
const SOFT: RGBColor = RGBColor(0x5c, 0x68, 0x78);
const LINE: RGBColor = RGBColor(0xdd, 0xe3, 0xea);
const LIVE: RGBColor = RGBColor(0x1f, 0x6f, 0xeb);
const RESIDENT: RGBColor = RGBColor(0x8a, 0x63, 0xd2);
const RATE: RGBColor = RGBColor(0x0f, 0x9d, 0x7a);
const PEAK: RGBColor = RGBColor(0xd1, 0x43, 0x1f);
const WINDOW: RGBColor = RGBColor(0xf2, 0xb1, 0x34);
const BAR: RGBColor = RGBColor(0xcf, 0xe2, 0xfb);

/// Height of a line of text, font size, and margin around the chart, in pixels.
const ROW: i32 = 19;
const TEXT: i32 = 13;
const MARGIN: i32 = 20;

type Area<'a, DB> = DrawingArea<DB, Shift>;
/// An error of drawing.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A picture with a known size.
trait Chart {
    /// Returns width and height in pixels.
    fn size(&self) -> (u32, u32);

    fn draw<DB: DrawingBackend>(&self, area: &Area<'_, DB>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static;
}

/// Writes a chart.
///
/// Errors: those of `out`.
fn write(out: &mut dyn Write, format: Format, chart: &impl Chart) -> io::Result<()> {
    use_own_font();
    let size = chart.size();
    match format {
        Format::Svg => {
            let mut svg = String::new();
            draw(chart, SVGBackend::with_string(&mut svg, size))?;
            out.write_all(svg.as_bytes())
        }
        Format::Png => {
            let (width, height) = size;
            let mut pixels = vec![0; width as usize * height as usize * 3];
            draw(chart, BitMapBackend::with_buffer(&mut pixels, size))?;
            let mut encoder = png::Encoder::new(out, width, height);
            encoder.set_color(png::ColorType::Rgb);
            let mut writer = encoder.write_header().map_err(io::Error::other)?;
            writer.write_image_data(&pixels).map_err(io::Error::other)?;
            writer.finish().map_err(io::Error::other)
        }
    }
}

fn draw<DB: DrawingBackend>(chart: &impl Chart, backend: DB) -> io::Result<()>
where
    DB::ErrorType: 'static,
{
    let area = backend.into_drawing_area();
    let drawn = area.fill(&GROUND).map_err(Failure::from);
    let drawn = drawn.and_then(|()| chart.draw(&area));
    drawn.and_then(|()| area.present().map_err(Failure::from)).map_err(io::Error::other)
}

/// Registers the built-in font for PNG, because a machine that records may have no fonts.
fn use_own_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let font = epaint_default_fonts::HACK_REGULAR;
        // This fails only for invalid fonts.
        let _ = register_font("sans-serif", FontStyle::Normal, font);
    });
}

/// Returns the text style of a size and colour.
fn font(size: i32, colour: RGBColor) -> TextStyle<'static> {
    TextStyle { color: colour.to_backend_color(), ..("sans-serif", size).into_font().into() }
}
