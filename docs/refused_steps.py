"""Write ``docs/refused-steps.md``: every sentence that says why a step is refused.

python docs/refused_steps.py

A test compares the page with the table in ``framestow/refusals.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

from framestow.refusals import Refusal

PAGE = Path(__file__).with_name("refused-steps.md")
HEAD = """# Refused steps

What `begin`, `append` and `add` say of a step that they refuse, with `InvalidStepError`. Nothing of the step is stored.
Of two faults, the one that stands first here is named; `append` looks at its frames last. `…` stands for a value.
`python docs/refused_steps.py` writes this page.

"""


VALUES = {
    "take": "n environments take",
    "takes": "n environments take (n, …)",
    "need": "n environments need",
    "rows": "(n, …)",
    "subject": "actions run",
    "subscript": "",
    "way_out": "",
}
"""What stands for a value, where ``…`` says too little."""


def shown(value: re.Match[str]) -> str:
    """Return what stands for a value in braces."""
    return VALUES.get(value[1], "…")


def page() -> str:
    """Return the page: each sentence with its rule and its way out."""
    rows = []
    for refusal in Refusal:
        text = re.sub(r"\{(\w+)(?:![rs])?\}", shown, refusal.value.replace("{{", "\0")).replace("\0", "{")
        what, _, rest = text.replace("}}", "}").partition(": ")
        rule, _, way_out = rest.rpartition("; ")
        rows.append(f"| {what} | {rule} | {way_out or 'the message says it, by the shapes that were given'} |")
    return f"{HEAD}| message | rule | way out |\n|---|---|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
