// The data of the charts and what a reader has chosen; see analysis/report/page_data.py.

const data = JSON.parse(document.getElementById("chart-data").textContent);
const root = document.getElementById("charts");
const MARGIN = { left: 58, right: 14, top: 8, bottom: 20 };
const HEIGHTS = { solve_rate: 240, mismatch_kl: 240 };
const OTHER_HEIGHT = 170;
const PRINT = { width: 1000, scale: 2.5 };
const NONE = "\u2013";
const EVENTS = {
  exploded: { text: "mismatch KL exploded", path: "M-5-3-3-5 0-2 3-5 5-3 2 0 5 3 3 5 0 2-3 5-5 3-2 0z" },
  collapsed: { text: "solve rate collapsed", path: "M-5.5-4h11L0 5.5z" },
  entropy_collapsed: { text: "entropy collapsed", path: "M-4.5-4.5h9v9h-9z" },
  onset: { text: "onset of the rise in mismatch KL", path: "M0-6 5 0 0 6-5 0z" },
};
const WINDOWS = [1, 2, 5, 10, 20, 50, 100, 200, 500];

const state = {
  axis: "step", view: null, cursor: null, pointer: null, isPrinting: false,
  hasSeeds: true, hasBands: true, smoothing: data.smoothing,
  isShown: data.arms.map(() => true),
};
