// CUDA's complex numbers for the emulator, by their names there.
#pragma once
#define EMULATOR_COMPLEX(name, type, real, letter)                                                                                        \
    using name = type;                                                                                                                    \
    inline name make_##name(real x, real y) { return {x, y}; }                                                                            \
    inline real cuCreal##letter(name a) { return a.x; }                                                                                   \
    inline real cuCimag##letter(name a) { return a.y; }                                                                                   \
    inline name cuConj##letter(name a) { return {a.x, -a.y}; }                                                                            \
    inline name cuCadd##letter(name a, name b) { return {a.x + b.x, a.y + b.y}; }                                                         \
    inline name cuCsub##letter(name a, name b) { return {a.x - b.x, a.y - b.y}; }                                                         \
    inline name cuCmul##letter(name a, name b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }                                 \
    inline real cuCabs##letter(name a) { return std::hypot(a.x, a.y); }                                                                   \
    inline name cuCdiv##letter(name a, name b) {                                                                                          \
        const real scale = real(1) / (std::fabs(b.x) + std::fabs(b.y));                                                                   \
        const real ax = a.x * scale, ay = a.y * scale, bx = b.x * scale, by = b.y * scale, all = real(1) / (bx * bx + by * by);           \
        return {(ax * bx + ay * by) * all, (ay * bx - ax * by) * all};                                                                    \
    }                                                                                                                                     \
    inline name cuCfma##letter(name a, name b, name c) { return cuCadd##letter(cuCmul##letter(a, b), c); }
EMULATOR_COMPLEX(cuFloatComplex, float2, float, f)
EMULATOR_COMPLEX(cuDoubleComplex, double2, double, )
#undef EMULATOR_COMPLEX
using cuComplex = cuFloatComplex;
inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return {static_cast<float>(a.x), static_cast<float>(a.y)}; }
