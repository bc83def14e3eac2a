// What kernels use of C++'s standard library, for NVRTC, which has none of its headers: libcu++'s, in cuda::std, take a
// second to compile.
#pragma once

namespace std {

using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype((char*)0 - (char*)0);
using nullptr_t = decltype(nullptr);

using ::abs, ::acos, ::acosh, ::asin, ::asinh, ::atan, ::atan2, ::atanh, ::cbrt, ::ceil, ::copysign, ::cos, ::cosh, ::erf,
    ::erfc, ::exp, ::exp2, ::expm1, ::fabs, ::fdim, ::floor, ::fma, ::fmax, ::fmin, ::fmod, ::frexp, ::hypot, ::ilogb,
    ::isfinite, ::isinf, ::isnan, ::labs, ::ldexp, ::lgamma, ::llabs, ::llrint, ::llround, ::log, ::log10, ::log1p, ::log2,
    ::logb, ::lrint, ::lround, ::modf, ::nearbyint, ::nextafter, ::pow, ::remainder, ::rint, ::round, ::scalbn, ::signbit,
    ::sin, ::sinh, ::sqrt, ::tan, ::tanh, ::tgamma, ::trunc;
using ::acosf, ::asinf, ::atan2f, ::atanf, ::cbrtf, ::ceilf, ::copysignf, ::cosf, ::erff, ::exp2f, ::expf, ::fabsf,
    ::floorf, ::fmaf, ::fmaxf, ::fminf, ::fmodf, ::hypotf, ::log10f, ::log1pf, ::log2f, ::logf, ::powf, ::rintf, ::roundf,
    ::sinf, ::sqrtf, ::tanf, ::tanhf, ::truncf;
using ::free, ::malloc, ::memcpy, ::memset, ::printf;

template <typename T>
constexpr const T& min(const T& a, const T& b) {
    return b < a ? b : a;
}
template <typename T>
constexpr const T& max(const T& a, const T& b) {
    return a < b ? b : a;
}
template <typename T, typename Less>
constexpr const T& min(const T& a, const T& b, Less less) {
    return less(b, a) ? b : a;
}
template <typename T, typename Less>
constexpr const T& max(const T& a, const T& b, Less less) {
    return less(a, b) ? b : a;
}
template <typename T>
constexpr const T& clamp(const T& x, const T& low, const T& high) {
    return x < low ? low : high < x ? high : x;
}
template <typename T>
constexpr void swap(T& a, T& b) {
    T kept = static_cast<T&&>(a);
    a = static_cast<T&&>(b);
    b = static_cast<T&&>(kept);
}

template <typename T, T x>
struct integral_constant {
    static constexpr T value = x;
    using value_type = T;
    using type = integral_constant;
    constexpr operator T() const { return x; }
    constexpr T operator()() const { return x; }
};
template <bool holds>
using bool_constant = integral_constant<bool, holds>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool holds, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
    using type = T;
};
template <bool holds, typename T = void>
using enable_if_t = typename enable_if<holds, T>::type;

template <bool holds, typename T, typename F>
struct conditional {
    using type = T;
};
template <typename T, typename F>
struct conditional<false, T, F> {
    using type = F;
};
template <bool holds, typename T, typename F>
using conditional_t = typename conditional<holds, T, F>::type;

template <typename...>
using void_t = void;
template <typename T>
struct type_identity {
    using type = T;
};

#define STANDARD_CHANGE(name, from, to)      \
    template <typename T>                    \
    struct name : type_identity<T> {};       \
    template <typename T>                    \
    struct name<from> : type_identity<to> {}; \
    template <typename T>                    \
    using name##_t = typename name<T>::type;
STANDARD_CHANGE(remove_const, const T, T)
STANDARD_CHANGE(remove_volatile, volatile T, T)
STANDARD_CHANGE(remove_pointer, T*, T)
template <typename T>
struct remove_reference : type_identity<T> {};
template <typename T>
struct remove_reference<T&> : type_identity<T> {};
template <typename T>
struct remove_reference<T&&> : type_identity<T> {};
template <typename T>
using remove_reference_t = typename remove_reference<T>::type;
template <typename T>
struct remove_cv : remove_const<remove_volatile_t<T>> {};
template <typename T>
using remove_cv_t = typename remove_cv<T>::type;
template <typename T>
struct remove_cvref : remove_cv<remove_reference_t<T>> {};
template <typename T>
using remove_cvref_t = typename remove_cvref<T>::type;
template <typename T>
struct remove_extent : type_identity<T> {};
template <typename T>
struct remove_extent<T[]> : type_identity<T> {};
template <typename T, size_t n>
struct remove_extent<T[n]> : type_identity<T> {};
template <typename T>
using remove_extent_t = typename remove_extent<T>::type;
template <typename T>
struct add_const : type_identity<const T> {};
template <typename T>
using add_const_t = const T;
template <typename T>
struct add_pointer : type_identity<remove_reference_t<T>*> {};
template <typename T>
using add_pointer_t = remove_reference_t<T>*;

template <typename T>
T&& declval() noexcept;

#define STANDARD_TRAIT(name, ...)                        \
    template <typename T>                                \
    struct name : bool_constant<__VA_ARGS__> {};         \
    template <typename T>                                \
    inline constexpr bool name##_v = name<T>::value;
template <typename T, typename U>
struct is_same : false_type {};
template <typename T>
struct is_same<T, T> : true_type {};
template <typename T, typename U>
inline constexpr bool is_same_v = is_same<T, U>::value;
template <typename T, typename... Of>
inline constexpr bool standard_one_of = (is_same_v<remove_cv_t<T>, Of> || ...);
STANDARD_TRAIT(is_void, is_same_v<remove_cv_t<T>, void>)
STANDARD_TRAIT(is_null_pointer, is_same_v<remove_cv_t<T>, nullptr_t>)
STANDARD_TRAIT(is_floating_point, standard_one_of<T, float, double>)
STANDARD_TRAIT(
    is_integral,
    standard_one_of<T, bool, char, signed char, unsigned char, wchar_t, char16_t, char32_t, short, unsigned short, int,
                    unsigned int, long, unsigned long, long long, unsigned long long>)
STANDARD_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
STANDARD_TRAIT(is_enum, __is_enum(T))
STANDARD_TRAIT(is_class, __is_class(T))
STANDARD_TRAIT(is_union, __is_union(T))
STANDARD_TRAIT(is_empty, __is_empty(T))
STANDARD_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
STANDARD_TRAIT(is_pointer, !is_same_v<remove_pointer_t<remove_cv_t<T>>, remove_cv_t<T>>)
STANDARD_TRAIT(is_const, !is_same_v<remove_const_t<T>, T>)
STANDARD_TRAIT(is_array, !is_same_v<remove_extent_t<T>, T>)
STANDARD_TRAIT(is_reference, !is_same_v<remove_reference_t<T>, T>)
template <typename T, bool = is_arithmetic_v<T>>
struct standard_signed : false_type {};
template <typename T>
struct standard_signed<T, true> : bool_constant<(T(-1) < T(0))> {};
STANDARD_TRAIT(is_signed, standard_signed<T>::value)
STANDARD_TRAIT(is_unsigned, is_arithmetic_v<T> && !is_signed_v<T>)
template <typename Base, typename T>
struct is_base_of : bool_constant<__is_base_of(Base, T)> {};
template <typename Base, typename T>
inline constexpr bool is_base_of_v = is_base_of<Base, T>::value;
template <typename From, typename To>
struct is_convertible : bool_constant<__is_convertible_to(From, To)> {};
template <typename From, typename To>
inline constexpr bool is_convertible_v = is_convertible<From, To>::value;

template <typename T>
struct decay {
    using bare = remove_reference_t<T>;
    using type = conditional_t<is_array_v<bare>, remove_extent_t<bare>*, remove_cv_t<bare>>;
};
template <typename T>
using decay_t = typename decay<T>::type;
template <typename T>
struct underlying_type {
    using type = __underlying_type(T);
};
template <typename T>
using underlying_type_t = typename underlying_type<T>::type;

template <typename T>
struct standard_sized {
    static constexpr int wide = sizeof(T);
    using type = conditional_t<
        wide == 1, signed char,
        conditional_t<wide == 2, short,
                      conditional_t<wide == 4, int, conditional_t<is_same_v<T, long> || is_same_v<T, unsigned long>, long, long long>>>>;
};
template <typename T>
using make_signed_t = typename standard_sized<T>::type;
template <typename T>
struct make_signed : type_identity<make_signed_t<T>> {};
template <typename T>
using make_unsigned_t = conditional_t<
    sizeof(T) == 1, unsigned char,
    conditional_t<sizeof(T) == 2, unsigned short,
                  conditional_t<sizeof(T) == 4, unsigned int,
                                conditional_t<is_same_v<make_signed_t<T>, long>, unsigned long, unsigned long long>>>>;
template <typename T>
struct make_unsigned : type_identity<make_unsigned_t<T>> {};

template <typename... T>
struct common_type {};
template <typename T>
struct common_type<T> : decay<T> {};
template <typename T, typename U>
struct common_type<T, U> : decay<decltype(true ? declval<T>() : declval<U>())> {};
template <typename T, typename U, typename V, typename... More>
struct common_type<T, U, V, More...> : common_type<typename common_type<T, U>::type, V, More...> {};
template <typename... T>
using common_type_t = typename common_type<T...>::type;

#define STANDARD_OPERATION(name, result, operation)                                      \
    template <typename T = void>                                                         \
    struct name {                                                                        \
        constexpr result operator()(const T& a, const T& b) const { return a operation b; } \
    };
STANDARD_OPERATION(plus, T, +)
STANDARD_OPERATION(minus, T, -)
STANDARD_OPERATION(multiplies, T, *)
STANDARD_OPERATION(divides, T, /)
STANDARD_OPERATION(less, bool, <)
STANDARD_OPERATION(greater, bool, >)
STANDARD_OPERATION(equal_to, bool, ==)

// Numbers of two's complement and of IEEE 754.
template <typename T, bool = is_integral_v<T>>
struct standard_limits {
    static constexpr bool is_specialized = false;
};
template <typename T>
struct standard_limits<T, true> {
    static constexpr bool is_specialized = true, is_signed = is_signed_v<T>, is_integer = true, is_exact = true;
    static constexpr bool has_infinity = false, has_quiet_NaN = false;
    static constexpr int radix = 2, digits = is_same_v<T, bool> ? 1 : 8 * sizeof(T) - is_signed;
    static constexpr int digits10 = digits * 643L / 2136;
    static constexpr T max() noexcept {
        return is_same_v<T, bool> ? T(1) : T(~0ull >> (64 - digits));
    }
    static constexpr T min() noexcept { return is_signed ? T(-max() - 1) : T(0); }
    static constexpr T lowest() noexcept { return min(); }
    static constexpr T epsilon() noexcept { return T(0); }
    static constexpr T infinity() noexcept { return T(0); }
    static constexpr T quiet_NaN() noexcept { return T(0); }
};
template <typename T>
struct standard_floats {
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
    static constexpr bool has_infinity = true, has_quiet_NaN = true, is_iec559 = true;
    static constexpr int radix = 2;
    static constexpr T round_error() noexcept { return T(0.5); }
};
template <>
struct standard_limits<float, false> : standard_floats<float> {
    static constexpr int digits = 24, digits10 = 6, max_digits10 = 9;
    static constexpr int max_exponent = 128, min_exponent = -125, max_exponent10 = 38, min_exponent10 = -37;
    static constexpr float max() noexcept { return __builtin_bit_cast(float, 0x7f7fffff); }
    static constexpr float min() noexcept { return __builtin_bit_cast(float, 0x00800000); }
    static constexpr float lowest() noexcept { return -max(); }
    static constexpr float epsilon() noexcept { return __builtin_bit_cast(float, 0x34000000); }
    static constexpr float infinity() noexcept { return __builtin_bit_cast(float, 0x7f800000); }
    static constexpr float quiet_NaN() noexcept { return __builtin_bit_cast(float, 0x7fc00000); }
    static constexpr float denorm_min() noexcept { return __builtin_bit_cast(float, 1); }
};
template <>
struct standard_limits<double, false> : standard_floats<double> {
    static constexpr int digits = 53, digits10 = 15, max_digits10 = 17;
    static constexpr int max_exponent = 1024, min_exponent = -1021, max_exponent10 = 308, min_exponent10 = -307;
    static constexpr double max() noexcept { return __builtin_bit_cast(double, 0x7fefffffffffffffll); }
    static constexpr double min() noexcept { return __builtin_bit_cast(double, 0x0010000000000000ll); }
    static constexpr double lowest() noexcept { return -max(); }
    static constexpr double epsilon() noexcept { return __builtin_bit_cast(double, 0x3cb0000000000000ll); }
    static constexpr double infinity() noexcept { return __builtin_bit_cast(double, 0x7ff0000000000000ll); }
    static constexpr double quiet_NaN() noexcept { return __builtin_bit_cast(double, 0x7ff8000000000000ll); }
    static constexpr double denorm_min() noexcept { return __builtin_bit_cast(double, 1ll); }
};
template <typename T>
struct numeric_limits : standard_limits<T> {};
template <typename T>
struct numeric_limits<const T> : numeric_limits<T> {};

}  // namespace std
#undef STANDARD_CHANGE
#undef STANDARD_TRAIT
#undef STANDARD_OPERATION
