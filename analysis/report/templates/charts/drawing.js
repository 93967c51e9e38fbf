// How a chart is drawn.

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function prepare(canvas, width, height) {
  const scale = state.isPrinting ? PRINT.scale : window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
  pen.lineJoin = "round";
  return pen;
}

function layout(panel) {
  const width = state.isPrinting ? PRINT.width : panel.plot.clientWidth;
  const height = HEIGHTS[panel.name] ?? OTHER_HEIGHT;
  return { width, height, inner: [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom] };
}

function draw(panel) {
  const { width, height, inner } = layout(panel);
  const [left, right, top, bottom] = inner;
  panel.base.style.height = `${height}px`;
  panel.over.style.height = `${height}px`;
  const pen = prepare(panel.base, width, height);
  const view = state.view ?? fullRange();
  const xs = positions(panel);
  const runs = state.hasSeeds ? shownRuns(panel) : [];
  const arms = shownArms(panel);
  panel.smoothed = new Map();
  const lines = new Map(runs.map((i) => [i, linePoints(panel, i, xs.runs[i])]));
  const bands = new Map(arms.map((i) => [i, meansOf(panel, i)]));
  const means = new Map(arms.map((i) => [i, pair(xs.arms[i], bands.get(i).mean)]));
  const ends = state.hasBands ? arms.flatMap((i) => [bands.get(i).low, bands.get(i).high]
    .filter((end) => end).map((end) => pair(xs.arms[i], end))) : [];
  const pasts = pastsOf(panel).map(pastPoints);
  const [low, high] = valueRange(panel, view, [...lines.values(), ...means.values(), ...pasts], ends);
  const toX = (x) => left + ((x - view[0]) / (view[1] - view[0])) * (right - left);
  const lift = (y) => Math.log(Math.max(y, panel.floor ?? low / 10));
  const [from, to] = panel.isLog ? [Math.log(low), Math.log(high)] : [low, high];
  const toY = (y) => bottom - (((panel.isLog ? lift(y) : y) - from) / (to - from)) * (bottom - top);
  panel.scale = { toX, toY, view, lines, means, bands, xs, inner };

  pen.fillStyle = color("--shade");
  if (state.axis === "step") {
    for (const span of data.windows) pen.fillRect(toX(span.first), top, toX(span.last) - toX(span.first), bottom - top);
    pen.clearRect(0, 0, left, height);
    pen.clearRect(right, 0, width - right, height);
  }
  drawAxes(pen, panel, inner, view, [low, high]);

  pen.save();
  pen.beginPath();
  pen.rect(left, top - 4, right - left, bottom - top + 8);
  pen.clip();
  if (state.hasBands) for (const i of arms) drawBand(pen, panel, i);
  pen.lineWidth = 1.3;
  pen.strokeStyle = color("--soft");
  pen.setLineDash([5, 3]);
  for (const points of pasts) stroke(pen, panel, points);
  pen.setLineDash([]);
  pen.lineWidth = 0.9;
  for (const [i, points] of lines) {
    pen.strokeStyle = color(`--arm-${data.runs[i].arm}`);
    pen.globalAlpha = 0.4;
    stroke(pen, panel, points);
  }
  pen.globalAlpha = 1;
  pen.lineWidth = 2.1;
  for (const [i, points] of means) {
    pen.strokeStyle = color(`--arm-${i}`);
    pen.setLineDash(data.arms[i].dash.map((length) => 2.1 * length));
    stroke(pen, panel, points);
    pen.setLineDash([]);
  }
  for (const event of panel.events) drawEvent(pen, panel, event);
  pen.restore();
  if (!state.isPrinting) drawCursor(panel);
}

function stroke(pen, panel, points) {
  const { toX, toY } = panel.scale;
  pen.beginPath();
  let before = null;
  points.forEach((point, i) => {
    if (!point) { before = null; return; }
    const x = toX(point[0]), y = toY(point[1]);
    if (!before) {
      pen.moveTo(x, y);
      if (!points[i + 1]) pen.lineTo(x + 1.5, y);  // A lone value is a dot, not nothing.
    } else {
      if (panel.is_stepped) pen.lineTo(x, before[1]);
      pen.lineTo(x, y);
    }
    before = [x, y];
  });
  pen.stroke();
}

function drawBand(pen, panel, arm) {
  const { toX, toY, xs, bands } = panel.scale;
  const ends = [bands.get(arm).low, bands.get(arm).high];
  if (!ends[0]) return;
  pen.fillStyle = color(`--arm-${arm}`);
  pen.globalAlpha = 0.13;
  let part = [];
  const fill = () => {
    if (part.length > 1) {
      pen.beginPath();
      for (const c of part) pen.lineTo(toX(xs.arms[arm][c]), toY(ends[1][c]));
      for (const c of part.reverse()) pen.lineTo(toX(xs.arms[arm][c]), toY(ends[0][c]));
      pen.fill();
    }
    part = [];
  };
  xs.arms[arm].forEach((x, c) => {
    if (x === null || ends[0][c] === null || ends[1][c] === null) fill(); else part.push(c);
  });
  fill();
  pen.globalAlpha = 1;
}

function drawEvent(pen, panel, event) {
  if (!state.isShown[data.runs[event.run].arm] || !panel.lines[event.run]) return;
  const { toX, toY, xs } = panel.scale;
  const values = smoothedLine(panel, event.run);
  let column = panel.first.findLastIndex((first) => first <= event.step);
  while (column >= 0 && values[column] === null) column--;
  const x = runX(event.run, event.step);
  if (column < 0 || x === null) return;
  const shape = new Path2D(EVENTS[event.kind].path);
  pen.save();
  pen.translate(toX(x), toY(values[column]));
  pen.lineWidth = 2.5;
  pen.strokeStyle = color("--paper");
  pen.stroke(shape);
  pen.fillStyle = color(`--arm-${data.runs[event.run].arm}`);
  pen.fill(shape);
  pen.lineWidth = 0.8;
  pen.strokeStyle = color("--ink");
  pen.stroke(shape);
  pen.restore();
}

function drawAxes(pen, panel, [left, right, top, bottom], view, [low, high]) {
  const y = panel.scale.toY, x = panel.scale.toX;
  const isPercent = panel.format === "percent";
  const vertical = panel.isLog ? { ticks: logTicks(low, high), step: null } : linearTicks(low, high, 6);
  const floor = panel.isLog ? panel.floor : null;
  pen.lineWidth = 1;
  pen.strokeStyle = color("--rule");
  pen.fillStyle = color("--soft");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const labels = vertical.ticks.map((tick) => [y(tick), tickText(tick, vertical.step, isPercent)]);
  const shown = floor === null ? labels : [[y(floor), "0"], ...labels.filter(([at]) => y(floor) - at > 12)];
  for (const [at, text] of shown) {
    line(pen, left, at, right, at);
    pen.fillText(text, left - 6, at);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  const horizontal = linearTicks(view[0], view[1], Math.max(2, (right - left) / 110));
  let free = left - 20;
  const label = AXES[state.axis].label;
  const end = right - pen.measureText(label).width - 8;
  for (const tick of horizontal.ticks) {
    line(pen, x(tick), bottom, x(tick), bottom + 4);
    const text = tickText(tick, horizontal.step, false), half = pen.measureText(text).width / 2;
    if (x(tick) - half > free && x(tick) + half < end) {
      pen.fillText(text, x(tick), bottom + 6);
      free = x(tick) + half + 6;
    }
  }
  line(pen, left, bottom, right, bottom);
  pen.textAlign = "right";
  pen.fillText(label, right, bottom + 6);
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}
