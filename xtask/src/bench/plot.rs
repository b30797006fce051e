//! Ours against tuned Linux, row by row, as a picture: bars from 1 on a logarithmic scale.

use super::table::Column;

/// Pixels of a row, of the names' column, of the bars', and of the head and foot.
const ROW: f64 = 18.0;
const NAMES: f64 = 110.0;
const BARS: f64 = 560.0;
const HEAD: f64 = 40.0;
const FOOT: f64 = 26.0;
/// Largest ratio drawn, and the inverse of the smallest.
const FAR: f64 = 32.0;

/// An SVG file. Rows that either side could not run are left out.
pub fn render(ours: &Column, linux: &Column, title: &str) -> String {
    let ratio = |(name, own): &(String, Result<super::Figures, String>)| {
        let (_, theirs) = linux.iter().find(|(other, _)| other == name)?;
        let ratio = own.as_ref().ok()?.total / theirs.as_ref().ok()?.total;
        (ratio.is_finite() && ratio > 0.0).then(|| (name.clone(), ratio))
    };
    let ratios: Vec<(String, f64)> = ours.iter().filter_map(ratio).collect();
    let height = HEAD + ROW * ratios.len() as f64 + FOOT;
    let width = NAMES + BARS + 60.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    for power in -5..=5 {
        let value = 2f64.powi(power);
        let shade = if power == 0 { "#444" } else { "#ddd" };
        let (x, bottom) = (place(value), height - FOOT);
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{value}") };
        svg += &format!(
            "<line x1=\"{x:.1}\" y1=\"{HEAD}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"{shade}\"/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{label}</text>\n",
            bottom + 16.0
        );
    }
    for (at, (name, ratio)) in ratios.iter().enumerate() {
        let y = HEAD + ROW * at as f64;
        let (from, to) = (place(1.0), place(*ratio));
        let color = if *ratio <= 1.0 { "#2a7f62" } else { "#c2553a" };
        svg += &format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>\n\
             <rect x=\"{:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"{color}\">\
             <title>{name}: {ratio:.3}</title></rect>\n",
            NAMES - 6.0,
            y + 13.0,
            from.min(to),
            y + 3.0,
            (to - from).abs().max(1.0),
            ROW - 6.0,
        );
    }
    svg + "</svg>\n"
}

/// Where a ratio stands.
fn place(ratio: f64) -> f64 {
    let part = ratio.clamp(1.0 / FAR, FAR).log2() / FAR.log2();
    NAMES + BARS * (0.5 + part / 2.0)
}

#[cfg(test)]
mod tests {
    use super::super::Figures;
    use super::*;

    fn column(rows: &[(&str, Option<f64>)]) -> Column {
        let figures = |total| Figures { total, ..Figures::default() };
        let row = |(name, total): &(&str, Option<f64>)| {
            (name.to_string(), total.map(figures).ok_or_else(|| "no".to_string()))
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn bars_begin_at_one_and_the_missing_have_none() {
        let ours = column(&[("a", Some(1.0)), ("b", Some(64.0)), ("c", None)]);
        let linux = column(&[("a", Some(2.0)), ("b", Some(1.0)), ("c", Some(1.0))]);
        let svg = render(&ours, &linux, "t");
        assert!(svg.contains("a: 0.500") && svg.contains("b: 64.000") && !svg.contains("c: "));
        // Half is a tenth of the scale to the left of the middle, and 64 is cut off at the end.
        assert_eq!(place(0.5), NAMES + BARS * 0.4);
        assert_eq!(place(64.0), NAMES + BARS);
    }
}
