// The charts of an HPA.
"use strict";

(() => {
  const { css, utc, line, axes, frame, show } = fleethpaChart;
  const root = () => document.getElementById("charts");
  const NEAR_PX = 5; // a mark so close to the pointer is read with the values
  const HEIGHT_PX = 96; // with METRIC_PX, a title of each metric and the times below the last: the rooms in page.css
  const METRIC_PX = 56;
  const plots = [];
  window.fleethpaCharts = plots; // for tests: what is drawn, as data

  const marks = (series) => ({
    hooks: {
      draw: [(plot) => {
        const context = plot.ctx;
        const colours = { spec: css("--mark"), command: css("--mark"), restart: css("--bad"), hand: css("--target"), write: css("--spec"), scale: css("--wanted") };
        context.save();
        for (const mark of series.marks) {
          const x = Math.round(plot.valToPos(mark.time, "x", true));
          if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
          context.fillStyle = colours[mark.kind] || css("--soft");
          const low = mark.kind === "write" || mark.kind === "hand" || mark.kind === "scale";
          const size = 7 * devicePixelRatio;
          // Writers in a lane at the foot, changes of the spec as flags over the whole height.
          if (low) context.fillRect(x - size / 2, plot.bbox.top + plot.bbox.height - size, size, size);
          else context.fillRect(x, plot.bbox.top, 2, plot.bbox.height);
        }
        context.restore();
      }],
    },
  });

  const readout = (series) => (plot) => {
    const at = plot.cursor.idx;
    const place = document.getElementById("reading");
    if (at === null || at === undefined || !place) return;
    const time = series.times[at];
    const parts = [`decided ${show(series.wanted[at])}`, `current ${show(series.spec[at])}`, `ready ${show(series.ready[at])}`];
    for (const line of series.metrics) parts.push(`${line.name} ${show(line.values[at])}${line.unit} of ${show(line.targets[at])}${line.unit}`);
    const near = series.marks.filter((mark) => Math.abs(plot.valToPos(mark.time, "x") - plot.cursor.left) < NEAR_PX).map((mark) => mark.text);
    place.textContent = `${utc(time).slice(11, 19)}  ${parts.concat(near).join(", ")}`;
  };

  const click = (series) => (plot) => {
    plot.over.addEventListener("click", () => {
      if (plot.cursor.idx === null || plot.cursor.idx === undefined) return;
      const address = new URL(location.href);
      address.searchParams.set("at", utc(series.times[plot.cursor.idx]));
      location.assign(address);
    });
  };

  const cursorAt = (at) => ({
    hooks: {
      draw: [(plot) => {
        const time = Date.parse(at) / 1000;
        if (Number.isNaN(time)) return;
        const x = Math.round(plot.valToPos(time, "x", true));
        if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) return;
        plot.ctx.fillStyle = css("--ink");
        plot.ctx.fillRect(x, plot.bbox.top, 1, plot.bbox.height);
      }],
    },
  });

  // The times are below the last chart: all have the same.
  const common = (series, title, height, isLast, y = {}) => {
    const [times, values] = axes(y);
    const all = frame(title, document.getElementById("plots").clientWidth, height + (isLast ? times.size : 0));
    // The same on the left and the right, so that a moment is at one place in all of them.
    return { ...all, padding: [6, 16, isLast ? 0 : 6, 0], axes: [{ ...times, show: isLast }, values], hooks: { setCursor: [readout(series)], ready: [click(series)] } };
  };

  const replicas = (series, at) => new uPlot({
    ...common(series, "", HEIGHT_PX, !series.metrics.length, { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000] }), // replicas are whole
    scales: { y: { range: (_, __, most) => [0, Math.max(1, most) * 1.08] } },
    series: [{}, line("max", "--line", [], 1), line("min", "--line", [], 1), line("decided", "--wanted", [6, 4]),
      line("current", "--spec", []), line("ready", "--ready", [2, 3])],
    bands: [{ series: [1, 2], fill: css("--band") }],
    plugins: [marks(series), cursorAt(at)],
  }, [series.times, series.most, series.least, series.wanted, series.spec, series.ready], document.getElementById("plots"));

  const metric = (series, each, at) => new uPlot({
    ...common(series, `${each.name}${each.unit ? " in " + each.unit : ""}; target dashed`, METRIC_PX, each === series.metrics.at(-1), { space: 18 }),
    scales: { y: { range: (_, __, most) => [0, (most || 1) * 1.1] } },
    series: [{}, { ...line(each.name, "--ready", []), paths: uPlot.paths.linear() }, line("target", "--target", [6, 4])],
    plugins: [cursorAt(at)],
  }, [series.times, each.values, each.targets], document.getElementById("plots"));

  let read = null;
  async function draw() {
    const place = root();
    if (!place || typeof uPlot === "undefined") return;
    const address = new URL(place.dataset.series, location.href);
    if (place.dataset.at) address.searchParams.set("at", place.dataset.at);
    address.searchParams.set("span", place.dataset.span);
    const answer = await fetch(address);
    if (!answer.ok) {
      document.getElementById("plots").className = ""; // no charts come, so that no space is kept for them
      document.getElementById("plots").textContent = "The charts cannot be read now; the timeline below is as of the last reading.";
      return;
    }
    read = await answer.json();
    paint(place);
  }

  function paint(place) {
    const series = { ...read };
    // The view has read every change of spec, mode and pauses; the series knows only what showed in evaluations.
    const known = document.getElementById("past")?.dataset.marks;
    if (known) series.marks = series.marks.filter((mark) => mark.kind !== "spec" && mark.kind !== "command").concat(JSON.parse(known));
    plots.forEach((plot) => plot.destroy());
    plots.length = 0;
    document.getElementById("plots").replaceChildren();
    if (!series.times.length) {
      document.getElementById("plots").className = "";
      document.getElementById("plots").textContent = "No evaluation in this span.";
      return;
    }
    const since = document.getElementById("since");
    since.hidden = !series.since;
    since.textContent = `From ${utc(series.since).slice(0, 19)}Z on: this HPA shares its partition with many. A moment before that shows the hours before it.`;
    plots.push(replicas(series, place.dataset.at));
    for (const each of series.metrics) plots.push(metric(series, each, place.dataset.at));
  }

  // Charts first: the rest of the view is asked for when they are there, and then they are drawn again with all of it.
  const drawFirst = async () => {
    await draw();
    document.body.dispatchEvent(new Event("drawn"));
  };
  // After page.js, which prevents requests of a frozen view.
  document.addEventListener("htmx:beforeRequest", (event) => { if (event.detail.elt.hasAttribute("data-live") && !event.defaultPrevented) draw(); });
  document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.requestConfig?.elt?.id === "late" && read) paint(root()); });

  window.fleethpaDraw = draw; // for measurements

  let waiting = 0;
  const again = () => { clearTimeout(waiting); waiting = setTimeout(draw, 200); };
  addEventListener("resize", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  drawFirst();
})();
