//! Colours: those of the terminal, which are readable on dark and light backgrounds; or none.

use ratatui::style::{Color, Modifier, Style as Look};

/// Whether to use colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    /// Without them, bold and reversed text remain.
    pub(crate) has_colours: bool,
}

impl Style {
    fn coloured(self, look: Look, colour: Color) -> Look {
        if self.has_colours { look.fg(colour) } else { look }
    }

    pub(crate) fn plain(self) -> Look {
        Look::default()
    }

    pub(crate) fn title(self) -> Look {
        Look::default().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn state(self) -> Look {
        self.coloured(Look::default(), Color::Magenta)
    }

    /// Returns the style of the selected view, the selected row, and keys in the footer.
    pub(crate) fn chosen(self) -> Look {
        Look::default().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style of a column's head; `is_chosen` marks the sort column.
    pub(crate) fn head(self, is_chosen: bool) -> Look {
        let look = Look::default().add_modifier(Modifier::UNDERLINED);
        if is_chosen { look.add_modifier(Modifier::BOLD) } else { look }
    }

    pub(crate) fn live(self) -> Look {
        self.coloured(Look::default(), Color::Green)
    }

    pub(crate) fn resident(self) -> Look {
        self.coloured(Look::default(), Color::Magenta)
    }

    /// Returns the style of a change; an increase is red.
    pub(crate) fn change(self, change: i64) -> Look {
        match change {
            0 => Look::default(),
            1.. => self.coloured(Look::default(), Color::Red),
            _ => self.coloured(Look::default(), Color::Green),
        }
    }
}
