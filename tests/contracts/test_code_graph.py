"""The graph of the memories and of the code as one: what a walk finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remembrancer.actors.store.retrieval.graph_search import search_graph
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.code.index import CodeIndex
from remembrancer.code.read_files import read_files
from remembrancer.code.tree import Tree
from remembrancer.protocol.reads import GraphEntity, SearchGraph
from remembrancer.protocol.writes import EntityRef
from tests.contracts.records_factories import SqliteFactory
from tests.operations import PROJECT, SESSION, store_operation

FILES = {
    "relay/pool.py": "class Pool:\n    def acquire(self):\n        # calls dial\n        return opened_at('dial')\n\n\n"
    "def opened_at(host):\n    return host\n",
    "relay/main.py": "from relay.pool import Pool\n\n\ndef serve():\n    return Pool()\n\n\ndef main():\n    serve()\n",
    "other.py": "def main():\n    pass\n",
    "third.go": "package third\n\nfunc main() {\n}\n",
    "fourth.js": "function main() {}\n",
    "dial.py": "def dial():\n    return 'Pool'\n",
}


@pytest.fixture
def code(tmp_path: Path) -> Iterator[CodeIndex]:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tree = Tree(str(tmp_path / "tree"))
    index = CodeIndex(tmp_path / "code.db", "make")
    index.take(read_files(tree.root, list(tree.files())))
    yield index
    index.close()


@pytest.fixture
def view(factory: SqliteFactory) -> View:
    records = factory.open()
    entities = (EntityRef("Pool", "concept", "about"), EntityRef("relay", "service", "part_of"))
    records.apply([store_operation("why", "The Pool is small.", related_entities=entities)])
    return View([Source(records)])


def walk(view: View, code: CodeIndex, entity: str, depth: int = 1, kind: str | None = None) -> dict[str, GraphEntity]:
    request = SearchGraph(PROJECT, SESSION, entity, depth=depth, entity_type=kind)
    found, _ = search_graph(request, view, 0.0, code=[code])
    return {each.name: each for each in found.entities}


def edges(entity: GraphEntity) -> set[tuple[str, str, str]]:
    return {(each.type, each.target, each.direction) for each in entity.relationships}


def test_a_walk_goes_from_a_memorys_entity_into_the_code(view: View, code: CodeIndex) -> None:
    found = walk(view, code, "Pool", depth=2, kind="concept")
    assert edges(found["Pool"]) >= {
        ("defined_in", "relay/pool.py", "outgoing"),
        ("refers_to", "opened_at", "outgoing"),
        ("imports", "relay/main.py", "incoming"),
        ("refers_to", "serve", "incoming"),
    }
    assert found["Pool"].type == "concept"
    assert found["Pool"].memory_count == 1
    assert found["serve"].description == "serve (function): relay/main.py:4"
    assert not found["serve"].stale
    assert "dial" not in found  # which stands in a comment and a string alone


def test_a_walk_goes_from_the_code_back_to_the_memory(view: View, code: CodeIndex) -> None:
    request = SearchGraph(PROJECT, SESSION, "serve", depth=1)
    found, _ = search_graph(request, view, 0.0, code=[code])
    assert [each.content for each in found.memories] == ["The Pool is small."]
    assert "relay" in walk(view, code, "relay/main.py", depth=2)


def test_a_name_of_many_is_no_entity_and_one_that_is_asked_for_stays_the_only_one(view: View, code: CodeIndex) -> None:
    assert walk(view, code, "main") == {}
    assert walk(view, code, "Pool", kind="service") == {}
    assert set(walk(view, code, "relay")) == {"relay", "Pool"}


def test_without_code_a_walk_finds_what_it_found(view: View) -> None:
    found, _ = search_graph(SearchGraph(PROJECT, SESSION, "Pool"), view, 0.0)
    assert [each.name for each in found.entities] == ["Pool", "relay"]
