// What a bundle's manifest.json says, read into records. Everything is checked here: what is read can be relied on.
#ifndef KERNEL_TUNE_MANIFEST_HPP
#define KERNEL_TUNE_MANIFEST_HPP

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>

#include "expression.hpp"
#include "status.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

// Names that expressions may use beside the sizes; a GPU's limits have this order.
constexpr const char* kLimitNames[] = {
    "cc", "sm_count", "l2_bytes", "shared_bytes_optin", "shared_bytes_per_sm", "registers_per_sm",
    "max_threads_per_sm", "max_blocks_per_sm", "max_threads_per_block"};
constexpr std::size_t kLimits = sizeof(kLimitNames) / sizeof(kLimitNames[0]);

// The dtypes: the twin of runtime/dtypes.py.
struct Dtype {
    enum class Kind : unsigned char { floating, complex, integer, natural, truth };
    const char* name;
    std::size_t bytes;
    Kind kind;
};
constexpr Dtype kDtypes[] = {
    {"float64", 8, Dtype::Kind::floating}, {"float32", 4, Dtype::Kind::floating}, {"float16", 2, Dtype::Kind::floating},
    {"bfloat16", 2, Dtype::Kind::floating}, {"int64", 8, Dtype::Kind::integer}, {"int32", 4, Dtype::Kind::integer},
    {"uint32", 4, Dtype::Kind::natural}, {"int8", 1, Dtype::Kind::integer}, {"uint8", 1, Dtype::Kind::natural},
    {"int16", 2, Dtype::Kind::integer}, {"uint16", 2, Dtype::Kind::natural}, {"uint64", 8, Dtype::Kind::natural},
    {"bool", 1, Dtype::Kind::truth}, {"complex64", 8, Dtype::Kind::complex}, {"complex128", 16, Dtype::Kind::complex},
    {"float8_e4m3fn", 1, Dtype::Kind::floating}};

inline const Dtype* dtype_of(const std::string& name) {
    for (const Dtype& one : kDtypes)
        if (name == one.name) return &one;
    return nullptr;
}
// Bytes of an element; 0 for what is no dtype.
inline std::size_t itemsize(const std::string& name) {
    const Dtype* const dtype = dtype_of(name);
    return dtype ? dtype->bytes : 0;
}

struct TensorSpec {
    std::string name, role, dtype;
    std::vector<Expression> shape;  // as the kernel means it
    bool transposed = false;        // memory holds the transpose
    Expression when;
};
struct ScalarSpec {
    std::string name, dtype;
    Expression value;
};
struct ScratchSpec {
    std::string name, dtype;
    std::vector<Expression> shape;
    bool zeroed = false, zeroed_once = false;
    Expression when;
};
struct BufferIndex {
    bool scratch = false;
    std::size_t index = 0;
};
struct ArgumentSpec {
    enum class Kind : unsigned char { buffer, stride, one_of, scalar, value, map, cluster_order, fields };
    Kind kind = Kind::value;
    std::vector<BufferIndex> buffers;  // one, or several to choose from; of a map the first that is there counts
    std::size_t scalar = 0;
    Expression value;  // of a cluster order the clusters that share, of several buffers the index of the one
    std::string dtype;
    std::vector<Expression> box;
    Expression swizzle, l2_promotion;
    std::vector<ArgumentSpec> fields;  // of a struct by value
    std::int64_t alignment = 1;        // that its type asks for beyond what its fields do
};
struct FilledVariable {
    std::string symbol;
    std::size_t tensor = 0;
};
struct LoopSpec {
    std::string name;
    Expression count;
};
struct LaunchSpec {
    std::string cubin, entry;
    std::vector<LoopSpec> repeat;  // the outermost first
    Expression when, shared_bytes, carveout, alignment, resident;
    bool has_carveout = false, cooperative = false, programmatic = false;
    std::vector<Expression> grid, block, cluster;
    std::vector<ArgumentSpec> arguments;
    std::vector<FilledVariable> constants;
};
struct Condition {
    std::string reason;
    Expression holds;
};
struct Computation {
    std::map<std::string, std::string> dtypes, options;
    std::vector<TensorSpec> tensors;
    std::vector<ScalarSpec> scalars;
};
struct Configuration {
    std::size_t computation = 0;
    int cc = 0;
    std::string text;  // variant and parameters, for people
    std::vector<Condition> conditions;
    std::vector<ScratchSpec> scratch;
    std::vector<LaunchSpec> launches, slices;  // slices: instead of the launches where rows of outputs lie apart; none where there are none
};
struct Winner {
    std::size_t computation = 0, configuration = 0;
    std::string gpu;
    std::vector<std::int64_t> sizes;
    double time_ns = 0.0;
};
struct Default {
    std::size_t computation = 0, configuration = 0;
    int cc = 0;
};
// The logarithm of a number from 1 to 2^62, in parts of an octave, rounded down.
inline std::int64_t log2_units(std::int64_t value) {
    std::int64_t units = 0;
    while (value >> units > 1) ++units;
    std::uint64_t mantissa = units <= 31 ? static_cast<std::uint64_t>(value) << (31 - units) : static_cast<std::uint64_t>(value) >> (units - 31);
    for (int bit = 0; bit < 10; ++bit) {
        mantissa = mantissa * mantissa >> 31;
        units *= 2;
        if (mantissa >> 32) {
            mantissa >>= 1;
            ++units;
        }
    }
    return units;
}

struct PortfolioMember {
    std::size_t configuration = 0;
    Expression cost;  // how long it takes, in no unit
};
struct PortfolioPoint {
    struct Residual {
        bool known = false;  // whether the member can run these sizes
        std::int64_t units = 0;
    };
    std::vector<std::int64_t> sizes, logs;
    std::vector<Residual> residuals;  // of each member
};
struct Portfolio {
    std::size_t computation = 0, neighbours = 0;
    std::string gpu;
    std::int64_t reach = 0, cost_weight = 0;
    std::vector<PortfolioMember> members;
    std::vector<PortfolioPoint> points;
};
constexpr std::int64_t kMaxResidual = 1 << 20;
constexpr std::size_t kMaxMembers = 64, kMaxPoints = 4096, kMaxLoops = 8, kMaxStructs = 16, kMaxSizes = 1000;
struct Probe {
    std::string cubin, entry;
};
struct Manifest {
    std::string kernel;
    int minimum_driver = 0;
    std::vector<std::string> sizes;
    std::map<int, Probe> probes;  // by compute capability
    std::vector<Computation> computations;
    std::vector<Configuration> configurations;
    std::vector<Winner> winners;
    std::vector<Default> defaults;
    std::vector<Portfolio> portfolios;
};

// The index of an item by its name; the number of items if there is none.
template <typename T, typename Name>
std::size_t position(const std::vector<T>& items, const Name& name) {
    std::size_t i = 0;
    while (i < items.size() && items[i].name != name) ++i;
    return i;
}

class ManifestReader {
public:
    static Status read(const std::string& text, Manifest& manifest) {
        Json json;
        const std::string problem = JsonReader::read(text, json);
        if (problem.rfind(kTooManyValues, 0) == 0) return {Code::damaged, kTooManyValues};
        if (!problem.empty()) return damaged("it is no JSON: " + problem);
        const Json* format = json.find("format");
        const Json* version = json.find("version");
        if (!format || format->text != "kernel-tune bundle" || !version || !version->is(Json::Kind::integer) || version->integer < 1)
            return damaged("it does not say that it is of a bundle");
        if (version->integer > kFormatVersion)
            return {Code::newer, "the bundle has format " + std::to_string(version->integer) + ", and these headers read up to " +
                                     std::to_string(kFormatVersion) + ": use the headers that came with it"};
        ManifestReader reader(manifest);
        if (!reader.all(json)) return damaged(reader.problem_);
        return {};
    }

private:
    using Kind = Json::Kind;
    using Keys = std::initializer_list<const char*>;

    explicit ManifestReader(Manifest& manifest) : manifest_(manifest) {}

    static Status damaged(const std::string& problem) {
        return {Code::damaged, "manifest.json is damaged: " + problem + "; make the bundle again"};
    }
    bool wrong(const std::string& problem) {
        if (problem_.empty()) problem_ = problem;
        return false;
    }

    // Whether a value is an object with all of the required keys, and others only of the optional ones.
    bool object(const Json& json, const char* what, Keys required, Keys optional = {}) {
        if (!json.is(Kind::object)) return wrong(std::string(what) + " is no object");
        for (const char* key : required)
            if (!json.find(key)) return wrong(std::string(what) + " lacks " + key);
        for (const std::string& key : json.keys) {
            const auto same = [&key](const char* known) { return key == known; };
            if (!std::any_of(required.begin(), required.end(), same) && !std::any_of(optional.begin(), optional.end(), same))
                return wrong(std::string(what) + " has the unknown key " + key.substr(0, 60));
        }
        return true;
    }
    // Read each item of a list; `each` is a member function, or takes the reader first.
    template <typename T, typename Read>
    bool items(const Json& json, const char* what, std::vector<T>& out, Read each) {
        if (!json.is(Kind::array)) return wrong(std::string(what) + " is no list");
        for (const Json& item : json.items) {
            out.emplace_back();
            if (!std::invoke(each, this, item, out.back())) return false;
        }
        return true;
    }
    // The same of the list under a key; object() has seen to those that must be there.
    template <typename T, typename Read>
    bool list(const Json& json, const char* key, std::vector<T>& out, Read each) {
        const Json* found = json.find(key);
        return !found || items(*found, key, out, each);
    }
    // Whether a text is on one line: no control characters, and at most 10,000 characters of UTF-8.
    static bool one_line(const std::string& text) {
        std::size_t characters = 0;
        unsigned char before = 0;
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            if (byte < 0x20 || byte == 0x7f || (before == 0xc2 && byte >= 0x80 && byte < 0xa0)) return false;
            characters += (byte & 0xc0) != 0x80;
            before = byte;
        }
        return characters <= 10000;
    }
    bool text(const Json& json, const char* what, std::string& out) {
        out = json.text;
        return (json.is(Kind::text) && one_line(out)) || wrong(std::string(what) + " is no text on one line");
    }
    bool identifier(const std::string& text, const char* what, const char* more = "", std::size_t longest = 200) {
        const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
        const auto fits = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || (c && std::strchr(more, c)); };
        return (!text.empty() && text.size() <= longest && letter(text[0]) && std::all_of(text.begin(), text.end(), fits)) ||
               wrong(std::string(what) + " is no name");
    }
    bool name(const Json& json, const char* what, std::string& out) { return text(json, what, out) && identifier(out, what); }
    bool entry(const Json& json, std::string& out) { return text(json, "an entry", out) && identifier(out, "an entry", "$", 10000); }
    bool whole(const Json& json, const char* what, std::int64_t least, std::int64_t most, std::int64_t& out) {
        out = json.integer;
        return (json.is(Kind::integer) && out >= least && out <= most) || wrong(std::string(what) + " is out of range");
    }
    bool integer(const Json& json, const char* what, int least, int most, int& out) {
        std::int64_t value = 0;
        if (!whole(json, what, least, most, value)) return false;
        out = static_cast<int>(value);
        return true;
    }
    bool index(const Json& json, const char* what, std::size_t count, std::size_t& out) {
        std::int64_t value = 0;
        if (!whole(json, what, 0, static_cast<std::int64_t>(count) - 1, value)) return false;
        out = static_cast<std::size_t>(value);
        return true;
    }
    bool positive(const Json& json, const char* what, double& out) {
        out = json.is(Kind::integer) ? static_cast<double>(json.integer) : json.real;
        return ((json.is(Kind::real) || json.is(Kind::integer)) && out > 0.0) || wrong(std::string(what) + " is no number above 0");
    }
    // The numbers of a configuration and of the computation that is its own.
    bool references(const Json& json, const char* what, std::size_t& computation, std::size_t& configuration) {
        return index(*json.find("configuration"), what, manifest_.configurations.size(), configuration) &&
               index(*json.find("computation"), what, manifest_.computations.size(), computation) &&
               (manifest_.configurations[configuration].computation == computation || wrong(std::string(what) + "'s configuration computes something else"));
    }
    bool optional_flag(const Json& json, const char* key, bool& out) {
        const Json* found = json.find(key);
        if (found) out = found->boolean;
        return !found || found->is(Kind::boolean) || wrong(std::string(key) + " is neither true nor false");
    }
    bool dtype(const Json& json, std::string& out) {
        return text(json, "a dtype", out) && (itemsize(out) || wrong("the dtype " + out.substr(0, 60) + " is unknown"));
    }
    bool digest(const Json& json, std::string& out) {
        const auto hexadecimal = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
        return text(json, "a digest", out) &&
               ((out.size() == 32 && std::all_of(out.begin(), out.end(), hexadecimal)) || wrong("a digest is none"));
    }
    bool expression(const Json& json, Expression& out) {
        return Expression::read(json, names_, out) || wrong("an expression has an unknown name or operator, or is too large");
    }
    bool optional_expression(const Json& json, const char* key, std::int64_t otherwise, Expression& out) {
        const Json* found = json.find(key);
        if (found) return expression(*found, out);
        out = Expression(Number::of(otherwise));
        return true;
    }
    bool expressions(const Json& json, const char* what, std::size_t least, std::size_t most, std::vector<Expression>& out) {
        if (!items(json, what, out, &ManifestReader::expression)) return false;
        return (out.size() >= least && out.size() <= most) || wrong(std::string(what) + " has a wrong length");
    }
    template <typename T>
    static std::vector<std::string> names_of(const std::vector<T>& items) {
        std::vector<std::string> names;
        for (const T& item : items) names.push_back(item.name);
        return names;
    }
    bool different(std::initializer_list<std::vector<std::string>> several) {
        std::vector<std::string> all;
        for (const auto& names : several) all.insert(all.end(), names.begin(), names.end());
        std::sort(all.begin(), all.end());
        const auto twice = std::adjacent_find(all.begin(), all.end());
        return twice == all.end() || wrong(*twice + " is there twice");
    }

    bool all(const Json& json) {
        if (!object(json, "the manifest",
                    {"format", "version", "tool", "kernel", "summary", "license", "minimum_driver", "sizes", "computations",
                     "configurations"},
                    {"probe", "winners", "defaults", "portfolios"}))
            return false;
        std::string unused;
        if (!text(*json.find("tool"), "tool", unused) || !text(*json.find("summary"), "summary", unused) ||
            !text(*json.find("license"), "license", unused) || !text(*json.find("kernel"), "kernel", manifest_.kernel) ||
            !integer(*json.find("minimum_driver"), "minimum_driver", 0, 1000000, manifest_.minimum_driver) ||
            !list(json, "sizes", manifest_.sizes,
                  [](ManifestReader* reader, const Json& item, std::string& one) { return reader->name(item, "a size", one); }))
            return false;
        if (manifest_.sizes.size() > kMaxSizes) return wrong("there are too many sizes");
        for (const std::string& size : manifest_.sizes) {
            if (std::find(names_.begin(), names_.end(), size) != names_.end()) return wrong("a size is there twice");
            names_.push_back(size);
        }
        for (const char* limit : kLimitNames) {
            if (std::find(names_.begin(), names_.end(), limit) != names_.end()) return wrong("a size has the name of a limit");
            names_.push_back(limit);
        }
        return (!json.find("probe") || probes(*json.find("probe"))) &&
               list(json, "computations", manifest_.computations, &ManifestReader::computation) &&
               list(json, "configurations", manifest_.configurations, &ManifestReader::configuration) &&
               list(json, "winners", manifest_.winners, &ManifestReader::winner) &&
               list(json, "defaults", manifest_.defaults, &ManifestReader::default_of) &&
               list(json, "portfolios", manifest_.portfolios, &ManifestReader::portfolio);
    }

    bool probes(const Json& json) {
        if (!json.is(Kind::object)) return wrong("probe is no object");
        for (std::size_t i = 0; i < json.keys.size(); ++i) {
            const std::string& key = json.keys[i];
            if (key.size() < 2 || key.size() > 4 || key[0] == '0' || key.find_first_not_of("0123456789") != std::string::npos)
                return wrong("a key of probe is no compute capability");
            Probe& probe = manifest_.probes[std::atoi(key.c_str())];
            if (!object(json.items[i], "a probe", {"cubin", "entry"}) || !digest(*json.items[i].find("cubin"), probe.cubin) ||
                !entry(*json.items[i].find("entry"), probe.entry))
                return false;
        }
        return true;
    }

    bool words(const Json& json, const char* what, std::map<std::string, std::string>& out) {
        const Json* found = json.find(what);
        if (!found) return true;
        if (!found->is(Kind::object)) return wrong(std::string(what) + " is no object");
        for (std::size_t i = 0; i < found->keys.size(); ++i) {
            if (!identifier(found->keys[i], what)) return false;
            if (!shown(found->items[i], out[found->keys[i]])) return wrong(std::string(what) + " has a value that is neither text nor a number");
        }
        return true;
    }
    static bool shown(const Json& json, std::string& out) {
        switch (json.kind) {
            case Kind::text: out = json.text; return one_line(out);
            case Kind::integer: out = std::to_string(json.integer); return true;
            case Kind::boolean: out = json.boolean ? "true" : "false"; return true;
            case Kind::real: out = std::to_string(json.real); return true;
            default: return false;
        }
    }

    bool computation(const Json& json, Computation& out) {
        return object(json, "a computation", {"dtypes", "tensors"}, {"options", "scalars"}) &&
               words(json, "dtypes", out.dtypes) && dtypes(*json.find("dtypes")) && words(json, "options", out.options) &&
               list(json, "tensors", out.tensors, &ManifestReader::tensor) &&
               list(json, "scalars", out.scalars, &ManifestReader::scalar) &&
               different({names_of(out.tensors), names_of(out.scalars)});
    }
    bool dtypes(const Json& json) {
        std::string unused;
        return std::all_of(json.items.begin(), json.items.end(), [&](const Json& item) { return dtype(item, unused); });
    }
    bool tensor(const Json& json, TensorSpec& out) {
        return object(json, "a tensor", {"name", "role", "dtype", "shape"}, {"transposed", "when"}) &&
               name(*json.find("name"), "a tensor's name", out.name) && text(*json.find("role"), "a role", out.role) &&
               (out.role == "input" || out.role == "output" || out.role == "inout" || wrong("a role is unknown")) &&
               dtype(*json.find("dtype"), out.dtype) && expressions(*json.find("shape"), "a shape", 0, 32, out.shape) &&
               optional_flag(json, "transposed", out.transposed) && optional_expression(json, "when", 1, out.when);
    }
    bool scalar(const Json& json, ScalarSpec& out) {
        return object(json, "a scalar", {"name", "dtype", "value"}) && name(*json.find("name"), "a scalar's name", out.name) &&
               dtype(*json.find("dtype"), out.dtype) && expression(*json.find("value"), out.value);
    }

    bool configuration(const Json& json, Configuration& out) {
        std::map<std::string, std::string> parameters;
        if (!object(json, "a configuration", {"computation", "cc", "variant", "launches"}, {"parameters", "requires", "scratch", "slices"}) ||
            !index(*json.find("computation"), "a configuration's computation", manifest_.computations.size(), out.computation) ||
            !integer(*json.find("cc"), "cc", 10, 9999, out.cc) || !text(*json.find("variant"), "variant", out.text) ||
            !words(json, "parameters", parameters))
            return false;
        for (const auto& [key, value] : parameters) out.text += " " + key + "=" + value;
        const auto launch_of = [&out](ManifestReader* reader, const Json& item, LaunchSpec& one) { return reader->launch(item, out, one); };
        return list(json, "requires", out.conditions, &ManifestReader::condition) &&
               list(json, "scratch", out.scratch, &ManifestReader::scratch_of) &&
               different({names_of(manifest_.computations[out.computation].tensors),
                          names_of(manifest_.computations[out.computation].scalars), names_of(out.scratch)}) &&
               list(json, "launches", out.launches, launch_of) && list(json, "slices", out.slices, launch_of) &&
               (!out.launches.empty() || wrong("a configuration has no launches"));
    }
    bool condition(const Json& json, Condition& out) {
        return object(json, "a condition", {"reason", "holds"}) && text(*json.find("reason"), "a reason", out.reason) &&
               expression(*json.find("holds"), out.holds);
    }
    bool scratch_of(const Json& json, ScratchSpec& out) {
        return object(json, "scratch memory", {"name", "dtype", "shape"}, {"zeroed", "zeroed_once", "when"}) &&
               name(*json.find("name"), "a name of scratch memory", out.name) && dtype(*json.find("dtype"), out.dtype) &&
               expressions(*json.find("shape"), "a shape", 0, 32, out.shape) && optional_flag(json, "zeroed", out.zeroed) &&
               optional_flag(json, "zeroed_once", out.zeroed_once) && optional_expression(json, "when", 1, out.when);
    }
    bool launch(const Json& json, const Configuration& configuration, LaunchSpec& out) {
        const std::size_t outside = names_.size();  // a loop gives a name to what is in it
        const bool read = list(json, "repeat", out.repeat, &ManifestReader::loop) && launch_in_loops(json, configuration, out);
        names_.resize(outside);
        return read;
    }
    bool loop(const Json& json, LoopSpec& out) {
        if (!object(json, "a loop", {"name", "count"}) || !name(*json.find("name"), "a loop's name", out.name) ||
            !expression(*json.find("count"), out.count))
            return false;
        if (std::find(names_.begin(), names_.end(), out.name) != names_.end()) return wrong(out.name + " is there twice");
        names_.push_back(out.name);
        return true;
    }
    bool launch_in_loops(const Json& json, const Configuration& configuration, LaunchSpec& out) {
        std::string source;
        if (out.repeat.size() > kMaxLoops) return wrong("a launch is in too many loops");
        if (!object(json, "a launch", {"cubin", "source", "entry", "grid", "block", "arguments"},
                    {"when", "shared_bytes", "cluster", "cooperative", "programmatic", "carveout", "alignment", "resident", "repeat",
                     "constants"}) ||
            !digest(*json.find("cubin"), out.cubin) || !digest(*json.find("source"), source) ||
            !entry(*json.find("entry"), out.entry) || !expressions(*json.find("grid"), "a grid", 1, 3, out.grid) ||
            !expressions(*json.find("block"), "a block", 1, 3, out.block) || !optional_expression(json, "when", 1, out.when) ||
            !optional_expression(json, "shared_bytes", 0, out.shared_bytes) ||
            !optional_expression(json, "carveout", 0, out.carveout) ||
            !optional_expression(json, "alignment", 1, out.alignment) ||
            !optional_expression(json, "resident", 0, out.resident) || !optional_flag(json, "cooperative", out.cooperative) ||
            !optional_flag(json, "programmatic", out.programmatic))
            return false;
        out.has_carveout = json.find("carveout") != nullptr;
        const Json* cluster = json.find("cluster");
        if (cluster && !expressions(*cluster, "a cluster", 0, 3, out.cluster)) return false;
        const auto filled = [&configuration](ManifestReader* reader, const Json& item, FilledVariable& one) {
            return reader->constant(item, configuration, one);
        };
        return list(json, "constants", out.constants, filled) &&
               list(json, "arguments", out.arguments, [&configuration](ManifestReader* reader, const Json& item, ArgumentSpec& one) {
                   return reader->argument(item, configuration, one);
               });
    }
    bool constant(const Json& json, const Configuration& configuration, FilledVariable& out) {
        if (!json.is(Kind::array) || json.items.size() != 2) return wrong("a constant is no pair of a variable and a tensor");
        std::string tensor;
        if (!entry(json.items[0], out.symbol) || !text(json.items[1], "a tensor", tensor)) return false;
        const auto& tensors = manifest_.computations[configuration.computation].tensors;
        out.tensor = position(tensors, tensor);
        return out.tensor < tensors.size() || wrong("a constant is of the unknown tensor " + tensor.substr(0, 60));
    }
    bool argument(const Json& json, const Configuration& configuration, ArgumentSpec& out) {
        const Computation& computation = manifest_.computations[configuration.computation];
        std::string text_of;
        const auto buffer = [&](const Json& item, bool tensors, bool scratch) {
            if (!text(item, "a buffer", text_of)) return false;
            BufferIndex found{false, position(computation.tensors, text_of)};
            if (!tensors || found.index == computation.tensors.size()) found = {true, position(configuration.scratch, text_of)};
            out.buffers.push_back(found);
            return !found.scratch || (scratch && found.index < configuration.scratch.size()) ||
                   wrong("an argument is the unknown buffer " + text_of.substr(0, 60));
        };
        if (const Json* tensor = json.find("tensor")) {
            out.kind = ArgumentSpec::Kind::buffer;
            return object(json, "an argument", {"tensor"}) && buffer(*tensor, true, false);
        }
        if (const Json* stride = json.find("stride")) {
            out.kind = ArgumentSpec::Kind::stride;
            return object(json, "an argument", {"stride"}) && buffer(*stride, true, false);
        }
        if (const Json* scratch = json.find("scratch")) {
            out.kind = ArgumentSpec::Kind::buffer;
            return object(json, "an argument", {"scratch"}) && buffer(*scratch, false, true);
        }
        if (const Json* scalar = json.find("scalar")) {
            out.kind = ArgumentSpec::Kind::scalar;
            if (!object(json, "an argument", {"scalar"}) || !text(*scalar, "a scalar", text_of)) return false;
            out.scalar = position(computation.scalars, text_of);
            return out.scalar < computation.scalars.size() || wrong("an argument is the unknown scalar " + text_of.substr(0, 60));
        }
        if (const Json* value = json.find("value")) {
            out.kind = ArgumentSpec::Kind::value;
            return object(json, "an argument", {"value", "dtype"}) && expression(*value, out.value) &&
                   dtype(*json.find("dtype"), out.dtype);
        }
        if (const Json* several = json.find("one_of")) {
            out.kind = ArgumentSpec::Kind::one_of;
            if (!object(json, "an argument", {"one_of", "index"})) return false;
            if (!several->is(Kind::array) || several->items.empty()) return wrong("an argument is one of nothing");
            for (const Json& item : several->items)
                if (!buffer(item, true, true)) return false;
            return expression(*json.find("index"), out.value);
        }
        if (const Json* map = json.find("map")) {
            out.kind = ArgumentSpec::Kind::map;
            if (!object(json, "an argument", {"map", "box"}, {"swizzle", "l2_promotion"})) return false;
            if (!map->is(Kind::array) || map->items.empty()) return wrong("a map is of nothing");
            for (const Json& item : map->items)
                if (!buffer(item, true, true)) return false;
            return expressions(*json.find("box"), "a box", 2, 2, out.box) && optional_expression(json, "swizzle", 0, out.swizzle) &&
                   optional_expression(json, "l2_promotion", 0, out.l2_promotion);
        }
        if (const Json* fields = json.find("fields")) {
            out.kind = ArgumentSpec::Kind::fields;
            if (structs_ == kMaxStructs) return wrong("structs are nested too deeply");
            const auto field = [&configuration](ManifestReader* reader, const Json& item, ArgumentSpec& one) {
                return reader->argument(item, configuration, one) &&
                       ((one.kind != ArgumentSpec::Kind::map && one.kind != ArgumentSpec::Kind::cluster_order &&
                         one.kind != ArgumentSpec::Kind::one_of) ||
                        reader->wrong("a field is no number, address or struct"));
            };
            const Json* alignment = json.find("alignment");
            ++structs_;
            if (!object(json, "an argument", {"fields"}, {"alignment"}) || !items(*fields, "fields", out.fields, field)) return false;
            --structs_;
            if (alignment && !whole(*alignment, "an alignment", 1, 256, out.alignment)) return false;
            return (!out.fields.empty() && !(out.alignment & (out.alignment - 1))) || wrong("a struct has no fields, or a wrong alignment");
        }
        out.kind = ArgumentSpec::Kind::cluster_order;
        if (!object(json, "an argument", {"cluster_order"}) || !expression(*json.find("cluster_order"), out.value)) return false;
        const Json& order = *json.find("cluster_order");
        const bool none = (order.is(Kind::integer) && !order.integer) || (order.is(Kind::boolean) && !order.boolean) ||
                          (order.is(Kind::real) && order.real == 0.0);
        return none || manifest_.probes.count(configuration.cc) || wrong("there is no probe for its compute capability");
    }

    bool winner(const Json& json, Winner& out) {
        if (!object(json, "a winner", {"computation", "gpu", "sizes", "configuration", "time_ns"}, {"mode"})) return false;
        std::string mode;
        return references(json, "a winner", out.computation, out.configuration) && text(*json.find("gpu"), "gpu", out.gpu) &&
               (!json.find("mode") || text(*json.find("mode"), "mode", mode)) &&
               positive(*json.find("time_ns"), "time_ns", out.time_ns) && all_sizes(*json.find("sizes"), "a winner", out.sizes);
    }
    bool all_sizes(const Json& json, const std::string& what, std::vector<std::int64_t>& out) {
        if (!json.is(Kind::object) || json.keys.size() != manifest_.sizes.size()) return wrong(what + " has other sizes");
        for (const std::string& size : manifest_.sizes) {
            const Json* found = json.find(size.c_str());
            out.push_back(0);
            if (!found) return wrong(what + " lacks the size " + size);
            if (!whole(*found, "a size", 1, std::int64_t{1} << 62, out.back())) return false;
        }
        return true;
    }
    bool portfolio(const Json& json, Portfolio& out) {
        if (!object(json, "a portfolio", {"computation", "gpu", "bound", "neighbours", "reach", "cost_weight", "members", "points"}))
            return false;
        std::int64_t neighbours = 0;
        double bound = 0.0;
        if (!index(*json.find("computation"), "a portfolio's computation", manifest_.computations.size(), out.computation) ||
            !text(*json.find("gpu"), "gpu", out.gpu) || !whole(*json.find("neighbours"), "neighbours", 1, kMaxMembers, neighbours) ||
            !whole(*json.find("reach"), "reach", 64, 65536, out.reach) ||
            !whole(*json.find("cost_weight"), "cost_weight", 0, 1024, out.cost_weight) ||
            !positive(*json.find("bound"), "bound", bound) || !list(json, "members", out.members, &ManifestReader::member))
            return false;
        out.neighbours = static_cast<std::size_t>(neighbours);
        if (out.members.empty() || out.members.size() > kMaxMembers) return wrong("a portfolio has a wrong number of members");
        for (std::size_t i = 0; i < out.members.size(); ++i) {
            const Configuration& one = manifest_.configurations[out.members[i].configuration];
            if (one.computation != out.computation || one.cc != manifest_.configurations[out.members[0].configuration].cc)
                return wrong("a portfolio's member is for another computation or compute capability");
            for (std::size_t j = 0; j < i; ++j)
                if (out.members[i].configuration == out.members[j].configuration) return wrong("a portfolio has a member twice");
        }
        if (!list(json, "points", out.points,
                  [&out](ManifestReader* reader, const Json& item, PortfolioPoint& one) { return reader->point(item, out, one); }))
            return false;
        return (!out.points.empty() && out.points.size() <= kMaxPoints) || wrong("a portfolio has a wrong number of points");
    }
    bool member(const Json& json, PortfolioMember& out) {
        return object(json, "a member", {"configuration"}, {"cost"}) &&
               index(*json.find("configuration"), "a member's configuration", manifest_.configurations.size(), out.configuration) &&
               optional_expression(json, "cost", 1, out.cost);
    }
    bool default_of(const Json& json, Default& out) {
        return object(json, "a default", {"computation", "cc", "configuration"}) &&
               references(json, "a default", out.computation, out.configuration) &&
               integer(*json.find("cc"), "cc", 10, 9999, out.cc) &&
               (manifest_.configurations[out.configuration].cc == out.cc || wrong("a default's configuration is for another GPU"));
    }

    bool point(const Json& json, const Portfolio& portfolio, PortfolioPoint& out) {
        if (!object(json, "a point", {"sizes", "residuals"}) || !all_sizes(*json.find("sizes"), "a point", out.sizes) ||
            !list(json, "residuals", out.residuals, &ManifestReader::residual))
            return false;
        for (const std::int64_t size : out.sizes) out.logs.push_back(log2_units(size));
        return out.residuals.size() == portfolio.members.size() || wrong("a point has not one residual for each member");
    }

    bool residual(const Json& json, PortfolioPoint::Residual& out) {
        out.known = !json.is(Kind::null);
        return !out.known || whole(json, "a residual", -kMaxResidual, kMaxResidual, out.units);
    }

    Manifest& manifest_;
    std::vector<std::string> names_;
    std::size_t structs_ = 0;  // around the argument that is read
    std::string problem_;
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
