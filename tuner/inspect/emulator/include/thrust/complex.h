#pragma once
#include <complex>

namespace thrust {
using std::abs, std::arg, std::complex, std::conj, std::cos, std::exp, std::log, std::norm, std::polar, std::pow, std::sin,
    std::sqrt;
}  // namespace thrust
