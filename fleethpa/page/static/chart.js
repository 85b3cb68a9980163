// What the charts of the page and of reports share: axes in UTC, step lines, and colours from the style sheet.
"use strict";

const fleethpaChart = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const utc = (s) => new Date(s * 1000).toISOString();
  const label = (s, span) => (span > 86400 ? utc(s).slice(5, 16).replace("T", " ") : utc(s).slice(11, span < 1200 ? 19 : 16));
  const short = new Intl.NumberFormat("en", { notation: "compact" }); // a long number would be cut off beside the axis
  const amount = (value) => (Math.abs(value) < 1e5 ? show(value) : short.format(value));
  const grid = () => ({ stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, font: "11px system-ui" });
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800]; // seconds
  const axes = (y = {}) => [
    { ...grid(), size: 24, space: 80, incrs: steps, values: (plot, splits) => splits.map((s) => label(s, plot.scales.x.max - plot.scales.x.min)) },
    { ...grid(), size: 44, values: (_, splits) => splits.map(amount), ...y },
  ];
  const line = (label, colour, dash, width = 2) =>
    ({ label, stroke: css(colour), width, dash, points: { show: false }, spanGaps: false, paths: uPlot.paths.stepped({ align: 1 }) });
  const frame = (title, width, height) => ({
    title, width, height,
    tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "UTC"),
    cursor: { sync: { key: "hpa" }, drag: { x: true, y: false } },
    legend: { show: false },
    axes: axes(),
  });
  const show = (value) => (value === null || value === undefined ? "–" : String(Math.round(value * 1000) / 1000));
  return { css, utc, line, axes, frame, show };
})();
