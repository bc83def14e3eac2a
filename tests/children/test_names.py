"""A kernel is found by its C name or its C++ name."""

from __future__ import annotations

import pytest

from tuner.children.nvrtc import SourceRejected, compile_source

KERNEL = "__global__ void scale(float* x) { *x *= 2.0f; }\n"


@pytest.mark.parametrize(
    ("source", "entry"),
    [
        (f'extern "C" {KERNEL}', "scale"),
        (KERNEL, "scale"),
        (
            f"struct scale_of {{ float x; }}; {KERNEL}__global__ void other(scale_of* scale) {{ scale->x = 1.0f; }}",
            "scale",
        ),
        (f"static {KERNEL}", "scale"),
        (f"namespace {{ {KERNEL} }}", "scale"),
        (f"namespace image {{ {KERNEL} }} {KERNEL}", "scale"),
        ("template <class T> __global__ void scale(T* x) { *x *= 2; }", "scale<double>"),
    ],
)
def test_a_kernel_is_found(source: str, entry: str) -> None:
    assert "scale" in compile_source(source, entry, "sm_90").entry


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (KERNEL.replace("scale", "other"), r"no kernel named 'scale' in the source \(found: other\)"),
        (f"namespace image {{ {KERNEL} }}", r"no kernel named 'scale' in the source \(found: image::scale\)"),
        (f"{KERNEL}{KERNEL.replace('float*', 'double*')}", r"'scale' names 2 kernels.* rename them"),
        (
            "template <class T> __global__ void scale(T* x) { *x *= 2; }",
            "of a template write the arguments, too: NAME<...>",
        ),
    ],
)
def test_what_is_no_kernel_or_several_is_said_in_one_line(source: str, said: str) -> None:
    with pytest.raises(SourceRejected, match=said) as caught:
        compile_source(source, "scale", "sm_90")
    assert "\n" not in str(caught.value)
