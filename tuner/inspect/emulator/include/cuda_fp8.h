// Floating-point numbers of one byte for the CPU: what plain kernels use of CUDA's header. Of its two formats E4M3, which
// has no infinity; conversions round to nearest.
#pragma once

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned int;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3 };

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t limit, __nv_fp8_interpretation_t) {
    const double size = limit == __NV_SATFINITE ? std::fmin(std::fabs(x), 448.0) : std::fabs(x);
    if (x != x || size > 464.0) return 0x7f;  // beyond the middle to 480, which is no number
    const int exponent = size < 0x1p-6 ? -6 : std::ilogb(size);
    // Four bits of a normal number; rounding up may carry into the exponent, as it should.
    const int code = (exponent + 6) * 8 + static_cast<int>(std::rint(std::ldexp(size, 3 - exponent)));
    return static_cast<__nv_fp8_storage_t>(code | (std::signbit(x) ? 0x80 : 0));
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t limit, __nv_fp8_interpretation_t of) {
    return __nv_cvt_double_to_fp8(x, limit, of);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t limit, __nv_fp8_interpretation_t of) {
    return __nv_cvt_float_to_fp8(x.x, limit, of) | __nv_cvt_float_to_fp8(x.y, limit, of) << 8;
}

struct __nv_fp8_e4m3 {
    __nv_fp8_storage_t __x;
    __nv_fp8_e4m3() = default;
    template <typename T>
    explicit __nv_fp8_e4m3(T x) : __x(__nv_cvt_double_to_fp8(static_cast<double>(x), __NV_SATFINITE, __NV_E4M3)) {}
    template <typename T>
    explicit operator T() const {
        const int size = __x & 0x7f, exponent = size >> 3;
        const float value = std::ldexp(exponent ? size % 8 + 8.0f : size, (exponent ? exponent : 1) - 10);
        return static_cast<T>(size == 0x7f ? NAN : __x & 0x80 ? -value : value);
    }
};

struct __nv_fp8x2_e4m3 {
    __nv_fp8x2_storage_t __x;
    __nv_fp8x2_e4m3() = default;
    explicit __nv_fp8x2_e4m3(float2 x) : __x(__nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, __NV_E4M3)) {}
    explicit operator float2() const {
        const auto part = [this](int i) { return float(emulator::bits_as<__nv_fp8_e4m3>(__nv_fp8_storage_t(__x >> 8 * i))); };
        return {part(0), part(1)};
    }
};

struct __nv_fp8x4_e4m3 {
    __nv_fp8x4_storage_t __x;
    __nv_fp8x4_e4m3() = default;
    explicit __nv_fp8x4_e4m3(float4 x)
        : __x(__nv_fp8x2_e4m3(float2{x.x, x.y}).__x | unsigned(__nv_fp8x2_e4m3(float2{x.z, x.w}).__x) << 16) {}
    explicit operator float4() const {
        const auto part = [this](int i) { return float(emulator::bits_as<__nv_fp8_e4m3>(__nv_fp8_storage_t(__x >> 8 * i))); };
        return {part(0), part(1), part(2), part(3)};
    }
};
