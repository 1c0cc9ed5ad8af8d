// Keys, and what a page without scripts does by itself or not at all.
"use strict";
document.body.classList.add("scripted");
const links = () => [...document.querySelectorAll("#main .card a.text")];
const isTyping = (at) => at.matches("input:not([type=checkbox]), textarea, select");

document.addEventListener("keydown", (event) => {
  const at = event.target instanceof Element ? event.target : document.body;
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); toSearch(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (isTyping(at) && at.id !== "q") return;
    const all = links(), place = all.indexOf(document.activeElement), next = place + (event.key === "ArrowDown" ? 1 : -1);
    if (!all.length) return;
    event.preventDefault();
    if (next < 0) document.getElementById("q")?.focus();
    else all[Math.min(next, all.length - 1)].focus();
    return;
  }
  if (isTyping(at)) { if (event.key === "Escape") at.blur(); return; }
  const keys = {
    "/": toSearch,
    "?": () => document.getElementById("help").showModal(),
    x: () => document.activeElement.closest(".card")?.querySelector("input")?.click(),
    e: () => { const edit = document.getElementById("edit"); if (edit) { edit.open = true; edit.querySelector("textarea").focus(); } },
    u: () => document.getElementById("undo")?.click(),
  };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

function toSearch() {
  const field = document.getElementById("q");
  if (field) { field.focus(); field.select(); } else location.href = document.querySelector(".brand").dataset.search;
}

// Live: what is being written or read by hand is left alone.
const pulse = document.getElementById("pulse");
document.addEventListener("htmx:sseOpen", () => { pulse?.classList.add("on"); pulse?.setAttribute("aria-label", "live"); });
document.addEventListener("htmx:sseError", () => { pulse?.classList.remove("on"); pulse?.setAttribute("aria-label", "not connected"); });
document.addEventListener("htmx:beforeRequest", (event) => {
  const at = event.detail.elt, by = event.detail.requestConfig.triggeringEvent?.type || "";
  if (by.startsWith("sse:") && (at.querySelector("details[open], input:checked") || at.contains(document.activeElement))) event.preventDefault();
});

function probe(name) { // what light-dark() comes to
  const at = document.createElement("i"); at.className = name; document.body.append(at);
  const found = getComputedStyle(at).color; at.remove(); return found;
}

addEventListener("DOMContentLoaded", () => {
  for (const at of document.querySelectorAll("[data-plot]")) {
    const points = JSON.parse(at.dataset.points), isUsage = at.dataset.plot === "usage";
    if (!points.length) continue;
    const axis = { stroke: probe("c-quiet"), grid: { stroke: probe("c-line") } };
    const line = (label, name) => ({ label, stroke: probe(name), width: 2, paths: isUsage ? uPlot.paths.bars({ size: [0.6, 40] }) : undefined, fill: isUsage ? probe(name) : undefined, points: { show: !isUsage && points.length < 60 } });
    const series = isUsage ? [{ label: "day" }, line("stored", "c-plus"), line("recalls", "c-minus")] : [{ label: "call" }, line("ms", "c-plus")];
    const columns = series.map((_, place) => points.map((point) => point[place]));
    const plot = new uPlot({ width: at.clientWidth, height: 220, series, axes: [axis, axis], scales: { x: { time: isUsage }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } } }, columns, at);
    new ResizeObserver(() => plot.setSize({ width: at.clientWidth, height: 220 })).observe(at);
  }
  const graph = document.getElementById("graph");
  if (graph) draw(graph);
});

async function draw(at) {
  const data = await (await fetch(at.dataset.graph)).json(), ink = probe("c-ink"), line = probe("c-line"), dot = probe("c-plus");
  let wanted = "";
  const label = (node, canvas, scale) => {
    const radius = 2 + Math.sqrt(node.memories), hit = wanted && node.id.toLowerCase().includes(wanted);
    canvas.globalAlpha = wanted && !hit ? 0.15 : 1;
    canvas.fillStyle = dot; canvas.beginPath(); canvas.arc(node.x, node.y, radius, 0, 7); canvas.fill();
    if (scale > 2 || hit || data.nodes.length < 60) {
      canvas.fillStyle = ink; canvas.font = `${12 / scale}px system-ui`; canvas.textAlign = "center"; canvas.fillText(node.id, node.x, node.y + radius + 12 / scale);
    }
    canvas.globalAlpha = 1;
  };
  const drawn = new ForceGraph(at).width(at.clientWidth).height(at.clientHeight).graphData(data).nodeCanvasObject(label).nodeLabel(() => "").linkColor(() => line)
    .linkDirectionalArrowLength(3).cooldownTime(data.nodes.length > 500 ? 4000 : 8000)
    .onNodeClick((node) => { location.href = at.dataset.entity + (at.dataset.entity.includes("?") ? "&" : "?") + "entity=" + encodeURIComponent(node.id); })
    .onEngineStop(() => { if (!wanted) drawn.zoomToFit(300, 40); });
  document.getElementById("graph-filter").addEventListener("input", (event) => { wanted = event.target.value.toLowerCase(); drawn.nodeColor(drawn.nodeColor()); });
  new ResizeObserver(() => drawn.width(at.clientWidth)).observe(at);
}
