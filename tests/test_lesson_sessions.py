"""What each trace of two lessons sees is the same on the CPU, on the simulated npu and beside the real torch_npu."""

import json

import lesson_runs
import pytest
import real_npu

wheel, no_device = real_npu.wheel, real_npu.no_device


@pytest.fixture(scope="module")
def on_cpu():
    return lesson_runs.sessions()


def test_simulated_npu(on_cpu):
    on_npu = lesson_runs.sessions(GUARDLAB_DEVICE="npu")
    assert "DispatchKeySet(PrivateUse1" in json.dumps(on_npu)
    assert "DispatchKeySet(PrivateUse1" not in json.dumps(on_cpu)
    assert lesson_runs.but_for_the_device(on_npu) == lesson_runs.but_for_the_device(on_cpu)


def test_a_difference_would_be_seen(on_cpu):
    changed = json.loads(json.dumps(on_cpu).replace("torch.float32", "torch.float16", 1))
    assert lesson_runs.but_for_the_device(changed) != lesson_runs.but_for_the_device(on_cpu)


def test_real_torch_npu(on_cpu, no_device):
    assert any(run["recompile_log"] for run in on_cpu[lesson_runs.LESSONS[0]])
    assert lesson_runs.sessions(**no_device) == on_cpu
