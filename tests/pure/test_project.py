import os
import re
import shutil
from pathlib import Path

import pytest

from remembrancer.config.named_home import named_home
from remembrancer.config.project import directory_of, is_gone, project_of, working_tree_of, workspace_root
from remembrancer.config.settings import Settings
from remembrancer.protocol.wire import encoder
from tests.git import git, make_repository


def test_the_worktrees_and_the_folders_of_one_repository_are_one_project(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main")
    git("worktree", "add", str(tmp_path / "elsewhere" / "tree"), at=main)
    (main / "src" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "tree" / "src").mkdir()
    project = project_of(main)
    assert re.fullmatch("p_[0-9a-f]{12}", project.id)
    for directory in ("main/src/deep", "main/.git/hooks", "elsewhere/tree", "elsewhere/tree/src"):
        assert project_of(tmp_path / directory) == project, directory
    assert project_of(tmp_path / "elsewhere") != project
    notes = [workspace_root(str(main), settings) for settings in (Settings(), Settings(workspace="~/notes"))]
    assert notes == [str(main), str(Path("~/notes").expanduser())]


def test_a_bare_repository_beside_the_file_that_names_it_is_one_project_with_its_worktrees(tmp_path: Path) -> None:
    root = tmp_path / "root"
    git("clone", "--bare", str(make_repository(tmp_path / "origin")), str(root / ".bare"), at=tmp_path)
    (root / ".git").write_text("gitdir: ./.bare\n")
    git("worktree", "add", str(root / "tree"), at=root)
    (root / "notes").mkdir()
    assert {project_of(root / each).path for each in (".", "notes", "tree", ".bare")} == {str(root.resolve() / ".bare")}


def test_two_repositories_a_submodule_and_real_paths_without_git_are_projects(tmp_path: Path) -> None:
    inner, outer = make_repository(tmp_path / "inner"), make_repository(tmp_path / "outer")
    git("-c", "protocol.file.allow=always", "submodule", "add", str(inner), "library", at=outer)
    projects = {each: project_of(each) for each in (inner, outer, outer / "library")}
    assert len({each.id for each in projects.values()}) == 3
    assert [directory_of(each.path) for each in projects.values()] == list(map(str, projects)), "not in .git/modules"
    shutil.rmtree(outer / ".git" / "modules")
    assert directory_of(projects[outer / "library"].path).endswith("/.git/modules/library")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert project_of(tmp_path / "link") == project_of(tmp_path / "a")
    assert project_of(tmp_path / "a").path == str((tmp_path / "a").resolve())
    assert project_of(tmp_path / "a").id != project_of(tmp_path / "b").id
    assert project_of(tmp_path / "missing").path.endswith("missing")


LEADING_NOWHERE = (b"/nowhere/at/all", b"a\x00b", b"x" * 5000, b".git", b"")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe\x00", *(b"gitdir: " + to for to in LEADING_NOWHERE)])
def test_a_broken_git_file_falls_back_to_the_path(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "HEAD").write_text("not a repository's")
    before = project_of(tmp_path)
    (tmp_path / ".git").write_bytes(content)
    assert project_of(tmp_path) == before
    assert before.path == str(tmp_path.resolve())


def test_a_git_directory_without_a_repository_in_it_and_a_loop_of_links_fall_back_to_the_path(tmp_path: Path) -> None:
    before = project_of(tmp_path)
    (tmp_path / ".git").mkdir()
    assert project_of(tmp_path) == before
    (tmp_path / ".git" / "commondir").write_bytes(b"a\x00b")
    assert project_of(tmp_path) == before
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert project_of(tmp_path / "one").id != before.id
    assert is_gone(project_of(Path("/long" * 2000)))


def test_a_path_that_is_not_utf_8_has_a_project_that_can_be_sent(tmp_path: Path) -> None:
    names = [b"caf\xe9", b"caf\xe8"]
    for name in names:
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))  # noqa: PTH102, PTH118 - bytes
    projects = [project_of(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))) for name in names]  # noqa: PTH118
    assert projects[0].id != projects[1].id
    assert encoder.encode(projects)
    tree = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + names[0]))
    main = make_repository(tree / "main")
    git("worktree", "add", str(tmp_path / "tree"), at=main)
    assert project_of(tmp_path / "tree") == project_of(main)


def test_a_git_file_or_link_that_points_into_another_s_repository_is_not_followed(tmp_path: Path) -> None:
    """As git itself checks a worktree: what is named has to point back."""
    theirs = make_repository(tmp_path / "theirs")
    git("worktree", "add", str(tmp_path / "tree"), at=theirs)
    for number, content in enumerate((theirs / ".git", theirs / ".git" / "worktrees" / "tree")):
        ours = tmp_path / f"ours {number}"
        ours.mkdir()
        (ours / ".git").write_text(f"gitdir: {content}\n")
        assert project_of(ours).id != project_of(theirs).id
        assert project_of(ours) == project_of(ours / "deep")
    link = tmp_path / "link"
    link.mkdir()
    (link / ".git").symlink_to(theirs / ".git")
    assert project_of(link).id != project_of(theirs).id
    made = tmp_path / "made"
    git("init", str(made), at=made.parent)
    (made / ".git" / "commondir").write_text(str(theirs / ".git"))
    assert project_of(made).id != project_of(theirs).id


def test_a_directory_in_other_letters_is_one_project_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS does; the file system is played by a second name of the directory, and stores what is in lower case."""

    def stored(descriptor: int, *_: object) -> bytes:
        return os.fsencode(str(Path(f"/proc/self/fd/{descriptor}").readlink()).lower()) + b"\0" * 3

    written, as_stored = tmp_path / "App", tmp_path.resolve() / "app"
    written.mkdir()
    as_stored.mkdir()
    assert project_of(written) != project_of(as_stored)
    monkeypatch.setattr("remembrancer.protocol.system.sys.platform", "darwin")
    monkeypatch.setattr("fcntl.F_GETPATH", 50, raising=False)
    monkeypatch.setattr("fcntl.fcntl", stored)
    assert project_of(written) == project_of(as_stored)
    (as_stored / ".git").symlink_to(written)  # nobody else's repository, wherever it leads
    assert project_of(as_stored).path == f"{as_stored}/.git"
    (as_stored / ".git").unlink()
    assert project_of(written).path == str(working_tree_of(written)) == str(as_stored)
    assert named_home({"REMEMBRANCER_HOME": str(written / "Home")})[1] == str(as_stored / "Home")
