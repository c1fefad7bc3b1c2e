"""Measures what guards and recompiles cost, and writes data/benchmarks/*.json: raw repeats, versions, cpu, date.

Run it on a machine that does nothing else: ``make bench``, or ``make bench BENCH="guards trace"`` for some of the four.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import platform
import statistics
import sys
import time
import types

import torch
import torch._dynamo
from torch._inductor.utils import fresh_cache
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM
from transformers import __version__ as transformers_version

import guardlab as gl

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "benchmarks"
LOOKUP = "TorchDynamo Cache Lookup"  # the profiler's name for checking the guards of a frame's compiles
SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
HELPERS = {
    "no filter": None,
    **{
        name: getattr(torch.compiler, name)
        for name in (
            "keep_tensor_guards_unsafe",
            "keep_portable_guards_unsafe",
            "skip_guard_on_globals_unsafe",
            "skip_guard_on_inbuilt_nn_modules_unsafe",
            "skip_guard_on_all_nn_modules_unsafe",
            "skip_all_guards_unsafe",
        )
        if hasattr(torch.compiler, name)
    },
}
USERS = ["ada", "bob", "ada", "cyd", "dee", "eli", "ada", "fay", "gus", "hal", "ada", "ivy", "bob", "ada"]
LENGTHS = [8, 9, 8, 10, 11, 12, 8, 13, 14, 15, 8, 16, 9, 8]


class Service(LlamaForCausalLM):
    """A tiny random Llama with an attribute that its code reads and its numbers don't need: the user it serves."""

    user = "ada"

    def forward(self, ids):
        logits = super().forward(input_ids=ids, use_cache=False).logits
        return logits if self.user else logits * 1.0


def service(layers):
    """A fresh model, seeded the same each time."""
    torch.manual_seed(0)
    return Service(LlamaConfig(num_hidden_layers=layers, **SIZES)).eval()


def tokens(length):
    """Token ids of one request, shape (1, length)."""
    return (torch.arange(length) % SIZES["vocab_size"])[None]


def call(model, ids):
    """The frame that is compiled where several filters stand side by side."""
    return model(ids)


def own_code(function):
    """The same function with a code object, and so a code cache, of its own."""
    return types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)


def seconds(run, *arguments):
    """How long one call takes, and what it returns."""
    start = time.perf_counter()
    result = run(*arguments)
    return time.perf_counter() - start, result


def guards(progress, quick):
    """Guards kept, time to check them, and time of the whole call, by depth and by filter."""
    depths, rounds, calls = ([1, 2], 2, 5) if quick else ([1, 2, 4, 8, 16, 32, 48], 9, 30)
    rows = []
    for depth in progress(depths, "guards: layers"):
        torch._dynamo.reset()
        model, ids = service(depth), tokens(8)
        expected = model(ids)
        compiled, kept, equal = {}, {}, {}
        for name, guard_filter_fn in HELPERS.items():
            counts = []

            def counting(entries, guard_filter_fn=guard_filter_fn, counts=counts):
                answer = guard_filter_fn(entries) if guard_filter_fn else [True] * len(entries)
                counts.append(sum(answer))
                return answer

            options = {"guard_filter_fn": counting}
            compiled[name] = torch.compile(own_code(call), backend="eager", options=options)
            equal[name] = bool(torch.allclose(compiled[name](model, ids), expected))
            kept[name] = sum(counts)
            for _ in range(calls):
                compiled[name](model, ids)
        lookups, whole = {name: [] for name in compiled}, {name: [] for name in compiled}
        for _ in range(rounds):  # each round visits every filter, so that a slow moment of the machine meets all
            for name, f in compiled.items():
                whole[name].append(statistics.median(seconds(f, model, ids)[0] for _ in range(calls)))
                with profile(activities=[ProfilerActivity.CPU]) as seen:
                    for _ in range(calls):
                        f(model, ids)
                found = [e.time_range.elapsed_us() for e in seen.events() if e.name == LOOKUP]
                lookups[name].append(statistics.median(found) if found else 0.0)
        rows += [
            {
                "layers": depth,
                "filter": name,
                "guards_kept": kept[name],
                "equal_to_eager": equal[name],
                "lookup_us": lookups[name],
                "call_us": [1e6 * t for t in whole[name]],
            }
            for name in compiled
        ]
    return {
        "what": f"median over {calls} calls, one value a round; rounds visit the filters in turn. lookup_us is the "
        f"profiler's event {LOOKUP!r}, absent (0) where nothing is looked up; call_us is one call without the profiler",
        "unit": "us",
        "rows": rows,
    }


BACKENDS = ("eager", "aot_eager", "inductor, cold cache", "inductor, warm cache")


def recompile(progress, quick):
    """How long a first compile and a recompile take, by backend, and a call that needs neither."""
    depths, repeats = ([1], 1) if quick else ([2, 12], 3)
    rows = {(d, b): {"first_s": [], "recompile_s": [], "call_s": [], "equal": []} for d in depths for b in BACKENDS}
    for depth, _ in progress([(d, r) for d in depths for r in range(repeats)], "recompile: layers, repeats"):
        model = service(depth)
        expected = model(tokens(9))
        with fresh_cache():
            for name in BACKENDS[:2] if quick else BACKENDS:
                torch._dynamo.reset()
                f = torch.compile(model, backend=name.split(",")[0], dynamic=False)
                row = rows[depth, name]
                row["first_s"].append(seconds(f, tokens(8))[0])
                took, output = seconds(f, tokens(9))
                row["recompile_s"].append(took)
                row["call_s"].append(statistics.median(seconds(f, tokens(9))[0] for _ in range(20)))
                row["equal"].append(bool(torch.allclose(output, expected, atol=1e-5)))
    return {
        "what": "a call that compiles first (length 8), one that recompiles (length 9, dynamic=False), the median of "
        "20 that do neither; cold: an empty inductor cache; warm: the same again after torch._dynamo.reset()",
        "unit": "s",
        "rows": [
            {
                "layers": d,
                "backend": b,
                "equal_to_eager": all(r.pop("equal")),
                **r,
            }
            for (d, b), r in rows.items()
            if r["first_s"]
        ],
    }


def narrowed_filter(entries):
    """What guardlab.narrow finds for the stream of users."""
    return [e.name != "self.user" for e in entries]


def requests(progress, quick):
    """The time each request of a stream takes: nine users or nine lengths, with and without a remedy."""
    backend, layers, repeats = ("aot_eager", 1, 1) if quick else ("inductor", 2, 3)
    users = [(user, 8) for user in USERS]
    lengths = [("ada", length) for length in LENGTHS]
    variants = {
        "users, no filter": (users, {"dynamic": False}, None),
        "users, narrowed filter": (users, {"dynamic": False, "options": {"guard_filter_fn": narrowed_filter}}, None),
        "lengths, dynamic=False": (lengths, {"dynamic": False}, None),
        "lengths, dynamic=True": (lengths, {"dynamic": True}, None),
        "lengths, padded to 16": (lengths, {"dynamic": False}, 16),
    }
    rows = {name: {"request_s": [], "equal": [], "recompiles": []} for name in variants}
    for _ in progress(range(repeats), "requests: repeats"):
        for name, (stream, options, pad) in variants.items():
            torch._dynamo.reset()
            model = service(layers)
            f = torch.compile(
                model, backend=backend, **{k: dict(v) if k == "options" else v for k, v in options.items()}
            )
            times, same = [], []
            before = len(torch._dynamo.utils.get_compilation_metrics())
            with fresh_cache(), torch._dynamo.config.patch(recompile_limit=16):
                for user, length in stream:
                    model.user, ids = user, tokens(length)
                    given = torch.nn.functional.pad(ids, (0, pad - length)) if pad else ids
                    took, output = seconds(f, given)
                    times.append(took)
                    # a causal model's answer to the real tokens does not see the padding after them
                    same.append(bool(torch.allclose(output[:, :length], model(ids), atol=1e-5)))
            rows[name]["request_s"].append(times)
            rows[name]["equal"].append(all(same))
            rows[name]["recompiles"].append(len(torch._dynamo.utils.get_compilation_metrics()) - before - 1)
    return {
        "what": f"seconds of each request, {backend}, {layers} layers, an empty inductor cache for each stream, "
        "recompile_limit 16",
        "unit": "s",
        "users": USERS,
        "lengths": LENGTHS,
        "rows": [{"stream": name, "equal_to_eager": all(r.pop("equal")), **r} for name, r in rows.items()],
    }


def _session(f):
    with torch.no_grad():
        for length in (8, 9, 8, 10):
            yield f(tokens(length))


def _plain(layers):
    torch._dynamo.reset()
    for _ in _session(torch.compile(service(layers), backend="aot_eager")):
        pass


def trace(progress, quick):
    """A session under guardlab.trace beside the same session under plain torch.compile, compiles included."""
    layers, pairs = (1, 1) if quick else (4, 9)
    rows = []
    _plain(layers)
    for i in progress(range(pairs), "trace: pairs"):
        runs = [("plain_s", lambda: _plain(layers)), ("trace_s", lambda: gl.trace(lambda: service(layers), _session))]
        pair = {name: seconds(run)[0] for name, run in (runs if i % 2 else reversed(runs))}
        rows.append(pair | {"ratio": pair["trace_s"] / pair["plain_s"]})
    return {"what": f"aot_eager, {layers} layers, in pairs, the order alternating", "unit": "s", "rows": rows}


BENCHMARKS = {"guards": guards, "recompile": recompile, "requests": requests, "trace": trace}


def cpu():
    """The processor's name, as far as the system tells."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main(arguments=None):
    """Run the named benchmarks and write one record each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}; none for all")
    parser.add_argument("--quick", action="store_true", help="a minute's run that shows it works, no numbers to keep")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.names) - BENCHMARKS.keys())
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}: there are {', '.join(BENCHMARKS)}")
    if chosen.quick and chosen.folder == FOLDER:
        parser.error("--quick measures nothing worth keeping: give another --folder")

    def progress(items, label):
        return tqdm(list(items), desc=label, file=sys.stderr)

    chosen.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in chosen.names or BENCHMARKS:
        with torch.no_grad():
            record = BENCHMARKS[name](progress, chosen.quick)
        about = {
            "torch": torch.__version__,
            "transformers": transformers_version,
            "python": platform.python_version(),
            "cpu": cpu(),
            "threads": torch.get_num_threads(),
            "recorded": datetime.date.today().isoformat(),
        }
        path = chosen.folder / f"{name}.json"
        path.write_text(json.dumps(about | record, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: written to {path.name}")


if __name__ == "__main__":
    main()
