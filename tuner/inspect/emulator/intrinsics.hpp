// CUDA's functions that plain kernels call, for the CPU. Included by cuda.hpp.
#pragma once

// -- warps

inline constexpr int warpSize = 32;
template <typename T>
T emulator_lane(unsigned int mask, T mine, int lane, int width, bool inside) {
    emulator::show(&mine, sizeof(T), mask);
    const int first = static_cast<int>(emulator::lane()) & ~(width - 1);
    if (inside && emulator::shows(first + lane, mask)) {
        std::memcpy(&mine, emulator::seen(first + lane), sizeof(T));
    } else if (inside) {
        std::memset(static_cast<void*>(&mine), 0xff, sizeof(T));  // anything on a GPU; NaN here, and -1
    }
    __syncwarp(mask);
    return mine;
}
template <typename T>
T __shfl_sync(unsigned int mask, T mine, int lane, int width = 32) {
    return emulator_lane(mask, mine, lane & (width - 1), width, true);
}
template <typename T>
T __shfl_xor_sync(unsigned int mask, T mine, int distance, int width = 32) {
    const int lane = static_cast<int>(emulator::lane() & (width - 1)) ^ distance;
    return emulator_lane(mask, mine, lane, width, lane < width);
}
template <typename T>
T __shfl_down_sync(unsigned int mask, T mine, unsigned int distance, int width = 32) {
    const int lane = static_cast<int>((emulator::lane() & (width - 1)) + distance);
    return emulator_lane(mask, mine, lane, width, lane < width);
}
template <typename T>
T __shfl_up_sync(unsigned int mask, T mine, unsigned int distance, int width = 32) {
    const int lane = static_cast<int>(emulator::lane() & (width - 1)) - static_cast<int>(distance);
    return emulator_lane(mask, mine, lane, width, lane >= 0);
}
inline unsigned int __activemask() { return emulator::lanes_alive(); }
inline unsigned int __ballot_sync(unsigned int mask, int holds) {
    const unsigned int mine = holds != 0;
    emulator::show(&mine, sizeof(mine), mask);
    unsigned int all = 0;
    for (unsigned int lane = 0, alive = emulator::lanes_alive() & mask; lane < 32; ++lane) {
        if (alive >> lane & 1) {
            all |= *static_cast<const unsigned int*>(emulator::seen(lane)) << lane;
        }
    }
    __syncwarp(mask);
    return all;
}
inline int __any_sync(unsigned int mask, int holds) { return __ballot_sync(mask, holds) != 0; }
inline int __all_sync(unsigned int mask, int holds) { return __ballot_sync(mask, !holds) == 0; }
template <typename T>
T emulator_reduced(unsigned int mask, T mine, T (*combine)(T, T)) {
    emulator::show(&mine, sizeof(mine), mask);
    T all = mine;
    for (unsigned int lane = 0, alive = emulator::lanes_alive() & mask; lane < 32; ++lane) {
        if (alive >> lane & 1 && lane != emulator::lane()) {
            all = combine(all, *static_cast<const T*>(emulator::seen(lane)));
        }
    }
    __syncwarp(mask);
    return all;
}
#define EMULATOR_REDUCE(name, expression)                                                    \
    template <typename T>                                                                    \
    T __reduce_##name##_sync(unsigned int mask, T mine) {                                    \
        return emulator_reduced<T>(mask, mine, [](T a, T b) { return T(expression); });      \
    }
EMULATOR_REDUCE(add, a + b)
EMULATOR_REDUCE(max, a < b ? b : a)
EMULATOR_REDUCE(min, b < a ? b : a)
EMULATOR_REDUCE(and, a & b)
EMULATOR_REDUCE(or, a | b)
EMULATOR_REDUCE(xor, a ^ b)
template <typename T>
unsigned int __match_any_sync(unsigned int mask, T mine, int* all = nullptr) {
    emulator::show(&mine, sizeof(mine), mask);
    const unsigned int alive = emulator::lanes_alive() & mask;
    unsigned int equal = 0;
    for (unsigned int lane = 0; lane < 32; ++lane) {
        if (alive >> lane & 1) {
            equal |= static_cast<unsigned int>(*static_cast<const T*>(emulator::seen(lane)) == mine) << lane;
        }
    }
    if (all) *all = equal == alive;  // lanes may end behind the barrier
    __syncwarp(mask);
    return equal;
}
template <typename T>
unsigned int __match_all_sync(unsigned int mask, T mine, int* all) {
    const unsigned int equal = __match_any_sync(mask, mine, all);
    return *all ? equal : 0;
}
inline int __syncthreads_or(int holds) { return __syncthreads_count(holds) != 0; }
inline int __syncthreads_and(int holds) { return __syncthreads_count(!holds) == 0; }
inline long long clock64() { return 0; }  // time stands still: no result may follow from it
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// -- atomics

template <typename T, typename Change>
EMULATOR_INLINE T emulator_atomic(T* at, Change change) {
    emulator::begin_atomic();
    const T before = *at, after = change(before);
    *at = after;
    emulator::end_atomic(std::memcmp(&before, &after, sizeof(T)) != 0);
    return before;
}
#define EMULATOR_ATOMIC(name, expression)                                                      \
    template <typename T>                                                                      \
    EMULATOR_INLINE T name(T* at, std::common_type_t<T> given) {                                               \
        return emulator_atomic(at, [=](T before) { return static_cast<T>(expression); });      \
    }                                                                                          \
    template <typename T>                                                                      \
    EMULATOR_INLINE T name##_block(T* at, std::common_type_t<T> given) {                       \
        return name(at, given);                                                                \
    }                                                                                          \
    template <typename T>                                                                      \
    EMULATOR_INLINE T name##_system(T* at, std::common_type_t<T> given) {                      \
        return name(at, given);                                                                \
    }
EMULATOR_ATOMIC(atomicAdd, before + given)
EMULATOR_ATOMIC(atomicSub, before - given)
EMULATOR_ATOMIC(atomicExch, given)
EMULATOR_ATOMIC(atomicMax, before < given ? given : before)
EMULATOR_ATOMIC(atomicMin, given < before ? given : before)
EMULATOR_ATOMIC(atomicAnd, before& given)
EMULATOR_ATOMIC(atomicOr, before | given)
EMULATOR_ATOMIC(atomicXor, before ^ given)
EMULATOR_ATOMIC(atomicInc, before >= given ? 0 : before + 1)
EMULATOR_ATOMIC(atomicDec, before == 0 || before > given ? given : before - 1)
template <typename T>
EMULATOR_INLINE T atomicCAS(T* at, std::common_type_t<T> expected, std::common_type_t<T> then) {
    return emulator_atomic(at, [=](T before) { return before == expected ? then : before; });
}

// -- numbers

template <typename A, typename B>
std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <typename A, typename B>
std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

inline unsigned int __float_as_uint(float x) { return emulator::bits_as<unsigned int>(x); }
inline int __float_as_int(float x) { return emulator::bits_as<int>(x); }
inline float __uint_as_float(unsigned int x) { return emulator::bits_as<float>(x); }
inline float __int_as_float(int x) { return emulator::bits_as<float>(x); }
inline double __longlong_as_double(long long x) { return emulator::bits_as<double>(x); }
inline long long __double_as_longlong(double x) { return emulator::bits_as<long long>(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a * (1.0f / b); }  // within 2 ulp, as on a GPU
inline float fdividef(float a, float b) { return __fdividef(a, b); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline float __expf(float a) { return std::exp(a); }
inline float __exp10f(float a) { return std::pow(10.0f, a); }
inline float __logf(float a) { return std::log(a); }
inline float __log2f(float a) { return std::log2(a); }
inline float __log10f(float a) { return std::log10(a); }
inline float __sinf(float a) { return std::sin(a); }
inline float __cosf(float a) { return std::cos(a); }
inline float __tanf(float a) { return std::tan(a); }
inline float __powf(float a, float b) { return std::pow(a, b); }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline double sinpi(double a) { return std::sin(M_PI * std::fmod(a, 2.0)); }
inline double cospi(double a) { return std::cos(M_PI * std::fmod(a, 2.0)); }
inline float sinpif(float a) { return static_cast<float>(sinpi(a)); }
inline float cospif(float a) { return static_cast<float>(cospi(a)); }
inline void sincospi(double a, double* s, double* c) { *s = sinpi(a), *c = cospi(a); }
inline void sincospif(float a, float* s, float* c) { *s = sinpif(a), *c = cospif(a); }
inline float __frsqrt_rn(float a) { return rsqrtf(a); }
inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned int __brev(unsigned int x) {
    unsigned int reversed = 0;
    for (int bit = 0; bit < 32; ++bit) {
        reversed |= (x >> bit & 1) << (31 - bit);
    }
    return reversed;
}
inline int __mul24(int a, int b) { return a * b; }
inline unsigned int __umul24(unsigned int a, unsigned int b) { return a * b; }
inline unsigned int __sad(int a, int b, unsigned int c) { return c + static_cast<unsigned int>(a < b ? b - a : a - b); }
inline int __dp4a(int a, int b, int c) {
    for (int shift = 0; shift < 32; shift += 8) {
        c += static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift);
    }
    return c;
}
inline unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector) {
    const unsigned long long both = static_cast<unsigned long long>(b) << 32 | a;
    unsigned int chosen = 0;
    for (int i = 0; i < 4; ++i) {
        chosen |= static_cast<unsigned int>(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    }
    return chosen;
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int by) {
    return static_cast<unsigned int>(((static_cast<unsigned long long>(high) << 32 | low) << (by & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int by) {
    return static_cast<unsigned int>((static_cast<unsigned long long>(high) << 32 | low) >> (by & 31));
}
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<__int128>(a) * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned int umin(unsigned int a, unsigned int b) { return b < a ? b : a; }
inline unsigned int umax(unsigned int a, unsigned int b) { return a < b ? b : a; }
inline float rcbrtf(float a) { return 1.0f / std::cbrt(a); }
inline float rhypotf(float a, float b) { return 1.0f / std::hypot(a, b); }
inline float norm3df(float a, float b, float c) { return std::hypot(a, b, c); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / std::hypot(a, b, c); }
inline float normcdff(float a) { return 0.5f * std::erfc(a * -0.70710678f); }
inline double normcdf(double a) { return 0.5 * std::erfc(a * -0.70710678118654752); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
    return static_cast<unsigned int>(static_cast<unsigned long long>(a) * b >> 32);
}
template <typename T>
T emulator_integer(double whole, bool narrow) {  // the nearest there is; of NaN zero, or only the highest bit
    using Limits = std::numeric_limits<T>;
    if (whole != whole) {
        return narrow ? 0 : static_cast<T>(1ull << (8 * sizeof(T) - 1));
    }
    return whole <= double(Limits::min()) ? Limits::min() : whole >= double(Limits::max()) ? Limits::max() : static_cast<T>(whole);
}
#define EMULATOR_ROUNDED(name, function, from, to) \
    inline to __##name(from x) { return emulator_integer<to>(std::function(double(x)), sizeof(from) + sizeof(to) == 8); }
#define EMULATOR_TO_INTEGER(name, from, to)           \
    EMULATOR_ROUNDED(name##_rn, nearbyint, from, to)  \
    EMULATOR_ROUNDED(name##_rz, trunc, from, to)      \
    EMULATOR_ROUNDED(name##_rd, floor, from, to)      \
    EMULATOR_ROUNDED(name##_ru, ceil, from, to)
EMULATOR_TO_INTEGER(float2int, float, int)
EMULATOR_TO_INTEGER(float2uint, float, unsigned int)
EMULATOR_TO_INTEGER(float2ll, float, long long)
EMULATOR_TO_INTEGER(float2ull, float, unsigned long long)
EMULATOR_TO_INTEGER(double2int, double, int)
EMULATOR_TO_INTEGER(double2uint, double, unsigned int)
EMULATOR_TO_INTEGER(double2ll, double, long long)
EMULATOR_TO_INTEGER(double2ull, double, unsigned long long)
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned int x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned int x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __double2hiint(double x) { return static_cast<int>(emulator::bits_as<long long>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(emulator::bits_as<long long>(x)); }
inline double __hiloint2double(int high, int low) {
    return emulator::bits_as<double>(static_cast<unsigned long long>(high) << 32 | static_cast<unsigned int>(low));
}

// -- memory

inline unsigned int __cvta_generic_to_shared(const void* shared) {  // the low half of the CPU's address
    return static_cast<unsigned int>(reinterpret_cast<std::size_t>(shared));
}
inline unsigned long long __cvta_generic_to_global(const void*) { return 0; }
#define EMULATOR_LOAD(name)   \
    template <typename T>     \
    EMULATOR_INLINE T name(const T* from) {   \
        return *from;         \
    }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldcv)
#define EMULATOR_STORE(name)                             \
    template <typename T>                                \
    EMULATOR_INLINE void name(T* to, std::common_type_t<T> what) {       \
        *to = what;                                      \
    }
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)
