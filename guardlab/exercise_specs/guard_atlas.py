"""Exercise 10: the guard atlas."""

import torch

from ..comparing import NO_FILTER, compare
from ..filters import both, drop_names, drop_types, npu_guard_filter, unknown_types
from ..tasks import RIGHT, WRONG, Case, Outcome, Task, break_filter, write_filter
from ..text import describe


def _x():
    return torch.tensor([1.0, -2.0, 3.0], dtype=torch.float32)  # whatever the default dtype is


# 1 and 2: four services, as the exercise describes them
def _router(x, request):
    options = {"scale": 1.0, **request}
    return x * options["scale"]


def _ranker(x, weights):
    return x * sum(weights)


def _gate(x, options):
    if "debug" in options:
        assert x.dim() == 1
    return x * 2.0


def _teacher():
    return torch.nn.Linear(3, 2)


def _requests(*requests):
    def session(f):
        for request in requests:
            yield f(_x(), request)

    return session


def _scores_then_trains(f):
    with torch.no_grad():
        yield f(_x())
    yield f(_x())


_SERVICES = {
    "router": [
        Case("a user comes", lambda: _router, _requests({"scale": 2.0}, {"scale": 2.0, "user": "ada"})),
        Case(
            "several fields come",
            lambda: _router,
            _requests(*({"scale": 2.0, **dict.fromkeys("abc"[:i], i)} for i in range(4))),
        ),
    ],
    "ranker": [Case("a weight comes", lambda: _ranker, _requests([2.0], [2.0, 0.5]))],
    "gate": [
        Case("debug comes", lambda: _gate, _requests({}, {"debug": True})),
        Case("another key comes, then debug", lambda: _gate, _requests({}, {"user": 1}, {"user": 1, "debug": 0})),
    ],
    "teacher": [Case("scores, then trains", _teacher, _scores_then_trains)],
}
# the types that remove each service's recompile, soundly or not
_TYPES = {
    "router": "DICT_KEYS_MATCH",
    "ranker": "SEQUENCE_LENGTH",
    "gate": "DICT_NOT_CONTAINS",
    "teacher": "GLOBAL_STATE",
}
_MAY = {"router": {"DICT_KEYS_MATCH"}, "ranker": set(), "gate": {"DICT_NOT_CONTAINS"}, "teacher": set()}


def _for_each_service(answer):
    if not isinstance(answer, dict) or answer.keys() != _SERVICES.keys():
        return f"the answer is {describe(answer)}; it is a dict with the keys {', '.join(_SERVICES)}"
    missing = [service for service, value in answer.items() if value is ... or value is None]
    return f"nothing is said of the {missing[0]}" if missing else ""


def _run(case, types, **options):
    result = compare(case.make, case.session, {"your choice": drop_types(*types)}, **options)
    return result, result["your choice"], result[NO_FILTER].recompiles


def _looked_up(answer):
    if fault := _for_each_service(answer):
        return Outcome(WRONG, fault)
    for service, cases in _SERVICES.items():
        guard_type = answer[service]
        if not isinstance(guard_type, str):
            return Outcome(WRONG, f"{service}: {describe(guard_type)} is no guard type; one name, a string")
        if unknown_types([guard_type]):
            return Outcome(WRONG, f"{service}: no guard entry ever has the type {guard_type!r}")
        # which guard fails is the same for every backend, and this one is quick
        result, row, before = _run(cases[0], [guard_type], backend="eager")
        if not row.dropped:
            return Outcome(WRONG, f"{service}: no entry has the type {guard_type} on the session '{cases[0].label}'")
        if row.recompiles == before:
            return Outcome(WRONG, f"{service}: without {guard_type} the recompile is still there", result)
    return Outcome(RIGHT, "each type dropped takes its service's recompile away; whether it may be is the next task")


def _chosen(answer):
    if fault := _for_each_service(answer):
        return Outcome(WRONG, fault)
    for service, types in answer.items():
        if isinstance(types, str) or not all(isinstance(t, str) for t in _listed(types)):
            return Outcome(WRONG, f"{service}: {describe(types)} is no set of guard types; nothing to drop is set()")
        if unknown := unknown_types(types):
            return Outcome(WRONG, f"{service}: no guard entry ever has the type {unknown[0]!r}")
        for case in _SERVICES[service]:
            if found := _fault_of_a_choice(service, case, types):
                return found
    return Outcome(RIGHT, "sound on every session of the four services, and no recompile is left that could go")


def _listed(types):
    return types if isinstance(types, set | frozenset | list | tuple) else [None]


def _fault_of_a_choice(service, case, types):
    where = f"{service}, {case.label}"
    result, row, before = _run(case, types)
    if row.verdict in ("unsound", "fails"):
        return Outcome(WRONG, f"{where}: {row.first_difference}", result)
    if row.recompiles:
        if types:
            return Outcome(WRONG, f"{where}: recompiles {before} before, {row.recompiles} with your choice", result)
        if _run(case, [_TYPES[service]])[1].verdict == "helps":
            return Outcome(WRONG, f"{where}: a recompile is left, and there is a type that may go", result)
    for one in types:
        rest = [other for other in types if other != one]
        if _run(case, rest)[1].recompiles == row.recompiles:
            return Outcome(WRONG, f"{where}: {one} is dropped for nothing", result)
    return None


# 3: narrow
def _blended(x, scales, shifts):
    return x * scales[0] + sum(shifts)


def _grows(scales, shifts):
    def session(f):
        first, second = [2.0], [1.0]
        for _ in range(3):
            yield f(_x(), list(first), list(second))
            first += scales
            second += shifts

    return session


def _first_scale_changes(f):
    for scale in (2.0, 3.0):
        yield f(_x(), [scale], [1.0])


def _is_length_of_scales(entry):
    return entry.guard_type == "SEQUENCE_LENGTH" and entry.name == "scales"


# 4: break
def weighted(x):
    """The function of task 4."""
    return x * torch.ones(3)


def _weight():
    return _x().requires_grad_()


def _gradient_comes(f):
    with torch.no_grad():
        yield f(_weight())
    yield f(_weight())


def _gradient_goes(f):
    yield f(_weight())
    with torch.no_grad():
        yield f(_weight())


def _deterministic(f):
    yield f(_x())
    torch.use_deterministic_algorithms(True)
    yield f(_x())


def _default_dtype(f):
    yield f(_x())
    torch.set_default_dtype(torch.float64)
    yield f(_x())


def _mode_without_gradient(f):
    with torch.no_grad():
        yield f(_x())
    yield f(_x())


def _inference_mode(f):
    with torch.no_grad():
        yield f(_weight())
    with torch.inference_mode():
        yield f(_weight())


def _other_length(f):
    yield f(_x())
    yield f(torch.ones(2))


def _returns(f):
    return f(_x())


TASKS = (
    Task(
        title="from four recompile reasons to four guard types",
        judge=_looked_up,
        hints=(
            "gl.browse(gl.atlas(), family='dicts') shows a family. gl.atlas('HASATTR') shows the reasons of a type.",
            "A reason prints a check, an entry has a type. len(...) of a dict and of a list are checks of two types.",
            "not ___dict_contains is about a key that was missing. For grad mode, the type of that name has no check.",
        ),
        right=(_TYPES,),
        wrong=(
            (_TYPES | {"router": "DICT_LENGTH"}, "router: no guard entry ever has the type 'DICT_LENGTH'"),
            (_TYPES | {"router": "SEQUENCE_LENGTH"}, "router: no entry has the type SEQUENCE_LENGTH"),
            (_TYPES | {"ranker": "CONSTANT_MATCH"}, "ranker: without CONSTANT_MATCH the recompile is still there"),
            (_TYPES | {"gate": "DICT_CONTAINS"}, "gate: without DICT_CONTAINS the recompile is still there"),
            (_TYPES | {"teacher": "GRAD_MODE"}, "teacher: without GRAD_MODE the recompile is still there"),
            (_TYPES | {"teacher": ...}, "nothing is said of the teacher"),
            (_TYPES | {"gate": {"DICT_NOT_CONTAINS"}}, "gate: {'DICT_NOT_CONTAINS'} is no guard type"),
            (list(_TYPES.values()), "it is a dict with the keys router, ranker, gate, teacher"),
        ),
    ),
    Task(
        title="choose for four services: which types may be dropped?",
        judge=_chosen,
        hints=(
            "Each type of task 1 has a row in the atlas that helps and one that is unsound. Which row is the service?",
            "Ask of each: does what changes enter the result? A gradient is a result.",
            "Two services may drop one type each, two may drop nothing: set().",
        ),
        right=(_MAY, {service: list(types) for service, types in _MAY.items()}),
        wrong=(
            ({service: {name} for service, name in _TYPES.items()}, "ranker, a weight comes: step 2 differs at [0]"),
            (_MAY | {"teacher": {"GLOBAL_STATE"}}, "teacher, scores, then trains: step 2 differs in requires_grad"),
            (
                _MAY | {"teacher": {"GRAD_MODE"}},
                "teacher, scores, then trains: recompiles 1 before, 1 with your choice",
            ),
            (_MAY | {"gate": {"DICT_CONTAINS"}}, "gate, debug comes: recompiles 1 before, 1 with your choice"),
            (_MAY | {"router": {"DICT_KEYS"}}, "router: no guard entry ever has the type 'DICT_KEYS'"),
            (
                _MAY | {"router": {"DICT_KEYS_MATCH", "GLOBAL_STATE"}},
                "router, a user comes: GLOBAL_STATE is dropped for",
            ),
            (
                dict.fromkeys(_MAY, ()),
                "router, a user comes: a recompile is left, and there is a type that may go",
            ),
            (_MAY | {"router": "DICT_KEYS_MATCH"}, "router: 'DICT_KEYS_MATCH' is no set of guard types"),
            (_MAY | {"gate": ...}, "nothing is said of the gate"),
        ),
    ),
    Task(
        title="narrow the filter: one type, two lists",
        judge=write_filter(
            helps=[Case("scales that grow", lambda: _blended, _grows([0.5], []))],
            stays_sound=[
                Case("shifts that grow", lambda: _blended, _grows([], [0.5])),
                Case("both grow", lambda: _blended, _grows([0.5], [0.5])),
                Case("a first scale that changes", lambda: _blended, _first_scale_changes),
            ],
            most_dropped=1,
        ),
        hints=(
            "Trace the session and print the entries on both lists. Which of them fails, and what is it called?",
            "The atlas: a list that is read at one place helps, a list that is added up is unsound. Tell them by name.",
        ),
        right=(
            lambda entries: [not _is_length_of_scales(e) for e in entries],
            drop_names("scales"),
            lambda entries: [e.guard_type != "SEQUENCE_LENGTH" or e.name == "shifts" for e in entries],
        ),
        wrong=(
            (drop_types("SEQUENCE_LENGTH"), "on shifts that grow: step 2 differs"),
            (drop_names("scales[0]"), "on scales that grow: recompiles left: 2"),
            (drop_names("shifts"), "on scales that grow: recompiles left: 2"),
            (npu_guard_filter, "recompiles left: 2"),
            (drop_types("LENGTH_CHECK"), "recompiles left: 2"),
            (both(drop_names("scales"), drop_names("scales[0]")), "a first scale that changes: step 2 differs"),
            (both(drop_names("scales"), drop_types("GLOBAL_STATE")), "2 guards dropped, fewer are enough"),
            (lambda entries: [True], "one bool per entry"),
        ),
    ),
    Task(
        title="break a filter that helps in three rows of the atlas",
        judge=break_filter(lambda: weighted, drop_types("GLOBAL_STATE")),
        hints=(
            "gl.atlas('GLOBAL_STATE') has the three rows. Read the column of aot_eager, which the check uses.",
            "One row is unsound under aot_eager. Its session needs an input that requires a gradient.",
        ),
        right=(_gradient_comes, _gradient_goes),
        wrong=(
            (_deterministic, "'helps'"),
            (_default_dtype, "'helps'"),
            (_mode_without_gradient, "'helps'"),
            (_inference_mode, "'no effect'"),
            (_other_length, "in eager, step 2: RuntimeError"),
            (_returns, "it returns: write yield before each f(...)"),
            (3, "it is no function"),
        ),
    ),
)
