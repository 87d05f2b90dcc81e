//! Colours and fonts.

use super::canvas::Font;

pub(super) const RED: &str = "#c01818";
pub(super) const ORANGE: &str = "#c86400";
pub(super) const GREY: &str = "#8a8f98";
pub(super) const DARK: &str = "#3a4252";
pub(super) const TITLE: Font<'_> = Font { size: 16.0, color: "#1c222c", is_bold: true };
pub(super) const TEXT: Font<'_> = Font { size: 12.0, color: "#1c222c", is_bold: false };
pub(super) const SMALL: Font<'_> = Font { size: 11.0, color: "#1c222c", is_bold: false };
pub(super) const WHITE: Font<'_> = Font { size: 11.0, color: "#ffffff", is_bold: false };
