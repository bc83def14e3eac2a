#pragma once
#include "small_float.hpp"

EMULATOR_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, emulator::bfloat16_bits, emulator::bfloat16_value)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return static_cast<float>(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return emulator::bits_as<__nv_bfloat16>(bits); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
