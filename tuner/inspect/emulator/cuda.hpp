// What a rendered kernel needs of CUDA to be compiled for the CPU; machine.cpp runs it.
//
// PTX is not run: functions that hold it call those of namespace `ptx`, by their names.
#pragma once

#include <cfloat>
#include <climits>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS  // of <cmath>, for C++17: they cost each kernel 16 ms
#include <cmath>
#include <stddef.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

typedef unsigned char uchar;
namespace std {
using ::acosf, ::asinf, ::atan2f, ::atanf, ::cbrtf, ::ceilf, ::copysignf, ::cosf, ::erff, ::exp2f, ::expf, ::fabsf,
    ::floorf, ::fmaf, ::fmaxf, ::fminf, ::fmodf, ::hypotf, ::log10f, ::log1pf, ::log2f, ::logf, ::powf, ::rintf, ::roundf,
    ::sinf, ::sqrtf, ::tanf, ::tanhf, ::truncf;
}  // namespace std

#define __CUDACC__
#define __CUDACC_RTC__
#define __CUDACC_VER_MAJOR__ 12
#define CUDART_VERSION 12000
#define CUDA_VERSION 12000
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define EMULATOR_INLINE inline __attribute__((always_inline))  // so that accesses have the kernel's own lines
#define EMULATOR_SEEN __attribute__((externally_visible))
// All of a library's thread_local variables lie in one segment, those of templates too: GCC leaves their sections out.
// What is `extern` is dynamic: host.py lets its names mean `emulator_dynamic`.
#define __shared__ thread_local

// Vectors of two, three and four numbers: with the alignments of those of two and four.
#define EMULATOR_VECTORS(name, type, of_two, of_four)                                   \
    struct alignas(of_two) name##2 {                                                    \
        type x, y;                                                                      \
    };                                                                                  \
    struct name##3 {                                                                    \
        type x, y, z;                                                                   \
    };                                                                                  \
    struct alignas(of_four) name##4 {                                                   \
        type x, y, z, w;                                                                \
    };                                                                                  \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                    \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }         \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATOR_VECTORS(char, signed char, 2, 4)
EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(uint, unsigned int, 8, 16)
EMULATOR_VECTORS(long, long, 16, 16)
EMULATOR_VECTORS(ulong, unsigned long, 16, 16)
EMULATOR_VECTORS(longlong, long long, 16, 16)
EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    operator uint3() const { return {x, y, z}; }
};
struct half_t;
struct bf16_t;

extern dim3 threadIdx, blockIdx, gridDim, blockDim;
void __syncthreads();
int __syncthreads_count(int holds);
void __syncwarp(unsigned int mask = ~0u);
void __nanosleep(unsigned int);
inline void __threadfence() {}

namespace emulator {

[[noreturn]] void stop(const char* why);
#define __trap() emulator::stop("it calls __trap")
#define __builtin_assume(holds) ((void)0)
#define assert(holds) ((holds) ? void(0) : emulator::stop("assert(" #holds ") does not hold"))

static __shared__ unsigned char something;  // the segment must exist
constexpr std::size_t DYNAMIC_ROOM = 256 << 10, BESIDE = 16 << 10;  // bytes; those around shared variables are no one's

template <typename To, typename From>
To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

unsigned char* dynamic_shared();
void copy_async(void* shared, const void* global, unsigned int bytes, bool is);
void wait_copies(unsigned int newest);
void wait_bulk_stores(unsigned int newest);
void sync_group(int number, unsigned int threads);
void sync_grid();

// Shows the warp what this lane has; until the next __syncwarp, `seen` gives what another lane has shown.
void show(const void* mine, std::size_t bytes, unsigned int mask = ~0u);
const void* seen(unsigned int lane);
bool shows(unsigned int lane, unsigned int mask);
unsigned int lane();
unsigned int lanes_alive();

// Around an atomic operation others may come between; not within it.
void begin_atomic();
void end_atomic(bool changed);  // whether memory is another than before

// Calls a kernel with the values that its arguments' addresses point to, as a launch on the GPU does.
template <typename... P, std::size_t... I>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<P>*>(arguments[I])...);
}
template <typename... P>
void call(void (*kernel)(P...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<P...>());
}

}  // namespace emulator

#include "intrinsics.hpp"

namespace ptx {

// -- common/types, packed, hints

template <typename T>
float to_float(T x) {
    if constexpr (std::is_same_v<T, half_t>) {
        return static_cast<float>(emulator::bits_as<_Float16>(x.bits));
    } else {
        return __uint_as_float(static_cast<unsigned int>(x.bits) << 16);
    }
}
template <typename T>
T from_float(float x) {
    if constexpr (std::is_same_v<T, half_t>) {
        return {emulator::bits_as<unsigned short>(static_cast<_Float16>(x))};
    } else {
        const unsigned int bits = __float_as_uint(x);
        return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
    }
}
template <typename T>
unsigned int multiply_add_pairs(unsigned int a, unsigned int b, unsigned int c) {
    const auto part = [](unsigned int pair, int shift) {
        return ptx::to_float(T{static_cast<unsigned short>(pair >> shift)});
    };
    unsigned int sum = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const float exact = std::fma(part(a, shift), part(b, shift), part(c, shift));
        sum |= static_cast<unsigned int>(ptx::from_float<T>(exact).bits) << shift;
    }
    return sum;
}
template <typename T>
unsigned int add_pairs(unsigned int a, unsigned int b) {
    return multiply_add_pairs<T>(a, ptx::from_float<T>(1.0f).bits * 0x10001u, b);
}
inline unsigned long long l2_evict_first_hint() { return 0; }
template <typename Word>
Word load_hinted(const Word* from) {
    return *from;
}
template <typename Word>
void store_hinted(Word* to, Word word) {
    *to = word;
}

// -- transpose

template <typename T>
T* opaque(T* address) {
    return address;
}

// -- gemm

inline int opaque(int value) { return value; }
template <int M, int N>
void store_turned(int, const float (&)[M][N]) {}

// -- common/async_copy

template <int BYTES>
void copy_async_or_zero(void* shared, const void* global, bool is) {
    emulator::copy_async(shared, global, BYTES, is);
}
template <int BYTES>
void copy_async(void* shared, const void* global) {
    emulator::copy_async(shared, global, BYTES, true);
}
void commit_copies();
template <int PENDING>
void wait_copies() {
    emulator::wait_copies(PENDING);
}

void init_barrier(const void* barrier, unsigned int arrivals);
inline void publish_barriers() {}
void expect_bytes(const void* barrier, unsigned int bytes);
inline void arrive(const void* barrier) { expect_bytes(barrier, 0); }
void wait_barrier(const void* barrier, unsigned int parity);

inline unsigned long long l2_evict_first_policy() { return 0; }
void bulk_load(void* shared, const void* global, unsigned int bytes, const void* barrier, unsigned long long = 0);
void bulk_store(void* global, const void* shared, unsigned int bytes, unsigned long long = 0);
void commit_bulk_stores();
template <int PENDING>
void wait_bulk_reads() {
    emulator::wait_bulk_stores(PENDING);
}
template <int PENDING>
void wait_bulk_stores() {
    emulator::wait_bulk_stores(PENDING);
}
inline void publish_to_bulk() {}

// -- reduce

// What others write meanwhile shows: the thread gives way first.
template <typename Word>
Word acquire_word(const Word* word) {
    __nanosleep(0);
    return *word;
}
inline unsigned int draw(unsigned int* tickets, unsigned int last) { return atomicInc(tickets, last); }
inline unsigned long long look(const unsigned long long* box) { return acquire_word(box); }
inline void put(unsigned long long* box, unsigned long long what) { atomicExch(box, what); }
void arrive_in_cluster_of(unsigned int blocks);  // as many as are in the grid along x, or a part of them
void wait_in_cluster_of(unsigned int blocks);
void store_in_block(float* place, unsigned int number, float what, const void* barrier = nullptr);
inline void arrive_in_cluster() { arrive_in_cluster_of(gridDim.x); }
inline void wait_for_cluster() { wait_in_cluster_of(gridDim.x); }
inline void send_to_first_block(float number, float* place, const void* barrier) {
    store_in_block(place, 0, number, barrier);
}
inline void wait_for_senders(const void* barrier) { wait_barrier(barrier, 0); }

// -- rows/rows, softmax

template <int BLOCKS>
void begin_in_cluster() {
    arrive_in_cluster_of(BLOCKS);
}
template <int BLOCKS>
void arrive_in_cluster_of() {
    arrive_in_cluster_of(BLOCKS);
}
template <int BLOCKS>
void wait_in_cluster_of() {
    wait_in_cluster_of(BLOCKS);
}
template <int BLOCKS>
void store_in_block(float* place, unsigned int block, float what) {
    store_in_block(place, blockIdx.x / BLOCKS * BLOCKS + block, what);
}
template <int BLOCKS>
void send_pair(float* place, unsigned int block, float first, float second, const void* barrier) {
    store_in_block(place, blockIdx.x / BLOCKS * BLOCKS + block, first, barrier);
    store_in_block(place + 1, blockIdx.x / BLOCKS * BLOCKS + block, second, barrier);
}
inline float exp2_normal(float a) {
    const float power = std::exp2(a);
    return power < 0x1p-126f ? 0.0f : power;
}

// -- mean_matvec

template <int ID, int THREADS>
void sync_group() {
    emulator::sync_group(ID, THREADS);
}
inline unsigned int take(unsigned int* word) { return atomicAdd(word, 1u); }
inline void add_release(unsigned int* word) { take(word); }
inline unsigned int add_acquire_release(unsigned int* word) { return take(word); }
inline float load_l2(const float* address) { return *address; }

struct Floats {
    float at[4];
    template <typename Four>
    operator Four() const {
        return emulator::bits_as<Four>(*this);
    }
};
inline Floats load_l2_vector(const float* address, bool is) {
    return is ? emulator::bits_as<Floats>(*reinterpret_cast<const uint4*>(address)) : Floats{};
}
inline float as_factor(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000u) & ~0x1fffu); }
void multiply_16x8x16(float (&sums)[4], const float (&a)[8], const float (&b)[4]);
// Of tf32: a lane's second term of a row or column lies four behind its first; other terms are zero.
inline void multiply_16x8x8(float (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    const auto number = __uint_as_float;
    multiply_16x8x16(sums, {number(a[0]), number(a[2]), number(a[1]), number(a[3])}, {number(b[0]), number(b[1])});
}

// -- gemm

inline void wait_for_grid(unsigned int* counter, unsigned int parts) {
    for (unsigned int count = take(counter) + 1; count < parts;) {
        count = acquire_word(counter);
    }
    if (take(counter) + 1 == 2 * parts) {
        *counter = 0;
    }
}
void load_matrices(unsigned int (&words)[4], const void* row);
void load_matrices_transposed(unsigned int (&words)[4], const void* row);
template <typename T>
void multiply_16x8x16(float (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    const auto number = [](const unsigned int* pairs, int i) {
        return ptx::to_float(T{static_cast<unsigned short>(pairs[i / 2] >> i % 2 * 16)});
    };
    float numbers_a[8], numbers_b[4];
    for (int i = 0; i < 8; ++i) {
        numbers_a[i] = number(a, i);
    }
    for (int i = 0; i < 4; ++i) {
        numbers_b[i] = number(b, i);
    }
    multiply_16x8x16(sums, numbers_a, numbers_b);
}
// Of 8-bit values (e4m3): the products of the first and of the last two of each four.
inline void multiply_16x8x32(float (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    const auto number = [](const unsigned int* words, int i, int half) {
        const unsigned int bits = words[i / 2] >> (16 * half + 8 * (i % 2)) & 0xff;
        return __uint_as_float((bits & 0x7f) << 20 | (bits & 0x80) << 24) * 0x1p120f;
    };
    for (int half = 0; half < 2; ++half) {
        float numbers_a[8], numbers_b[4];
        for (int i = 0; i < 8; ++i) numbers_a[i] = number(a, i, half);
        for (int i = 0; i < 4; ++i) numbers_b[i] = number(b, i, half);
        multiply_16x8x16(sums, numbers_a, numbers_b);
    }
}

// -- common/programmatic: a launch begins when the one before it has ended

inline void trigger_programmatic_launch() {}
inline void grid_dependency_synchronize() {}
inline void begin_early() {}

}  // namespace ptx
