// From the data to the points of lines.

const panels = data.panels.map((panel) => {
  let step = 0;
  const first = panel.columns.first.map((delta) => (step += delta));
  const last = first.map((start, i) =>
    panel.columns.width === 1 ? start : Math.min(start + panel.columns.width, first[i + 1] ?? Infinity) - 1);
  for (const means of panel.means) {
    if (means) means.n = means.n.flatMap(([length, n]) => Array(length).fill(n));
  }
  return { ...panel, first, last, isLog: panel.is_log, middle: first.map((f, i) => (f + last[i]) / 2), xs: {} };
});

const seconds = Math.max(0, ...data.clocks.seconds.flatMap((clock) => clock?.at ?? []));
const [perUnit, unit] = seconds < 180 ? [1, "s"] : seconds < 7200 ? [60, "min"] : [3600, "h"];
const AXES = {
  step: { label: "step", clocks: null, read: (x) => `step ${formatStep(x)}` },
  tokens: { label: "trained tokens", clocks: data.clocks.tokens, per: 1, read: (x) => `${formatNumber(x)} tokens` },
  seconds: { label: `wall-clock time (${unit})`, clocks: data.clocks.seconds, per: perUnit, read: (x) => `${formatNumber(x)} ${unit}` },
};

function formatStep(x) { return String(Math.round(x)); }

function interpolate(clock, step) {
  const { steps, at } = clock;
  let low = 0, high = steps.length - 1;
  // Beyond its ends a run would go on at the speed it had there.
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle; else high = middle;
  }
  return at[low] + ((at[high] - at[low]) * (step - steps[low])) / (steps[high] - steps[low]);
}

function runX(run, step) {
  const axis = AXES[state.axis];
  if (!axis.clocks) return step;
  const clock = axis.clocks[run];
  return clock ? interpolate(clock, step) / axis.per : null;
}

// An arm's mean stands where its runs are on average.
function positions(panel) {
  if (panel.xs[state.axis]) return panel.xs[state.axis];
  if (state.axis === "step") {
    const same = { runs: data.runs.map(() => panel.middle), arms: data.arms.map(() => panel.middle) };
    return (panel.xs.step = same);
  }
  const runs = data.runs.map((run, i) => panel.middle.map((step) => runX(i, step)));
  const arms = data.arms.map((arm, place) => {
    const own = runs.filter((xs, i) => data.runs[i].arm === place && xs[0] !== null);
    return panel.middle.map((step, c) =>
      own.length ? own.reduce((sum, xs) => sum + xs[c], 0) / own.length : null);
  });
  return (panel.xs[state.axis] = { runs, arms });
}

// Trailing means over steps, of the values that are there; see analysis.curve.trailing_means.
function smooth(panel, values) {
  const width = state.smoothing;
  if (!values || width <= panel.columns.width || panel.is_stepped) return values;
  const isLong = panel.last.at(-1) - panel.first[0] >= 3 * width;
  let start = 0;
  return values.map((value, i) => {
    while (panel.first[start] <= panel.last[i] - width) start++;
    if (value === null || (isLong && panel.last[i] - panel.first[0] + 1 < width)) return null;
    let sum = 0, n = 0;
    for (let c = start; c <= i; c++) if (values[c] !== null) { sum += values[c]; n++; }
    return sum / n;
  });
}

// Mean and t interval of an arm's smoothed lines, by the rule of `build_page_data`.
function meansOf(panel, arm) {
  if (state.smoothing <= panel.columns.width || panel.is_stepped) return panel.means[arm];
  const own = data.runs.map((run, i) => i).filter((i) => data.runs[i].arm === arm && panel.lines[i]);
  const lists = own.map((i) => smoothedLine(panel, i));
  const found = { mean: [], low: [], high: [] };
  panel.first.forEach((first, c) => {
    const values = lists.map((list) => list[c]).filter((value) => value !== null);
    const [mean, low, high] = 2 * values.length < own.length ? [null, null, null] : interval(panel, values);
    found.mean.push(mean); found.low.push(low); found.high.push(high);
  });
  return found;
}

function interval(panel, values) {
  const n = values.length;
  if (!n) return [null, null, null];
  const isRatio = panel.scale_of_means === "ratio";
  if (isRatio && values.some((value) => value <= 0)) return [0, null, null];
  const logs = isRatio ? values.map(Math.log) : values;
  const back = (value) => (isRatio ? Math.exp(value) : value);
  const mean = logs.reduce((sum, value) => sum + value, 0) / n;
  if (n < 2 || data.critical[n] === null) return [back(mean), null, null];
  const squares = logs.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const half = data.critical[n] * Math.sqrt(squares / (n - 1) / n);
  const [least, most] = panel.bounds;
  return [back(mean), Math.max(least ?? -Infinity, back(mean - half)), Math.min(most ?? Infinity, back(mean + half))];
}

function smoothedLine(panel, run) {
  if (!panel.smoothed.has(run)) panel.smoothed.set(run, smooth(panel, panel.lines[run].mean));
  return panel.smoothed.get(run);
}

function shownRuns(panel) {
  return data.runs.map((run, i) => i).filter((i) => panel.lines[i] && state.isShown[data.runs[i].arm]);
}

function shownArms(panel) {
  return data.arms.map((arm, i) => i).filter((i) => panel.means[i] && state.isShown[i]);
}

// A line as [x, y] points; null breaks it. A column wider than a step is drawn as its whole range.
function linePoints(panel, run, xs) {
  const line = panel.lines[run];
  if (line.low && state.smoothing <= panel.columns.width) {
    const points = [];
    let before = null;
    line.low.forEach((low, c) => {
      if (low === null || xs[c] === null) { points.push(null); return; }
      const ends = before !== null && Math.abs(line.high[c] - before) < Math.abs(low - before)
        ? [line.high[c], low] : [low, line.high[c]];
      points.push([xs[c], ends[0]], [xs[c], ends[1]]);
      before = ends[1];
    });
    return points;
  }
  return pair(xs, smoothedLine(panel, run));
}

// What forks share, where steps are the axis: a parent has no clock in common with them.
function pastsOf(panel) {
  return state.axis === "step" ? panel.pasts ?? [] : [];
}

function pastPoints(past) {
  const own = { first: past.steps, last: past.steps, columns: { width: 1 } };
  return pair(past.steps, smooth(own, past.values));
}

function pair(xs, values) {
  return values.map((y, c) => (y === null || xs[c] === null ? null : [xs[c], y]));
}

function fullRange() {
  const { clocks, per } = AXES[state.axis];
  const ends = clocks
    ? clocks.filter((clock) => clock).flatMap(({ at }) => [at[0] / per, at.at(-1) / per])
    : panels.flatMap((panel) => [panel.middle[0], panel.middle.at(-1), ...pastsOf(panel).map((past) => past.steps[0])]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  return low < high ? [low, high] : [low - 0.5, low + 0.5];
}
