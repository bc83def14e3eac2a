// A configuration for one problem on one GPU: prepared once for a workspace and a stream, then run as often as wanted.
#ifndef KERNEL_TUNE_PLAN_HPP
#define KERNEL_TUNE_PLAN_HPP

#include <atomic>
#include <initializer_list>
#include <memory>

#include "modules.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {

// Device memory of the caller for a plan's scratch: at least workspace_bytes(), at a multiple of 256. It belongs to one
// plan and one stream, or one graph, at a time.
struct Workspace {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;

    Workspace() = default;
    Workspace(CUdeviceptr at, std::size_t size) : address(at), bytes(size) {}
    Workspace(const void* at, std::size_t size) : address(reinterpret_cast<CUdeviceptr>(at)), bytes(size) {}
};

// A tensor's name and its address in device memory; of one that is a part of a larger matrix also how many elements lie from row to row
// in memory. 0: nothing is between them. Outputs, and inputs of their shape, may be such parts where the problem that was planned says so.
struct Tensor {
    const char* name;
    CUdeviceptr address;
    std::size_t row_stride;

    Tensor(const char* of, CUdeviceptr at, std::size_t stride = 0) : name(of), address(at), row_stride(stride) {}
    Tensor(const char* of, const void* at, std::size_t stride = 0) : Tensor(of, reinterpret_cast<CUdeviceptr>(at), stride) {}
};

// A scalar's name, and a value other than the kernel's own.
struct ScalarValue {
    const char* name;
    double value;
};

namespace detail {

// The last tensor map of an argument, for any number of threads: a reader that meets a writer encodes its own.
class MapCache {
public:
    bool get(CUdeviceptr address, std::size_t stride, CUtensorMap& out) const {
        const unsigned before = version_.load(std::memory_order_acquire);
        if (before % 2 || before == 0 || address_.load(std::memory_order_relaxed) != address ||
            stride_.load(std::memory_order_relaxed) != stride)
            return false;
        std::uint64_t copy[kWords];
        for (std::size_t i = 0; i < kWords; ++i) copy[i] = words_[i].load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (version_.load(std::memory_order_relaxed) != before) return false;
        std::memcpy(&out, copy, sizeof out);
        return true;
    }
    void put(CUdeviceptr address, std::size_t stride, const CUtensorMap& map) {
        unsigned before = version_.load(std::memory_order_relaxed);
        if (before % 2 || !version_.compare_exchange_strong(before, before + 1, std::memory_order_acquire)) return;
        std::atomic_thread_fence(std::memory_order_release);
        std::uint64_t copy[kWords];
        std::memcpy(copy, &map, sizeof copy);
        for (std::size_t i = 0; i < kWords; ++i) words_[i].store(copy[i], std::memory_order_relaxed);
        address_.store(address, std::memory_order_relaxed);
        stride_.store(stride, std::memory_order_relaxed);
        version_.store(before + 2, std::memory_order_release);
    }

private:
    static constexpr std::size_t kWords = sizeof(CUtensorMap) / sizeof(std::uint64_t);
    std::atomic<unsigned> version_{0};
    std::atomic<CUdeviceptr> address_{0};
    std::atomic<std::size_t> stride_{0};
    std::atomic<std::uint64_t> words_[kWords] = {};
};

inline CUresult encode_map(const MapShape& shape, CUdeviceptr address, std::size_t stride, CUtensorMap& out) {
    const CUtensorMapDataType dtype = shape.dtype == "float32"   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                      : shape.dtype == "float16" ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                      : shape.dtype == "float8_e4m3fn" ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                                                 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const CUtensorMapSwizzle swizzle = shape.swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : shape.swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                       : shape.swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                             : CU_TENSOR_MAP_SWIZZLE_NONE;
    const CUtensorMapL2promotion promotion = shape.promotion == 256   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                             : shape.promotion == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                             : shape.promotion == 64  ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B
                                                                      : CU_TENSOR_MAP_L2_PROMOTION_NONE;
    // Dimensions are named from the fastest; the distance of columns is not, because they are neighbours.
    const cuuint64_t sizes[] = {static_cast<cuuint64_t>(shape.columns), static_cast<cuuint64_t>(shape.rows)};
    const cuuint64_t strides[] = {(stride ? stride : sizes[0]) * static_cast<cuuint64_t>(itemsize(shape.dtype))};
    const cuuint32_t box[] = {static_cast<cuuint32_t>(shape.box_columns), static_cast<cuuint32_t>(shape.box_rows)};
    const cuuint32_t steps[] = {1, 1};
    return Driver::get().cuTensorMapEncodeTiled(&out, dtype, 2, reinterpret_cast<void*>(address), sizes, strides, box, steps,
                                                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// A launch in one context, with all that does not depend on a call.
struct PreparedLaunch {
    LaunchConfig config;
    CUfunction function = nullptr;
    std::vector<std::vector<unsigned char>> tables{};  // by argument; empty for others
    std::vector<CUdeviceptr> variables{};              // that are filled
};

// A list that others search without a lock while one adds to it. An item has a key, and the next one.
template <typename Item>
class Grown {
public:
    ~Grown() {
        for (const Item* one = first_.load(); one;) delete std::exchange(one, one->next);
    }
    const Item* find(unsigned long long key) const {
        const Item* one = first_.load(std::memory_order_acquire);
        while (one && one->key != key) one = one->next;
        return one;
    }
    void add(Item* item) {
        item->next = first_.load();
        first_.store(item, std::memory_order_release);
    }

private:
    std::atomic<const Item*> first_{nullptr};
};

// A workspace of which the part that is zeroed once was.
struct Zeroed {
    CUdeviceptr key = 0;
    const Zeroed* next = nullptr;
};

// What prepare() leaves for run(), for one context; nothing in it changes but the list of workspaces.
struct Prepared {
    unsigned long long key = 0;  // of the context
    const Prepared* next = nullptr;
    std::vector<PreparedLaunch> launches{};
    mutable Grown<Zeroed> zeroed{};
};

struct PlanState {
    std::string folder, kernel, configuration, reason;
    CUdevice device = 0;
    int cc = 0;
    Match match = Match::default_configuration;
    double slowdown = 0.0;
    Concrete concrete;
    Probe probe;  // of no cubin where there is none
    std::vector<std::unique_ptr<MapCache[]>> maps;  // for each launch, by argument
    std::mutex lock;                                // of those who prepare
    Grown<Prepared> prepared;
};

}  // namespace detail

// Copies share what was prepared. All functions may be called by several threads at a time.
class Plan {
public:
    Plan() = default;

    bool empty() const { return !state_; }
    PlanMatch match() const { return state().match; }
    double expected_slowdown() const { return state().slowdown; }  // over the best for this problem; 0: not known
    const std::string& configuration() const { return state().configuration; }  // the variant and its parameters
    const std::string& reason() const { return state().reason; }                // why this configuration
    std::size_t workspace_bytes() const { return state().concrete.workspace_bytes; }
    const std::vector<TensorInfo>& tensors() const { return state().concrete.tensors; }
    std::size_t launches() const { return state().concrete.launches.size(); }

    // Load the kernels into the current context, and set what must be zero in the workspace. It may allocate and wait, so
    // it must not be called while the stream is captured. run() on another stream has to wait for this one.
    Status prepare(const Workspace& workspace, CUstream stream) const {
        using namespace detail;
        if (empty()) return {Code::invalid_argument, "the plan is empty: call Bundle::plan first"};
        const Driver& driver = Driver::get();
        unsigned long long context = 0;
        CUdevice device = 0;
        CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
        Status status = current_context(context);
        if (status.ok()) status = driver.check(driver.cuCtxGetDevice(&device), "cuCtxGetDevice");
        if (status.ok() && device != state_->device)
            return {Code::wrong_gpu, "the plan is for GPU " + std::to_string(state_->device) + ", and the current context is of GPU " +
                                         std::to_string(device) + ": plan for that one"};
        if (status.ok()) status = check_workspace(workspace);
        if (status.ok()) status = driver.check(driver.cuStreamIsCapturing(stream, &capture), "cuStreamIsCapturing");
        if (status.ok() && capture != CU_STREAM_CAPTURE_STATUS_NONE)
            return {Code::invalid_argument, "the stream is being captured: prepare before the capture"};
        if (!status.ok()) return status;

        const std::lock_guard<std::mutex> guard(state_->lock);
        const Prepared* prepared = state_->prepared.find(context);
        if (!prepared) {
            auto made = std::make_unique<Prepared>();
            made->key = context;
            for (const Launch& launch : state_->concrete.launches) {
                status = prepare_launch(launch, context, stream, *made);
                if (!status.ok()) return status;
            }
            state_->prepared.add(made.get());
            prepared = made.release();
        }
        const std::size_t once = state_->concrete.once_bytes;
        if (once) status = driver.check(driver.cuMemsetD8Async(workspace.address, 0, once, stream), "cuMemsetD8Async");
        if (once && status.ok() && !prepared->zeroed.find(workspace.address)) prepared->zeroed.add(new Zeroed{workspace.address});
        return status;
    }

    // Launch on a stream: without allocation and without waiting, so that it can be captured.
    Status run(std::initializer_list<Tensor> tensors, const Workspace& workspace, CUstream stream,
               std::initializer_list<ScalarValue> scalars = {}) const {
        if (empty()) return {Code::invalid_argument, "the plan is empty: call Bundle::plan first"};
        const std::vector<TensorInfo>& wanted = state_->concrete.tensors;
        CUdeviceptr addresses[detail::kMaxArguments] = {};
        std::size_t strides[detail::kMaxArguments] = {};
        if (wanted.size() > detail::kMaxArguments) return {Code::invalid_argument, "the kernel has too many tensors"};
        for (const Tensor& tensor : tensors) {
            const std::size_t i = detail::position(wanted, tensor.name);
            if (i == wanted.size())
                return {Code::invalid_argument, state_->kernel + " has no tensor " + std::string(tensor.name)};
            addresses[i] = tensor.address;
            strides[i] = tensor.row_stride;
        }
        return run(addresses, wanted.size(), workspace, stream, scalars.begin(), scalars.size(), strides);
    }

    // The same with an address, and a row stride if any is given, for each of tensors(), in their order; what is not present is not read.
    Status run(const CUdeviceptr* addresses, std::size_t count, const Workspace& workspace, CUstream stream,
               const ScalarValue* scalars = nullptr, std::size_t scalar_count = 0, const std::size_t* row_strides = nullptr) const {
        using namespace detail;
        if (empty()) return {Code::invalid_argument, "the plan is empty: call Bundle::plan first"};
        const Concrete& concrete = state_->concrete;
        unsigned long long context = 0;
        Status status = current_context(context);
        if (status.ok()) status = check_workspace(workspace);
        if (status.ok()) status = check_tensors(addresses, row_strides, count, workspace);
        if (!status.ok()) return status;
        const Prepared* const prepared = state_->prepared.find(context);
        if (!prepared || (concrete.once_bytes && !prepared->zeroed.find(workspace.address)))
            return {Code::not_prepared, "call prepare with this workspace in this context first"};
        ArgumentBytes given[kMaxArguments];
        bool is_given[kMaxArguments] = {};
        for (std::size_t i = 0; i < scalar_count; ++i) {
            const std::size_t at = position(concrete.scalars, scalars[i].name);
            if (at >= std::min(concrete.scalars.size(), kMaxArguments))
                return {Code::invalid_argument, state_->kernel + " has no scalar " + std::string(scalars[i].name)};
            if (!write_argument(Number::of(scalars[i].value), concrete.scalars[at].dtype, given[at]))
                return {Code::invalid_argument, "the scalar " + concrete.scalars[at].name + " does not fit " + concrete.scalars[at].dtype};
            is_given[at] = true;
        }

        const Driver& driver = Driver::get();
        const auto address_of = [&](const BufferIndex& buffer) {
            return buffer.scratch ? workspace.address + concrete.scratch[buffer.index].offset : addresses[buffer.index];
        };
        for (const ScratchBuffer& buffer : concrete.scratch) {
            if (!buffer.present || !buffer.zeroed) continue;
            status = driver.check(driver.cuMemsetD8Async(workspace.address + buffer.offset, 0, buffer.bytes, stream), "cuMemsetD8Async");
            if (!status.ok()) return status;
        }
        const auto stride_of = [&](const BufferIndex& buffer) -> CUdeviceptr {
            const std::size_t given_stride = row_strides ? row_strides[buffer.index] : 0;
            return given_stride ? given_stride : static_cast<CUdeviceptr>(concrete.tensors[buffer.index].shape.back());
        };
        // Arguments that differ from call to call lie on the stack, so that threads share nothing.
        alignas(128) CUtensorMap maps[kMaxMaps];
        CUdeviceptr pointers[kMaxArguments];
        const void* arguments[kMaxArguments];
        alignas(16) unsigned char structs[kMaxStructBytes];
        for (std::size_t l = 0; l < concrete.launches.size(); ++l) {
            const Launch& launch = concrete.launches[l];
            const PreparedLaunch& ready = prepared->launches[l];
            std::size_t map_count = 0, struct_bytes = 0;
            for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
                const Argument& argument = launch.arguments[i];
                switch (argument.kind) {
                    case Argument::Kind::constant: arguments[i] = argument.constant.bytes; break;
                    case Argument::Kind::buffer:
                        pointers[i] = address_of(argument.buffer);
                        arguments[i] = &pointers[i];
                        break;
                    case Argument::Kind::stride:
                        pointers[i] = stride_of(argument.buffer);
                        arguments[i] = &pointers[i];
                        break;
                    case Argument::Kind::scalar: {
                        const std::size_t at = argument.scalar;
                        arguments[i] = at < kMaxArguments && is_given[at] ? given[at].bytes : concrete.scalars[at].value.bytes;
                        break;
                    }
                    case Argument::Kind::map: {
                        const CUdeviceptr address = address_of(argument.buffer);
                        const std::size_t stride = row_strides && !argument.buffer.scratch ? row_strides[argument.buffer.index] : 0;
                        CUtensorMap& map = maps[map_count++];
                        arguments[i] = &map;
                        MapCache& cache = state_->maps[l][i];
                        if (cache.get(address, stride, map)) break;
                        status = driver.check(encode_map(argument.map, address, stride, map), "cuTensorMapEncodeTiled");
                        if (!status.ok()) return status;
                        cache.put(address, stride, map);
                        break;
                    }
                    case Argument::Kind::table: arguments[i] = ready.tables[i].data(); break;
                    case Argument::Kind::fields: {
                        unsigned char* const memory = structs + struct_bytes;
                        struct_bytes += rounded_up(argument.memory.size(), 16);
                        std::memcpy(memory, argument.memory.data(), argument.memory.size());
                        for (const Field& field : argument.fields) {
                            const std::size_t at = field.scalar;
                            const CUdeviceptr number = field.is_scalar ? 0 : field.is_stride ? stride_of(field.buffer) : address_of(field.buffer);
                            const void* from = &number;
                            if (field.is_scalar)
                                from = at < kMaxArguments && is_given[at] ? given[at].bytes : concrete.scalars[at].value.bytes;
                            std::memcpy(memory + field.offset, from, field.bytes);
                        }
                        arguments[i] = memory;
                        break;
                    }
                }
            }
            std::unique_lock<std::mutex> held;
            if (!launch.constants.empty()) {
                status = Modules::get().order(context).wait(stream, held);
                if (!status.ok()) return status;
            }
            for (std::size_t i = 0; i < launch.constants.size(); ++i) {
                const Filled& one = launch.constants[i];
                status = driver.check(driver.cuMemcpyDtoDAsync(ready.variables[i], addresses[one.tensor], one.bytes, stream), "cuMemcpyDtoDAsync");
                if (!status.ok()) return status;
            }
            const CUlaunchConfig config = ready.config.on(stream);
            const CUresult result = driver.cuLaunchKernelEx(&config, ready.function, const_cast<void**>(arguments), nullptr);
            if (result != CUDA_SUCCESS) return driver.check(result, ("the launch of " + launch.entry).c_str());
            if (!launch.constants.empty()) {
                status = Modules::get().order(context).launched(stream);
                if (!status.ok()) return status;
            }
        }
        return {};
    }

private:
    friend class Bundle;

    const detail::PlanState& state() const {
        static const detail::PlanState none;
        return state_ ? *state_ : none;
    }

    static Status current_context(unsigned long long& context) {
        const detail::Driver& driver = detail::Driver::get();
        if (!driver.status.ok()) return driver.status;
        const CUresult result = driver.cuCtxGetId(nullptr, &context);
        if (result == CUDA_ERROR_INVALID_CONTEXT)
            return {Code::invalid_argument, "no CUDA context is current: call cuCtxSetCurrent, or cudaSetDevice, first"};
        return driver.check(result, "cuCtxGetId");
    }

    Status check_workspace(const Workspace& workspace) const {
        const std::size_t wanted = state_->concrete.workspace_bytes;
        if (!wanted) return {};
        if (!workspace.address || workspace.address % detail::kAlignment)
            return {Code::invalid_argument, "the workspace must be at a multiple of 256 bytes, and not null"};
        if (workspace.bytes >= wanted) return {};
        return {Code::invalid_argument, "the workspace has " + std::to_string(workspace.bytes) + " bytes, and the plan needs " + std::to_string(wanted)};
    }

    Status check_tensors(const CUdeviceptr* addresses, const std::size_t* strides, std::size_t count, const Workspace& workspace) const {
        const std::vector<TensorInfo>& tensors = state_->concrete.tensors;
        if (count != tensors.size())
            return {Code::invalid_argument, std::to_string(count) + " addresses for " + std::to_string(tensors.size()) + " tensors"};
        const std::size_t scratch = state_->concrete.workspace_bytes;
        // Bytes from the first element to the last.
        const auto bytes_of = [&](std::size_t i) {
            if (!strides || !strides[i] || !tensors[i].bytes) return tensors[i].bytes;
            const std::size_t length = static_cast<std::size_t>(tensors[i].shape.back()) * detail::itemsize(tensors[i].dtype);
            return tensors[i].bytes + (tensors[i].bytes / length - 1) * (strides[i] * detail::itemsize(tensors[i].dtype) - length);
        };
        const auto overlap = [](CUdeviceptr a, std::size_t a_bytes, CUdeviceptr b, std::size_t b_bytes) {
            return a < b + b_bytes && b < a + a_bytes;
        };
        // Whether rows of two tensors lie side by side, as those of two slices of one matrix do.
        const auto beside = [&](std::size_t i, std::size_t j) {
            if (!strides || !strides[i] || tensors[i].dtype != tensors[j].dtype || strides[i] != strides[j]) return false;
            const std::size_t item = detail::itemsize(tensors[i].dtype), step = strides[i] * item;
            if (addresses[i] < addresses[j]) std::swap(i, j);
            const std::size_t column = (addresses[i] - addresses[j]) % step;
            const auto length = [&](std::size_t of) { return static_cast<std::size_t>(tensors[of].shape.back()) * item; };
            return length(j) <= column && column + length(i) <= step;
        };
        for (std::size_t i = 0; i < count; ++i) {
            const TensorInfo& tensor = tensors[i];
            if (!tensor.present) continue;
            if (!addresses[i]) return {Code::invalid_argument, "the tensor " + tensor.name + " is missing, or null"};
            if (addresses[i] % tensor.alignment)
                return {Code::invalid_argument, "the tensor " + tensor.name + " must be at a multiple of " + std::to_string(tensor.alignment) + " bytes"};
            if (strides && strides[i]) {
                if ((!tensor.strided && (!tensor.by_map || tensor.by_address)) || tensor.role == "inout")
                    return {Code::invalid_argument, "rows of the tensor " + tensor.name + " cannot lie apart with this configuration: " +
                                                        (tensor.role == "output" ? "plan it with apart, of a bundle made with --slices" : "pass a copy")};
                const bool fits = strides[i] >= static_cast<std::size_t>(tensor.shape.back()) && strides[i] < std::size_t{1} << 31;
                if (!fits || strides[i] * detail::itemsize(tensor.dtype) % 16)
                    return {Code::invalid_argument, "the row stride of the tensor " + tensor.name +
                                                        " must be a row or more, below 2^31 elements, and a multiple of 16 bytes"};
            }
            if (scratch && overlap(addresses[i], bytes_of(i), workspace.address, scratch))
                return {Code::invalid_argument, "the tensor " + tensor.name + " overlaps the workspace"};
            for (std::size_t j = 0; j < i; ++j)
                if (tensors[j].present && (tensor.role != "input" || tensors[j].role != "input") &&
                    overlap(addresses[i], bytes_of(i), addresses[j], bytes_of(j)) && !beside(i, j))
                    return {Code::invalid_argument, "the tensors " + tensors[j].name + " and " + tensor.name + " overlap, and one is written"};
        }
        return {};
    }

    Status prepare_launch(const detail::Launch& launch, unsigned long long context, CUstream stream, detail::Prepared& out) const {
        using namespace detail;
        Modules& modules = Modules::get();
        out.launches.push_back({LaunchConfig(launch)});
        PreparedLaunch& ready = out.launches.back();
        Status status = modules.function(context, state_->folder, launch, ready.function);
        ready.tables.resize(launch.arguments.size());
        for (std::size_t i = 0; status.ok() && i < launch.arguments.size(); ++i) {
            const Argument& argument = launch.arguments[i];
            if (argument.kind == Argument::Kind::table)
                status = modules.table(context, state_->folder, state_->probe, state_->cc, stream, launch, argument.sharing, ready.tables[i]);
        }
        ready.variables.resize(launch.constants.size());
        for (std::size_t i = 0; status.ok() && i < launch.constants.size(); ++i)
            status = modules.variable(context, launch, launch.constants[i], ready.variables[i]);
        return status;
    }

    std::shared_ptr<detail::PlanState> state_;
};

}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
