import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * v + v, mask=i < n)


def candidate(x, y):
    kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), block=2048)
