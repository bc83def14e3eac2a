"""The presets of gemm that are linear layers of models: x @ W.T in the models' dtype, and named for a search."""

from __future__ import annotations

import pytest

from tuner.kernel.load import load_kernel

LAYERS = {
    # Of hidden size h, heads of 128, KV heads and intermediate size i, divided among so many GPUs.
    "llama3_8b": (4096, 32, 8, 14336, 1),
    "llama3_70b_tp8": (8192, 64, 8, 28672, 8),
    "qwen2_5_7b": (3584, 28, 4, 18944, 1),
}


@pytest.mark.parametrize("model", LAYERS)
@pytest.mark.parametrize(("suffix", "m"), [("", 4096), ("_decode", 16)])
def test_layers_of_models_have_the_sizes_that_follow_from_their_configuration(
    model: str, suffix: str, m: int
) -> None:
    hidden, heads, kv_heads, intermediate, gpus = LAYERS[model]
    expected = {
        "qkv": (128 * (heads + 2 * kv_heads) // gpus, hidden),
        "o": (hidden, 128 * heads // gpus),
        "gate_up": (2 * intermediate // gpus, hidden),
        "down": (hidden, intermediate // gpus),
    }
    for layer, (n, k) in expected.items():
        problem = load_kernel("gemm").problem(preset=f"{model}_{layer}{suffix}")
        assert problem.sizes == {"m": m, "n": n, "k": k}
        assert problem.options["layout"] == "nt"
        assert problem.dtypes["input"] == problem.dtypes["output"] == "bfloat16"
