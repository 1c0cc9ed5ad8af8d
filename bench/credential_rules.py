"""Makes `remembrancer/memory/credential_rules.json` of gitleaks' rules: `python -m bench.credential_rules FILE`.

The file is gitleaks' `config/gitleaks.toml` (MIT licence), as its releases have it. What is about files and not about
text is left out, and so is its generic rule: `memory/credentials.py` has one of its own for labels with a value.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).parent.parent / "remembrancer" / "memory" / "credential_rules.json"
LEFT_OUT: Final = frozenset({"generic-api-key", "curl-auth-header", "kubernetes-secret-yaml", "hashicorp-tf-password"})
NOTICE: Final = (
    "From gitleaks (https://github.com/gitleaks/gitleaks), Copyright (c) 2019 Zachary Rice, MIT licence: permission "
    "is granted, free of charge, to any person obtaining a copy of this software, to deal in it without restriction, "
    "provided that this notice is included in all copies. It is provided as is, without warranty of any kind."
)


def converted(config: dict[str, Any]) -> dict[str, Any]:
    """The rules about text, with what each must have in it, its least entropy and what is no find of it."""
    rules = []
    for rule in config["rules"]:
        if "regex" not in rule or "path" in rule or rule["id"] in LEFT_OUT:
            continue
        allowed = [each for group in rule.get("allowlists", ()) for each in group.get("regexes", ())]
        rules.append(
            {
                "name": rule["id"].replace("-", " "),
                "keywords": rule["keywords"],
                "regex": rule["regex"],
                "entropy": rule.get("entropy", 0),
                "allowed": allowed,
            }
        )
    return {"notice": NOTICE, "allowed": config["allowlist"]["regexes"], "rules": rules}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    config = tomllib.loads(parser.parse_args().file.read_text())
    found = converted(config)
    TARGET.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n")
    print(f"{len(found['rules'])} rules in {TARGET.name}")


if __name__ == "__main__":
    main()
