"""JSON schemas of what `--json` prints, in a short notation; `allometry schema NAME` prints one.

In the notation, text is a type of JSON Schema, several of which stand between bars
(`"number|null"`); a mapping is an object, whose keys are required unless they end in `?`, and `*`
stands for any other key; a list is an array; a tuple has alternatives. Fields are added, never
renamed or removed, so readers ignore fields that they do not know.
"""

from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"
BASE = "https://allometry.readthedocs.io/schemas/"

_NUMBER = "number|null"
ESTIMATE = dict.fromkeys(("value", "se", "lo", "hi"), _NUMBER)
_MAYBE = (ESTIMATE, "null")
_WARNED = {"warnings": ["string"], "codes?": ["string"]}
_LAW = {
    "form": "string",
    "n": "integer",
    "objective": "number",
    "params": {"*": ESTIMATE},
    "starts": {"tried": "integer", "agree": "integer"},
    "backtest": {"error": _NUMBER, "coverage": _NUMBER, "folds": "integer"},
    **_WARNED,
    "why": "string",
    "members": {"*": "number"},
    "averaged": "boolean",
    "forms": [
        {
            "form": "string",
            "name": "string",
            "variables": ["string"],
            "weight": "number",
            "equation": "string",
            "params": {"*": ESTIMATE},
        }
    ],
    "calibration": "object",
    "*": "any",
}
_VARIABLE_LAW = {
    "form": "string",
    "equation": "string",
    "n": "integer",
    "response": "string",
    "variables": {"*": "string"},
    "cost": "string|null",
    "params": {"*": ESTIMATE},
    "backtest": {"error": _NUMBER, "coverage": _NUMBER, "folds": "integer"},
    **_WARNED,
    "why": "string",
    "members": {"*": "number"},
    "*": "any",
}
_IMPORTED = {
    "recognised": {"*": "string"},
    "rows": "string",
    "unit": "string",
    "bad": [{"line": "integer", "why": "string"}],
}
_CLAIM = {
    "claim": "string",
    "family": "string",
    "status": "string",
    "text": "string",
    "reason": "string",
    "settled_by": "string",
    "values": {"*": (ESTIMATE, "number|null")},
}
_RUN = {"N": _NUMBER, "D": _NUMBER, "compute": "number", "width": _NUMBER, "cost?": _NUMBER}
_DESIGN = {
    "runs": [_RUN],
    "now": _NUMBER,
    "after": _NUMBER,
    "spent": "number",
    "why": "string",
    "needed": _NUMBER,
    "budget?": "number",
    "cost?": _NUMBER,
    "*": "any",
}
_PLAN = {
    "compute": "number",
    "N": ESTIMATE,
    "D": ESTIMATE,
    "loss": ESTIMATE,
    "form": "string",
    **_WARNED,
    "method": "string",
    "lost": _MAYBE,
    "reach?": {"loss": "number", "C": ESTIMATE},
    "claims?": [_CLAIM],
    "approaches?": {"*": ({"N": ESTIMATE, "exponent": ESTIMATE}, {"error": "string"})},
    "hardware?": "object|null",
    "usage?": ({"*": _MAYBE}, "null"),
    "lost_cost?": ({"value": "number", "hi": _NUMBER}, "null"),
    "memory?": "object|null",
    "data?": dict.fromkeys(("needed", "available", "epochs"), _NUMBER),
    "inference?": "object|null",
    "next?": (_DESIGN, "null"),
    "*": "any",
}
_OPTIMUM = {
    "at": {"*": ESTIMATE},
    "response": ESTIMATE,
    "given_up": {"*": {"half": _NUMBER, "twice": _NUMBER}},
    **_WARNED,
    "*": "any",
}
_POOL = {
    "rows": ["integer"],
    "costs": ["number"],
    "widths": [_NUMBER],
    "now": _NUMBER,
    "after": _NUMBER,
    "spent": "number",
    "*": "any",
}
_REPLAY = {"steps": ["object"], "enough": "number", "saved": "number", "*": "any"}
_CONFIGURATION = {
    "family": "string",
    "shape": "string",
    "loss": ESTIMATE,
    "test": _MAYBE,
    **dict.fromkeys("NDC", _NUMBER),
}
_REACH = {
    "C": "number",
    "passes": _NUMBER,
    "warnings": ["string"],
    **dict.fromkeys(("N", "D", "loss", "loss_if_data_were_new"), _MAYBE),
}
_STUDY = {
    "headline": "string",
    "claims": [_CLAIM],
    "target": "string",
    "unit": "string",
    "best": (_CONFIGURATION, "null"),
    "units": {"*": ESTIMATE},
    "counted": [_CONFIGURATION],
    "families": [
        {
            "family": "string",
            "best": (_CONFIGURATION, "null"),
            "law": (_LAW, "null"),
            "held_out": ["object"],
            "crossing": "object|null",
            "reaches": [_REACH],
            "notes": ["string"],
        }
    ],
    "unfinished": [{"key": "string", "status": "string", "error": "string|null"}],
    "notes": ["string"],
    "findings?": ["object"],
}
_GRID = [{"key": "string", "seconds": _NUMBER, "*": "any"}]
_SCORE = ESTIMATE | {"features": "string", "*": "any"}
_RIVAL = {
    "name?": "string",
    "multiplier": ESTIMATE,
    "measured": {"at": _NUMBER, "multiplier": ESTIMATE},
    "trend": "string",
    "exponent": ESTIMATE,
    "crossover": _MAYBE,
    "e_value": _NUMBER,
    "more_runs": "integer|number|null",
    "*": "any",
}
_COMPARISON = {
    **_RIVAL,
    "winner": "string|null",
    "leader": "string",
    "verdict": "string",
    "at": "number",
    "scale": "string",
    "rivals": [_RIVAL],
    "runs": {"*": "integer"},
    **_WARNED,
}
_STATE = {
    "step": "number",
    "total_steps": "number",
    "loss": _NUMBER,
    "final": _MAYBE,
    "band": _MAYBE,
    "alarm": "string|null",
    "stop": "boolean",
    "reason": "string",
}
_PROGRESS = {
    **dict.fromkeys(("done", "failed", "diverged", "waiting"), "integer"),
    "at_work": "string|null",
    "seconds_left": _NUMBER,
    "*": "any",
}

SCHEMAS: dict[str, tuple[str, Any]] = {
    "error": (
        "What any command prints with --json if it refuses",
        {
            "error": {
                "code": "string",
                "message": "string",
                "do": "string",
                "exit_code": "integer",
            }
        },
    ),
    "fit": ("A fitted law and the columns it was read from", (_LAW | _IMPORTED, _VARIABLE_LAW)),
    "plan": ("How to spend a budget; with --x the best values of columns", (_PLAN, _OPTIMUM)),
    "next": ("Runs that narrow a prediction most, or rows of a pool", (_DESIGN, _POOL, _REPLAY)),
    "compare": ("Which recipe is best at a scale, and by how much", _COMPARISON),
    "watch": ("The state of a training and its forecast", _STATE),
    "run": ("The answer of a study; with --dry-run its grid", (_STUDY, _GRID)),
    "demo": ("The answer of the demonstration; with --dry-run its grid", (_STUDY, _GRID)),
    "status": ("Progress of a study", _PROGRESS),
    "measure": ("Metrics of samples by name; with --audit their checks", {"*": "object"}),
    "list": ("Names with descriptions", {"*": ("string", {"*": "string"})}),
    "export": ("How the exported model was compared with the original", "object"),
    "generate": ("A text and its statistics, or the file of samples", ("object", ["object"])),
    "construct": ("An answer and the certificate of a network", "object"),
}
"""Title and notation of each command's output."""


def schema(name: str, *, closed: bool = False) -> dict[str, Any]:
    """The JSON schema of a command's output.

    Args:
        name: A name of `SCHEMAS`.
        closed: Whether objects may have no other fields, for tests of this package.
    """
    title, notation = SCHEMAS[name]
    head = {"$schema": DRAFT, "$id": f"{BASE}{name}.json", "title": title}
    return head | _expanded(notation, closed)


def _expanded(notation: Any, closed: bool) -> dict[str, Any]:
    if isinstance(notation, tuple):
        return {"anyOf": [_expanded(each, closed) for each in notation]}
    if isinstance(notation, list):
        return {"type": "array", "items": _expanded(notation[0], closed)}
    if isinstance(notation, str):
        kinds = notation.split("|")
        if kinds == ["any"]:
            return {}
        return {"type": kinds[0] if len(kinds) == 1 else kinds}
    fields = {key.rstrip("?"): _expanded(each, closed) for key, each in notation.items()}
    rest = fields.pop("*", None)
    out: dict[str, Any] = {"type": "object"}
    if fields:
        out["properties"] = fields
    needed = [key for key in notation if key != "*" and not key.endswith("?")]
    if needed:
        out["required"] = needed
    if rest is not None:
        out["additionalProperties"] = rest or True
    elif closed:
        out["additionalProperties"] = False
    return out
