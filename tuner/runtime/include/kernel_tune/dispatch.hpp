// Which configuration runs a problem on a GPU, and how well it fits.
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
};

enum class Policy {
    nearest_valid,         // the winner of these sizes; else the nearest that is valid; else the default configuration
    raise,                 // the same, but an error where only the default configuration is left
    exact,                 // the winner of these sizes on this model of GPU, else an error
    default_configuration  // always the tuner's default configuration
};

enum class PlanMatch {
    exact,                 // tuned at these sizes on this model of GPU
    nearest,               // tuned at other sizes on this model of GPU
    other_gpu,             // tuned on another GPU of the same compute capability
    default_configuration  // not tuned
};

namespace detail {

using Match = PlanMatch;

struct Gpu {
    std::string name;
    std::vector<std::int64_t> limits;  // in the order of kLimitNames

    std::int64_t cc() const { return limits[0]; }
};

struct Choice {
    std::size_t configuration = 0;
    Match match = Match::default_configuration;
    const Winner* winner = nullptr;
    std::string reason;
    Concrete concrete;
};

class Dispatcher {
public:
    Dispatcher(const Manifest& manifest, const Gpu& gpu) : manifest_(manifest), gpu_(gpu) {}

    Status choose(const Problem& problem, Policy policy, Choice& choice) {
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
            choice.winner = nullptr;
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
        std::string has;
        for (const Configuration& one : manifest_.configurations) {
            if (one.cc == gpu_.cc()) return {};
            const std::string text = " " + std::to_string(one.cc / 10) + "." + std::to_string(one.cc % 10);
            if (has.find(text) == std::string::npos) has += text;
        }
        return {Code::wrong_gpu, gpu_.name + " has compute capability " + std::to_string(gpu_.cc() / 10) + "." +
                                     std::to_string(gpu_.cc() % 10) + ", and the bundle is for" + has};
    }

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
        for (const Candidate& one : candidates) {
            if (!valid(one.winner->configuration, choice)) continue;
            choice.winner = one.winner;
            choice.match = one.other ? Match::other_gpu : one.winner->sizes == sizes_ ? Match::exact : Match::nearest;
            choice.reason = "tuned on " + one.winner->gpu + " at " + shown(one.winner->sizes);
            return true;
        }
        return false;
    }

    bool valid(std::size_t configuration, Choice& choice) {
        choice.configuration = configuration;
        choice.concrete = {};
        const std::string reason = Interpreter::run(manifest_, manifest_.configurations[configuration], values_, choice.concrete);
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
    std::string why_;  // why the last configuration that was tried is invalid
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
