#pragma once
#include "small_float.hpp"

EMULATOR_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, emulator::bfloat16_bits, emulator::bfloat16_value)
EMULATOR_NAMED(__nv_bfloat16, __nv_bfloat162, bfloat16)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
