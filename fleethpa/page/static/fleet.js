// The strip of the fleet: names of its cells, a click that opens one, and the last day replayed in it.
"use strict";

(() => {
  const FRAME_MS = 120;
  const TOP_LEVEL = 4;
  const strip = () => document.querySelector(".strip");
  const slider = () => document.getElementById("moment");
  const isReplaying = () => slider() && Number(slider().value) < Number(slider().max);
  let read = null; // what the server knows of the last day; read when it is first wanted
  let playing = 0;

  const replay = () => {
    read ??= fetch(strip().dataset.replay).then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`HTTP ${answer.status}`))));
    return read;
  };

  // As `level` in stripview.py.
  const level = (count, least, most) => {
    if (count <= least || most <= least) return 0;
    if (count >= most) return TOP_LEVEL;
    return 1 + Math.floor(((count - least) * (TOP_LEVEL - 1)) / (most - least));
  };

  // The count at a time: the moves are taken back from now on. Null: the moves that are known do not reach back so far.
  const countAt = ([, , , now, moves, isWhole], time) => {
    let count = now;
    for (let at = moves.length - 1; at >= 0 && moves[at][0] > time; at--) count = moves[at][1];
    return !isWhole && moves.length && moves[0][0] > time ? null : count;
  };

  // As COLUMNS and `_block` in stripview.py: the cells of a cluster are pictures of so many columns and rows.
  const COLUMNS = 10;
  const cellsOf = (row) => COLUMNS * Number(row.dataset.rows);
  const size = () => ({ cell: Number(strip().dataset.cell), step: Number(strip().dataset.cell) + Number(strip().dataset.gap) });
  const shownNow = new Map(); // picture -> its paths as of now, while another moment is shown

  const show = async () => {
    const { end, span, clusters } = await replay();
    const time = end - Math.round((span * (slider().max - slider().value)) / slider().max);
    const { cell, step } = size();
    document.querySelectorAll(".cells").forEach((row) => {
      const hpas = clusters[row.dataset.cluster] || [];
      const cells = cellsOf(row);
      [...row.children].forEach((picture, block) => {
        if (!shownNow.has(picture)) shownNow.set(picture, picture.innerHTML);
        if (!isReplaying()) {
          picture.innerHTML = shownNow.get(picture);
          return;
        }
        const paths = {};
        hpas.slice(cells * block, cells * (block + 1)).forEach((hpa, at) => {
          const count = countAt(hpa, time);
          const place = count === null ? "none" : `l${level(count, hpa[1], hpa[2])}`;
          const square = `M${step * (at % COLUMNS)} ${step * Math.floor(at / COLUMNS)}h${cell}v${cell}h-${cell}z`;
          paths[place] = (paths[place] || "") + square;
        });
        picture.innerHTML = Object.entries(paths).map(([place, drawn]) => `<path class="${place}" d="${drawn}"/>`).join("");
      });
    });
    const text = `${new Date(time * 1000).toISOString().slice(0, 19)}Z`;
    const link = document.createElement("a");
    link.href = `/?at=${text}`;
    link.textContent = `${text.slice(11, 16)} · open`;
    document.getElementById("shown").replaceChildren(isReplaying() ? link : "now");
  };

  const stop = () => {
    clearInterval(playing);
    playing = 0;
    document.getElementById("play").textContent = "▶ Replay";
  };

  document.addEventListener("input", (event) => {
    if (event.target.id === "moment") show();
  });
  document.addEventListener("click", (event) => {
    if (event.target.id === "play") {
      if (playing) return stop();
      if (!isReplaying()) slider().value = 0;
      event.target.textContent = "❚❚ Stop";
      playing = setInterval(() => {
        slider().value = Number(slider().value) + 1;
        show();
        if (!isReplaying()) stop();
      }, FRAME_MS);
    }
    const row = event.target.closest?.(".cells");
    if (row?.title) {
      const [name] = row.title.split(" ");
      location.assign(`/hpa/${name.split("/").map(encodeURIComponent).join("/")}${location.search.includes("at=") ? `?at=${encodeURIComponent(new URLSearchParams(location.search).get("at"))}` : ""}`);
    }
    return undefined;
  });

  // The cell that is pointed at is named; a name in each of thousands of cells would double the page.
  document.addEventListener("mousemove", async (event) => {
    const row = event.target.closest?.(".cells");
    if (!row) return;
    const picture = event.target.closest("svg");
    if (!picture) {
      row.title = "";
      return;
    }
    const { left, top } = picture.getBoundingClientRect();
    const { step } = size();
    const at = cellsOf(row) * [...row.children].indexOf(picture) + COLUMNS * Math.floor((event.clientY - top) / step) + Math.floor((event.clientX - left) / step);
    const hpa = ((await replay()).clusters[row.dataset.cluster] || [])[at];
    row.title = hpa ? `${row.dataset.cluster}/${hpa[0]} ${hpa[3] ?? "?"} of ${hpa[1]} to ${hpa[2]}` : "";
  });

  // While a moment of the past is shown, what comes in changes nothing; afterwards it is read anew.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.id === "fleet" && isReplaying()) event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", () => {
    read = null;
    shownNow.clear();
  });
})();
