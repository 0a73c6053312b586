//! Output formats, one a file: tables in, text, JSON or SVG out.
