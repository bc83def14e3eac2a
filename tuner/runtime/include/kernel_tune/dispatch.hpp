// Which configuration runs a problem on a GPU, and how well it fits; of a portfolio in whole numbers, as
// runtime/dispatch.py ranks its members, to the bit.
#ifndef KERNEL_TUNE_DISPATCH_HPP
#define KERNEL_TUNE_DISPATCH_HPP

#include "interpret.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {

// What to compute. Dtypes and options may be left out where the bundle has one choice for them.
struct Problem {
    std::vector<std::pair<std::string, std::int64_t>> sizes;     // {{"m", 4096}, ...}: all of the kernel's
    std::vector<std::pair<std::string, std::string>> dtypes;     // {{"input", "bfloat16"}, ...}
    std::vector<std::pair<std::string, std::string>> options;    // {{"layout", "nt"}, ...}
    bool apart = false;                                          // whether rows of outputs lie apart, as those of slices of larger matrices
};

enum class Policy {
    nearest_valid,         // the winner of these sizes, the best of a portfolio, the nearest winner that is valid, the default
    raise,                 // the same, but an error where only the default configuration is left
    exact,                 // the winner of these sizes on this model of GPU, else an error
    default_configuration  // always the tuner's default configuration
};

enum class PlanMatch {
    exact,                 // tuned at these sizes on this model of GPU
    nearest,               // tuned at other sizes on this model of GPU
    other_gpu,             // tuned on another GPU of the same compute capability
    default_configuration, // not tuned
    portfolio              // expected to be the best of a portfolio that was made on this model of GPU
};

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

using Match = PlanMatch;

struct Gpu {
    std::string name;
    std::vector<std::int64_t> limits;  // in the order of kLimitNames

    std::int64_t cc() const { return limits[0]; }
};

struct Choice {
    std::size_t configuration = 0;
    Match match = Match::default_configuration;
    double slowdown = 0.0;  // expected, over the best for the problem; 0 where nothing is known
    std::string reason;
    Concrete concrete;
};

class Dispatcher {
public:
    Dispatcher(const Manifest& manifest, const Gpu& gpu) : manifest_(manifest), gpu_(gpu) {}

    Status choose(const Problem& problem, Policy policy, Choice& choice) {
        apart_ = problem.apart;
        Status status = find_computation(problem);
        if (status.ok()) status = find_sizes(problem);
        if (status.ok()) status = find_gpu();
        if (!status.ok()) return status;
        if (policy != Policy::default_configuration && winner(policy, choice)) return {};
        if (policy == Policy::raise || policy == Policy::exact)
            return {Code::no_configuration, "no winner of " + manifest_.kernel + " for " + shown(sizes_) + " on " + gpu_.name + why_ +
                                                ": tune it, or allow another policy"};
        for (const Default& one : manifest_.defaults) {
            if (one.computation != computation_ || one.cc != gpu_.cc()) continue;
            if (!valid(one.configuration, choice)) continue;
            choice.match = Match::default_configuration;
            choice.slowdown = 0.0;
            choice.reason = "the default configuration: no winner is valid for " + shown(sizes_);
            if (policy == Policy::default_configuration) choice.reason = "the default configuration, as asked";
            return {};
        }
        return {Code::no_configuration, manifest_.kernel + " has no valid configuration for " + shown(sizes_) + why_};
    }

private:
    static bool agrees(const std::map<std::string, std::string>& has, const std::vector<std::pair<std::string, std::string>>& asked) {
        return std::all_of(asked.begin(), asked.end(), [&has](const auto& one) {
            const auto found = has.find(one.first);
            return found != has.end() && found->second == one.second;
        });
    }

    Status find_computation(const Problem& problem) {
        std::size_t found = 0;
        std::string choices;
        for (std::size_t i = 0; i < manifest_.computations.size(); ++i) {
            const Computation& one = manifest_.computations[i];
            choices += choices.empty() ? "" : ";";
            for (const auto* words : {&one.dtypes, &one.options})
                for (const auto& [key, value] : *words) choices += " " + key + "=" + value;
            if (!agrees(one.dtypes, problem.dtypes) || !agrees(one.options, problem.options)) continue;
            computation_ = i;
            ++found;
        }
        if (found == 1) return {};
        return {Code::invalid_argument, manifest_.kernel + (found ? " has several" : " has none") + " of these dtypes and options; choose among" + choices};
    }

    Status find_sizes(const Problem& problem) {
        for (const std::string& name : manifest_.sizes) {
            const auto same = [&name](const auto& one) { return one.first == name; };
            const auto found = std::find_if(problem.sizes.begin(), problem.sizes.end(), same);
            if (found == problem.sizes.end()) return {Code::invalid_argument, "the size " + name + " is missing"};
            if (found->second < 1 || found->second > std::int64_t{1} << 62)
                return {Code::invalid_argument, "the size " + name + " = " + std::to_string(found->second) + " is not a number from 1 to 2^62"};
            sizes_.push_back(found->second);
        }
        if (problem.sizes.size() != sizes_.size()) return {Code::invalid_argument, manifest_.kernel + " has the sizes" + listed(manifest_.sizes)};
        values_ = sizes_;
        values_.insert(values_.end(), gpu_.limits.begin(), gpu_.limits.end());
        return {};
    }

    Status find_gpu() const {
        std::map<int, bool> compiled;
        for (const Configuration& one : manifest_.configurations)
            if (one.computation == computation_) compiled[one.cc] = true;
        if (compiled.count(static_cast<int>(gpu_.cc()))) return {};
        std::string has;
        for (const auto& one : compiled) has += (has.empty() ? "" : ", ") + shown_cc(one.first);
        return {Code::wrong_gpu, manifest_.kernel + " was not compiled for compute capability " + shown_cc(gpu_.cc()) +
                                     ", only for " + (has.empty() ? "none" : has) + ": write a bundle that has this GPU's winners"};
    }
    static std::string shown_cc(std::int64_t cc) { return std::to_string(cc / 10) + "." + std::to_string(cc % 10); }

    bool winner(Policy policy, Choice& choice) {
        struct Candidate {
            bool other;
            double distance;
            const Winner* winner;
        };
        std::vector<Candidate> candidates;
        for (const Winner& one : manifest_.winners) {
            const bool other = one.gpu != gpu_.name;
            if (one.computation != computation_ || manifest_.configurations[one.configuration].cc != gpu_.cc()) continue;
            if (policy == Policy::exact && (other || one.sizes != sizes_)) continue;
            candidates.push_back({other, distance(one.sizes), &one});
        }
        std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
            return a.other != b.other ? b.other : a.distance < b.distance;
        });
        bool asked = policy == Policy::exact;  // a portfolio comes after the winner of these sizes, before all others
        for (const Candidate& one : candidates) {
            const bool same = !one.other && one.winner->sizes == sizes_;
            if (!same && !asked && of_portfolio(choice)) return true;
            asked = asked || !same;
            if (!valid(one.winner->configuration, choice)) continue;
            choice.slowdown = same ? 1.0 : 0.0;
            choice.match = one.other ? Match::other_gpu : one.winner->sizes == sizes_ ? Match::exact : Match::nearest;
            choice.reason = "tuned on " + one.winner->gpu + " at " + shown(one.winner->sizes);
            return true;
        }
        return !asked && of_portfolio(choice);
    }

    // Choose the best member of a portfolio that is valid: of this model of GPU's first, then of others.
    bool of_portfolio(Choice& choice) {
        for (const bool other : {false, true})
            for (const Portfolio& portfolio : manifest_.portfolios) {
                const int cc = manifest_.configurations[portfolio.members[0].configuration].cc;
                if (portfolio.computation != computation_ || cc != gpu_.cc() || (portfolio.gpu != gpu_.name) != other) continue;
                std::vector<bool> can;
                for (const PortfolioMember& member : portfolio.members) can.push_back(valid(member.configuration, choice));
                const std::vector<Ranked> ranked = Ranking::of(portfolio, values_, can);
                if (ranked.empty() || !ranked[0].known) continue;
                valid(portfolio.members[ranked[0].member].configuration, choice);
                choice.match = other ? Match::other_gpu : Match::portfolio;
                choice.slowdown = ranked[0].slowdown();
                choice.reason = "of " + std::to_string(ranked.size()) + " valid configurations of a portfolio, measured on " +
                                portfolio.gpu + " at " + std::to_string(portfolio.points.size()) + " sizes, the one expected to be fastest";
                return true;
            }
        return false;
    }

    bool valid(std::size_t configuration, Choice& choice) {
        choice.configuration = configuration;
        choice.concrete = {};
        const std::string reason = Interpreter::run(manifest_, manifest_.configurations[configuration], values_, choice.concrete, apart_);
        if (!reason.empty()) why_ = " (" + reason + ")";
        return reason.empty();
    }

    double distance(const std::vector<std::int64_t>& tuned) const {
        double sum = 0.0;
        for (std::size_t i = 0; i < tuned.size(); ++i)
            sum += std::fabs(std::log2(static_cast<double>(sizes_[i]) / static_cast<double>(tuned[i])));
        return sum;
    }

    std::string shown(const std::vector<std::int64_t>& sizes) const {
        std::string text;
        for (std::size_t i = 0; i < sizes.size(); ++i)
            text += (i ? " " : "") + manifest_.sizes[i] + "=" + std::to_string(sizes[i]);
        return text;
    }
    static std::string listed(const std::vector<std::string>& words) {
        std::string text;
        for (const std::string& word : words) text += " " + word;
        return text;
    }

    const Manifest& manifest_;
    const Gpu& gpu_;
    std::size_t computation_ = 0;
    std::vector<std::int64_t> sizes_, values_;
    bool apart_ = false;
    std::string why_;  // why the last configuration that was tried is invalid
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
