import triton
import triton.language as tl


@triton.autotune([triton.Config({"block": block}) for block in (512, 1024)], key=["n"])
@triton.jit
def kernel(x, y, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * v + v, mask=i < n)


def candidate(x, y):
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["block"]),)](x, y, x.numel())
