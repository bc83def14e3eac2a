// What a configuration comes to for a problem on a GPU: launches, buffers and the bytes of arguments, or why it cannot run.
#ifndef KERNEL_TUNE_INTERPRET_HPP
#define KERNEL_TUNE_INTERPRET_HPP

#include <cmath>
#include <cstring>

#include "manifest.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {

// A tensor of a plan, in the order in which run() takes addresses. A tensor that is not present has no address.
struct TensorInfo {
    std::string name, role, dtype;    // the role is input, output or inout
    std::vector<std::int64_t> shape;  // in memory order, row-major
    bool transposed = false;          // whether memory has the transpose of what the kernel means
    bool present = true;
    std::size_t bytes = 0;
    std::size_t alignment = 1;  // bytes of which its address must be a multiple
    bool by_map = false, by_address = false, strided = false;  // how launches take it: by_map alone, or strided, its rows may lie apart
};

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

inline std::uint8_t float8_bits(double value) {
    const unsigned sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return 0x7f;
    const double magnitude = std::min(std::fabs(value), 448.0);  // as CUDA's conversions have it
    int exponent = 0;
    (void)std::frexp(magnitude, &exponent);
    exponent = magnitude > 0.0 ? std::max(exponent - 1, -6) : -6;
    // Four bits of a normal number; rounding up may carry into the exponent, as it should.
    const unsigned bits = static_cast<unsigned>((exponent + 6) * 8 + static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent))));
    return static_cast<std::uint8_t>(sign | bits);
}

struct ArgumentBytes {
    alignas(16) unsigned char bytes[16] = {};

    template <typename T>
    void set(T value) {
        static_assert(sizeof(T) <= sizeof(bytes), "a number has at most sixteen bytes");
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
    if (dtype == "float8_e4m3fn") return out.set(float8_bits(real)), true;
    if (dtype == "bfloat16") {
        ArgumentBytes single;
        (void)write_argument(value, "float32", single);
        float rounded = 0.0f;
        std::memcpy(&rounded, single.bytes, sizeof rounded);
        return out.set(bfloat16_bits(static_cast<double>(rounded))), true;
    }
    if (dtype == "complex64") return write_argument(value, "float32", out);  // a real number
    if (dtype == "complex128") return write_argument(value, "float64", out);
    const Dtype* const of = dtype_of(dtype);
    if (!of) return false;
    std::int64_t whole = value.integer;
    if (!value.whole()) {
        if (std::floor(real) != real || real < -0x1p63 || real >= 0x1p63) return false;
        whole = static_cast<std::int64_t>(real);
    }
    const bool is_signed = of->kind == Dtype::Kind::integer;
    if (whole < 0 && !is_signed) return false;
    // What is left of a number without the bits that the dtype has is 0, or -1 of a negative one.
    const int bits = of->kind == Dtype::Kind::truth ? 1 : static_cast<int>(8 * of->bytes) - is_signed;
    const std::int64_t left = bits < 63 ? whole >> bits : whole < 0 ? -1 : 0;
    if (left != (whole < 0 ? -1 : 0)) return false;
    std::memcpy(out.bytes, &whole, of->bytes);  // the lowest bytes come first
    return true;
}

constexpr std::size_t kAlignment = 256;    // of buffers in a workspace, and of the workspace
constexpr std::int64_t kMaxClusters = 256;  // length of a table of cluster numbers
constexpr std::size_t kMaxArguments = 64;  // of a launch: run() has their addresses on the stack
constexpr std::size_t kMaxMaps = 16;
constexpr std::size_t kMaxLaunches = 4096;  // of a plan, with those that are left out and passes without any
constexpr std::size_t kMaxStructBytes = 4096;  // of all that a launch passes by value

inline std::size_t rounded_up(std::size_t size, std::size_t alignment) { return (size + alignment - 1) / alignment * alignment; }

struct ScratchBuffer {
    bool present = false, zeroed = false, zeroed_once = false;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::size_t bytes = 0, offset = 0;
};
struct MapShape {
    std::string dtype;
    std::int64_t rows = 0, columns = 0, box_rows = 0, box_columns = 0, swizzle = 0, promotion = 0;
};
// A number or address in a struct that differs from call to call.
struct Field {
    std::size_t offset = 0;
    bool is_scalar = false, is_stride = false;
    BufferIndex buffer;
    std::size_t scalar = 0, bytes = 0;
};
struct Argument {
    enum class Kind : unsigned char { constant, buffer, stride, scalar, map, table, fields };
    Kind kind = Kind::constant;
    BufferIndex buffer;
    std::size_t scalar = 0;
    ArgumentBytes constant;
    MapShape map;
    std::int64_t sharing = 0;  // clusters that share, of a table
    std::vector<unsigned char> memory;  // of a struct
    std::vector<Field> fields;
};
struct Filled {
    std::string symbol;
    std::size_t tensor = 0, bytes = 0;
};
struct Launch {
    std::string cubin, entry;
    std::int64_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    std::int64_t shared_bytes = 0, carveout = -1;
    bool clustered = false, cooperative = false, programmatic = false;
    std::vector<Argument> arguments;
    std::vector<Filled> constants;

    std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
    std::int64_t members() const { return cluster[0] * cluster[1] * cluster[2]; }
};
struct Scalar {
    std::string name, dtype;
    ArgumentBytes value;
};
struct Concrete {
    std::vector<TensorInfo> tensors;
    std::vector<ScratchBuffer> scratch;
    std::vector<Scalar> scalars;
    std::vector<Launch> launches;
    std::size_t once_bytes = 0;  // of the workspace's first part, which is zeroed once
    std::size_t workspace_bytes = 0;
};

class Interpreter {
public:
    // Args: a configuration of the manifest; values of the sizes and then of the GPU's limits; whether rows of outputs lie apart.
    // Return why the configuration cannot run; empty if it can.
    static std::string run(const Manifest& manifest, const Configuration& configuration,
                           const std::vector<std::int64_t>& values, Concrete& out, bool apart = false) {
        Interpreter interpreter(configuration, apart && !configuration.slices.empty() ? configuration.slices : configuration.launches, values, out);
        interpreter.cc_ = values[manifest.sizes.size()];
        interpreter.shared_bytes_optin_ = values[manifest.sizes.size() + 3];
        interpreter.max_threads_per_block_ = values[manifest.sizes.size() + 8];
        (void)interpreter.all(manifest.computations[configuration.computation]);
        return interpreter.reason_;
    }

private:
    Interpreter(const Configuration& configuration, const std::vector<LaunchSpec>& specs, const std::vector<std::int64_t>& values, Concrete& out)
        : configuration_(configuration), specs_(specs), values_(values), out_(out) {}

    bool wrong(const std::string& reason) {
        if (reason_.empty()) reason_ = reason.empty() ? "it is invalid" : reason;
        return false;
    }
    bool condition(const Expression& expression, const char* what, bool& holds) {
        const Number value = expression.evaluate(values_);
        holds = value.holds();
        return !value.none() || wrong(std::string(what) + " has no value");
    }
    bool whole(const Expression& expression, const char* what, std::int64_t least, std::int64_t& out) {
        const Number value = expression.evaluate(values_);
        ArgumentBytes bytes;
        if (!write_argument(value, "int64", bytes)) return wrong(std::string(what) + " is no whole number");
        std::memcpy(&out, bytes.bytes, sizeof out);
        return out >= least || wrong(std::string(what) + " = " + std::to_string(out) + " is too small");
    }
    bool triple(const std::vector<Expression>& from, const char* what, const std::int64_t (&limits)[3], std::int64_t (&out)[3]) {
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (!whole(from[i], what, 1, out[i])) return false;
            if (out[i] > limits[i])
                return wrong(std::string(what) + " of " + std::to_string(out[i]) + ": the limit is " + std::to_string(limits[i]));
        }
        return true;
    }
    bool shape(const std::vector<Expression>& from, const std::string& name, const std::string& dtype,
               std::vector<std::int64_t>& out, std::size_t& bytes) {
        std::int64_t product = static_cast<std::int64_t>(itemsize(dtype));
        for (const Expression& side : from) {
            out.push_back(0);
            if (!whole(side, "a dimension", 1, out.back())) return false;
            if (__builtin_mul_overflow(product, out.back(), &product) || product > std::int64_t{1} << 60)
                return wrong(name + " is too large");
        }
        bytes = static_cast<std::size_t>(product);
        return true;
    }

    bool all(const Computation& computation) {
        for (const Condition& one : configuration_.conditions)
            if (!one.holds.evaluate(values_).holds()) return wrong(one.reason);
        bool written = false;
        for (const TensorSpec& spec : computation.tensors) {
            out_.tensors.push_back({spec.name, spec.role, spec.dtype, {}, spec.transposed, true, 0, itemsize(spec.dtype)});
            TensorInfo& tensor = out_.tensors.back();
            if (!condition(spec.when, "a tensor's condition", tensor.present)) return false;
            if (tensor.present && !shape(spec.shape, spec.name, spec.dtype, tensor.shape, tensor.bytes)) return false;
            if (tensor.transposed) std::reverse(tensor.shape.begin(), tensor.shape.end());
            written = written || (tensor.present && tensor.role != "input");
        }
        if (!written) return wrong("it has no output");
        for (const ScalarSpec& spec : computation.scalars) {
            out_.scalars.push_back({spec.name, spec.dtype, {}});
            if (!write_argument(spec.value.evaluate(values_), spec.dtype, out_.scalars.back().value))
                return wrong("the scalar " + spec.name + " does not fit " + spec.dtype);
        }
        if (!scratch() || !launches(0, specs_.size(), 0)) return false;
        return !out_.launches.empty() || wrong("it launches nothing");
    }

    // Go through launches that are in the same loops up to a depth; neighbours share a further loop of one name.
    bool launches(std::size_t first, std::size_t last, std::size_t depth) {
        while (first < last) {
            const LaunchSpec& spec = specs_[first];
            std::size_t end = first + 1;
            if (spec.repeat.size() == depth) {
                bool wanted = false;
                if (!condition(spec.when, "a launch's condition", wanted) || (wanted && !launch(spec)) || !passed()) return false;
            } else {
                const LoopSpec& loop = spec.repeat[depth];
                while (end < last && specs_[end].repeat.size() > depth && specs_[end].repeat[depth].name == loop.name) ++end;
                std::int64_t count = 0;
                if (!whole(loop.count, "a repeat's count", 0, count)) return false;
                values_.push_back(0);
                for (; values_.back() < count; ++values_.back()) {
                    const std::size_t before = passes_;
                    if (!launches(first, end, depth + 1) || (passes_ == before && !passed())) return false;
                }
                values_.pop_back();
            }
            first = end;
        }
        return true;
    }
    bool passed() { return ++passes_ <= kMaxLaunches || wrong("its launches repeat more than 4096 times"); }

    bool scratch() {
        for (const ScratchSpec& spec : configuration_.scratch) {
            out_.scratch.push_back({false, spec.zeroed, spec.zeroed_once, spec.dtype, {}, 0, 0});
            ScratchBuffer& buffer = out_.scratch.back();
            if (!condition(spec.when, "a condition of scratch memory", buffer.present)) return false;
            if (buffer.present && !shape(spec.shape, spec.name, spec.dtype, buffer.shape, buffer.bytes)) return false;
        }
        // What is zeroed once comes first, so that one memset reaches it all.
        for (const bool once : {true, false}) {
            for (ScratchBuffer& buffer : out_.scratch) {
                if (!buffer.present || buffer.zeroed_once != once) continue;
                buffer.offset = out_.workspace_bytes;
                out_.workspace_bytes += (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
                if (out_.workspace_bytes > std::size_t{1} << 60) return wrong("its scratch memory is too large");
            }
            if (once) out_.once_bytes = out_.workspace_bytes;
        }
        return true;
    }

    bool launch(const LaunchSpec& spec) {
        out_.launches.emplace_back();
        Launch& launch = out_.launches.back();
        launch.cubin = spec.cubin;
        launch.entry = spec.entry;
        launch.programmatic = spec.programmatic && cc_ >= 90;
        std::int64_t alignment = 1;
        bool resident = false;
        if (!triple(spec.grid, "grid", {2147483647, 65535, 65535}, launch.grid) ||
            !triple(spec.block, "block", {1024, 1024, 64}, launch.block) ||
            !whole(spec.shared_bytes, "shared_bytes", 0, launch.shared_bytes) ||
            (spec.has_carveout && !whole(spec.carveout, "carveout", 0, launch.carveout)) ||
            !whole(spec.alignment, "alignment", 1, alignment) || !condition(spec.resident, "resident", resident))
            return false;
        const std::int64_t threads = launch.block[0] * launch.block[1] * launch.block[2];
        if (threads > max_threads_per_block_) return wrong("a block of " + std::to_string(threads) + " threads is too large for this GPU");
        if (launch.shared_bytes > shared_bytes_optin_)
            return wrong(std::to_string(launch.shared_bytes) + " bytes of shared memory are too many for this GPU");
        if (launch.carveout > 100) return wrong("the carveout is a percentage");
        if (static_cast<std::int64_t>(kAlignment) % alignment) return wrong("the alignment is no power of two up to 256");
        // Blocks that wait for each other: the driver refuses a cooperative grid that is not resident at once.
        launch.cooperative = spec.cooperative || resident;
        return cluster(spec, launch) && arguments(spec, launch, static_cast<std::size_t>(alignment));
    }

    bool cluster(const LaunchSpec& spec, Launch& launch) {
        if (spec.cluster.empty()) return true;
        if (!triple(spec.cluster, "cluster", {16, 16, 16}, launch.cluster)) return false;
        if (cc_ < 90) return wrong("clusters need compute capability 9.0");
        for (int i = 0; i < 3; ++i)
            if (launch.grid[i] % launch.cluster[i]) return wrong("the grid is no multiple of the cluster");
        launch.clustered = launch.members() > 1;
        return true;
    }

    bool arguments(const LaunchSpec& spec, Launch& launch, std::size_t alignment) {
        std::size_t maps = 0, struct_bytes = 0;
        for (const FilledVariable& one : spec.constants) {
            TensorInfo& tensor = out_.tensors[one.tensor];
            tensor.by_address = true;
            if (tensor.present) launch.constants.push_back({one.symbol, one.tensor, tensor.bytes});
        }
        for (const ArgumentSpec& from : spec.arguments) {
            Argument argument;
            switch (from.kind) {
                case ArgumentSpec::Kind::buffer:
                case ArgumentSpec::Kind::one_of: {
                    std::int64_t index = 0;
                    if (from.kind == ArgumentSpec::Kind::one_of && !whole(from.value, "an index", 0, index)) return false;
                    if (index >= static_cast<std::int64_t>(from.buffers.size())) return wrong("an index is beyond its buffers");
                    argument.buffer = from.buffers[static_cast<std::size_t>(index)];
                    if (present(argument.buffer)) argument.kind = Argument::Kind::buffer;  // else a constant: a null pointer
                    align(argument.buffer, alignment, false);
                    break;
                }
                case ArgumentSpec::Kind::stride:
                    argument.buffer = from.buffers[0];
                    if (stride(argument.buffer)) argument.kind = Argument::Kind::stride;
                    break;
                case ArgumentSpec::Kind::scalar:
                    argument.kind = Argument::Kind::scalar;
                    argument.scalar = from.scalar;
                    break;
                case ArgumentSpec::Kind::value:
                    if (!write_argument(from.value.evaluate(values_), from.dtype, argument.constant))
                        return wrong("an argument does not fit " + from.dtype);
                    break;
                case ArgumentSpec::Kind::map:
                    argument.kind = Argument::Kind::map;
                    if (!map(from, argument)) return false;
                    align(argument.buffer, std::max<std::size_t>(alignment, 16), true);
                    ++maps;
                    break;
                case ArgumentSpec::Kind::cluster_order:
                    argument.kind = Argument::Kind::table;
                    if (!whole(from.value, "cluster_order", 0, argument.sharing)) return false;
                    if (argument.sharing == 0) continue;
                    if (launch.blocks() / launch.members() > kMaxClusters) return wrong("it has too many clusters for a table of them");
                    break;
                case ArgumentSpec::Kind::fields: {
                    argument.kind = Argument::Kind::fields;
                    std::size_t largest = 1;
                    if (!fields(from, alignment, argument, largest)) return false;
                    break;
                }
            }
            launch.arguments.push_back(argument);
            struct_bytes += rounded_up(argument.memory.size(), 16);
        }
        if (struct_bytes > kMaxStructBytes) return wrong("its structs are too large");
        return (launch.arguments.size() <= kMaxArguments && maps <= kMaxMaps) || wrong("it has too many arguments");
    }

    // Lay out a struct as C does; the last argument is its alignment.
    bool fields(const ArgumentSpec& from, std::size_t alignment, Argument& out, std::size_t& largest) {
        std::vector<unsigned char>& memory = out.memory;
        largest = static_cast<std::size_t>(from.alignment);
        for (const ArgumentSpec& field : from.fields) {
            Argument inner;
            ArgumentBytes bytes;
            std::size_t size = 8, own = 0;  // of an address; 0 is a null pointer
            Field one;
            if (field.kind == ArgumentSpec::Kind::fields) {
                if (!fields(field, alignment, inner, own)) return false;
                size = inner.memory.size();
            } else if (field.kind == ArgumentSpec::Kind::buffer) {
                one.buffer = field.buffers[0];
                align(one.buffer, alignment, false);
            } else if (field.kind == ArgumentSpec::Kind::stride) {
                one.buffer = field.buffers[0];
                one.is_stride = stride(one.buffer);
                size = 4;
            } else if (field.kind == ArgumentSpec::Kind::scalar) {
                one.is_scalar = true;
                one.scalar = field.scalar;
                size = itemsize(out_.scalars[field.scalar].dtype);
            } else {
                size = itemsize(field.dtype);
                if (!write_argument(field.value.evaluate(values_), field.dtype, bytes)) return wrong("an argument does not fit " + field.dtype);
            }
            own = own ? own : size;
            largest = std::max(largest, own);
            one.offset = rounded_up(memory.size(), own);
            one.bytes = size;
            memory.resize(one.offset + size);
            if (field.kind == ArgumentSpec::Kind::fields) std::copy(inner.memory.begin(), inner.memory.end(), memory.begin() + static_cast<std::ptrdiff_t>(one.offset));
            if (field.kind == ArgumentSpec::Kind::value) std::memcpy(&memory[one.offset], bytes.bytes, size);
            for (Field& deeper : inner.fields) {
                deeper.offset += one.offset;
                out.fields.push_back(deeper);
            }
            if (one.is_scalar || one.is_stride || (field.kind == ArgumentSpec::Kind::buffer && present(one.buffer))) out.fields.push_back(one);
        }
        memory.resize(rounded_up(memory.size(), largest));
        return memory.size() <= kMaxStructBytes || wrong("its structs are too large");
    }

    bool present(const BufferIndex& buffer) const {
        return buffer.scratch ? out_.scratch[buffer.index].present : out_.tensors[buffer.index].present;
    }
    // Note that a tensor's stride is passed; return whether it is there.
    bool stride(const BufferIndex& buffer) {
        TensorInfo& tensor = out_.tensors[buffer.index];
        tensor.strided = true;
        tensor.alignment = std::max<std::size_t>(tensor.alignment, 16);
        return tensor.present;
    }
    void align(const BufferIndex& buffer, std::size_t alignment, bool by_map) {
        if (buffer.scratch) return;  // aligned enough in its workspace
        TensorInfo& tensor = out_.tensors[buffer.index];
        tensor.alignment = std::max(tensor.alignment, alignment);
        (by_map ? tensor.by_map : tensor.by_address) = true;
    }

    // Refuse what cuTensorMapEncodeTiled would refuse, or would read wrongly.
    bool map(const ArgumentSpec& from, Argument& argument) {
        MapShape& map = argument.map;
        if (cc_ < 90) return wrong("tensor maps need compute capability 9.0");
        const auto there = std::find_if(from.buffers.begin(), from.buffers.end(), [this](const BufferIndex& one) { return present(one); });
        if (there == from.buffers.end()) return wrong("a tensor map is of a matrix that is not there");
        argument.buffer = *there;
        const auto& shape = there->scratch ? out_.scratch[there->index].shape : out_.tensors[there->index].shape;
        map.dtype = there->scratch ? out_.scratch[there->index].dtype : out_.tensors[there->index].dtype;
        if (shape.size() < 2 || (map.dtype != "float32" && map.dtype != "float16" && map.dtype != "bfloat16" && map.dtype != "float8_e4m3fn"))
            return wrong("tensor maps are of matrices of float32, float16, bfloat16 or float8_e4m3fn");
        map.rows = 1;  // several matrices lie below each other
        for (std::size_t i = 0; i + 1 < shape.size(); ++i) map.rows *= shape[i];
        map.columns = shape.back();
        if (!whole(from.box[0], "a box", 1, map.box_rows) || !whole(from.box[1], "a box", 1, map.box_columns) ||
            !whole(from.swizzle, "a swizzle", 0, map.swizzle) || !whole(from.l2_promotion, "an l2_promotion", 0, map.promotion))
            return false;
        const auto one_of = [](std::int64_t value, std::int64_t a, std::int64_t b, std::int64_t c) {
            return value == 0 || value == a || value == b || value == c;
        };
        if (!one_of(map.swizzle, 32, 64, 128) || !one_of(map.promotion, 64, 128, 256))
            return wrong("a tensor map's swizzle or l2_promotion is unknown");
        if (map.box_rows > 256 || map.box_columns > 256) return wrong("a tensor map's box has more than 256 elements a side");
        const std::int64_t item = static_cast<std::int64_t>(itemsize(map.dtype)), width = map.box_columns * item;
        if (width % 16 || (map.swizzle && width > map.swizzle))
            return wrong("a row of a tensor map's box is no multiple of 16 bytes, or wider than its swizzle");
        return map.columns * item % 16 == 0 || wrong("rows of a tensor map's matrix must be a multiple of 16 bytes");
    }

    const Configuration& configuration_;
    const std::vector<LaunchSpec>& specs_;
    std::vector<std::int64_t> values_;  // of sizes, limits, and the loops that are gone through
    std::size_t passes_ = 0;
    Concrete& out_;
    std::int64_t cc_ = 0, shared_bytes_optin_ = 0, max_threads_per_block_ = 0;
    std::string reason_;
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
