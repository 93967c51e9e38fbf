// Controls, keys, the mouse, and the printer.

function make(tag, attributes = {}, ...children) {
  const isDrawing = ["svg", "path", "line", "g"].includes(tag);
  const node = isDrawing ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function swatch(arm) {
  const dash = data.arms[arm].dash.map((length) => 2.2 * length).join(" ");
  const stroke = make("line", { x1: 0, y1: 4, x2: 26, y2: 4, "stroke-width": 2.4, "stroke-dasharray": dash || "none" });
  return make("svg", { class: `swatch arm-${arm}`, width: 26, height: 8, "aria-hidden": "true" }, stroke);
}

function toggle(text, isOn, change) {
  const button = make("button", { type: "button", "aria-pressed": String(isOn) }, ...[text].flat());
  button.addEventListener("click", () => {
    const isNow = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isNow));
    change(isNow);
    redraw();
  });
  return button;
}

function buildControls() {
  const controls = document.getElementById("controls");
  const arms = make("div", { class: "group", role: "group", "aria-label": "arms shown" });
  data.arms.forEach((arm, i) => {
    arms.append(toggle([swatch(i), " ", arm.name], true, (isOn) => { state.isShown[i] = isOn; }));
  });
  const axis = make("select", { id: "axis" });
  for (const [name, { label, clocks }] of Object.entries(AXES)) {
    const option = make("option", { value: name }, label);
    option.disabled = clocks !== null && !clocks.some((clock) => clock);
    if (option.disabled) option.textContent = `${label}: not logged`;
    axis.append(option);
  }
  axis.addEventListener("change", () => { state.axis = axis.value; state.cursor = null; setView(null); });
  const span = Math.max(1, ...panels.map((panel) => panel.last.at(-1) - panel.first[0]));
  // A window within one column smooths nothing.
  const widest = Math.max(...panels.map((panel) => panel.columns.width));
  const choices = WINDOWS.filter((width) => width === 1 || (width > widest && width <= Math.max(10, span / 4)));
  state.smoothing = choices.find((width) => width >= data.smoothing) ?? 1;
  const range = make("input", { type: "range", id: "smoothing", min: 0, max: choices.length - 1, value: choices.indexOf(state.smoothing) });
  const said = make("output", { for: "smoothing" });
  const say = () => {
    said.textContent = state.smoothing === 1 ? "off" : `${state.smoothing} steps`;
    range.setAttribute("aria-valuetext", said.textContent);
  };
  range.addEventListener("input", () => { state.smoothing = choices[range.value]; say(); redraw(); });
  say();
  const reset = make("button", { type: "button", id: "reset" }, "Reset zoom");
  reset.addEventListener("click", () => setView(null));
  const settings = make("div", { class: "group" },
    make("label", {}, "axis ", axis),
    make("label", {}, "smoothing, for the eye ", range, " ", said),
    toggle("seeds", true, (isOn) => { state.hasSeeds = isOn; }),
    toggle(`${data.level} intervals`, true, (isOn) => { state.hasBands = isOn; }),
    reset);
  const kinds = Object.keys(EVENTS).filter((kind) => panels.some((panel) => panel.events.some((event) => event.kind === kind)));
  const legend = make("p", { class: "markers" });
  for (const kind of kinds) {
    const mark = make("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, make("path", { d: EVENTS[kind].path }));
    legend.append(make("span", {}, mark, ` ${EVENTS[kind].text}`));
  }
  controls.append(arms, settings, ...(kinds.length ? [legend] : []));
}

function buildPanel(panel) {
  const figure = document.getElementById(`chart-${panel.name}`);
  panel.plot = figure.querySelector(".plot");
  panel.base = make("canvas", { "aria-hidden": "true" });
  panel.over = make("canvas", { "aria-hidden": "true", class: "over" });
  panel.plot.append(panel.base, panel.over);
  for (const [name, value] of Object.entries({
    tabindex: 0, role: "slider", "aria-label": `${panel.label}: cursor over steps`,
    "aria-valuemin": panel.first[0], "aria-valuemax": panel.last.at(-1),
  })) panel.plot.setAttribute(name, value);
  panel.head = make("span", { class: "at" });
  panel.nearest = make("span", { class: "nearest" });
  panel.items = data.arms.map((arm, i) => make("span", { class: "item" }, swatch(i), " ",
    make("span", { class: "name" }, arm.name), " ", make("span", { class: "value" }), " ", make("span", { class: "count" })));
  const readout = make("div", { class: "readout" }, make("p", {}, panel.head, " ", panel.nearest), make("div", { class: "items" }, ...panel.items));
  panel.plot.after(readout);
  if (panel.is_log) {
    figure.querySelector(".head").append(toggle("log axis", true, (isOn) => { panel.isLog = isOn; }));
  }
  listen(panel);
  new ResizeObserver(redraw).observe(panel.plot);
}

function setView(view) {
  const full = fullRange();
  state.view = view && view[1] - view[0] < 0.999 * (full[1] - full[0]) ? view : null;
  document.getElementById("reset").disabled = state.view === null;
  redraw();
}

function toUnits(panel, pixel) {
  const { view, inner: [left, right] } = panel.scale;
  const share = Math.min(1, Math.max(0, (pixel - left) / (right - left)));
  return view[0] + share * (view[1] - view[0]);
}

function setCursor(panel, x) {
  // It stands on a column of the first arm, so that all panels and the read-out speak of one step.
  const [arm] = shownArms(panel);
  const xs = arm === undefined ? panel.middle : positions(panel).arms[arm];
  const column = nearestColumn(xs, x);
  state.cursor = column === null ? x : xs[column];
  recursor();
}

function listen(panel) {
  const { plot } = panel;
  const place = (event) => {
    const box = plot.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  plot.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse") return;
    if (event.button !== 0) return;
    const { x } = place(event);
    state.drag = { panel, from: x, to: x };
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const { x, y } = place(event);
    state.pointer = { panel, y };
    if (state.drag) state.drag.to = x;
    setCursor(panel, toUnits(panel, x));
  });
  plot.addEventListener("pointerup", (event) => {
    const drag = state.drag;
    state.drag = null;
    if (drag && Math.abs(drag.to - drag.from) > 6) {
      setView([drag.from, drag.to].map((x) => toUnits(panel, x)).sort((a, b) => a - b));
    } else {
      setCursor(panel, toUnits(panel, place(event).x));
    }
  });
  plot.addEventListener("pointercancel", () => { state.drag = null; recursor(); });
  plot.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "mouse" || state.drag) return;
    state.pointer = null;
    state.cursor = null;
    recursor();
  });
  plot.addEventListener("dblclick", () => setView(null));
  plot.addEventListener("keydown", (event) => onKey(panel, event));
}

function onKey(panel, event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const arm = shownArms(panel)[0];
  if (arm === undefined) return;
  const view = state.view ?? fullRange();
  const xs = panel.scale.xs.arms[arm];
  const inside = xs.map((x, c) => c).filter((c) => xs[c] !== null && xs[c] >= view[0] && xs[c] <= view[1]);
  const now = inside.indexOf(nearestColumn(xs, state.cursor ?? view[1]));
  const page = Math.max(1, Math.round(inside.length / 10));
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageDown: -page, PageUp: page, Home: -Infinity, End: Infinity };
  if (event.key in moves && inside.length) {
    const step = moves[event.key] * (event.shiftKey ? 10 : 1);
    const next = Math.min(inside.length - 1, Math.max(0, (now < 0 ? inside.length - 1 : now) + step));
    state.pointer = null;
    setCursor(panel, xs[inside[next]]);
  } else if (event.key === "+" || event.key === "=" || event.key === "-") {
    const factor = event.key === "-" ? 2 : 0.5;
    const full = fullRange();
    const around = state.cursor ?? (view[0] + view[1]) / 2;
    const width = Math.min(full[1] - full[0], factor * (view[1] - view[0]));
    const start = Math.min(full[1] - width, Math.max(full[0], around - width / 2));
    setView([start, start + width]);
  } else if (event.key === "Escape" || event.key === "0") {
    setView(null);
  } else {
    return;
  }
  event.preventDefault();
}

let waiting = 0;
function redraw() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => panels.forEach(draw));
}

function recursor() { panels.forEach(drawCursor); }

function drawFor(isPrinting) {
  state.isPrinting = isPrinting;
  document.documentElement.classList.toggle("printing", isPrinting);
  panels.forEach(draw);
}

root.hidden = false;
buildControls();
panels.forEach(buildPanel);
setView(null);
panels.forEach(draw);
window.addEventListener("beforeprint", () => drawFor(true));
window.addEventListener("afterprint", () => drawFor(false));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
