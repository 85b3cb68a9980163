"""The reference of lint's rules, made from their texts.

`python -m tests.lintreference > docs/reference/lint.md` renews the page.
"""

from fleethpa.changes.lintrules import RULE_TEXTS

HEAD = """# Rules of lint

Made from the rules by `python -m tests.lintreference`; a test keeps it current.

`fleethpa lint -f DIR` checks HPAs, FleetHPAs and CapacityGroups, and compares each with the manifest of its target
where that is in the input, and with the workloads beside it. `fleethpa apply` and `diff` compare it with the target in
the cluster, too, where this machine has credentials for it. Errors are what an API server or fleethpa refuses, and two
HPAs of one target (exit 1); everything else is a warning (exit 1 with `--strict`).

| rule | what it says | what to do |
|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(f"| `{rule}` | {what} | {step} |\n" for rule, (what, step) in RULE_TEXTS.items())


if __name__ == "__main__":
    print(page(), end="")
