#pragma once
#include "small_float.hpp"

EMULATOR_SMALL_FLOAT(__half, __half2, emulator::half_bits, emulator::half_value)
EMULATOR_NAMED(__half, __half2, half)
using half = __half;
using half2 = __half2;

EMULATOR_TO_INTEGER(half2int, __half, int)
EMULATOR_TO_INTEGER(half2uint, __half, unsigned int)
EMULATOR_TO_INTEGER(half2short, __half, short)
EMULATOR_TO_INTEGER(half2ushort, __half, unsigned short)
inline __half __int2half_rn(int x) { return static_cast<float>(x); }
inline __half __uint2half_rn(unsigned int x) { return static_cast<float>(x); }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
