// Floating-point numbers of two bytes for the CPU, rounded to nearest: what plain kernels use of CUDA's headers.
//
// EMULATOR_SMALL_FLOAT(type, pair, to_bits, from_bits) defines a type and its pair, EMULATOR_NAMED(type, pair, name) the
// functions whose names have the type's in them.
#pragma once

namespace emulator {

inline unsigned short half_bits(float x) { return bits_as<unsigned short>(static_cast<_Float16>(x)); }
inline float half_value(unsigned short bits) { return static_cast<float>(bits_as<_Float16>(bits)); }
inline unsigned short bfloat16_bits(float x) {
    const unsigned int bits = bits_as<unsigned int>(x);
    return static_cast<unsigned short>(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float bfloat16_value(unsigned short bits) { return bits_as<float>(static_cast<unsigned int>(bits) << 16); }

}  // namespace emulator

#define EMULATOR_CALCULATED(type, pair, name, mark)                                                          \
    inline type operator mark(type a, type b) { return float(a) mark float(b); }                             \
    inline pair operator mark(pair a, pair b) { return {a.x mark b.x, a.y mark b.y}; }                       \
    inline type& operator mark##=(type& a, type b) { return a = a mark b; }                                  \
    inline pair& operator mark##=(pair& a, pair b) { return a = a mark b; }                                  \
    inline type __h##name(type a, type b) { return a mark b; }                                               \
    inline pair __h##name##2(pair a, pair b) { return a mark b; }
#define EMULATOR_COMPARED(type, pair, name, mark)                                                            \
    inline bool operator mark(type a, type b) { return float(a) mark float(b); }                             \
    inline bool __h##name(type a, type b) { return a mark b; }                                               \
    inline pair __h##name##2(pair a, pair b) { return {a.x mark b.x, a.y mark b.y}; }
#define EMULATOR_OF_ONE(type, pair, name, value)                                                             \
    inline type h##name(type a) { return [](float x) { return value; }(a); }                                 \
    inline pair h2##name(pair a) { return {h##name(a.x), h##name(a.y)}; }
#define EMULATOR_SMALL_FLOAT(type, pair, to_bits, from_bits)                                                 \
    struct type {                                                                                            \
        unsigned short bits;                                                                                 \
        type() = default;                                                                                    \
        template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>                          \
        type(T x) : bits(to_bits(static_cast<float>(x))) {}                                                  \
        operator float() const { return from_bits(bits); }                                                   \
        friend type operator-(type a) { return -from_bits(a.bits); }                                         \
    };                                                                                                       \
    struct alignas(4) pair {                                                                                 \
        type x, y;                                                                                           \
        pair() = default;                                                                                    \
        pair(type first, type second) : x(first), y(second) {}                                               \
        friend pair operator-(pair a) { return {-a.x, -a.y}; }                                               \
    };                                                                                                       \
    EMULATOR_CALCULATED(type, pair, add, +)                                                                  \
    EMULATOR_CALCULATED(type, pair, sub, -)                                                                  \
    EMULATOR_CALCULATED(type, pair, mul, *)                                                                  \
    EMULATOR_CALCULATED(type, pair, div, /)                                                                  \
    EMULATOR_COMPARED(type, pair, gt, >)                                                                     \
    EMULATOR_COMPARED(type, pair, lt, <)                                                                     \
    EMULATOR_COMPARED(type, pair, ge, >=)                                                                    \
    EMULATOR_COMPARED(type, pair, le, <=)                                                                    \
    EMULATOR_COMPARED(type, pair, eq, ==)                                                                    \
    EMULATOR_COMPARED(type, pair, ne, !=)                                                                    \
    inline type __hneg(type a) { return -a; }                                                                \
    inline type __hmax(type a, type b) { return a < b ? b : a; }                                             \
    inline type __hmin(type a, type b) { return b < a ? b : a; }                                             \
    inline bool __hisnan(type a) { return a != a; }                                                          \
    inline type __habs(type a) { return fabsf(from_bits(a.bits)); }                                          \
    inline type __hfma(type a, type b, type c) {                                                             \
        return static_cast<float>(static_cast<double>(from_bits(a.bits)) * from_bits(b.bits) + from_bits(c.bits)); \
    }                                                                                                        \
    inline pair __hfma2(pair a, pair b, pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }   \
    inline pair __h2div(pair a, pair b) { return a / b; }                                                    \
    inline pair __hneg2(pair a) { return -a; }                                                               \
    inline pair __habs2(pair a) { return {__habs(a.x), __habs(a.y)}; }                                       \
    inline pair __hmax2(pair a, pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                     \
    inline pair __hmin2(pair a, pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                     \
    EMULATOR_OF_ONE(type, pair, exp, expf(x))                                                                \
    EMULATOR_OF_ONE(type, pair, exp2, exp2f(x))                                                              \
    EMULATOR_OF_ONE(type, pair, log, logf(x))                                                                \
    EMULATOR_OF_ONE(type, pair, log2, log2f(x))                                                              \
    EMULATOR_OF_ONE(type, pair, sqrt, sqrtf(x))                                                              \
    EMULATOR_OF_ONE(type, pair, rsqrt, 1 / sqrtf(x))                                                         \
    EMULATOR_OF_ONE(type, pair, rcp, 1 / x)                                                                  \
    EMULATOR_OF_ONE(type, pair, sin, sinf(x))                                                                \
    EMULATOR_OF_ONE(type, pair, cos, cosf(x))                                                                \
    EMULATOR_OF_ONE(type, pair, tanh, tanhf(x))                                                              \
    EMULATOR_OF_ONE(type, pair, floor, floorf(x))                                                            \
    EMULATOR_OF_ONE(type, pair, ceil, ceilf(x))                                                              \
    EMULATOR_OF_ONE(type, pair, rint, rintf(x))                                                              \
    EMULATOR_OF_ONE(type, pair, trunc, truncf(x))                                                            \
    inline float __low2float(pair a) { return a.x; }                                                         \
    inline float __high2float(pair a) { return a.y; }
#define EMULATOR_NAMED(type, pair, name)                                                                     \
    inline type __float2##name(float x) { return x; }                                                        \
    inline type __float2##name##_rn(float x) { return x; }                                                   \
    inline type __double2##name(double x) { return static_cast<float>(x); }                                  \
    inline float __##name##2float(type x) { return x; }                                                      \
    inline pair __float2##name##2_rn(float x) { return {x, x}; }                                             \
    inline pair __floats2##name##2_rn(float x, float y) { return {x, y}; }                                   \
    inline pair __halves2##name##2(type x, type y) { return {x, y}; }                                        \
    inline pair __##name##2##name##2(type x) { return {x, x}; }                                              \
    inline float2 __##name##22float2(pair x) { return {x.x, x.y}; }                                          \
    inline type __low2##name(pair x) { return x.x; }                                                         \
    inline type __high2##name(pair x) { return x.y; }                                                        \
    inline type __ushort_as_##name(unsigned short bits) { return emulator::bits_as<type>(bits); }            \
    inline unsigned short __##name##_as_ushort(type x) { return x.bits; }
