#pragma once
#include "small_float.hpp"

EMULATOR_SMALL_FLOAT(__half, __half2, emulator::half_bits, emulator::half_value)
using half = __half;
using half2 = __half2;

inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return static_cast<float>(x); }
inline float __half2float(__half x) { return x; }
EMULATOR_TO_INTEGER(half2int, __half, int)
EMULATOR_TO_INTEGER(half2uint, __half, unsigned int)
EMULATOR_TO_INTEGER(half2short, __half, short)
EMULATOR_TO_INTEGER(half2ushort, __half, unsigned short)
inline __half __int2half_rn(int x) { return static_cast<float>(x); }
inline __half __uint2half_rn(unsigned int x) { return static_cast<float>(x); }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline __half __ushort_as_half(unsigned short bits) { return emulator::bits_as<__half>(bits); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
