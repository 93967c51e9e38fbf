// Numbers written as in the tables of the page, and the ticks of axes.

function formatNumber(value, digits = 3) {
  if (value === null || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) {
    return value.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
  }
  return value.toExponential(digits - 1).replace("e+", "e");
}

function formatValue(panel, value) {
  if (value === null) return NONE;
  if (panel.format === "rate") return value.toFixed(3);
  return panel.format === "percent" ? `${formatNumber(100 * value)} %` : formatNumber(value);
}

function formatMean(panel, means, column) {
  let text = formatValue(panel, means.mean[column]);
  if (means.low && means.low[column] !== null) {
    const ends = [means.low[column], means.high[column]].map((end) => formatValue(panel, end));
    text += ` [${ends.join(", ").replaceAll(" %", "")}]`;
  }
  return text;
}

function valueRange(panel, view, lists, bands) {
  if (panel.limits) return [panel.limits[0] - 0.03, panel.limits[1] + 0.03];
  let [low, high] = extremes(panel, view, lists);
  if (low > high) [low, high] = panel.isLog ? [0.1, 1] : [0, 1];
  const [least, most] = extremes(panel, view, bands);
  // An interval of two seeds may be huge: it may widen the axis, but not flatten the lines.
  if (panel.isLog) {
    if (high < 1.01 * low) { low /= 3; high *= 3; }
    const reach = Math.sqrt(high / low);
    if (panel.floor !== null) low = Math.min(low, panel.floor);
    return [Math.min(low, Math.max(least, low / reach)) / 1.25, Math.max(high, Math.min(most, high * reach)) * 1.25];
  }
  const reach = 0.5 * (high - low);
  [low, high] = [Math.min(low, Math.max(least, low - reach)), Math.max(high, Math.min(most, high + reach))];
  const pad = high - low > 1e-9 * Math.abs(high) ? 0.05 * (high - low) : 0.1 * Math.abs(high) || 0.5;
  return [low - pad, high + pad];
}

function extremes(panel, view, lists) {
  let low = Infinity, high = -Infinity;
  const isInside = (x) => x >= view[0] && x <= view[1];
  for (const points of lists) {
    for (const point of points) {
      if (!point || !isInside(point[0])) continue;
      const y = panel.isLog && panel.floor !== null ? Math.max(point[1], panel.floor) : point[1];
      if (panel.isLog && y <= 0) continue;
      low = Math.min(low, y); high = Math.max(high, y);
    }
  }
  return [low, high];
}

function linearTicks(low, high, count) {
  const raw = (high - low) / count;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * base).find((s) => s >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  return { ticks, step };
}

function logTicks(low, high) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((to - from) / 6));
  const factors = Math.log10(high / low) < 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let e = from; e <= to; e += every) {
    for (const factor of factors) ticks.push(Number(`${factor}e${e}`));
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

function tickText(value, step, isPercent) {
  const shown = isPercent ? 100 * value : value;
  const sign = isPercent ? " %" : "";
  if (step !== null) {
    const unitStep = isPercent ? 100 * step : step;
    if (Math.abs(shown) >= 1e5) return shortLarge(shown) + sign;
    const decimals = Math.max(0, -Math.floor(Math.log10(unitStep) + 1e-9));
    return decimals > 5 ? shown.toExponential(1) + sign : shown.toFixed(decimals) + sign;
  }
  return (shown >= 1e-3 && shown < 1e5 ? String(Number(shown.toPrecision(3))) : shown.toExponential(0).replace("e+", "e")) + sign;
}

function shortLarge(value) {
  const [size, suffix] = value >= 1e12 ? [1e12, "T"] : value >= 1e9 ? [1e9, "B"] : value >= 1e6 ? [1e6, "M"] : [1e3, "k"];
  return `${Number((value / size).toPrecision(4))} ${suffix}`;
}
