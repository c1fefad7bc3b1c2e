"""Write CHEATSHEET.md: the way from a recompile reason to a remedy or the narrowest filter, from the recorded atlas."""

import pathlib
import re

from guardlab.atlas import Atlas, atlas

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHEET = ROOT / "CHEATSHEET.md"

REMEDIES = {
    "CONSTANT_MATCH": "hand the value in as a tensor",
    "EQUALS_MATCH": "keep the counter of a module in a buffer",
    "DICT_KEYS_MATCH": "give the dict the same keys at every call",
    "DICT_NOT_CONTAINS": "give the key at every call, its value as a tensor",
    "DICT_CONTAINS": "give the key at every call, its value as a tensor",
    "SEQUENCE_LENGTH": "hand in the items that the code reads, no more",
    "TYPE_MATCH": "hand in objects of one class",
    "HASATTR": "set the attribute when the object is made",
    "NOT_PRESENT_IN_GENERIC_DICT": "set the attribute on the object when it is made",
    "CLOSURE_MATCH": "make the function once, and change a tensor that it reads",
    "ID_MATCH": "choose by it outside, and hand in a tensor",
    "TENSOR_MATCH": "dynamic=True for sizes; convert dtype before the call",
    "SHAPE_ENV": "let no branch depend on a size",
    "DUPLICATE_INPUT": "clone the second argument",
    "GLOBAL_STATE": "enter one and the same mode around every call",
    "TORCH_FUNCTION_STATE": "enter the mode before the first call, and stay in it",
}
"""What to try before a filter, by guard type; tests/test_cheatsheet.py runs each."""

TEXT = """\
# Guard filters on one page

*torch {torch}. Made by `make atlas` from `data/atlas/`, where each verdict was measured: change the atlas instead.*

1. **Count.** `print(gl.trace(make, session))`: how many recompiles, in which step, and the reason of each.
2. **Find the reason** below. It names the guard type. `gl.atlas("CONSTANT_MATCH")` shows the sessions behind a row.
3. **Try the remedy.** It removes the recompile with every guard in place.
4. **No remedy fits, and the state never changes a result?** Drop that one entry, nothing else:
   `lambda entries: [not (e.guard_type == "DICT_KEYS_MATCH" and e.name == "options") for e in entries]`
   An entry without a name watches the whole process: only its type can be dropped.
5. **Compare.** `gl.compare(make, session, f).assert_sound()` on sessions in which the state changes.

| reason (an example) | guard type | remedy | dropping the type |
|---|---|---|---|
{rows}

**Helps or unsound** means: one session of the atlas gets rid of its recompile and stays equal to eager, another is
silently wrong. Which one yours is, only a comparison tells.{under_inductor}

**No filter needed, or none will do**

- Another guard watches the same state, and dropping this type alone changes nothing: {shadowed}.
- The entry is there and checks nothing: {no_check}.
- `... got deallocated`: an object that the code knows by its identity died. Keep it alive.
- `BACKEND_MATCH failure`: another backend for the same function. Make the backend once.
- Past the limit of recompiles a function runs in eager, silently. Count before and after.

**The other types.** {others}.

**Before you serve.** A filter stays with the function (`isolate_recompiles=True` or `torch._dynamo.reset()` parts two
compiles), is taken out of the `options` dict, and shows in no counter. `gl.atlas_notes()` has these traps and more.
"""

UNDER_INDUCTOR = " What equals eager under\n`aot_eager` may not under `inductor`: so for {}."


def sheet(found: Atlas) -> str:
    """The page for one recorded release."""
    rows = [_row(found[name]) for name in REMEDIES if name in found.types]
    rest = [t for name, t in found.types.items() if name not in REMEDIES]
    worse = sorted({f"`{t.guard_type}`" for t in found.types.values() if any(map(_only_inductor, t.scenarios))})
    return TEXT.format(
        torch=found.torch.split("+")[0],
        rows="\n".join(rows),
        under_inductor=UNDER_INDUCTOR.format(", ".join(worse)) if worse else "",
        shadowed=", ".join(f"`{t.guard_type}` ({_by(t)})" for t in found.types.values() if t.status == "shadowed"),
        no_check=", ".join(f"`{t.guard_type}`" for t in found.types.values() if t.status == "no check"),
        others=". ".join(_grouped([t for t in rest if t.status == "checked"])),
    )


def _grouped(types):
    for summary in sorted({t.summary for t in types}):
        names = ", ".join(f"`{t.guard_type}`" for t in types if t.summary == summary)
        yield f"{summary[0].upper()}{summary[1:]}: {names}"


def _row(found):
    told = next((s["reason"] for s in found.scenarios if s["reason"]), "")
    reason = re.sub(r"<class '.*\.(\w+)'>", r"<class '\1'>", told).replace("|", "\\|")
    return f"| `{reason}` | `{found.guard_type}` | {REMEDIES[found.guard_type]} | {found.summary} |"


def _by(found):
    others = dict.fromkeys(other for s in found.scenarios for other in s["others"])
    return ", ".join(f"`{other}`" for other in others) or found.why


def _only_inductor(scenario):
    verdicts = scenario["verdicts"]
    return verdicts["aot_eager"] == "helps" and verdicts.get("inductor") in ("unsound", "fails")


def pinned() -> str:
    """The torch release that the course is pinned to."""
    return re.search(r"^torch==([\d.]+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M)[1]


if __name__ == "__main__":
    SHEET.write_text(sheet(atlas(version=pinned())), encoding="utf-8")
    print(f"{SHEET.name}: written")
