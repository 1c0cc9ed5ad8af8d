// Walks through the memory browser in a real Chromium. What goes wrong is an error, and the exit status is 1.
"use strict";
const [which, link, home, folder] = process.argv.slice(2);
const modules = process.env.REMEMBRANCER_CLIENTS + "/node_modules/";
const { chromium } = require(modules + "playwright-core");
const assert = require("node:assert");
const fs = require("node:fs");
const { token, url, gateway } = JSON.parse(process.env.DOOR);
const PAGES = ["/today", "/", "/?q=deploy", "/review", "/graph", "/sessions", "/notes", "/notes/file?path=MEMORY.md", "/code", "/projects", "/health"];
const WAIT = { timeout: 30000 };

async function request(method, params) { // as a session does
  const body = { jsonrpc: "2.0", id: Math.random().toString(), method, params };
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
  const text = await (await fetch(url, { method: "POST", headers, body: JSON.stringify(body) })).text();
  return JSON.parse(text.startsWith("{") ? text : text.match(/^data: (.*"result".*)$/m)[1]).result; // or an event
}

const call = async (name, given) => (await request("tools/call", { name, arguments: given })).structuredContent;

async function store(content, fields = {}) {
  const { memory_id } = await call("store_memory", { content, ...fields });
  return (await call("get_memory", { memory_id })).id; // whole
}

const recall = (query) => call("recall_memories", { query });
const undo = (page) => press(page, "Undo", "Undone.");

async function press(at, name, said) { // a button, and what is said then
  await at.getByRole("button", { name, exact: true }).click();
  if (said) await at.getByText(said).waitFor(WAIT);
}

const walks = {
  // A person who has never seen it finds a wrong memory, sees why and when it was shown, corrects it, undoes that, and watches a session store another.
  async person(browser) {
    await store("We deploy on Mondays, after the stand-up", { tags: ["deploy"] });
    await store("The database is PostgreSQL 16", { tags: ["db"] });
    await recall("when do we deploy");
    const page = await opened(browser);
    await page.fill("#q", "when do we deploy");
    const found = page.locator("#results .card", { hasText: "Mondays" }).first();
    await found.locator(".why").waitFor(WAIT);
    await page.waitForURL(/q=when/, WAIT);
    await found.locator("summary", { hasText: "why" }).click();
    assert.ok(await found.locator("svg rect").count() > 0);
    await found.locator("a.text").click();
    await page.getByText("When it was shown").waitFor(WAIT);
    await page.getByText("at position 1").first().waitFor(WAIT);
    await page.getByText("Edit", { exact: true }).click();
    await page.locator("textarea[name=content]").fill("We deploy on Tuesdays, after the stand-up");
    await press(page, "Save", "Saved.");
    assert.deepStrictEqual(await page.locator(".diff del").allInnerTexts(), ["Mondays"]);
    await undo(page);
    assert.match(await page.locator(".content").innerText(), /Mondays/);
    await page.goBack();
    await page.getByRole("link", { name: "Today" }).click();
    await page.locator("#pulse.on").waitFor(WAIT);
    const news = `The gate opens at seven, says a session`;
    await store(news);
    await page.getByText(news).waitFor(WAIT);
    await page.keyboard.press("/");
    await page.waitForURL(/\/p\/p_\w+\/$/, WAIT);
    await page.keyboard.press("Control+k");
    assert.strictEqual(await page.evaluate(() => document.activeElement.id), "q");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("x");
    await page.locator(".several").waitFor(WAIT);
    await page.locator(".several input[name=tags]").fill("gates");
    await press(page, "Tag", "Tags changed: ");
    await page.locator(".brand").focus();
    await page.keyboard.press("u");
    await page.getByText("Undone.").waitFor(WAIT);
    await page.locator(".brand").focus();
    await page.keyboard.press("?");
    await page.locator("dialog[open]").waitFor(WAIT);
  },
  // Each action that the first walk has not, with its undoing; another tab shows what comes of it.
  async actions(browser) {
    for (const name of ["north", "south", "west"]) await store(`The ${name} gate is open`);
    const page = await opened(browser), other = await page.context().newPage();
    const base = page.url().replace(/\/$/, "");
    const open = (at) => at.locator("#results .card a.text", { hasText: "gate is open" });
    const tick = async (...names) => { for (const name of names) await page.locator(".card", { hasText: `The ${name} gate` }).locator("input").check(); };
    await other.goto(base + "/");
    await other.locator("#pulse.on").waitFor(WAIT);
    // Several are forgotten at once, here and in the other tab; and are back.
    await page.goto(base + "/");
    await tick("north", "south");
    await press(page, "Forget", "Forgotten: 2 memories");
    assert.strictEqual(await open(page).count(), 1);
    await other.waitForFunction(() => !document.querySelector("#results").innerText.includes("north gate"), null, WAIT);
    await undo(page);
    assert.strictEqual(await open(page).count(), 3);
    await open(other).nth(2).waitFor(WAIT);
    // What is typed stays the search after a change.
    await page.fill("#q", "gate");
    await page.waitForURL(/q=gate/, WAIT);
    await tick("north");
    await press(page, "Forget", "Forgotten: ");
    assert.strictEqual(await page.inputValue("#q"), "gate");
    await undo(page);
    await page.goto(base + "/");
    // A double click decides once, and is undone.
    const [old, replacing] = [await store("The gate bell rings at six"), await store("The gate bell rings at nine now")];
    await call("update_memory", { memory_id: replacing, add_links: [{ relation: "contradicts", target: old }] });
    await page.goto(base + "/review");
    const line = await page.context().newCDPSession(page), latency = (ms) => line.send("Network.emulateNetworkConditions", { offline: false, latency: ms, downloadThroughput: -1, uploadThroughput: -1 });
    await latency(500);
    const decide = page.locator(`button[value="replace/${replacing}"]`, { hasText: "This one is true now" });
    await decide.evaluate((button) => { button.click(); setTimeout(() => button.click(), 150); });
    await page.getByText("Replaced: ").waitFor(WAIT);
    await latency(0);
    await undo(page);
    await decide.waitFor(WAIT);
    // What has changed only in part is edited at once.
    await page.getByText("Only a part has changed").first().click();
    await page.locator("textarea[name=content]").waitFor(WAIT);
    // A run of the consolidator is undone by one click.
    await page.goto(base + "/today");
    await page.getByText("Consolidation of 2 memories").waitFor(WAIT);
    await press(page, "undo all of it", "Everything was undone.");
    await other.getByText("The old gate squeaks").first().waitFor(WAIT);
    // Filters are in the address, beside what was typed.
    await page.goto(base + "/");
    await page.fill("#q", "gate");
    await page.locator("#results .why").first().waitFor(WAIT);
    await page.getByText("Filters:").click();
    await page.selectOption("select[name=scope]", "project");
    await page.waitForURL(/scope=project/, WAIT);
    await page.waitForURL(/q=gate/, WAIT);
    await page.getByText("Filters: 1").waitFor(WAIT);
  },
  // Two tabs, the gateway killed under them: they connect again, and hear what is stored then.
  async killed(browser) {
    const page = await opened(browser), other = await page.context().newPage();
    await other.goto(page.url());
    for (const each of [page, other]) await each.locator("#pulse.on").waitFor(WAIT);
    process.kill(gateway, "SIGKILL");
    await page.locator("#pulse:not(.on)").waitFor(WAIT);
    for (const each of [page, other]) await each.locator("#pulse.on").waitFor(WAIT);
    await store("The well is deep");
    for (const each of [page, other]) await each.getByText("The well is deep").first().waitFor(WAIT);
  },
  // Every page: nothing serious for axe-core in light and dark, no wider than a phone, no error; and what works without scripts.
  async pages(browser) {
    const id = await store("We **deploy** on Tuesdays", { tags: ["deploy"], related_entities: [{ name: "Billing", type: "service", relationship: "about" }] });
    fs.writeFileSync(`${home}/MEMORY.md`, "# The shop\n\nAnna owns payments.\n\n- two approvals\n");
    const axe = fs.readFileSync(modules + "axe-core/axe.min.js", "utf8"), said = [];
    for (const colorScheme of ["light", "dark"]) {
      const page = await opened(browser, { colorScheme, viewport: { width: 360, height: 740 } });
      const base = page.url().replace(/\/$/, "");
      page.on("pageerror", (error) => said.push(`${page.url()}: ${error.message}`));
      await page.goto(base + "/code");
      await page.getByText("retry_policy").waitFor(WAIT);
      await page.goto(base + "/today");
      const session = (await page.locator(".part h2 a").first().getAttribute("href")).replace(/.*\/p\/p_\w+/, "");
      for (const path of [...PAGES, `/memory/${id}`, session]) {
        await page.goto(base + path);
        await page.evaluate(() => new Promise(requestAnimationFrame));
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        if (wide > 360) said.push(`${path}: ${wide} pixels wide`);
        const ids = await page.evaluate(() => document.body.innerText.match(/\b[0-9A-HJKMNP-TV-Z]{26}\b|(session|memory):\w{8,}/g));
        if (ids) said.push(`${path}: ${ids}`); // texts stand where ids could
        await page.evaluate(axe.length > 0 ? `${axe};0` : "0");
        const found = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
        for (const each of found.violations.filter((one) => ["serious", "critical"].includes(one.impact)))
          said.push(`${colorScheme} ${path}: ${each.id}: ${each.nodes[0].html.slice(0, 160)}`);
      }
      const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.strictEqual(colorScheme === "dark", Number(paper.match(/\d+/)[0]) < 128, paper);
      await page.context().close();
    }
    assert.deepStrictEqual(said, []);
    const page = await opened(browser, { javaScriptEnabled: false });
    await page.fill("#q", "deploy");
    await page.keyboard.press("Enter");
    await page.locator("#results .card a.text").first().click();
    await page.getByText("Edit", { exact: true }).click();
    await page.locator("input[name=summary]").fill("Deployments");
    await press(page, "Save", "Saved.");
    await undo(page);
    await page.getByRole("link", { name: "Search", exact: true }).click();
    await page.locator(".card input").first().check();
    await press(page, "Forget", "Forgotten: ");
    await undo(page);
  },
  // The card in a conversation, in a host that is made of the extension's own: what was stored is corrected, undone and explained; what was found is shown.
  async card(browser) {
    const entry = `import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
      window.host = (html, input, result) => {
        const frame = Object.assign(document.createElement("iframe"), { sandbox: "allow-scripts" });
        document.body.replaceChildren(frame);
        const bridge = new AppBridge(null, { name: "host", version: "1" }, { serverTools: {} }, { hostContext: { theme: "dark" } });
        bridge.oncalltool = (params) => window.callTool("tools/call", params);
        bridge.oninitialized = async () => { await bridge.sendToolInput({ arguments: input }); await bridge.sendToolResult(result); };
        bridge.onsizechange = ({ height }) => { frame.style.height = height + "px"; };
        return bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow)).then(() => { frame.srcdoc = html; });
      };`;
    const stdin = { contents: entry, resolveDir: process.env.REMEMBRANCER_CLIENTS };
    const built = await require(modules + "esbuild").build({ stdin, bundle: true, write: false, format: "iife" });
    const page = await (await browser.newContext({ viewport: { width: 480, height: 600 } })).newPage(), said = [];
    page.on("pageerror", (error) => said.push(error.message));
    page.on("console", (message) => { if (message.type() === "error") said.push(message.text()); });
    await page.exposeFunction("callTool", request);
    await page.addScriptTag({ content: built.outputFiles[0].text });
    const { contents: [{ text: html, mimeType }] } = await request("resources/read", { uri: "ui://remembrancer/card" });
    assert.strictEqual(mimeType, "text/html;profile=mcp-app");
    const shown = async (name, input) => {
      const result = await request("tools/call", { name, arguments: input });
      await page.evaluate((all) => window.host(...all), [html, input, result]);
      return page.frameLocator("iframe").locator(".card").first();
    };
    const content = "The gate <b>opens</b> at seven", card = await shown("store_memory", { content });
    await card.getByText(content).waitFor(WAIT);
    await card.getByText("remembered").waitFor(WAIT);
    await press(card, "why", "Stored for the project");
    await press(card, "correct");
    await card.locator("textarea").fill("The gate opens at eight");
    await press(card, "Save");
    await card.locator(".text", { hasText: "The gate opens at eight" }).waitFor(WAIT);
    assert.strictEqual((await call("recall_memories", { query: "gate" })).memories[0].content, "The gate opens at eight");
    await press(card, "undo");
    await card.locator(".text", { hasText: "at seven" }).waitFor(WAIT);
    await press(card, "undo");
    await card.getByText("forgotten").waitFor(WAIT);
    assert.strictEqual((await call("recall_memories", { query: "gate" })).memories.length, 0);
    await press(card, "undo");
    await card.getByText("forgotten").waitFor({ ...WAIT, state: "hidden" });
    const found = await shown("recall_memories", { query: "when does the gate open?" });
    await found.getByText(content).waitFor(WAIT);
    const frame = page.frames()[1];
    await frame.evaluate(`${fs.readFileSync(modules + "axe-core/axe.min.js", "utf8")};0`);
    const faults = await frame.evaluate(() => axe.run({ resultTypes: ["violations"] }));
    said.push(...faults.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) => `${one.id}: ${one.nodes[0].html}`));
    assert.deepStrictEqual(said, []);
    if (folder) await page.screenshot({ path: `${folder}/card.png` });
  },
  // The pictures of the documents.
  async pictures(browser) {
    const page = await opened(browser, { viewport: { width: 1160, height: 720 } });
    const base = page.url().replace(/\/$/, ""), taken = (name) => page.screenshot({ path: `${folder}/browser-${name}.png` });
    await page.goto(base + "/today");
    await page.locator(".asked summary").first().click();
    await taken("today");
    await page.goto(base + "/?q=" + encodeURIComponent("how do we deploy the shop?"));
    await page.locator(".why summary").first().click();
    await page.evaluate(() => document.activeElement.blur());
    await taken("search");
    await page.emulateMedia({ colorScheme: "dark" });
    await page.goto(base + "/review");
    await taken("review");
  },
};

async function opened(browser, options = {}) {
  const state = `${home}/state.json`, context = await browser.newContext({ ...options, ...(fs.existsSync(state) ? { storageState: state } : {}) });
  const page = await context.newPage();
  await page.goto(fs.existsSync(state) ? link.replace(/enter.*/, "") : link);
  await page.waitForURL(/\/p\/p_/, WAIT).catch(() => page.goto(link.replace(/enter.*/, "")));
  await page.goto(page.url().replace(/today.*/, ""));
  await context.storageState({ path: state });
  return page;
}

(async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
  try { await walks[which](browser); } finally { await browser.close(); }
})().catch((error) => { console.error(error); process.exit(1); });
