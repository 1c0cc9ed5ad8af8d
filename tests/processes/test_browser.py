"""The memory browser over HTTP: who may look, what every change and its undoing do, and that memories are texts."""

import hashlib
import json
import re
import shutil
import stat
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from remembrancer.browser.rendering import HERE, bars, inline, word_diff
from remembrancer.config.project import project_of
from remembrancer.config.tokens import LINK_S, Tokens
from tests.cases import cases
from tests.conftest import PATIENT_ENVIRONMENT, empty_home
from tests.git import git
from tests.patience import PATIENCE_S, wait_until
from tests.processes.browser_visit import Page, Visit
from tests.processes.http_door import Door, http_door
from tests.runtime import Runtime, command, done

Come = Callable[..., Visit]
get, post = partial(httpx.get, timeout=PATIENCE_S), partial(httpx.post, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def door(at_noon: None) -> Iterator[Door]:
    """One runtime for all tests of this module: each has a project of its own."""
    settings = {"REMEMBRANCER_EMBEDDERS": "0", "REMEMBRANCER_CONSOLIDATOR": "0"}
    with empty_home() as home, pytest.MonkeyPatch.context() as patch:
        for name, value in (PATIENT_ENVIRONMENT | settings).items():
            patch.setenv(name, value)
        with http_door(home, patch) as door:
            door.start()
            yield door


@pytest.fixture
def come(door: Door, tmp_path: Path) -> Iterator[Come]:
    """Makes visitors of one project, who leave in the end."""
    with ExitStack() as stack:

        def visit(**how: str) -> Visit:
            visitor = Visit(door, tmp_path, **how)
            stack.callback(visitor.client.close)
            return visitor

        yield visit


@pytest.fixture
def visit(come: Come) -> Visit:
    return come()


def test_a_link_lets_in_once_by_a_cookie_that_no_script_and_no_other_site_has(visit: Visit) -> None:
    cookie = visit.entered.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/browser"):
        assert part in cookie, cookie
    assert "Search" in visit.get()
    link = str(visit.entered.request.url)
    assert get(link).status_code == 401  # once
    assert visit.client.get(link).status_code == 200  # signed in already
    late = Tokens(visit.door.home).link(str(visit.directory), time.time() - LINK_S - 1)
    assert get(f"{visit.base}/enter", params={"link": late}).status_code == 401
    bearer = {"Authorization": f"Bearer {Tokens(visit.door.home).link(str(visit.directory), time.time())}"}
    assert visit.client.post(visit.door.url, headers=bearer, json={}).status_code == 401  # for nothing else

    stranger = get(f"{visit.base}{visit.project}/")
    assert (stranger.status_code, stranger.headers["location"]) == (303, "/browser/enter")
    assert post(f"{visit.base}{visit.project}/change").status_code == 401
    bare = get(f"{visit.origin}/")
    assert (bare.status_code, bare.headers["location"]) == (307, "/browser/")
    assert "MCP is at /mcp" in post(f"{visit.origin}/").text
    assert visit.client.get(f"{visit.base}/p/p_000000000000/").status_code == 404

    done("token", "revoke", visit.signed_in_by(), home=visit.door.home)
    assert visit.status("/") == 303
    search = visit.client.get(f"{visit.base}{visit.project}/", headers={"HX-Request": "true"})
    assert search.headers["hx-redirect"] == "/browser/enter", "an open search leads there, too"


def test_a_token_lets_in_as_far_as_its_rights_go_and_one_signs_out(come: Come, visit: Visit) -> None:
    memory = visit.stored("The gate opens at seven")
    reader = Tokens(visit.door.home).create("reader", (str(visit.directory),), time.time(), read_only=True)
    assert "is not valid" in come(token="rmb_guessed").entered.text
    visit = come(token=reader)
    page = visit.get(f"/memory/{memory}")
    assert "The gate opens at seven" in page
    assert "Forget" not in page
    assert visit.send("/change", id=memory, what="forget").status_code == 403
    out = visit.client.post(f"{visit.base}/leave", data={"csrf": visit.csrf(visit.get())})
    assert out.headers["location"] == "/browser/enter"
    assert visit.status("/") == 303
    assert Tokens(visit.door.home).find(reader, time.time()) is not None  # it was made for other things too


def test_only_a_page_of_ours_changes_something(come: Come, visit: Visit) -> None:
    memory = visit.stored("The gate opens at seven")
    for sent in (
        {"csrf": ""},
        {"csrf": "0" * 64},
        {"csrf": come().csrf(come().get())},
        {"headers": {"Origin": "http://127.0.0.1:1"}},  # another port of this machine: the same site
        {"headers": {"Origin": "null"}},
        {"headers": {"Sec-Fetch-Site": "same-site"}},
        {"headers": {"Origin": "https://elsewhere.example"}},
    ):
        assert visit.send("/change", id=memory, what="forget", **sent).status_code == 403
    assert visit.status("/change") == 405
    assert "forgotten" not in Page(visit.get(f"/memory/{memory}")).text
    answer = visit.client.get(f"{visit.base}{visit.project}/")
    assert "access-control-allow-origin" not in answer.headers
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy


def test_a_difference_is_told_by_runs_of_words_and_a_score_by_what_its_parts_mean() -> None:
    told = word_diff(
        "We deploy the shop on Mondays at noon, by hand", "We deploy the shop on Fridays at night, by hand"
    )
    assert told == "We deploy the shop on <del>Mondays at noon</del><ins>Fridays at night</ins>, by hand"
    assert word_diff("one two three", "four five six", least=0.25) == "four five six"
    deploys = "Deploys on Friday are allowed again now that we have canary releases"
    assert word_diff("Fridays are fine for deploys since there is a canary stage", deploys, least=0.25) == deploys
    told = word_diff("We never deploy on Fridays", "We also deploy on Fridays until noon", least=0.25)
    assert told == "We <del>never</del><ins>also</ins> deploy on Fridays<ins> until noon</ins>"
    assert inline(word_diff("run `make` on Mondays", "run `make` daily")).startswith("run <code>make</code> <")
    shares = {"words": 2.0, "bm25": 1.0, "meaning": 1.5, "outdated": -1.0, "recency": 0.001}
    assert [(each.label, each.value) for each in bars(shares)] == [
        ("same words", 3.0),
        ("same meaning", 1.5),
        ("a similar one is newer", -1.0),
    ]
    assert [each.label for each in bars({"standing": 0.5})] == ["applies to every task"]
    assert [each.label for each in bars({"standing": -0.5})] == ["replaced or no longer true"]


def test_every_change_of_a_memory_can_be_undone_but_erasing(visit: Visit) -> None:
    memory = visit.stored("The database is PostgreSQL")
    change = partial(visit.do, "/change", id=memory)
    assert "forgotten" in (page := change(what="forget"))
    assert not re.search("Edit|No longer true|For all my projects", Page(page).text), "it is restored first"
    refused = Page(visit.send("/change", id=memory, what="invalidate").text).text
    assert f"{memory[-4:]} is forgotten; restore it first" in refused.replace(memory, "its whole id")
    assert "The database" not in Page(visit.get("/")).text
    assert "The database" in Page(visit.get("/", forgotten=1)).text
    assert "Undone." in (page := visit.undo(page))
    assert "changed" not in Page(visit.get("/")).text.partition("The database")[2], "it says the same as before"
    assert "no longer true since just now" in Page(page := change(what="invalidate")).text
    assert "no longer true" in Page(visit.get("/")).text.partition("The database")[2]
    assert "no longer true" not in Page(visit.undo(page)).text
    newer = visit.stored("It is MariaDB now")
    page = change(what="replace", newer=f"{visit.base}{visit.project}/memory/{newer}")
    assert "Replaced." in Page(page).text
    assert "replaces this: It is MariaDB now" in Page(page).text
    visit.undo(page)
    for typed in ("the cable one", "ZZZZ", "http://localhost/?q=it"):
        refused = Page(visit.send("/change", id=memory, what="replace", newer=typed).text).text
        assert "Enter the id of the memory that replaces this one" in refused
    page = change(what="user")
    assert "Only for its project" in page
    page = visit.undo(page)
    assert "For all my projects" in page
    assert "Undone." in page
    change(what="user")
    page = change(what="project")
    assert "For all my projects" in page
    assert "Only for its project" in visit.undo(page)
    change(what="forget")
    page = change(what="restore")
    assert "Restored." in page
    assert "Restore" in visit.undo(page)
    assert visit.send(f"/memory/{memory}/erase").status_code == 400
    visit.erase(memory)


def test_what_is_typed_is_remembered_and_can_be_undone(visit: Visit) -> None:
    assert len([each for each in Page(visit.get()).forms if each.action.endswith("/remember")]) == 1
    page = visit.do("/remember", passage="The buoy is red")
    listed = json.loads(done("admin", "projects", "--json", home=visit.door.home))["projects"]
    assert [each["sessions"] for each in listed if visit.project.endswith(each["id"])] == [0], "only a person was here"
    assert "Remembered: “The buoy is red”" in Page(page).text
    assert "The buoy is red" not in Page(visit.undo(page)).text.partition("Filters")[2]
    page = visit.do("/remember", passage="The mast is grey")
    (undo,) = (form.fields for form in Page(page).forms if form.button == "undo")
    (memory,) = undo["id"]
    visit.call("update_memory", memory_id=memory, content="The mast is white")
    stale = visit.send("/change", what="undo", id=memory, **{memory: undo[memory][0]})
    assert "has been changed since" in Page(stale.text).text, "it would forget the newer text"
    page = visit.do("/remember", passage="We decided to paint the mast")
    assert "Remembered, a decision: “We decided to paint the mast”" in Page(visit.undo(page) and page).text
    page = visit.do("/remember", passage="Next: paint it by 2030-05-01; moor it")
    assert "Remembered: 2 memories" in Page(page).text
    page = visit.do("/remember", passage="Next: moor it; scrub it")
    assert "“scrub it”" in Page(page).text, "an undo would forget what was already known"
    assert "paint it by 2030-05-01 1 May 2030" in Page(visit.get("/today")).text
    visit.call("store_memory", content="Oil the winch", kind="open_end", due="2020-05-01")
    assert "Oil the winch overdue since 1 May 2020" in Page(visit.get("/today")).text
    text = "Paint the buoy red\n\nand moor it"
    fields = {"due": "2030-06-01", "tags": "buoy, paint", "scope": "user", "occurred_at": "2024-02-03"}
    visit.do("/remember", passage=text.replace("\n", "\r\n"), **fields)  # as a browser sends the ends of lines
    found = visit.call("recall_memories", query="paint the buoy red")["memories"]
    (painted,) = (each for each in found if each["content"] == text)
    painted = visit.call("get_memory", memory_id=painted["id"])
    assert (painted["scope"], painted["due"][:10], painted["tags"]) == ("user", "2030-06-01", ["buoy", "paint"])
    assert painted["occurred_at"][:10] == "2024-02-03"
    that_day = Page(visit.get("/today", day="2024-02-03")).text
    assert "Paint the buoy red" in that_day.partition("Happened or noted on this day")[2]
    assert "Nothing was done" not in that_day
    visit.erase(painted["id"])  # the other tests share the user


def test_what_is_typed_and_refused_stays_in_its_form(visit: Visit) -> None:
    assert "content must not be empty" in Page(visit.send("/remember", passage=" ").text).text
    secret = "The key is\nghp_" + "a1B2c3D4e5F6" * 3
    typed = {"passage": secret, "kind": "procedure", "tags": "keys, door", "scope": "user"}
    refused = visit.send("/remember", **typed)
    assert (refused.status_code, "Nothing was remembered: content seems" in Page(refused.text).text) == (400, True)
    assert f"\n{secret}</textarea>" in refused.text
    for kept in ('<option value="procedure" selected>', 'value="keys, door"', '<option value="user" selected>'):
        assert kept in refused.text
    refused = visit.send("/remember", passage="The door is locked", kind="decision", due="2030-01-01")
    assert "only an open end has a due date" in Page(refused.text).text
    assert 'value="2030-01-01"' in refused.text
    refused = visit.send("/remember", passage="Paint the door", occurred_at="20261-12-05")
    assert ("Paint the door</textarea>" in refused.text, 'value="20261-12-05"' in refused.text) == (True, True)
    kept = visit.do("/remember", passage=secret, allow_secrets="1")
    assert "Remembered" in Page(kept).text
    refused = visit.send("/remember", passage=secret + "1", path="MEMORY.md", back="/notes/file?path=MEMORY.md")
    assert refused.status_code == 400
    assert "/notes/file?path=MEMORY.md" in refused.text, "back to the note, which still has it"


def test_the_id_that_the_shell_prints_leads_to_its_memory(visit: Visit) -> None:
    memory = visit.stored("The gate opens at seven")
    visit.stored("Apples are red")
    for text in (memory[-5:], memory[-5:].lower(), memory):
        assert f"The gate opens at seven the memory with the id {text}" in Page(visit.get("/", q=text)).text
    visit.do("/change", id=memory, what="forget")
    assert f"the memory with the id {memory[-5:]} forgotten" in Page(visit.get("/", q=memory[-5:])).text
    for text in ("gate", "ZZZZ", "the gate", f"memory:{'0' * 26}"):
        assert "the memory with the id" not in Page(visit.get("/", q=text)).text


def test_a_change_that_changes_nothing_says_so(visit: Visit) -> None:
    memory = visit.stored("The gate opens at seven", tags=["gate"])
    change = partial(visit.do, "/change", id=memory)
    for page in (
        change(what="project"),
        change(what="restore/1"),
        change(what="tag", tags="gate"),
        visit.do(f"/memory/{memory}/edit", content="The gate opens at seven", tags="gate", version="1"),
    ):
        assert "Nothing was changed." in page
    change(what="user")
    assert "Nothing was changed." in change(what="user")
    change(what="forget")
    (restore,) = (each.fields for each in Page(visit.get("/today")).forms if each.fields.get("id") == [memory])
    assert "Restored: “The gate" in Page(visit.do("/change", **restore)).text
    visit.erase(memory)
    private = visit.stored("The draft is on the table", scope="session")
    session = visit.call("get_memory_status")["current_session"]["session_id"]
    moved = visit.send(f"/change?session={session}", id=private, what="project")
    assert "done=project" in moved.headers["location"]


def test_open_ends_are_shown_by_due_date_and_closed_one_by_one_or_several(visit: Visit) -> None:
    assert "No open ends." in Page(visit.get("/", q="open ends")).text
    late, soon, undated = (
        visit.stored(f"paint the {name} boat", kind="open_end", **due)
        for name, due in (("late", {"due": "2030-05-02"}), ("soon", {"due": "2030-04-01"}), ("undated", {}))
    )
    visit.stored("the boat is red", kind="fact")

    def listed() -> list[str]:
        page = Page(visit.get("/", order="due")).text
        assert "the boat is red" not in page
        return list(dict.fromkeys(re.findall(r"paint the (\w+) boat", page)))

    assert listed() == ["soon", "late", "undated"]
    fields = {"kind": "open_end", "importance": "0.70", "tags": "", "summary": ""}
    visit.do(f"/memory/{undated}/edit", content="paint the undated boat", due="2029-01-01", **fields)
    assert listed() == ["undated", "soon", "late"]
    page = visit.do("/change", id=soon, what="done")
    assert "Open again" in page
    assert listed() == ["undated", "late"]
    assert "due 2030-04-01" in Page(visit.undo(page)).text
    visit.do("/change", id=[soon, late], what="done", back="/")
    assert listed() == ["undated"]
    visit.do("/change", id=late, what="reopen")
    assert listed() == ["undated", "late"]
    asked = Page(visit.get("/", q="what is still open?")).text
    assert re.search("Open ends, by due date paint the undated boat .* paint the late boat", asked), asked
    assert "the boat is red" not in asked


def test_several_are_tagged_or_forgotten_at_once_and_that_is_undone_at_once(visit: Visit) -> None:
    ids = [visit.stored(f"The {name} gate is open") for name in ("first", "second", "third")]
    page = visit.do("/change", id=ids[:2], what="tag", tags="gates, doors", back="/")
    assert Page(visit.get("/", tag="gates")).text.count("gate is open") == 2
    visit.undo(page)
    assert Page(visit.get("/", tag="gates")).text.count("gate is open") == 0
    searched = visit.get("/", q="gate", typed="1")
    (back,) = (fields["value"] for tag, fields in Page(searched).elements if fields.get("id") == "searched")
    assert back == "/?q=gate"
    assert "#searched" in searched.partition("hx-select-oob=")[2].partition(">")[0], "it follows what is typed"
    page = visit.do("/change", id=ids, what="forget", back=back)
    assert 'value="gate"' in page
    assert "gate is open" not in Page(page).text.partition("Filters")[2]
    visit.undo(page)
    assert Page(visit.get()).text.count("gate is open") == 3
    page = visit.do("/change", id=ids[:2], what="user", back="/")
    assert Page(visit.get("/", scope="user")).text.count("gate is open") == 2
    visit.undo(page)
    assert Page(visit.get("/", scope="user")).text.count("gate is open") == 0
    of_the_user = visit.stored("The north gate is open", scope="user")
    page = visit.do("/change", id=[*ids, of_the_user, "memory:" + "0" * 26], what="user", back="/")
    assert "It does not apply to 1 other." in Page(page).text
    visit.undo(page)
    assert Page(visit.get("/", scope="user")).text.count("gate is open") == 1
    assert visit.send("/change", id=ids, what="tag", tags=" ", back="/").status_code == 400
    assert "Nothing matches these filters." in Page(visit.get("/", tag="never given")).text


def test_a_search_says_why_and_what_it_left_out_and_why_not_this_one(visit: Visit) -> None:
    visit.stored("We deploy on Tuesdays")
    other = visit.stored("Deploy keys are kept by Anna and nobody else knows about the rotation of certificates")
    gone = visit.stored("We deploy nothing on Fridays")
    visit.do("/change", id=gone, what="forget")
    page = visit.get("/", q="when do we deploy", **{"not": other[-6:]})
    assert 'name="back" value="/?q=when+do+we+deploy' in page, "a change leads back to this search"
    assert "Deploy keys" in visit.get(f"/memory/{other[-6:]}")
    assert re.search(r'<rect class="plus" x="50.0" width="[\d.]+"', page)
    assert "same words" in page
    text = Page(page).text
    assert re.search(r"Probability that it answers: [\w. ]+ %. Score -?\d", text)
    assert "It is among the results, at position" in text or "It was considered, but left out" in text
    visit.stored("The gate opens at seven, and the harbour at eight. " * 9 + "Anna carries the pager.")
    assert "… Anna carries the pager." in Page(visit.get("/", q="pager")).text
    for more in ({"not": gone}, {"not": other, "scope": "user"}, {"not": "0" * 26}):
        assert "It was not considered: the filters leave it out" in Page(visit.get("/", q="deploy", **more)).text
    assert visit.call("get_memory", memory_id=other, detail=True)["access_count"] == 0  # who looks here is no use of it


ADDRESSES = re.compile(r"(/browser[/?]|/browser$|https?://|#|mailto:|\?)")


TAGS, AROUND, MARKDOWN, ELEMENTS = (cases("markup", table) for table in ("tags", "around", "markdown", "elements"))
PAYLOADS: list[str] = [*(around.format(tag) for tag in TAGS for around in AROUND), *MARKDOWN]


def tag_of(payload: str) -> str:
    return "".join(each for each in payload[:50] if each.isprintable() and each != ",")


def test_two_hundred_texts_that_would_be_markup_are_texts(visit: Visit) -> None:
    assert len(PAYLOADS) >= 200
    for start in range(0, len(PAYLOADS), 20):
        part = PAYLOADS[start : start + 20]
        ids = [visit.stored(each, summary=each[:60], tags=["t", tag_of(each)]) for each in part]
        pages = [visit.get(f"/memory/{each}", done=each, undo=each, session=each) for each in ids]
        pages += [visit.get("/", q=each, tag=each, since="", session=each, **{"not": each}) for each in part[:2]]
        pages.append(visit.get())
        pages.append(
            visit.do(f"/memory/{ids[0]}/edit", content=f"{part[1]}\n{part[0]}", kind="fact", tags=tag_of(part[2]))
        )
        for page in pages:
            for name, attributes in Page(page).elements:
                assert name in ELEMENTS, name
                for attribute, value in attributes.items():
                    assert not attribute.startswith("on"), attribute
                    if attribute in ("href", "src", "action"):
                        assert ADDRESSES.match(value), value
                    if attribute.startswith(("hx-", "sse-", "data-hx")):
                        assert "alert" not in value or value.startswith("/browser/"), value
                    assert not (name == "img" and "/assets/" not in value and attribute == "src"), value
            assert "<script>" not in page


def test_a_page_loads_its_assets_from_here_alone_and_they_are_what_was_published(visit: Visit) -> None:
    page = Page(visit.get())
    loaded = [each.get("src") or each["href"] for name, each in page.elements if name in ("script", "link", "img")]
    sizes = {}
    for address in loaded:
        assert address.startswith("/browser/assets/")
        answer = get(f"{visit.origin}{address}")
        assert "immutable" in answer.headers["cache-control"]
        sizes[address] = len(answer.content)
    assert sum(sizes.values()) <= 350_000
    vendored = tomllib.loads((HERE / "assets" / "VENDORED.toml").read_text())
    for name, known in vendored.items():
        assert hashlib.sha256((HERE / "assets" / name).read_bytes()).hexdigest() == known["sha256"], name
        assert f"== {known['package']}" in (HERE / "assets" / "LICENSES.txt").read_text()


def test_a_command_opens_it_also_where_http_is_off_and_the_next_gateway_goes_on(home: Path, tmp_path: Path) -> None:
    link = done("ui", "--print", "--project", str(home), home=home).strip()
    httpx.head(link, timeout=PATIENCE_S)
    assert get(link).status_code == 200, "who asks for the head alone has not come in"
    browser, arguments = tmp_path / "browser", tmp_path / "arguments"
    browser.write_text(f"#!/bin/sh\nprintf '%s' \"$@\" > {arguments}\n")
    browser.chmod(0o700)
    done("ui", "--project", str(home), home=home, variables={"BROWSER": f"{browser} %s"})
    page = Path(arguments.read_text().removeprefix("file://"))
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    (link,) = set(re.findall(r'http://[^"]+/enter\?link=[\w-]+', page.read_text()))
    assert get(link).status_code == 200, "the page leads on, and the browser's arguments say nothing"
    (gone := tmp_path / "gone").mkdir()
    git("init", at=gone)
    done("add", "The ferry is blue", "--project", str(gone), home=home)
    project = project_of(gone).id
    shutil.rmtree(gone)
    link = done("ui", "--print", "--project", project, home=home).strip()
    runtime, address, at = Runtime(home), link.partition("/enter")[0], f"/p/{project}/today"
    with httpx.Client(timeout=PATIENCE_S) as client:
        assert at in client.get(link).text, "and not to what lies where the project was"
        killed = runtime.pid("gateway")
        runtime.kill("gateway")

        def goes_on() -> bool:
            with suppress(httpx.TransportError):
                page = client.get(address + at)
                return runtime.pid("gateway") not in (0, killed) and "The ferry is blue" in page.text
            return False

        wait_until(goes_on)
        with client.stream("GET", f"{address}/p/{project}/live") as live:
            events = live.iter_raw()
            next(events)
            done("down", home=home)
        done("list", home=home)
        assert "The ferry is blue" in client.get(address + at).text, "the next runtime serves the open page, too"


def test_what_was_shown_to_whom_is_kept_and_printed_until_the_memory_is_erased(come: Come, visit: Visit) -> None:
    memory = visit.stored("We deploy on Tuesdays")
    visit.call("recall_memories", query="when do we deploy")
    visit.call("recall_memories", query="zebra quagga okapi")
    text = Page(visit.get(f"/memory/{memory}")).text
    assert "for when do we deploy , at position 1 (recall memories)" in text
    printed = done("show", "--shown", memory, "--json", home=visit.door.home)
    (shown,) = json.loads(printed)["shown"]
    assert (shown["place"], shown["question"]) == (1, "when do we deploy")
    told = f", recall memories: when do we deploy\n  1  We deploy on Tuesdays  {memory[-4:]}\n"
    assert done("show", "--shown", memory, home=visit.door.home).endswith(told)
    assert "when do we deploy" in Page(visit.get(f"/sessions/{shown['session_id']}")).text
    assert done("show", "--shown", "--project", str(visit.directory), home=visit.door.home).endswith(told)
    assert "when do we deploy" not in done("show", "--shown", home=visit.door.home), "this is another project"
    limited = Tokens(visit.door.home).create("limited", (str(visit.directory),), time.time())
    assert "when do we deploy" not in Page(come(token=limited).get(f"/memory/{memory}")).text
    visit.erase(memory)
    assert json.loads(done("show", "--shown", memory, "--json", home=visit.door.home))["shown"] == []


def test_the_timeline_the_sessions_and_what_waits_for_a_person_are_shown(visit: Visit) -> None:
    older = visit.stored("The API listens on port 8080")
    newer = visit.stored("The API listens on port 9090 now")
    visit.call("update_memory", memory_id=newer, add_links=[{"relation": "contradicts", "target": older}])
    today = visit.get("/today")
    session = re.findall(r"/sessions/(session:http[^\"?]+)", today)[0]
    assert Page(today).text.index("port 9090") < Page(today).text.index("port 8080")
    assert "may be outdated by “The API listens on port 9090 now”" in Page(visit.get("/?q=port+8080")).text
    page = visit.get("/review")
    text = Page(page).text
    assert "may replace" in text
    assert text.index("port 8080") < text.index("This one is still true") < text.index("This one is true now")
    (edit,) = re.findall(r'href="([^"]+)#edit">Only a part has changed<', page)
    assert "The API listens on port 8080" in Page(visit.get("/memory/" + edit.rpartition("/")[2])).text
    assert int(Page(visit.get("/review/waiting")).text) >= 1
    text = Page(visit.get(f"/memory/{older}")).text
    assert "Probably outdated by The API listens on port 9090 now It is replaced Both are true" in text
    assert "Probably outdated" not in (text := Page(visit.get(f"/memory/{newer}")).text)
    assert "this may contradict The API" in text
    page = visit.do("/change", id=older, what="forget", back="/review")
    assert "may contradict" not in Page(visit.get(f"/memory/{newer}")).text, "a forgotten memory has no part in this"
    visit.undo(page)
    page = visit.do("/change", id=older, what=f"replace/{newer}", back="/review")
    assert "may replace" not in Page(page).text
    assert "Probably outdated" not in (settled := Page(visit.get(f"/memory/{older}")).text)
    assert "replaces this: The API listens on port 9090" in settled
    assert "may contradict" not in settled
    assert "may replace" in Page(visit.undo(page) and visit.get("/review")).text
    (waiting,) = visit.call("get_memory_status")["contradictions"]
    assert (waiting["older"], waiting["newer"]) == ("The API listens on port 8080", "The API listens on port 9090 now")
    page = visit.do("/change", id=newer, what=f"both/{older}", back="/review")
    assert "may replace" in Page(visit.undo(page) and visit.get("/review")).text
    page = visit.do("/change", id=newer, what=f"both/{older}", back="/review")
    assert "Both stay as they are" in Page(page).text
    assert "may replace" not in Page(page).text
    lease = visit.stored("Renew the lease of the quay by 2030-05-01")
    renewed = visit.stored("The quay has a new lease")
    visit.call("update_memory", memory_id=renewed, add_links=[{"relation": "contradicts", "target": lease}])
    text = Page(visit.get("/review")).text
    assert "It is done It is still open the newer one may say that the older one is done" in text
    assert "is true now" not in text.partition("Renew the lease")[2]
    page = visit.do("/change", id=lease, what="done", back="/review")
    assert "may say that the older" not in Page(page).text
    assert "may say that the older" in Page(visit.undo(page) and visit.get("/review")).text
    page = visit.do("/change", id=[lease, "memory:" + "0" * 26], what="done", back="/review")
    assert re.search(r"by 2030-05-01” ?\. It does not apply to 1 other", Page(page).text)
    assert "Probably outdated" not in Page(visit.get(f"/memory/{older}")).text
    assert "contradictions" not in visit.call("get_memory_status")
    assert "Its record" not in Page(visit.get(f"/sessions/{session}")).text
    for path in ("/graph", "/projects", "/health", "/sessions", "/graph.json"):
        visit.get(path)
    assert "gateway" in Page(visit.get("/health")).text


def test_today_tells_each_change_by_its_session_and_undoes_the_last_of_each_memory(visit: Visit) -> None:
    kept = visit.stored("The API listens on port 8080")
    visit.call("update_memory", memory_id=kept, content="The API listens on port 9090")
    new = visit.stored("## The gate\n\n- opens at **seven**", kind="decision")
    end = visit.stored("paint the boat", kind="open_end", due="2020-01-02")
    visit.call("recall_memories", query="which port does the API use")
    for _ in range(2):
        visit.call("get_memory_context", task_description="open the gate", unseen=True)
    text = Page(page := visit.get("/today")).text
    assert text.count("The API listens") == 2  # as it was changed, and as it was shown
    assert "stored, changed The API listens on port 9090" in text
    assert "decided The gate · opens at seven" in text
    assert "open the gate nothing new" in text
    assert "which port does the API use 1 memory" in text
    assert "Open ends paint the boat overdue since 2 January 2020" in text
    undo = {
        each.fields["id"][0]: each.fields
        for each in Page(page).forms
        if each.action.endswith("/change") and "what" in each.fields
    }
    assert re.findall('aria-label="(.+): .+?">undo: changed<', page) == ["Undo: changed"], "the name holds what is seen"
    for memory, how in ((kept, "undo/2"), (new, "undo/1")):
        assert undo[memory][memory] == [how]
        gone = Page(visit.do("/change", what="undo", back="/today", id=memory, **{memory: how})).text
    text = Page(visit.do("/change", id=end, what="done", back="/today")).text
    assert "port 8080" in text
    assert "No open ends" in text
    assert "Undone." in gone
    assert "undid: decided The gate · opens at seven" in text
    assert "decided (undone) The gate" in text, "each by whoever did it"
    assert re.search(r"You \d\d:\d\d", text), text
    assert "In the background" not in text
    yesterday = Page(visit.get("/today", day="2020-01-01")).text
    assert "Nothing was done on this day" in yesterday
    sessions = set(re.findall(r"/sessions/(session:http[^\"?]+)", visit.get("/today")))
    abouts = [Page(visit.get(f"/sessions/{each}")).text for each in sessions]
    asked = "which port does the API use 1 memory The API listens on port 8080"
    assert any("Memories shown open the gate nothing new" in each and asked in each for each in abouts)
    (session,) = (each for each in sessions if "port 9090" in Page(visit.get(f"/sessions/{each}")).text)
    again = Page(visit.do("/change", what="undo", back=f"/sessions/{session}", id=end, **{end: "undo/2"})).text
    assert "Undone." in again
    assert "Left open paint the boat" in again
    unknown = visit.client.get(f"{visit.base}{visit.project}/sessions/session:of-another")
    assert unknown.status_code == 404
    assert "a long time ago; nothing is known about it here" in Page(unknown.text).text
    for person in ("session:shell", "session:browser"):
        assert "a long time ago" not in Page(visit.get(f"/sessions/{person}")).text


def test_today_offers_no_undo_of_what_came_from_a_session(visit: Visit) -> None:
    private = visit.stored("The draft is on the table", scope="session")
    visit.call("promote_memory", memory_id=private, target_scope="project")
    forms = Page(visit.get("/today")).forms
    assert [each.fields["id"] for each in forms if private in each.fields] == [], "it cannot go back into its session"
    refused = visit.send("/change", what="undo", id=private, **{private: "undo/2"})
    assert (refused.status_code, "from a session" in refused.text) == (400, True)


def test_a_memory_shows_where_else_the_same_is_stored(visit: Visit) -> None:
    memory, copy = (visit.stored("The gate opens at seven", scope=scope) for scope in ("project", "user"))
    page = visit.get(f"/memory/{memory}")
    assert f"/memory/{copy}" in page
    assert "the same, for all my projects: The gate opens at seven" in Page(page).text
    visit.erase(copy)  # the other tests share the user


def test_sessions_are_a_project_s_own_with_the_last_memory_changed(visit: Visit, door: Door, tmp_path: Path) -> None:
    visit.stored("The gate opens at seven")
    of_user = [visit.stored("Answer in English", scope="user")]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stranger = Visit(door, elsewhere)
    with closing(stranger.client):
        of_user.append(stranger.stored("Prefers tea to coffee", scope="user"))
        stranger.stored("The quay is long")
    assert "The buoy is red" in visit.do("/remember", passage="The buoy is red", scope="user")
    page = visit.get("/sessions")
    assert "The buoy" not in Page(page).text, "a person is no session"
    assert "Answer in English" in Page(page).text
    assert "Prefers tea" not in Page(page).text
    assert "Prefers tea" in Page(visit.get("/today")).text
    today = Page(visit.get("/today")).text
    assert today.index("The gate opens") < today.index("In other projects") < today.index("Prefers tea")
    of_user.append(visit.call("recall_memories", query="the buoy")["memories"][0]["id"])
    projects = Page(visit.get("/projects")).text
    assert (str(tmp_path) in projects, "no longer there" in projects) == (True, False)
    elsewhere.rename(tmp_path / "moved")
    assert f"{elsewhere} no longer there; if it was moved" in Page(visit.get("/projects")).text
    for each in of_user:  # the other tests share the user
        visit.erase(each)


def test_a_proposal_is_refused_or_accepted_and_either_is_undone(visit: Visit) -> None:
    memory = visit.stored("I like my tea with mint")
    visit.proposed(memory)
    page = visit.do("/change", id=memory, what="refuse", back="/review")
    assert "It stays in its project" in Page(page).text
    assert "Nothing is proposed" in Page(page).text
    visit.undo(page)
    page = visit.get("/review")
    assert "it is about the user" in Page(page).text
    visit.undo(visit.do("/change", id=memory, what="user", back="/review"))
    assert "I like my tea" in visit.get("/", scope="project")


def test_a_run_of_the_consolidator_and_an_import_are_undone_by_one_click(visit: Visit) -> None:
    ids = [visit.stored(f"The {name} cellar is locked") for name in ("first", "second", "third")]
    visit.consolidated(*ids[:2])
    assert Page(visit.get()).text.count("cellar is locked") == 1
    page = Page(visit.get("/today"))
    assert "Consolidation of 2 memories" in page.text
    form = next(each for each in page.forms if each.action.endswith("/today/undo"))
    page = Page(visit.do("/today/undo", run=form.fields["run"]))
    assert "Everything was undone." in page.text
    assert not any(each.action.endswith("/today/undo") for each in page.forms)
    assert Page(visit.get()).text.count("cellar is locked") == 3
    (visit.directory / "notes.md").write_text("# Decisions\n\n- We use Valkey.\n- We use pnpm.\n")
    done("backup", "import", "notes.md", home=visit.door.home, directory=visit.directory)
    page = Page(visit.get("/today"))
    assert "Import of 2 memories" in page.text
    (form,) = (each for each in page.forms if each.action.endswith("/today/undo"))
    assert "Import of 2 memories undone" in Page(visit.do("/today/undo", run=form.fields["run"])).text
    assert "pnpm" not in Page(visit.get()).text


def test_notes_and_code_are_listed_by_files_and_what_they_no_longer_say_is_to_be_reviewed(visit: Visit) -> None:
    code = {"x_remembrancer_toolsets": "code"}
    source = visit.directory / "src" / "gate.py"
    source.parent.mkdir()
    assert "Not checked: the code of this project is not indexed." in Page(visit.get("/review")).text
    source.write_text("def open_gate(key):\n    return turn(key) and lift()\n")
    visit.call("index_project", path=str(visit.directory), watch=False, headers=code)
    wait_until(
        lambda: re.search(r"ready, not watched 1 of 1 .*gate\.py current python [1-9]", Page(visit.get("/code")).text)
    )
    memory = visit.stored("`open_gate` in src/gate.py turns the key first")
    assert "No memory names a file" in Page(visit.get("/review")).text
    source.write_text("def shut_gate():\n    drop()\n")
    assert re.search(r"gate\.py out of date python", Page(visit.get("/code")).text)
    source.unlink()
    assert "turns the key first gone: src/gate.py" in Page(visit.get("/review")).text
    page = visit.do("/change", id=memory, what="forget", back="/review")
    assert "No memory names a file" in Page(page).text
    assert "turns the key first" in Page(visit.undo(page)).text


def hidden(page: str, name: str) -> str:
    """The value of the field of that name, which one form of a page has and nobody sees."""
    (value,) = (each.fields[name][0] for each in Page(page).forms if name in each.fields)
    return value


def test_an_edit_keeps_what_somebody_else_has_changed_meanwhile(visit: Visit) -> None:
    memory = visit.stored("the harbour opens at six", kind="fact")

    fields = {"content": "the harbour opens at six", "kind": "fact", "importance": "0.50", "tags": "", "summary": ""}
    fields["version"] = hidden(visit.get(f"/memory/{memory}"), "version")
    page = visit.do(f"/memory/{memory}/edit", **fields | {"content": "the harbour opens at seven"})
    assert "the harbour opens at <del>six</del><ins>seven</ins>" in page
    page = visit.do(f"/memory/{memory}/edit", **fields | {"tags": "harbour"})
    assert "updated: tags none → harbour" in Page(page).text
    assert f"Its id {memory}" in Page(page).text
    assert "opens at seven" in Page(page).text, "a page of the first version has changed its tags alone"
    assert "harbour" in visit.get("/", tag="harbour")
    typed = {"content": "the harbour opens at eight", "kind": "decision", "importance": "0.80", "tags": "quay"}
    refused = visit.send(f"/memory/{memory}/edit", **fields | typed | {"summary": "its hours"})
    assert (refused.status_code, "nothing was saved" in refused.text) == (400, True)
    for value in ("0.80", "harbour,quay", "its hours"):
        assert f'value="{value}"' in refused.text, "the tag of somebody else, too"
    assert '<option value="decision" selected>' in refused.text
    assert "\nthe harbour opens at eight</textarea>" in refused.text
    assert "opens at seven" in Page(visit.get(f"/memory/{memory}")).text
    typed = {"content": "It opens with ghp_" + "a1B2c3D4e5F6" * 3, "version": hidden(refused.text, "version")}
    typed |= {"kind": "open_end", "due": "2030-01-01", "occurred_at": "2024-02-03"}
    refused = visit.send(f"/memory/{memory}/edit", **fields | typed)
    assert (refused.status_code, "content seems to contain a credential" in refused.text) == (400, True)
    assert f"\n{typed['content']}</textarea>" in refused.text, "what is refused is not lost"
    assert ('value="2030-01-01"' in refused.text, 'value="2024-02-03"' in refused.text) == (True, True)
    emptied = visit.send(f"/memory/{memory}/edit", **fields | typed | {"content": " ", "summary": "kept"})
    assert emptied.status_code == 400
    assert "Nothing was saved: content must not be empty. Your" in Page(emptied.text).text
    assert 'value="kept"' in emptied.text
    wrong = {"content": "the harbour opens at ten", "due": "20261-12-05"}  # a field for a date takes five digits
    refused = visit.send(f"/memory/{memory}/edit", **fields | typed | wrong)
    assert "Nothing was saved: due must be" in Page(refused.text).text
    for value in (f"\n{wrong['content']}</textarea>", f'value="{wrong["due"]}"', 'value="2024-02-03"'):
        assert value in refused.text
    typed["content"] = "the harbour opens at eight"
    text = Page(visit.do(f"/memory/{memory}/edit", **fields | typed)).text
    assert "opens at eight" in text
    assert "due 2030-01-01" in text, "a fact becomes an open end with its due date"
    assert "occurred at none → 2024-02-03" in text


def test_a_note_is_read_remembered_and_edited_and_a_save_that_meets_another_says_so(visit: Visit) -> None:
    file = visit.directory / "MEMORY.md"
    assert "There are no notes here" in visit.get("/notes")
    visit.stored("Marek owns the shop")
    text = Page(visit.get("/", source="notes")).text
    assert ("Type a question to search the notes." in text, "Marek" in text) == (True, False), "it is a memory"
    file.write_text("# The shop\n\nAnna owns payments.\n\n- two approvals\n")
    assert "MEMORY.md" in visit.get("/notes"), "although no session has had it read"
    page = visit.get("/notes/file", path="MEMORY.md")
    remembered, _ = (each.fields for each in Page(page).forms if each.action.endswith("/remember"))
    assert remembered["passage"] == ["Anna owns payments."]
    page = visit.do("/remember", path="MEMORY.md", passage=remembered["passage"][0])
    assert "Remembered: “Anna owns payments.”" in Page(page).text
    assert "Anna owns payments" in visit.get("/", source="memory", q="payments")
    second = visit.do("/remember", path="MEMORY.md", passage=remembered["passage"][0])
    assert "Already remembered." in second
    assert not any(each.button == "undo" for each in Page(second).forms), "it would forget the first one"
    visit.undo(page)
    former = hidden(page, "digest")
    save = partial(visit.send, "/notes/save", path="MEMORY.md")
    saved = visit.do("/notes/save", path="MEMORY.md", digest=former, text="# The shop\r\n\r\nIlse owns it.")
    assert "Ilse owns it." in saved
    assert file.read_text() == "# The shop\n\nIlse owns it.\n"
    mine = "# Mine\n\nMarek owns it."
    refused = save(digest=former, text=mine)
    assert refused.status_code == 400
    assert "saved by another program in the meantime" in refused.text
    assert "Marek owns it." in refused.text
    assert "Ilse" in file.read_text()
    page = visit.do("/notes/save", path="MEMORY.md", digest=hidden(refused.text, "digest"), text=mine)
    assert file.read_text() == f"{mine}\n"
    text = file.read_text()
    assert "Nothing was changed." in visit.do("/notes/save", path="MEMORY.md", digest=hidden(page, "digest"), text=text)
    text = Page(save(digest=hidden(page, "digest"), text=" ").text).text
    assert "Nothing was saved: content must not be empty. Your text is under “Edit”: correct it, and save" in text
    assert "to replace it" not in text
    file.unlink()
    refused = save(digest=hidden(page, "digest"), text="Jan owns it.")
    assert (refused.status_code, "Jan owns it." in refused.text) == (400, True), "the note was deleted, not the text"
    save(digest=hidden(refused.text, "digest"), text="Jan owns it.")
    assert file.read_text() == "Jan owns it.\n"
    secret = "ghp_" + "a1B2c3D4e" * 4
    file.write_text(f"the token is {secret}\n")
    page = visit.get("/notes/file", path="MEMORY.md")
    assert secret not in page
    assert "edited in the file itself" in page
    for wrong in ("../MEMORY.md", "/etc/passwd", "memory/none.md", "%00"):
        refused = visit.client.get(f"{visit.base}{visit.project}/notes/file", params={"path": wrong})
        assert refused.status_code in (400, 404)
        assert "memory_search" not in refused.text, "it is a tool"


def pages_of(visit: Visit) -> int:
    """The open pages that the gateway has by its own word; 0 where it is late with that."""
    status = json.loads(command("status", "--json", home=visit.door.home).stdout)
    return int((status["gateway"] or {"pages": 0})["pages"] or 0)


def test_an_open_page_hears_of_what_a_session_stores_until_its_token_is_revoked(visit: Visit) -> None:
    with visit.client.stream("GET", f"{visit.base}{visit.project}/live") as stream:
        events = (line.removeprefix("event: ") for line in stream.iter_lines() if line.startswith("event:"))
        assert next(events) == "here"
        visit.stored("The gate opens at seven")
        assert next(each for each in events if each != "here") == "written"
        wait_until(lambda: pages_of(visit) >= 1)  # who looks is there: nothing rests meanwhile
        Tokens(visit.door.home).revoke(visit.signed_in_by())
        visit.stored("The gate closes at ten")
        assert set(events) <= {"written", "here"}, "and it ends"


def test_older_memories_follow_page_by_page_each_once(visit: Visit) -> None:
    at = "2026-05-01T10:00:00Z"
    for number in range(60):  # most of them happened at one and the same time
        visit.stored(f"Gate {number:02} is open", occurred_at=at if number % 10 else f"2026-04-{number // 10 + 1:02}")
    for order in ("latest", "important"):
        first = visit.get("/", order=order, scope="project")
        links = [attributes.get("href", "") for _, attributes in Page(first).elements]
        more = next(each for each in links if "past=" in each)
        second = visit.client.get(f"{visit.origin}{more}").text
        seen = [re.findall(r"Gate (\d\d) is open</a>", page) for page in (first, second)]
        assert (len(seen[0]), len(seen[1])) == (50, 10)
        assert len({*seen[0], *seen[1]}) == 60
        assert "There are no more memories." in Page(visit.get("/", order=order, past=99)).text


def test_the_graph_draws_names_with_their_relations_and_identifiers_when_they_are_asked_for(visit: Visit) -> None:
    assert "There are no names yet" in Page(visit.get("/graph")).text
    names = [{"name": each, "type": "custom", "relationship": "about"} for each in ("Valkey", "legacy_id", "SHOP-12")]
    visit.stored("Valkey has legacy_id since SHOP-12", related_entities=names)
    for source, relation in (("Anna Lindqvist", "owns"), ("Checkout", "depends_on")):
        subject = {"name": source, "type": "person", "relationship": "about"}
        thing = {"name": "Valkey", "type": "custom", "relationship": relation, "subject": source}
        visit.stored(f"{source} {relation} Valkey", related_entities=[subject, thing])
    assert re.search(r"5, mentioned \d+ times in memories", Page(visit.get("/projects")).text), "no relations"
    drawn = json.loads(visit.get("/graph.json"))
    assert {each["id"] for each in drawn["nodes"]} == {"Valkey", "Anna Lindqvist", "Checkout"}
    assert {each["type"] for each in drawn["links"]} == {"owns", "depends_on"}
    assert "show 2 identifiers as well" in Page(visit.get("/graph")).text
    everything = json.loads(visit.get("/graph.json", all=1))
    assert {"legacy_id", "SHOP-12"} <= {each["id"] for each in everything["nodes"]}
    assert "hide identifiers" in (page := visit.get("/graph", all=1))
    assert "entity=legacy_id&amp;all=1" in page, "a name leads back to all of them"
    assert f'"/browser{visit.project}/graph?all=1">all names' in visit.get("/graph", entity="legacy_id", all=1)
    links = {(each["source"], each["type"], each["target"]) for each in drawn["links"]}
    assert links == {("Anna Lindqvist", "owns", "Valkey"), ("Checkout", "depends_on", "Valkey")}
    for page in (visit.get("/graph"), visit.get("/graph", entity="Valkey")):
        text = " ".join(Page(page).text.split())
        assert "owns Valkey" in text, "from her own row"
        assert "Anna Lindqvist owns it" in text
        assert "owns Anna Lindqvist" not in text
    about = Page(visit.get("/graph", entity="legacy_id")).text.partition("Its memories")[2]
    assert "Valkey has legacy_id since SHOP-12" in about
    assert "Checkout depends_on" not in about, "a neighbour's memory"
    assert "Its memories" not in Page(visit.get("/graph")).text


def test_long_texts_of_any_kind_are_shown_at_once(visit: Visit) -> None:
    for text in ("[" * 50_000, "*a " * 40_000, "|x|y|\n" * 20_000, "[a](" * 20_000, "> " * 9_000, "שלום " * 20_000):
        memory = visit.stored(text)
        visit.call("update_memory", memory_id=memory, content="\n".join(["changed", *text.split("\n")[::-1]]))
        assert "changed" in visit.get(f"/memory/{memory}")
        assert "changed" in visit.get()  # and nobody has been cut off meanwhile


def test_an_address_that_is_wrong_is_said_to_be(visit: Visit) -> None:
    visit.stored("The gate opens at seven")
    for wrong in (*cases("browser", "wrong"), "9" * 400, "a" * 5000):
        for path in (place.format(wrong) for place in cases("browser", "places")):
            answer = visit.client.get(f"{visit.base}{visit.project}{path}")
            assert answer.status_code in (200, 400, 404), (path[:60], answer.text[-300:])


def test_who_comes_by_another_name_or_with_anothers_token_finds_a_closed_door(
    come: Come, visit: Visit, tmp_path: Path
) -> None:
    memory = visit.stored("Kept by the session alone", scope="session")
    session = visit.call("get_memory_status")["current_session"]["session_id"]
    assert "Kept by the session" in (seen := visit.get("/", session=session))
    assert f'href="/browser{visit.project}/">Show the project</a>' in seen
    page = Page(visit.get(f"/sessions/{session}"))
    (link,) = (each["href"] for _, each in page.elements if memory in each.get("href", ""))
    assert "Kept by the session" in (own := visit.client.get(f"{visit.origin}{link}").text)
    assert f'href="/browser{visit.project}/">Show the project</a>' in own, "the project has no such page"
    unknown = visit.client.get(f"{visit.base}{visit.project}/memory/{memory}")
    assert (unknown.status_code, "There is no memory with the id" in unknown.text) == (404, True)
    limited = come(token=Tokens(visit.door.home).create("of one", (str(visit.directory),), time.time()))
    for path in ("/", f"/sessions/{session}", "/today", f"/memory/{memory}"):
        answer = limited.client.get(f"{limited.base}{limited.project}{path}", params={"session": session})
        assert "Kept by the session" not in answer.text
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stranger = come(token=Tokens(visit.door.home).create("of another", (str(elsewhere),), time.time()))
    assert stranger.status("/") == 404
    own = f"{stranger.base}/p/{project_of(elsewhere).id}"
    shared = visit.stored("The gate opens at seven")
    assert stranger.client.get(f"{own}/memory/{shared}").status_code == 404
    for host in ("evil.example", "127.0.0.1.evil.example", ""):  # a name that somebody has had point here
        assert visit.client.get(f"{visit.base}{visit.project}/", headers={"Host": host}).status_code == 400
    for asset in ("..%2fapp.py", "%2e%2e/%2e%2e/app.py", "none.js"):
        assert visit.client.get(f"{visit.base}/assets/x/{asset}").status_code == 404
