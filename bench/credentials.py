"""Tests which credentials are refused, and that harmless lines are not: `python -m bench.credentials
[--show PART]`.

`credential_shapes.txt` has the forms that issuers and file formats document, and labels as people write them; the
secrets in them are random, and none stands in a file. The harmless lines use the same words. Half of each were looked
at while the rules were first written (`tuned`), the others when they were revised (`held out`). The second set
(`shapes`) was written before its rules. `--show` prints the failures of a part.
"""

import argparse
import base64
import json
import random
import re
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from remembrancer.memory.credentials import find_credential, refuse_credentials
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import UpdateMemory

LINES: Final = Path(__file__).with_name("innocent_lines.txt")
SHAPED_LINES: Final = Path(__file__).with_name("innocent_shapes.txt")
SHAPES: Final = Path(__file__).with_name("credential_shapes.txt")
UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
WORD: Final = string.ascii_letters + DIGITS
HEX: Final = "0123456789abcdef"
ALPHABETS: Final = {
    "word": WORD,
    "hex": HEX,
    "digit": DIGITS,
    "upper": UPPER,
    "lower": LOWER,
    "letter": UPPER + LOWER,
    "capital": UPPER + DIGITS,
    "small": LOWER + DIGITS,
    "base32": UPPER + "234567",
    "base64": WORD + "+/",
    "url": WORD + "-_",
    "crypt": WORD + "./",
    "django": LOWER + DIGITS + "!@#$%^&*(-_=+)",
    "salt": WORD + "!@#%^&*()-_ []{}<>~+=,.;:/?|",
}
PASSWORD_WORDS: Final = (
    *("frosch", "Sommer", "dragon", "hunter", "Blaubeere"),
    *("kestrel", "Maiglocke", "thunder", "cobalt", "Mistral"),
)
SEED_WORDS: Final = (
    *("abandon", "zebra", "ocean", "lamp", "velvet", "cactus"),
    *("orbit", "quiz", "tiger", "noble", "river", "stone"),
)
_PLACEHOLDER: Final = re.compile(r"«([^«»]+)»")
chance: Final = random.Random(20261122)


def some(length: int, alphabet: str = "word") -> str:
    """Return a random text."""
    return "".join(chance.choices(ALPHABETS[alphabet], k=length))


def coded(text: str) -> str:
    """Return a text in Base64."""
    return base64.b64encode(text.encode()).decode()


def password(least: int, most: int) -> str:
    """Return a password as people choose them: a word with digits and symbols."""
    return (
        chance.choice(PASSWORD_WORDS) + chance.choice(("", "-", "_", "!")) + some(chance.randint(least, most), "digit")
    )


def long_password() -> str:
    """Return a password of a word or two."""
    return password(2, 4) + chance.choice(("", "!", "?x", "$", chance.choice(PASSWORD_WORDS)))


def jwt() -> str:
    """Return a JSON Web Token."""
    parts = ('{"alg":"HS256","typ":"JWT"}', json.dumps({"sub": some(8)}), some(32))
    return ".".join(coded(part).rstrip("=") for part in parts)


SECRETS: Final[dict[str, Callable[[], str]]] = {
    "password": lambda: password(1, 4),
    "long password": long_password,
    "jwt": jwt,
    "token": lambda: f"{some(6)}7{some(6)}aB3",
    "uuid": lambda: "-".join(some(length, "hex") for length in (8, 4, 4, 4, 12)),
    "seed": lambda: " ".join(chance.sample(SEED_WORDS, 12)),
    "zero-width space": lambda: "\u200b",
    "word joiner": lambda: "\u2060",
}
"""Placeholders of the shapes; others are `«coded …»`, and the name of an alphabet with a length."""


def with_secrets(shape: str) -> str:
    """Return a shape with a random secret in place of each placeholder, the inner ones first."""

    def secret(match: re.Match[str]) -> str:
        kind, _, detail = match[1].partition(" ")
        if match[1] in SECRETS:
            return SECRETS[match[1]]()
        return coded(detail) if kind == "coded" else some(int(detail), kind)

    while (filled := _PLACEHOLDER.sub(secret, shape)) != shape:
        shape = filled
    return shape


def read_shapes() -> dict[str, list[str]]:
    """Return the shapes by section. Those of `split` have the label in the summary, after ` | `."""
    sections: dict[str, list[str]] = {}
    for line in SHAPES.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            shapes = sections.setdefault(line[2:], [])
        else:
            shapes.append(line.replace("\\n", "\n"))
    return sections


def is_refused(fields: dict[str, str]) -> bool:
    """True if a memory with these fields would be refused."""
    try:
        refuse_credentials(UpdateMemory("", content=fields["content"], summary=fields.get("summary")))
    except InvalidInput:
        return True
    return False


def figures_of(secrets: Sequence[dict[str, str]], innocent: Sequence[str], *, show: bool) -> dict[str, int]:
    missed = [fields for fields in secrets if not is_refused(fields)]
    refused = [(find_credential(line), line) for line in innocent if find_credential(line) is not None]
    if show:
        for failure in (*missed, *refused):
            print(failure)
    return {
        "secrets": len(secrets),
        "found": len(secrets) - len(missed),
        "innocent": len(innocent),
        "refused": len(refused),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", metavar="PART", help="one of the parts that are printed, as 'shapes, tuned'")
    given = parser.parse_args()
    memories = {
        section: [
            dict(zip(("content", "summary"), with_secrets(shape).split(" | "), strict=False))
            if section == "split"
            else {"content": f"For later:\n{with_secrets(shape)}"}
            for shape in shapes
        ]
        for section, shapes in read_shapes().items()
    }
    first = memories.pop("first set")
    shaped = [fields for several in memories.values() for fields in several]
    figures = {}
    for sort, secrets, lines in (("first set", first, LINES), ("shapes", shaped, SHAPED_LINES)):
        innocent = [line.replace("\\n", "\n") for line in lines.read_text().splitlines() if line]
        for part, start in (("tuned", 0), ("held out", 1)):
            name = f"{sort}, {part}"
            figures[name] = figures_of(secrets[start::2], innocent[start::2], show=given.show == name)
    for name, counts in figures.items():
        print(
            f"{name}: {counts['found']} of {counts['secrets']} secrets found, "
            f"{counts['refused']} of {counts['innocent']} innocent lines refused"
        )


if __name__ == "__main__":
    main()
