"""Why parts that are known cannot stand together in a name."""

import re
from collections.abc import Callable, Mapping

READING, ELEMENT, UNLABELED, CONSISTENCY = ORDER = ("READING", "ELEMENT", "UNLABELED", "CONSISTENCY")
HEADS = ("boostlu", "boost")

ONE_OF_A_KIND = {
    READING: "each say what an unknown label counts as",
    ELEMENT: "are each the loss of one label (the element)",
    UNLABELED: "each put images without labels to use",
    CONSISTENCY: "each hold the model to what it said before",
}


def why_not(name: str, kinds: Mapping[str, str], parsed: Callable[[str], object]) -> str | None:
    """Why there is no method of this name, and the way out; None where a part of it is unknown.

    ``kinds`` has all parts; READING is that of the methods which are nothing else. ``parsed`` refuses parts
    that do not fit together even in the right order.
    """
    parts = re.split(r"\+(?!apl)", name)  # em+apl is one part
    if not {*parts} <= {*kinds, *HEADS}:
        return None
    if not {*parts}.isdisjoint(HEADS):
        rest = "+".join(part for part in parts if part not in HEADS) or "an"
        parsed(rest)  # refuses it with its own reason
        return f"BoostLU is a part of the head, not of a method's name: give --method {rest} --boost 5"
    for kind, said in ONE_OF_A_KIND.items():
        same = [part for part in parts if kinds[part] == kind]
        if len(same) > 1:
            return f"{' and '.join(same)} {said}, and a method has one: take one of them"
    ordered = "+".join(sorted(parts, key=lambda part: ORDER.index(kinds[part])))
    if ordered == name:
        base = "iu" if kinds[parts[0]] == UNLABELED else "en"
        return f"{name} is added to a method: name that first, as in {base}+{name}"
    parsed(ordered)
    return f"the parts of a name stand in the order {'+'.join(ORDER)}: write {ordered}"
