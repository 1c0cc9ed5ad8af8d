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
    const line = (label, name, align = 0) => ({ label, stroke: probe(name), width: 2, paths: isUsage ? uPlot.paths.bars({ size: [0.35, 20], align }) : undefined, fill: isUsage ? probe(name) : undefined, points: { show: !isUsage && points.length < 60 } });
    const series = isUsage ? [{ label: "day" }, line("memories stored", "c-plus", -1), line("recalls", "c-minus", 1)] : [{ label: "call" }, line("ms", "c-plus")];
    const columns = series.map((_, place) => points.map((point) => point[place]));
    const plot = new uPlot({ width: at.clientWidth, height: 220, series, legend: { show: isUsage, live: false }, axes: [isUsage ? { ...axis, values: (_, times) => times.map((at) => new Date(at * 1000).toLocaleDateString("en", { day: "numeric", month: "short" })) } : { ...axis, incrs: [1, 2, 5, 10, 25, 50, 100] }, axis], scales: { x: { time: isUsage }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } } }, columns, at);
    new ResizeObserver(() => plot.setSize({ width: at.clientWidth, height: 220 })).observe(at);
  }
  const graph = document.getElementById("graph");
  if (graph) draw(graph);
});

async function draw(at) {
  const data = await (await fetch(at.dataset.graph)).json(), ink = probe("c-ink"), dot = probe("c-plus"), line = probe("c-faint");
  const kinds = [...new Set(data.links.map((link) => link.type))].filter(Boolean), colors = ["c-minus", "c-accent", "c-plus", "c-gone", "c-quiet"].map(probe);
  const color = (link) => link.type ? colors[kinds.indexOf(link.type) % colors.length] : line;
  const said = (link) => (link.type || "together in a memory").replaceAll("_", " "), beside = new Map(data.nodes.map((node) => [node.id, []]));
  for (const link of data.links) { beside.get(link.source)?.push([link.target, said(link)]); beside.get(link.target)?.push([link.source, said(link)]); }
  let chosen = null, settled = false;
  const isNear = (node) => !chosen || node === chosen || beside.get(chosen.id).some(([name]) => name === node.id);
  let zoom = 1; // dots and names have one size on the screen, however near they are looked at
  const radius = (node) => (3 + 1.5 * Math.sqrt(node.memories)) / zoom;
  const drawn = new ForceGraph(at).width(at.clientWidth).height(at.clientHeight).graphData(data)
    .onRenderFramePre((canvas, scale) => { // the most important first: a name that has no room is not drawn, nor is its dot
      const taken = []; zoom = scale;
      for (const node of data.nodes) {
        canvas.font = `${13 / scale}px system-ui`;
        const half = Math.max(canvas.measureText(node.id).width / 2, radius(node)) + 4 / scale, box = [node.x - half, node.y - radius(node), node.x + half, node.y + radius(node) + 18 / scale];
        node.hasRoom = isNear(node) && !taken.some((one) => box[0] < one[2] && one[0] < box[2] && box[1] < one[3] && one[1] < box[3]);
        if (node.hasRoom) taken.push(box);
      }
    })
    .nodeCanvasObject((node, canvas, scale) => {
      if (!node.hasRoom) return;
      canvas.fillStyle = dot; canvas.beginPath(); canvas.arc(node.x, node.y, radius(node), 0, 7); canvas.fill();
      canvas.fillStyle = ink; canvas.font = `${node === chosen ? "600 " : ""}${13 / scale}px system-ui`; canvas.textAlign = "center"; canvas.fillText(node.id, node.x, node.y + radius(node) + 13 / scale);
    })
    .nodePointerAreaPaint((node, paint, canvas) => { if (node.hasRoom) { canvas.fillStyle = paint; canvas.beginPath(); canvas.arc(node.x, node.y, radius(node) + 3, 0, 7); canvas.fill(); } })
    .nodeLabel(() => "").linkLabel((link) => said(link)).linkWidth((link) => link.type ? 1.5 : 1)
    .linkColor(color).linkVisibility((link) => link.source.hasRoom && link.target.hasRoom && (!chosen || link.source === chosen || link.target === chosen))
    .d3VelocityDecay(0.3).cooldownTime(3000)
    .onNodeClick((node) => choose(node)).onBackgroundClick(() => choose(null))
    .onEngineStop(() => { if (!settled) { settled = true; drawn.zoomToFit(0, 90); } });
  drawn.d3Force("charge").strength(-160).distanceMax(400);
  drawn.d3Force("together", (alpha) => { const tall = at.clientHeight / at.clientWidth; for (const node of data.nodes) { node.vx -= node.x * 0.1 * Math.min(2, tall) * alpha; node.vy -= node.y * 0.1 / Math.max(0.5, tall) * alpha; } });
  const told = document.getElementById("neighbours"), element = (name, text, more = {}) => Object.assign(document.createElement(name), { textContent: text, ...more });
  const address = (name) => at.dataset.entity + (at.dataset.entity.includes("?") ? "&" : "?") + "entity=" + encodeURIComponent(name);
  function choose(node) {
    chosen = node; drawn.linkColor(color);
    told.replaceChildren(...(node ? [element("a", node.id, { href: address(node.id) }), ": ", ...beside.get(node.id).slice(0, 12).flatMap(([name, how], place) => [place ? ", " : "", `${how} `, element("a", name, { href: address(name) })])] : ["Click a name for its neighbours."]));
  }
  choose(null);
  document.getElementById("legend").replaceChildren(...kinds.slice(0, 5).flatMap((kind, place) => { const mark = element("i", "", { className: ["c-minus", "c-accent", "c-plus", "c-gone", "c-quiet"][place] }); return [mark, `${kind.replaceAll("_", " ")} `]; }), ...(kinds.length ? [element("i", "", { className: "c-faint" }), "together in a memory"] : []));
  new ResizeObserver(() => drawn.width(at.clientWidth)).observe(at);
}
