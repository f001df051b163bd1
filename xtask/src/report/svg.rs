//! Charts: a panel per row and column, order across and a ratio up, both logarithmic.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A panel's plot, and the room around it, in pixels.
const PLOT: (f64, f64) = (190.0, 120.0);
const GAP: (f64, f64) = (48.0, 46.0);

/// What a chart shows.
pub(super) struct Chart {
    pub(super) title: String,
    /// Panels from top to bottom.
    pub(super) rows: Vec<String>,
    /// Panels from left to right.
    pub(super) columns: Vec<&'static str>,
    /// Lines, with their colours.
    pub(super) series: &'static [(&'static str, &'static str)],
    /// Powers of two at the edges: orders, and ratios; what is beyond is drawn on the edge.
    pub(super) orders: (f64, f64),
    pub(super) ratios: (f64, f64),
    /// Points of a line by row, column and series: order and ratio.
    pub(super) points: BTreeMap<(usize, usize, usize), BTreeMap<u64, f64>>,
}

impl Chart {
    /// Places of a panel's logarithmic axes.
    fn across(&self, log: f64) -> f64 {
        let (least, most) = self.orders;
        (log.clamp(least, most) - least) / (most - least) * PLOT.0
    }

    fn up(&self, log: f64) -> f64 {
        let (least, most) = self.ratios;
        (1.0 - (log.clamp(least, most) - least) / (most - least)) * PLOT.1
    }

    /// The chart as SVG.
    pub(super) fn draw(&self) -> Result<String, std::fmt::Error> {
        let cell = (PLOT.0 + GAP.0, PLOT.1 + GAP.1);
        let width = self.columns.len() as f64 * cell.0 + 20.0;
        let height = self.rows.len() as f64 * cell.1 + 50.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<!-- drawn by cargo xtask report -->\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"18\">{}</text>\n",
            self.title
        );
        for (i, (name, colour)) in self.series.iter().enumerate() {
            let x = width - 90.0 * (self.series.len() - i) as f64;
            writeln!(svg, "<text x=\"{x}\" y=\"34\" fill=\"{colour}\">&#9632; {name}</text>")?;
        }
        for (r, title) in self.rows.iter().enumerate() {
            for (c, column) in self.columns.iter().enumerate() {
                let (x, y) = (c as f64 * cell.0 + 36.0, r as f64 * cell.1 + 62.0);
                writeln!(svg, "<g transform=\"translate({x},{y})\"><text y=\"-5\">{title}, {column}</text>")?;
                self.axes(&mut svg)?;
                for (s, (_, colour)) in self.series.iter().enumerate() {
                    let points = self.points.get(&(r, c, s)).into_iter().flatten();
                    let points: Vec<String> = points
                        .map(|(&n, ratio)| {
                            format!("{:.1},{:.1}", self.across((n as f64).log2()), self.up(ratio.log2()))
                        })
                        .collect();
                    if !points.is_empty() {
                        writeln!(
                            svg,
                            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
                            points.join(" ")
                        )?;
                    }
                }
                svg.push_str("</g>\n");
            }
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }

    fn axes(&self, svg: &mut String) -> std::fmt::Result {
        for power in (self.ratios.0 as i32)..=(self.ratios.1 as i32) {
            let (at, ratio) = (self.up(f64::from(power)), 2f64.powi(power));
            let stroke = if power == 0 { "#333" } else { "#ddd" };
            writeln!(svg, "<path d=\"M0 {at:.1}H{}\" stroke=\"{stroke}\"/>", PLOT.0)?;
            writeln!(svg, "<text x=\"-4\" y=\"{:.1}\" text-anchor=\"end\">{ratio}</text>", at + 4.0)?;
        }
        // Labels of more than eight powers would touch.
        let step = if self.orders.1 - self.orders.0 > 8.0 { 2 } else { 1 };
        for power in ((self.orders.0 as i32)..=(self.orders.1 as i32)).step_by(step) {
            let (at, n, y) = (self.across(f64::from(power)), 1 << power, PLOT.1 + 14.0);
            writeln!(svg, "<text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{n}</text>")?;
        }
        Ok(())
    }
}
