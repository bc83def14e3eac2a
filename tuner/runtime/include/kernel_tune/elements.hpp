// Numbers as the bytes of a kernel's argument.
#ifndef KERNEL_TUNE_ELEMENTS_HPP
#define KERNEL_TUNE_ELEMENTS_HPP

#include <cmath>
#include <cstring>

#include "manifest.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

// The bits of a number in float16, rounded to nearest, ties to even. The product with a power of two is exact where
// the result is normal, and where it is not the same rounding gives its few bits.
inline std::uint16_t float16_bits(double value) {
    const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
    const double magnitude = std::fabs(value);
    unsigned bits = 0;
    if (magnitude >= 65520.0) {
        bits = 0x7c00;  // it rounds to infinity
    } else if (magnitude > 0.0) {
        int exponent = 0;
        (void)std::frexp(magnitude, &exponent);
        exponent = std::max(exponent - 1, -14);
        // Eleven bits of a normal number; rounding up may carry into the exponent, as it should.
        const double significand = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
        bits = static_cast<unsigned>((exponent + 14) * 1024 + static_cast<int>(significand));
    }
    return static_cast<std::uint16_t>(sign | bits);
}

inline std::uint16_t bfloat16_bits(double value) {
    const float single = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &single, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct ArgumentBytes {
    alignas(8) unsigned char bytes[8] = {};

    template <typename T>
    void set(T value) {
        static_assert(sizeof(T) <= sizeof(bytes), "an argument by value has at most eight bytes");
        std::memcpy(bytes, &value, sizeof value);
    }
};

// Write a number as an argument of a dtype; false if it does not fit.
inline bool write_argument(const Number& value, const std::string& dtype, ArgumentBytes& out) {
    if (value.none()) return false;
    const double real = value.as_double();
    if (dtype == "float64") return out.set(real), true;
    if (dtype == "float32") {
        // A double beyond the largest float is infinite there, but a conversion that overflows is not defined.
        const double largest = static_cast<double>(std::numeric_limits<float>::max());
        const bool infinite = std::fabs(real) >= largest + std::ldexp(1.0, 103);  // half a unit in the last place above
        const float most = std::fabs(real) > largest ? std::numeric_limits<float>::max() : static_cast<float>(std::fabs(real));
        out.set(std::copysign(infinite ? std::numeric_limits<float>::infinity() : most, static_cast<float>(std::signbit(real) ? -1 : 1)));
        return true;
    }
    if (dtype == "float16") return out.set(float16_bits(real)), true;
    if (dtype == "bfloat16") {
        ArgumentBytes single;
        (void)write_argument(value, "float32", single);
        float rounded = 0.0f;
        std::memcpy(&rounded, single.bytes, sizeof rounded);
        return out.set(bfloat16_bits(static_cast<double>(rounded))), true;
    }
    std::int64_t whole = value.integer;
    if (!value.whole()) {
        if (std::floor(real) != real || real < -0x1p63 || real >= 0x1p63) return false;
        whole = static_cast<std::int64_t>(real);
    }
    const auto within = [whole](std::int64_t least, std::int64_t most) { return whole >= least && whole <= most; };
    if (dtype == "int64") return out.set(whole), true;
    if (dtype == "int32" && within(INT32_MIN, INT32_MAX)) return out.set(static_cast<std::int32_t>(whole)), true;
    if (dtype == "uint32" && within(0, UINT32_MAX)) return out.set(static_cast<std::uint32_t>(whole)), true;
    if (dtype == "int8" && within(INT8_MIN, INT8_MAX)) return out.set(static_cast<std::int8_t>(whole)), true;
    if (dtype == "uint8" && within(0, UINT8_MAX)) return out.set(static_cast<std::uint8_t>(whole)), true;
    return false;
}

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
