//! The picture: an outage with a slow recovery, one client.

use std::fmt::{self, Write};

use super::client::Limit;
use super::report;
use super::sim::{Figures, Run};
use super::upstream::{OUTAGE, RECOVERED, Weather};

const SECONDS: usize = RECOVERED as usize + 30;
const WIDTH: f64 = 720.0;
const LEFT: f64 = 60.0;
const HEIGHT: f64 = 170.0;

/// Without [`Limit::Sized`]: at 1 000 calls a second it is the default.
const LINES: [(Limit, &str); 6] = [
    (Limit::None, "#c62828"),
    (Limit::Tower, "#ef6c00"),
    (Limit::Aws5, "#6a1b9a"),
    (Limit::Aws14, "#ad7fc0"),
    (Limit::Grpc, "#2e7d32"),
    (Limit::Default, "#1565c0"),
];

/// One of the two diagrams, over the same seconds.
struct Panel {
    title: &'static str,
    top: f64,
    /// From the lower to the upper edge.
    range: (f64, f64),
    marks: [(f64, &'static str); 3],
    value: fn(Figures) -> f64,
}

const PANELS: [Panel; 2] = [
    Panel {
        title: "load on the upstream, attempts a call",
        top: 40.0,
        range: (0.8, 3.2),
        marks: [(1.0, "1x"), (2.0, "2x"), (3.0, "3x")],
        value: |figures| figures.load,
    },
    Panel {
        title: "calls answered",
        top: 250.0,
        range: (-5.0, 105.0),
        marks: [(0.0, "0 %"), (50.0, "50 %"), (100.0, "100 %")],
        value: |figures| figures.success,
    },
];

/// The SVG.
pub(crate) fn draw(outages: &[Run]) -> Result<String, fmt::Error> {
    let mut svg = String::new();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 505\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Retry budgets in an outage of 60 s with a slow recovery</title>\n\
         <rect width=\"800\" height=\"505\" fill=\"#fff\"/>"
    )?;
    for panel in &PANELS {
        panel.frame(&mut svg)?;
        for (limit, colour) in LINES {
            let mut runs = report::of(outages, 1, limit);
            if let Some(run) = runs.find(|run| run.weather == Weather::SlowRecovery) {
                panel.line(&mut svg, run, colour)?;
            }
        }
    }
    for second in (0..=SECONDS).step_by(30) {
        let x = x(second as f64);
        writeln!(
            svg,
            "<text x=\"{x}\" y=\"436\" text-anchor=\"middle\">{second} s</text>"
        )?;
    }
    for (index, (limit, colour)) in LINES.iter().enumerate() {
        let (x, y) = (LEFT + 240.0 * (index % 3) as f64, 462 + 22 * (index / 3));
        let name = limit.name().replace('`', "");
        writeln!(
            svg,
            "<path d=\"M{x} {y}h24\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            x + 32.0,
            y + 4,
        )?;
    }
    writeln!(svg, "</svg>")?;
    Ok(svg)
}

impl Panel {
    fn frame(&self, svg: &mut String) -> fmt::Result {
        let (top, title) = (self.top, self.title);
        for (from, to, colour, label) in [
            (OUTAGE.start, OUTAGE.end, "#fbe9e7", "outage"),
            (OUTAGE.end, RECOVERED, "#fff8e1", "slow recovery"),
        ] {
            let (from, to) = (x(from as f64), x(to as f64));
            writeln!(
                svg,
                "<rect x=\"{from}\" y=\"{top}\" width=\"{}\" height=\"{HEIGHT}\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#777\">{label}</text>",
                to - from,
                (from + to) / 2.0,
                top + HEIGHT * 0.3,
            )?;
        }
        writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>",
            top - 10.0
        )?;
        for (value, label) in self.marks {
            let y = self.y(value);
            writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}h{WIDTH}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                y + 4.0,
            )?;
        }
        Ok(())
    }

    fn line(&self, svg: &mut String, run: &Run, colour: &str) -> fmt::Result {
        write!(
            svg,
            "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" d=\""
        )?;
        for second in 0..SECONDS {
            let command = if second == 0 { 'M' } else { 'L' };
            let value = (self.value)(run.figures(second..second + 1));
            write!(
                svg,
                "{command}{:.0} {:.1}",
                x(second as f64 + 0.5),
                self.y(value)
            )?;
        }
        writeln!(svg, "\"/>")
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        self.top + HEIGHT * (high - value) / (high - low)
    }
}

fn x(second: f64) -> f64 {
    LEFT + WIDTH * second / SECONDS as f64
}
