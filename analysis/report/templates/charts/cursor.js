// What stands at the cursor, in lines and in words.

function drawCursor(panel) {
  const { width, height } = layout(panel);
  const pen = prepare(panel.over, width, height);
  const { toX, toY, means, lines, inner: [left, right, top, bottom] } = panel.scale;
  const found = readPanel(panel);
  if (state.cursor !== null) {
    pen.strokeStyle = color("--soft");
    pen.setLineDash([3, 3]);
    const x = toX(state.cursor);
    if (x >= left - 1 && x <= right + 1) line(pen, x, top, x, bottom);
    pen.setLineDash([]);
    pen.save();
    pen.beginPath();
    pen.rect(left, top - 4, right - left, bottom - top + 8);
    pen.clip();
    if (found.nearest) {
      pen.strokeStyle = color(`--arm-${data.runs[found.nearest.run].arm}`);
      pen.lineWidth = 1.8;
      stroke(pen, panel, lines.get(found.nearest.run));
    }
    for (const { arm, column } of found.arms) {
      const point = column === null ? null : means.get(arm)[column];
      if (!point) continue;
      pen.beginPath();
      pen.arc(toX(point[0]), toY(point[1]), 3.6, 0, 7);
      pen.fillStyle = color(`--arm-${arm}`);
      pen.fill();
      pen.lineWidth = 1.5;
      pen.strokeStyle = color("--paper");
      pen.stroke();
    }
    pen.restore();
  }
  if (state.drag && state.drag.panel === panel) {
    const [a, b] = [state.drag.from, state.drag.to].sort((p, q) => p - q);
    pen.globalAlpha = 0.15;
    pen.fillStyle = color("--accent");
    pen.fillRect(a, top, b - a, bottom - top);
  }
  writeReadout(panel, found);
}

function nearestColumn(xs, x) {
  let best = null;
  xs.forEach((at, c) => {
    if (at !== null && (best === null || Math.abs(at - x) < Math.abs(xs[best] - x))) best = c;
  });
  return best;
}

function readPanel(panel) {
  const { xs, lines, toX, toY, view } = panel.scale;
  const at = state.cursor ?? view[1];
  const arms = shownArms(panel).map((arm) => {
    const column = nearestColumn(xs.arms[arm], at);
    return { arm, column };
  });
  let nearest = null;
  if (state.cursor !== null && state.pointer && state.pointer.panel === panel) {
    for (const [run, points] of lines) {
      const column = nearestColumn(xs.runs[run], at);
      const values = smoothedLine(panel, run);
      if (column === null || values[column] === null) continue;
      const distance = Math.abs(toY(values[column]) - state.pointer.y) + Math.abs(toX(xs.runs[run][column]) - toX(at));
      if (distance < 30 && (!nearest || distance < nearest.distance)) nearest = { run, column, distance };
    }
  }
  return { at, arms, nearest };
}

function columnText(panel, column) {
  const [first, last] = [panel.first[column], panel.last[column]];
  return first === last ? `step ${first}` : `steps ${first}-${last}`;
}

function writeReadout(panel, { at, arms, nearest }) {
  const isSteps = state.axis === "step";
  const head = isSteps && arms.length && arms[0].column !== null ? columnText(panel, arms[0].column) : AXES[state.axis].read(at);
  panel.head.textContent = state.cursor === null ? `${head} (end of view)` : head;
  const said = [];
  panel.items.forEach((item, arm) => {
    const found = arms.find((entry) => entry.arm === arm);
    item.hidden = !found;
    if (!found) return;
    const { column } = found;
    const means = panel.means[arm];
    const hasValue = column !== null && means.mean[column] !== null;
    const value = hasValue ? formatMean(panel, means, column) : NONE;
    const where = isSteps || column === null ? "" : ` at ${columnText(panel, column)}`;
    item.querySelector(".value").textContent = value;
    item.querySelector(".count").textContent = hasValue ? `n ${means.n[column]}${where}` : "";
    said.push(`${data.arms[arm].name} ${hasValue ? value : "no value"}`);
  });
  panel.nearest.textContent = nearest
    ? `nearest: ${data.arms[data.runs[nearest.run].arm].name} seed ${data.runs[nearest.run].seed}, ` +
      formatValue(panel, panel.lines[nearest.run].mean[nearest.column])
    : "";
  panel.plot.setAttribute("aria-valuenow", String(at));
  panel.plot.setAttribute("aria-valuetext", `${head}: ${said.join("; ")}`);
}
