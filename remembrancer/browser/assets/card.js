// The card's part of MCP Apps: JSON-RPC by postMessage with the client that shows it. Texts of memories are texts, never HTML.
"use strict";
const waiting = new Map(), list = document.getElementById("memories"), said = document.getElementById("said");
let last = 0, given = {};
const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const ask = (method, params) => new Promise((resolve, reject) => { waiting.set(++last, { resolve, reject }); post({ id: last, method, params }); });
const call = async (name, fields) => {
  const result = await ask("tools/call", { name, arguments: fields }), answer = result.structuredContent || {};
  if (result.isError || answer.error) throw new Error(answer.message || "That did not work.");
  return answer;
};

addEventListener("message", ({ source, data }) => {
  if (source !== parent || data?.jsonrpc !== "2.0") return;
  const open = data.method === undefined && waiting.get(data.id);
  if (open) { waiting.delete(data.id); data.error ? open.reject(new Error(data.error.message)) : open.resolve(data.result); return; }
  if (data.method === "ui/notifications/tool-input") given = data.params.arguments || {};
  if (data.method === "ui/notifications/tool-result") show(data.params.structuredContent || {});
  if (data.method === "ui/notifications/host-context-changed") dress(data.params);
  if (data.id !== undefined && data.method) post({ id: data.id, result: {} }); // ping, and teardown
});

function dress(context) { if (context?.theme) document.documentElement.style.colorScheme = context.theme; }

function show(answer) {
  const ids = answer.ids || (answer.memory_id ? [answer.memory_id] : null), several = [...(given.content ? [given] : []), ...(given.memories || [])];
  const texts = ids && several.length === ids.length ? several : [given]; // a list of open ends is one text
  const stored = ids && ids.map((id, place) => ({ scope: answer.scope || given.scope || "project", kind: answer.kind || given.kind, ...texts[place], id, content: texts[place]?.content || "", isNew: !answer.already_known }));
  const memories = stored || (answer.memories || []).filter((each) => each.answers ? each.answers !== "hardly" : answer.degraded).slice(0, 5);
  list.replaceChildren(...memories.map(card));
  said.textContent = answer.error ? answer.message : memories.length ? "" : "No memory answers this.";
}

function card(memory) {
  const at = document.getElementById("memory").content.firstElementChild.cloneNode(true), part = (selector) => at.querySelector(selector);
  const form = part(".correction"), field = part("textarea"), reasons = part(".reasons"), undo = part('[data-do="undo"]');
  let text = memory.content, before = null, isForgotten = false;
  part(".answers").textContent = memory.answers || (memory.isNew ? "remembered" : memory.memory_id ? "already known" : "");
  part(".kind").textContent = (memory.kind || "").replaceAll("_", " ");
  part(".day").textContent = (memory.updated || memory.created_at || "").slice(0, 10);
  const scope = memory.scope && part(`.scope.${CSS.escape(memory.scope)}`);
  if (scope) scope.hidden = false;
  const draw = () => {
    part(".text").textContent = text;
    at.classList.toggle("gone", isForgotten);
    part("span.gone").hidden = !isForgotten;
    undo.textContent = isForgotten || before !== null || memory.isNew ? "undo" : "forget";
  };
  const deeds = {
    async undo() {
      if (isForgotten) { await call("restore_memory", { memory_id: memory.id }); isForgotten = false; }
      else if (before !== null) { await call("update_memory", { memory_id: memory.id, content: before }); text = before; before = null; }
      else { await call("forget_memory", { memory_id: memory.id }); isForgotten = true; }
    },
    async correct() { field.value = text; form.hidden = !form.hidden; if (!form.hidden) field.focus(); },
    async why() {
      if (!reasons.childElementCount) {
        const whole = await call("get_memory", { memory_id: memory.id, detail: true }), lines = [...(whole.why || [])];
        if (whole.version > 1) lines.push(`It is version ${whole.version}.`);
        reasons.replaceChildren(...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line.replace(/ by session \S+/, "") })));
      }
      reasons.hidden = !reasons.hidden;
    },
  };
  const tried = async (deed) => { said.textContent = ""; try { await deed(); draw(); } catch (error) { said.textContent = error.message; } };
  for (const button of at.querySelectorAll("[data-do]")) button.addEventListener("click", () => tried(deeds[button.dataset.do]));
  part(".correction .main").addEventListener("click", () => { // no form: a sandbox may forbid them
    tried(async () => { await call("update_memory", { memory_id: memory.id, content: field.value }); before ??= text; text = field.value; form.hidden = true; });
  });
  draw();
  return at;
}

new ResizeObserver(() => post({ method: "ui/notifications/size-changed", params: { height: Math.ceil(document.querySelector("main").getBoundingClientRect().height) } })).observe(document.body);
ask("ui/initialize", { appInfo: { name: "remembrancer", version: "1" }, appCapabilities: {}, protocolVersion: "2026-01-26" })
  .then((host) => { dress(host.hostContext); post({ method: "ui/notifications/initialized" }); });
