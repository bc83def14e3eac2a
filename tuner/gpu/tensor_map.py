"""Tensor maps: what the tensor memory accelerator reads to find its way in a matrix.

The driver wants the 128 bytes of a map at a multiple of 64, which the bindings' own structure is not: its bytes lie 48
behind one. So the call goes through ctypes, to memory of ours.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from cuda.bindings import driver as cu

from tuner.gpu.driver import DriverFailure
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launches import TensorMap

BYTES, ALIGNMENT = 128, 128
_DTYPES = {
    "float16": cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "bfloat16": cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "float32": cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
}
_SWIZZLES = {
    0: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}
_PROMOTIONS = {
    0: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
    64: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    128: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    256: cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
}


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def encoded(tensor_map: TensorMap, address: int) -> ctypes.Array[Any]:
    """Return the bytes of a map of the row-major matrix at an address; elements outside of it count as zeros.

    Raises:
        DriverFailure: the driver refuses it.
    """
    room = (ctypes.c_ubyte * (BYTES + ALIGNMENT))()
    aligned = (ctypes.c_ubyte * BYTES).from_buffer(room, -ctypes.addressof(room) % ALIGNMENT)
    # Dimensions are named from the fastest; the distance of columns is not, because they are neighbours.
    error = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(aligned)),
        int(_DTYPES[tensor_map.dtype]),
        2,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 2)(tensor_map.columns, tensor_map.rows),
        (ctypes.c_uint64 * 1)(tensor_map.columns * ITEMSIZE[tensor_map.dtype]),
        (ctypes.c_uint32 * 2)(tensor_map.box_columns, tensor_map.box_rows),
        (ctypes.c_uint32 * 2)(1, 1),
        int(cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(_SWIZZLES[tensor_map.swizzle]),
        int(_PROMOTIONS[tensor_map.promotion]),
        int(cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )
    if error:
        raise DriverFailure(int(error), "cuTensorMapEncodeTiled")
    return aligned
