//! Positions of clickable parts of the screen.

use ratatui::layout::{Position, Rect};

use crate::model::app::Input;
use crate::model::view::{Column, View};

/// Positions of clickable parts of the screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(super) views: Vec<(Rect, View)>,
    pub(super) columns: Vec<(Rect, Column)>,
    /// The rows of the table, or of the list of processes.
    pub(super) rows: Rect,
}

impl Places {
    /// Returns the action for a click at a position.
    pub(crate) fn click(&self, column: u16, line: u16) -> Option<Input> {
        let at = Position::new(column, line);
        let view = self.views.iter().find(|(area, _)| area.contains(at));
        let column = self.columns.iter().find(|(area, _)| area.contains(at));
        match (view, column) {
            (Some((_, view)), _) => Some(Input::ClickView(*view)),
            (_, Some((_, column))) => Some(Input::ClickColumn(*column)),
            _ if self.rows.contains(at) => Some(Input::ClickRow(usize::from(line - self.rows.y))),
            _ => None,
        }
    }
}
