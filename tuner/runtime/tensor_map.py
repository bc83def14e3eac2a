"""Tensor maps: what the tensor memory accelerator reads to find its way in a matrix.

The driver wants the 128 bytes of a map at a multiple of 64, which the bindings' own structure is not: its bytes lie 48
behind one. So the call goes through ctypes, to memory of ours.
"""

from __future__ import annotations

import ctypes

from cuda.bindings import driver as cu

from .driver import DriverFailure, library
from .dtypes import ITEMSIZE
from .launches import TensorMap

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


class EncodedMap:
    """The bytes of a map of a row-major matrix; elements outside of it count as zeros.

    Attributes:
        pointer: where the 128 bytes lie, a multiple of 128.
    """

    def __init__(self, tensor_map: TensorMap) -> None:
        self._room = (ctypes.c_ubyte * (BYTES + ALIGNMENT))()
        start = ctypes.addressof(self._room)
        self.pointer = start + -start % ALIGNMENT
        self._address = ctypes.c_void_p()
        # Dimensions are named from the fastest; the distance of columns is not, because they are neighbours.
        pitch = tensor_map.columns * ITEMSIZE[tensor_map.dtype]
        self._encode = library().cuTensorMapEncodeTiled
        self._arguments = (
            ctypes.c_void_p(self.pointer),
            int(_DTYPES[tensor_map.dtype]),
            2,
            self._address,
            (ctypes.c_uint64 * 2)(tensor_map.columns, tensor_map.rows),
            (ctypes.c_uint64 * 1)(pitch),
            (ctypes.c_uint32 * 2)(tensor_map.box_columns, tensor_map.box_rows),
            (ctypes.c_uint32 * 2)(1, 1),
            int(cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
            int(_SWIZZLES[tensor_map.swizzle]),
            int(_PROMOTIONS[tensor_map.promotion]),
            int(cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        )

    def encode(self, address: int) -> None:
        """Make it the map of the matrix at an address; nothing is done if it is that already.

        Raises:
            DriverFailure: the driver refuses it.
        """
        if self._address.value == address:
            return
        self._address.value = address
        error = self._encode(*self._arguments)
        if error:
            self._address.value = None
            raise DriverFailure(error, "cuTensorMapEncodeTiled")
