// Floating-point numbers of two bytes for the CPU, rounded to nearest: what plain kernels use of CUDA's headers.
//
// EMULATOR_SMALL_FLOAT(type, pair, to_bits, from_bits) defines a type and its pair; functions whose names have the type's
// in them are in cuda_fp16.h and cuda_bf16.h.
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

#define EMULATOR_SMALL_FLOAT(type, pair, to_bits, from_bits)                                                 \
    struct type {                                                                                            \
        unsigned short bits;                                                                                 \
        type() = default;                                                                                    \
        template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>                          \
        type(T x) : bits(to_bits(static_cast<float>(x))) {}                                                  \
        operator float() const { return from_bits(bits); }                                                   \
        type& operator+=(type b) { return *this = *this + b; }                                               \
        type& operator-=(type b) { return *this = *this - b; }                                               \
        type& operator*=(type b) { return *this = *this * b; }                                               \
        type& operator/=(type b) { return *this = *this / b; }                                               \
        friend type operator+(type a, type b) { return from_bits(a.bits) + from_bits(b.bits); }              \
        friend type operator-(type a, type b) { return from_bits(a.bits) - from_bits(b.bits); }              \
        friend type operator*(type a, type b) { return from_bits(a.bits) * from_bits(b.bits); }              \
        friend type operator/(type a, type b) { return from_bits(a.bits) / from_bits(b.bits); }              \
        friend type operator-(type a) { return -from_bits(a.bits); }                                         \
        friend bool operator<(type a, type b) { return from_bits(a.bits) < from_bits(b.bits); }              \
        friend bool operator>(type a, type b) { return from_bits(a.bits) > from_bits(b.bits); }              \
        friend bool operator<=(type a, type b) { return from_bits(a.bits) <= from_bits(b.bits); }            \
        friend bool operator>=(type a, type b) { return from_bits(a.bits) >= from_bits(b.bits); }            \
        friend bool operator==(type a, type b) { return from_bits(a.bits) == from_bits(b.bits); }            \
        friend bool operator!=(type a, type b) { return from_bits(a.bits) != from_bits(b.bits); }            \
    };                                                                                                       \
    struct alignas(4) pair {                                                                                 \
        type x, y;                                                                                           \
        pair() = default;                                                                                    \
        pair(type first, type second) : x(first), y(second) {}                                               \
        friend pair operator+(pair a, pair b) { return {a.x + b.x, a.y + b.y}; }                             \
        friend pair operator-(pair a, pair b) { return {a.x - b.x, a.y - b.y}; }                             \
        friend pair operator*(pair a, pair b) { return {a.x * b.x, a.y * b.y}; }                             \
    };                                                                                                       \
    inline type __hadd(type a, type b) { return a + b; }                                                     \
    inline type __hsub(type a, type b) { return a - b; }                                                     \
    inline type __hmul(type a, type b) { return a * b; }                                                     \
    inline type __hdiv(type a, type b) { return a / b; }                                                     \
    inline type __hneg(type a) { return -a; }                                                                \
    inline type __hmax(type a, type b) { return a < b ? b : a; }                                             \
    inline type __hmin(type a, type b) { return b < a ? b : a; }                                             \
    inline bool __hgt(type a, type b) { return a > b; }                                                      \
    inline bool __hlt(type a, type b) { return a < b; }                                                      \
    inline type __hfma(type a, type b, type c) {                                                             \
        return static_cast<float>(static_cast<double>(from_bits(a.bits)) * from_bits(b.bits) + from_bits(c.bits)); \
    }                                                                                                        \
    inline pair __hadd2(pair a, pair b) { return a + b; }                                                    \
    inline pair __hsub2(pair a, pair b) { return a - b; }                                                    \
    inline pair __hmul2(pair a, pair b) { return a * b; }                                                    \
    inline pair __hfma2(pair a, pair b, pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }   \
    inline float __low2float(pair a) { return a.x; }                                                         \
    inline float __high2float(pair a) { return a.y; }
