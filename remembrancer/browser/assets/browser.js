// Keyboard shortcuts, and conveniences that pages work without.
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
    e: toEdit,
    u: () => document.getElementById("undo")?.click(),
  };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

// Only the first click of a double click is sent: the page after the second could not undo the first one's change.
let sentAt = -Infinity;
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.timeStamp - sentAt < 1000) event.preventDefault();
  else sentAt = event.timeStamp;
});

function toEdit() {
  const edit = document.getElementById("edit");
  if (edit) { edit.open = true; edit.querySelector("textarea").focus(); }
}
if (location.hash === "#edit") toEdit(); // a link of Review

function toSearch() {
  const field = document.getElementById("q");
  if (field) { field.focus(); field.select(); } else location.href = document.querySelector(".brand").dataset.search;
}

// Live updates leave alone whatever a person is editing or has opened.
const pulse = document.getElementById("pulse");
document.addEventListener("htmx:sseOpen", () => { pulse?.classList.add("on"); pulse?.setAttribute("aria-label", "live"); });
document.addEventListener("htmx:sseError", () => { pulse?.classList.remove("on"); pulse?.setAttribute("aria-label", "not connected"); });
document.addEventListener("htmx:beforeRequest", (event) => {
  const at = event.detail.elt, by = event.detail.requestConfig.triggeringEvent?.type || "";
  if (by.startsWith("sse:") && (at.querySelector("details[open], input:checked") || at.contains(document.activeElement))) event.preventDefault();
});

// The page keeps its content when a request has failed, so it says so.
for (const name of ["htmx:responseError", "htmx:sendError"]) document.addEventListener(name, () => {
  if (document.getElementById("failed")) return;
  const notice = document.createElement("p");
  notice.id = "failed"; notice.className = "notice"; notice.setAttribute("role", "alert");
  notice.textContent = "The memory did not answer, so what is below may be out of date. If it was stopped, run 'remembrancer ui' to start it again.";
  document.getElementById("main").prepend(notice);
});
document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) document.getElementById("failed")?.remove(); });

function probe(name) { // the colour that light-dark() resolves to
  const at = document.createElement("i"); at.className = name; document.body.append(at);
  const found = getComputedStyle(at).color; at.remove(); return found;
}

addEventListener("DOMContentLoaded", () => {
  const graph = document.getElementById("graph");
  if (graph) draw(graph);
});

async function draw(at) {
  const data = await (await fetch(at.dataset.graph)).json(), ink = probe("c-ink"), dot = probe("c-plus"), line = probe("c-faint"), paper = probe("c-paper");
  const kinds = [...new Set(data.links.map((link) => link.type))].filter(Boolean), colors = ["c-minus", "c-accent", "c-plus", "c-gone", "c-quiet"].map(probe);
  const color = (link) => link.type ? colors[kinds.indexOf(link.type) % colors.length] : line;
  const kind = (link) => (link.type || "together in a memory").replaceAll("_", " ");
  const beside = new Map(data.nodes.map((node) => [node.id, []]));
  for (const link of data.links) for (const [one, other] of [[link.source, link.target], [link.target, link.source]]) beside.get(one)?.push({ ...link, other });
  let chosen = null, zoom = 1; // dots and names keep their size on the screen at any zoom
  const isNear = (node) => !chosen || node === chosen || beside.get(chosen.id).some(({ other }) => other === node.id);
  const pixels = (node) => 3 + 1.5 * Math.sqrt(node.memories), radius = (node) => pixels(node) / zoom;
  const pen = document.createElement("canvas").getContext("2d"); pen.font = "13px system-ui";
  for (const node of data.nodes) node.half = Math.max(pen.measureText(node.id).width / 2, pixels(node)) + 6;
  const box = (node, scale) => [node.x - node.half / scale, node.y - (pixels(node) + 2) / scale, node.x + node.half / scale, node.y + (pixels(node) + 19) / scale];
  const meet = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
  const drawn = new ForceGraph(at).width(at.clientWidth).height(at.clientHeight)
    .onRenderFramePre((canvas, scale) => { // most important first: a name without room is not drawn, nor is its dot
      const taken = []; zoom = scale;
      for (const node of data.nodes) {
        const own = box(node, scale);
        node.hasRoom = isNear(node) && !taken.some((one) => meet(own, one));
        if (node.hasRoom) taken.push(own);
      }
    })
    .nodeCanvasObject((node, canvas, scale) => {
      if (!node.hasRoom) return;
      canvas.fillStyle = dot; canvas.beginPath(); canvas.arc(node.x, node.y, radius(node), 0, 7); canvas.fill();
      canvas.font = `${node === chosen ? "600 " : ""}${13 / scale}px system-ui`; canvas.textAlign = "center"; canvas.lineWidth = 4 / scale; canvas.lineJoin = "round"; canvas.strokeStyle = paper; canvas.fillStyle = ink;
      for (const put of ["strokeText", "fillText"]) canvas[put](node.id, node.x, node.y + radius(node) + 14 / scale); // a line behind a name does not cross it out
    })
    .nodePointerAreaPaint((node, paint, canvas, scale) => { if (node.hasRoom) { const [left, top, right, bottom] = box(node, scale); canvas.fillStyle = paint; canvas.fillRect(left, top, right - left, bottom - top); } })
    .nodeLabel(() => "").linkLabel((link) => link.type ? `${link.source.id} ${kind(link)} ${link.target.id}` : kind(link)).linkWidth((link) => link.type ? 1.5 : 1)
    .linkDirectionalArrowLength((link) => link.type ? 5 / zoom : 0).linkDirectionalArrowRelPos(0.6)
    .linkColor(color).linkVisibility((link) => link.source.hasRoom && link.target.hasRoom && (!chosen || link.source === chosen || link.target === chosen))
    .warmupTicks(150).cooldownTicks(0).onNodeClick((node) => choose(node)).onBackgroundClick(() => choose(null)).onEngineStop(() => { if (!zoomed) arrange(); });
  let zoomed = false;
  drawn.d3Force("charge").strength(-160).distanceMax(400);
  drawn.d3Force("together", (alpha) => { for (const node of data.nodes) { node.vx -= node.x * 0.1 * alpha; node.vy -= node.y * 0.1 * alpha; } });
  drawn.graphData(data);
  function arrange() { // uses the whole picture, and moves names apart
    zoomed = true;
    const tall = at.clientHeight / 2 - 30, wide = (node) => at.clientWidth / 2 - node.half - 8, within = (value, most) => Math.max(-most, Math.min(most, value));
    for (const [axis, most] of [["x", wide], ["y", () => tall]]) {
      const places = data.nodes.map((node) => node[axis]), low = Math.min(...places), high = Math.max(...places);
      for (const node of data.nodes) node[axis] = high > low ? ((node[axis] - low) / (high - low) * 2 - 1) * most(node) : 0;
    }
    for (let round = 0, moved = true; moved && round < Math.min(200, 12000 / data.nodes.length); round++) {
      moved = false;
      data.nodes.forEach((one, place) => { for (const other of data.nodes.slice(place + 1)) {
        const [upper, lower] = one.y < other.y ? [one, other] : [other, one], across = one.half + other.half - Math.abs(one.x - other.x), down = upper.y + pixels(upper) + 19 - (lower.y - pixels(lower) - 2);
        if (across <= 0 || down <= 0) continue;
        moved = true;
        if (down < across) { upper.y -= down / 2; lower.y += down / 2; } else { const way = one.x < other.x ? -1 : 1; one.x += way * across / 2; other.x -= way * across / 2; }
        for (const node of [one, other]) { node.x = within(node.x, wide(node)); node.y = within(node.y, tall); }
      } });
    }
    for (const node of data.nodes) { node.fx = node.x; node.fy = node.y; }
    drawn.centerAt(0, 0).zoom(1);
  }
  const told = document.getElementById("neighbours"), element = (name, text, more = {}) => Object.assign(document.createElement(name), { textContent: text, ...more });
  const link = (name) => element("a", name, { href: at.dataset.entity + (at.dataset.entity.includes("?") ? "&" : "?") + "entity=" + encodeURIComponent(name) });
  function choose(node) {
    chosen = node; drawn.linkColor(color);
    told.replaceChildren(...(node ? [link(node.id), ": ", ...beside.get(node.id).slice(0, 12).flatMap((each, place) => [place ? ", " : "", ...(!each.type ? ["with ", link(each.other)] : each.source === node.id || each.source.id === node.id ? [`${kind(each)} `, link(each.other)] : [link(each.other), ` ${kind(each)} it`])])] : ["Click a name for its neighbours."]));
  }
  choose(null);
  document.getElementById("legend").replaceChildren(...kinds.slice(0, 5).flatMap((kind, place) => { const mark = element("i", "", { className: ["c-minus", "c-accent", "c-plus", "c-gone", "c-quiet"][place] }); return [element("span", `${kind.replaceAll("_", " ")}`)].map((words) => { words.prepend(mark); return words; }); }), ...(kinds.length ? [element("span", "together in a memory")].map((words) => { words.prepend(element("i", "", { className: "c-faint" })); return words; }) : []));
  new ResizeObserver(() => { drawn.width(at.clientWidth).height(at.clientHeight); if (zoomed) arrange(); }).observe(at);
}
