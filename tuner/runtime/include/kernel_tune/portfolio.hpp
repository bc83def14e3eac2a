// Which members of a portfolio run a problem best: in whole numbers, as runtime/dispatch.py ranks them, to the bit.
#ifndef KERNEL_TUNE_PORTFOLIO_HPP
#define KERNEL_TUNE_PORTFOLIO_HPP

#include "manifest.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

constexpr std::int64_t kUnit = 1024;                       // parts of an octave
constexpr std::int64_t kApart = kUnit / 2 * (kUnit / 2);   // between problems of which a member can run only one
constexpr std::int64_t kMaxCost = std::int64_t{1} << 62;

// 2^(units / 1024), by products of ten constants: the same in all languages.
inline double power_of_two(std::int64_t units) {
    constexpr double roots[] = {1.0006771306930664, 1.0013547198921082, 1.0027112750502025, 1.0054299011128027, 1.0108892860517005,
                                1.0218971486541166, 1.0442737824274138, 1.0905077326652577, 1.189207115002721,  1.4142135623730951};
    double result = static_cast<double>(std::int64_t{1} << std::min(units / kUnit, std::int64_t{60}));
    for (int bit = 0; bit < 10; ++bit)
        if (units >> bit & 1) result *= roots[bit];
    return result;
}

// A member that can run a problem. Its expected slowdown is a logarithm, in parts of an octave.
struct Ranked {
    std::size_t member = 0;
    bool known = false;
    std::int64_t units = 0;

    double slowdown() const { return power_of_two(std::max(units, std::int64_t{0})); }
};

class Ranking {
public:
    // The members that can run a problem, the best first. `values` are the sizes, and the GPU's limits behind them.
    static std::vector<Ranked> of(const Portfolio& portfolio, const std::vector<std::int64_t>& values, const std::vector<bool>& valid) {
        Ranking ranking(portfolio, values, valid);
        std::vector<Ranked> ranked;
        for (std::size_t member = 0; member < valid.size(); ++member)
            if (valid[member]) ranked.push_back(ranking.expected(member));
        std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
            return a.known != b.known ? a.known : a.known && a.units < b.units;
        });
        return ranked;
    }

private:
    struct Near {
        std::int64_t distance;  // squared; -1 for the same sizes
        const PortfolioPoint* point;
    };

    Ranking(const Portfolio& portfolio, const std::vector<std::int64_t>& values, const std::vector<bool>& valid) : portfolio_(portfolio) {
        std::int64_t least = 63 * kUnit;
        for (std::size_t member = 0; member < valid.size(); ++member) {
            costs_.push_back(valid[member] ? log2_units(cost(portfolio.members[member].cost.evaluate(values))) : 0);
            if (valid[member]) least = std::min(least, costs_.back());
        }
        for (std::int64_t& one : costs_) one = (one - least) * portfolio.cost_weight / kUnit;
        for (const PortfolioPoint& point : portfolio.points) near_.push_back({distance(point, values, valid), &point});
        std::stable_sort(near_.begin(), near_.end(), [](const Near& a, const Near& b) { return a.distance < b.distance; });
    }

    static std::int64_t cost(const Number& value) {
        if (value.none() || value.as_double() < 1.0) return 1;
        if (value.whole()) return std::min(value.integer, kMaxCost);
        return value.real >= static_cast<double>(kMaxCost) ? kMaxCost : static_cast<std::int64_t>(value.real);
    }

    static std::int64_t distance(const PortfolioPoint& point, const std::vector<std::int64_t>& values, const std::vector<bool>& valid) {
        if (std::equal(point.sizes.begin(), point.sizes.end(), values.begin())) return -1;
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < valid.size(); ++i)
            if (valid[i] != point.residuals[i].known) sum += kApart;
        for (std::size_t i = 0; i < point.sizes.size(); ++i) {
            const std::int64_t apart = point.logs[i] - log2_units(values[i]);
            sum += apart * apart;
        }
        return sum;
    }

    // That of the same sizes, else the mean of the nearest points, the nearer the heavier.
    Ranked expected(std::size_t member) const {
        std::int64_t total = 0, weights = 0;
        std::size_t count = 0;
        for (const Near& near : near_) {
            const PortfolioPoint::Residual& residual = near.point->residuals[member];
            if (!residual.known) continue;
            if (near.distance < 0) return {member, true, costs_[member] + residual.units};
            const std::int64_t weight = (std::int64_t{1} << 40) / (near.distance + portfolio_.reach * portfolio_.reach);
            total += weight * (residual.units + kMaxResidual);
            weights += weight;
            if (++count == portfolio_.neighbours) break;
        }
        if (!count) return {member, false, 0};
        return {member, true, costs_[member] + total / weights - kMaxResidual};
    }

    const Portfolio& portfolio_;
    std::vector<std::int64_t> costs_;  // above the least, in units
    std::vector<Near> near_;           // the nearest first
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
