"""Converts gitleaks' rules to `remembrancer/memory/credential_rules.txt`: `python -m bench.credential_rules FILE`.

FILE is `config/gitleaks.toml` (MIT licence) from a gitleaks release. Rules about files are left out, and so is the
generic rule: `memory/credentials.py` has its own for labels with a value.
"""

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

TARGET: Final = Path(__file__).parent.parent / "remembrancer" / "memory" / "credential_rules.txt"
MARK: Final = "# --- gitleaks"
"""The beginning of the line that precedes the rules."""
LEFT_OUT: Final = frozenset({"generic-api-key", "curl-auth-header", "kubernetes-secret-yaml", "hashicorp-tf-password"})
NOTICE: Final = (
    "From gitleaks (https://github.com/gitleaks/gitleaks), Copyright (c) 2019 Zachary Rice, MIT licence: permission "
    "is granted, free of charge, to any person obtaining a copy of this software, to deal in it without restriction, "
    "provided that this notice is included in all copies. It is provided as is, without warranty of any kind."
)


def converted(config: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each rule about text, with its required keywords, minimum entropy and exceptions."""
    yield from (f"# {line}" for line in wrap(NOTICE, 116))
    yield from (f"! {regex}" for regex in config["allowlist"]["regexes"])
    for rule in config["rules"]:
        if "regex" not in rule or "path" in rule or rule["id"] in LEFT_OUT:
            continue
        entropy = f"{rule['entropy']:g}" if rule.get("entropy") else "-"
        yield " | ".join((rule["id"].replace("-", " "), ",".join(rule["keywords"]) or "-", entropy, rule["regex"]))
        yield from (f"~ {regex}" for group in rule.get("allowlists", ()) for regex in group.get("regexes", ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    made = list(converted(tomllib.loads(parser.parse_args().file.read_text())))
    lines = TARGET.read_text("utf-8").splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith(MARK))
    TARGET.write_text("\n".join((*lines[: place + 1], *made)) + "\n", "utf-8")
    print(f"{sum(line[:2] not in ('# ', '! ', '~ ') for line in made)} rules in {TARGET.name}")


if __name__ == "__main__":
    main()
