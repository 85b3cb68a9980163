// Draws the series of a report's figures; without scripts, the pictures in them stay.
"use strict";

(() => {
  const { utc, line, frame, show } = fleethpaChart;
  const draw = (figure) => {
    const { title, top, lines } = JSON.parse(figure.querySelector("script").textContent);
    const place = figure.querySelector(".plot");
    const reading = figure.querySelector(".reading");
    place.replaceChildren();
    const [times, ...values] = uPlot.join(lines.map((each) => [each.times, each.values]));
    // Each line has times of its own, and holds its value until the next of them.
    values.forEach((each) => each.forEach((value, at) => { if (at && (value === null || value === undefined)) each[at] = each[at - 1]; }));
    const readout = (plot) => {
      const at = plot.cursor.idx;
      if (at !== null && at !== undefined) {
        reading.textContent = `${utc(times[at]).slice(0, 19)}Z  ` + lines.map((each, index) => `${each.name} ${show(values[index][at])}`).join(", ");
      }
    };
    new uPlot({
      ...frame(title, figure.clientWidth, 260),
      scales: { y: { range: [0, top * 1.08] } },
      series: [{}, ...lines.map((each) => line(each.name, each.colour, each.dash, each.dash.length ? 1.2 : 2))],
      hooks: { setCursor: [readout] },
    }, [times, ...values], place);
    figure.querySelector("svg").style.display = "none";
  };
  const all = () => document.querySelectorAll("figure.chart").forEach(draw);
  let waiting = 0;
  const again = () => { clearTimeout(waiting); waiting = setTimeout(all, 200); };
  addEventListener("resize", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  all();
})();
