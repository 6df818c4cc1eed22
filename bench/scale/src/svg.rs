//! Draws the curves of one axis: a panel for processing, and one for sending where it was measured.
//!
//! The picture has its own background and follows the reader's colour scheme, so that it is readable on any page.

use std::fmt::Write as _;

use crate::axis::Axis;
use crate::curve::{Curve, Measure, range};
use crate::database::StoreKind;

const PANEL_WIDTH: f64 = 420.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 54.0;

/// Most labels below a panel; with more points every second one is labelled.
const MAX_X_LABELS: usize = 8;

const STYLE: &str = "<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 14px; font-weight: 600 }
  .background { fill: #fff; stroke: #d0d7de }
  .grid { stroke: #d8dee4 }
  .line { fill: none; stroke-width: 2 }
  .range { stroke-width: 1; opacity: .55 }
  .sqlite { stroke: #0969da } .sqlite.mark { fill: #0969da }
  .postgres { stroke: #bc4c00 } .postgres.mark { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #d1d7e0 }
    .background { fill: #151b23; stroke: #3d444d }
    .grid { stroke: #303842 }
    .sqlite { stroke: #58a6ff } .sqlite.mark { fill: #58a6ff }
    .postgres { stroke: #f0883e } .postgres.mark { fill: #f0883e }
  }
</style>
";

/// The curves of one axis as an SVG document.
pub(crate) fn draw(axis: Axis, curves: &[&Curve]) -> String {
    let measures: &[Measure] =
        if axis.measures_send() { &[Measure::Process, Measure::Send] } else { &[Measure::Process] };
    let width = PANEL_WIDTH * measures.len() as f64;
    let names: Vec<&str> = curves.iter().map(|curve| curve.store.title()).collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" \
         height=\"{HEIGHT}\" role=\"img\">\n<title>Units per second by {}, on {}</title>\n{STYLE}\
         <rect class=\"background\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n",
        axis.title(),
        names.join(" and "),
        width - 1.0,
        HEIGHT - 1.0,
    );
    for (i, measure) in measures.iter().enumerate() {
        let panel = Panel::new(axis, *measure, curves, PANEL_WIDTH * i as f64);
        panel.draw(&mut svg, curves);
    }
    svg + "</svg>\n"
}

/// One coordinate system.
struct Panel {
    axis: Axis,
    measure: Measure,
    offset: f64,
    points: Vec<usize>,
    y_step: f64,
    y_max: f64,
}

impl Panel {
    fn new(axis: Axis, measure: Measure, curves: &[&Curve], offset: f64) -> Self {
        let mut points: Vec<usize> =
            curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.x)).collect();
        points.sort_unstable();
        points.dedup();
        let rates = curves.iter().flat_map(|curve| &curve.points).flat_map(|point| point.rates(measure));
        let highest = rates.fold(1.0_f64, |highest, rate| highest.max(*rate));
        let y_step = round_step(highest / 5.0);
        Self { axis, measure, offset, points, y_step, y_max: (highest / y_step).ceil() * y_step }
    }

    fn x(&self, value: usize) -> f64 {
        let (first, last) = (self.log(self.points[0]), self.log(self.points[self.points.len() - 1]));
        let part = if last > first { (self.log(value) - first) / (last - first) } else { 0.5 };
        self.offset + LEFT + 12.0 + part * (PANEL_WIDTH - LEFT - RIGHT - 24.0)
    }

    /// The decimal logarithm; 0 is drawn one decade before the smallest other point.
    fn log(&self, value: usize) -> f64 {
        let smallest = self.points.iter().copied().find(|point| *point > 0).unwrap_or(1);
        if value == 0 { (smallest as f64).log10() - 1.0 } else { (value as f64).log10() }
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - rate / self.y_max * (HEIGHT - BOTTOM - TOP)
    }

    fn draw(&self, svg: &mut String, curves: &[&Curve]) {
        if self.points.is_empty() {
            return;
        }
        self.draw_axes(svg);
        for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
            self.draw_curve(svg, curve);
        }
        for (i, curve) in curves.iter().enumerate() {
            let x = self.offset + PANEL_WIDTH - RIGHT - 96.0 * (curves.len() - i) as f64;
            let class = curve.store.name();
            let _ = writeln!(svg, "<path class=\"line {class}\" d=\"M{x:.1} 46h18\"/>");
            mark(svg, curve.store, x + 9.0, 46.0);
            text(svg, "", x + 24.0, 50.0, "start", curve.store.title());
        }
    }

    fn draw_axes(&self, svg: &mut String) {
        let (left, right) = (self.offset + LEFT, self.offset + PANEL_WIDTH - RIGHT);
        let what = match self.measure {
            Measure::Process => "Units processed per second",
            Measure::Send => "Units sent per second",
        };
        text(svg, "title", left - 50.0, 26.0, "start", what);
        for i in 0..=(self.y_max / self.y_step).round() as usize {
            let rate = i as f64 * self.y_step;
            let y = self.y(rate);
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            text(svg, "", left - 8.0, y + 4.0, "end", &label(rate));
        }
        let every = self.points.len().div_ceil(MAX_X_LABELS);
        for point in self.points.iter().rev().step_by(every) {
            let (x, bottom) = (self.x(*point), self.y(0.0));
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {bottom:.1}v5\"/>");
            text(svg, "", x, bottom + 19.0, "middle", &label(*point as f64));
        }
        text(svg, "", (left + right) / 2.0, HEIGHT - 14.0, "middle", self.axis.title());
    }

    fn draw_curve(&self, svg: &mut String, curve: &Curve) {
        let class = curve.store.name();
        let mut line = String::new();
        for point in &curve.points {
            let (x, y) = (self.x(point.x), self.y(point.rate(self.measure)));
            let (low, high) = range(point.rates(self.measure));
            let (low, high) = (self.y(low), self.y(high));
            let _ = writeln!(svg, "<path class=\"range {class}\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
            let _ = write!(line, "{}{x:.1} {y:.1}", if line.is_empty() { "M" } else { "L" });
        }
        let _ = writeln!(svg, "<path class=\"line {class}\" d=\"{line}\"/>");
        for point in &curve.points {
            mark(svg, curve.store, self.x(point.x), self.y(point.rate(self.measure)));
        }
    }
}

/// A point: its shape tells the stores apart without colours.
fn mark(svg: &mut String, store: StoreKind, x: f64, y: f64) {
    let _ = match store {
        StoreKind::Sqlite => {
            writeln!(svg, "<circle class=\"sqlite mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>")
        }
        StoreKind::Postgres => {
            let (x, y) = (x - 3.5, y - 3.5);
            writeln!(
                svg,
                "<rect class=\"postgres mark\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"7\" height=\"7\"/>"
            )
        }
    };
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

/// The next of 1, 2, 5, 10, 20, 50, …
fn round_step(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * decade >= value);
    step.unwrap_or(10.0) * decade
}

/// A number in short form: 1k, 20k, 10M.
fn label(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 10_000.0 || v == 1_000.0 || (v >= 2_000.0 && v % 1_000.0 == 0.0) => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_labels_are_round() {
        assert_eq!([3.0, 24_000.0, 0.7].map(round_step), [5.0, 50_000.0, 1.0]);
        assert_eq!(
            [0.0, 512.0, 1_000.0, 1_024.0, 25_000.0, 1e7].map(label),
            ["0", "512", "1k", "1024", "25k", "10M"]
        );
    }
}
