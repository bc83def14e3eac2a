// A libcuda.so.1 without a GPU: it checks what it is asked to launch, and counts and writes down what would have run.
//
// Device memory is the host's. A kernel does nothing, except `whereabouts`, which says on which SM each block would be.
//   FAKE_CUDA_DEVICES   the GPUs (devices.hpp); FAKE_CUDA_DRIVER the driver's version (13000);
//   FAKE_CUDA_MEMORY    bytes that each GPU has; FAKE_CUDA_LOG a file that gets a line of JSON for each launch and memset.
// fake_cuda_count("launches") and fake_cuda_refusal() tell a test what happened (its end has the names).
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <unordered_set>

#include "cubin.hpp"
#include "devices.hpp"

using fake::devices;

struct CUctx_st {
    int device;
    std::size_t used = 0;
};
struct CUmod_st {
    CUcontext context;
    bool any_entry;
    std::map<std::string, CUfunction> functions;
};
struct CUfunc_st {
    CUmodule module;
    std::string name;
    fake::Entry entry;
    std::atomic<int> max_dynamic_shared{49152}, carveout{-1}, non_portable{0};
    std::atomic<bool> loaded{false};  // modules are loaded lazily: by cuFuncLoad, or by the first launch
};
struct CUevent_st {
    std::chrono::steady_clock::time_point when{};
};

namespace {

struct Kernel {
    CUfunction function = nullptr;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    unsigned shared = 0;
    bool cooperative = false, programmatic = false;
    std::vector<std::vector<unsigned char>> arguments;
};

struct Map {  // what lies in the 128 bytes of a tensor map
    char magic[8];
    std::uint64_t address, columns, rows, stride;
    std::uint32_t dtype, box_columns, box_rows, swizzle, promotion, interleave, fill;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "it has to fit");
constexpr char kMagic[8] = {'F', 'A', 'K', 'E', 'M', 'A', 'P', '1'};

}  // namespace

struct CUgraphNode_st {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Kernel kernel;
    CUDA_MEMSET_NODE_PARAMS memset{};
    CUDA_MEMCPY3D copy{};
    CUevent event = nullptr;
    CUgraph child = nullptr;
    bool programmatic_edge = false;
};
// Numbers of streams and graphs: unlike their addresses, none comes twice.
inline std::uint64_t next_number() {
    static std::atomic<std::uint64_t> last{100};
    return ++last;
}
struct CUgraph_st {
    std::vector<CUgraphNode> nodes;
    std::uint64_t id = next_number();
};
struct CUgraphExec_st {
    CUgraph_st graph;
};
struct CUstream_st {
    CUcontext context;
    CUgraph capture = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    bool invalidated = false;
    const void* thread = nullptr;
    std::uint64_t id = next_number();
};

namespace {

std::recursive_mutex lock;
using Guard = std::lock_guard<std::recursive_mutex>;
thread_local std::vector<CUcontext> current;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
std::map<CUdeviceptr, std::pair<std::size_t, CUcontext>> memory;
std::unordered_set<CUstream> streams;

std::map<std::string, long>& counts() {
    static std::map<std::string, long> all;
    return all;
}
void count(const char* what) {
    const Guard guard(lock);
    ++counts()[what];
}
std::string& refusal() {
    static std::string text;
    return text;
}
CUresult refuse(CUresult code, const std::string& why) {
    const Guard guard(lock);
    ++counts()["refused"];
    refusal() = why;
    return code;
}

const void* this_thread() { return &thread_mode; }
CUcontext context_now() { return current.empty() ? nullptr : current.back(); }
CUcontext primary(int device) {
    static std::vector<CUctx_st> all = [] {
        std::vector<CUctx_st> made;
        for (std::size_t i = 0; i < devices().size(); ++i) made.push_back({static_cast<int>(i)});
        return made;
    }();
    return &all[static_cast<std::size_t>(device)];
}
const fake::Device& device_of(CUcontext context) { return devices()[static_cast<std::size_t>(context->device)]; }
bool special(CUstream stream) { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }
bool capturing(CUstream stream) { return !special(stream) && stream->capture; }

// What must not be called while a stream is captured; it also spoils the capture.
CUresult unsafe_call() {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    const Guard guard(lock);
    for (CUstream stream : streams) {
        if (!stream->capture || stream->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        const bool ours = stream->thread == this_thread();
        const bool everywhere = stream->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!ours && !everywhere) continue;
        stream->invalidated = true;
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "an unsafe call during a capture");
    }
    return CUDA_SUCCESS;
}

CUresult in_context(CUstream stream) {
    if (!context_now()) return refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current");
    const Guard guard(lock);
    if (special(stream)) return CUDA_SUCCESS;
    if (!streams.count(stream)) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (stream->context != context_now()) return refuse(CUDA_ERROR_INVALID_HANDLE, "a stream of another context");
    if (stream->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return CUDA_SUCCESS;
}

bool allocated(CUdeviceptr address, std::size_t bytes) {
    const Guard guard(lock);
    auto after = memory.upper_bound(address);
    if (after == memory.begin()) return false;
    const auto& [start, block] = *--after;
    return address + bytes <= start + block.first;
}

CUresult checked(const Kernel& kernel) {
    const CUfunc_st& function = *kernel.function;
    const auto& device = device_of(function.module->context);
    const auto wrong = [&](const char* what) { return refuse(CUDA_ERROR_INVALID_VALUE, function.name + ": " + what); };
    const std::uint64_t threads = std::uint64_t(kernel.block[0]) * kernel.block[1] * kernel.block[2];
    const std::uint64_t blocks = std::uint64_t(kernel.grid[0]) * kernel.grid[1] * kernel.grid[2];
    for (int i = 0; i < 3; ++i) {
        if (!kernel.grid[i] || kernel.grid[i] > unsigned(device[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i])) return wrong("grid");
        if (!kernel.block[i] || kernel.block[i] > unsigned(device[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i])) return wrong("block");
        if (!kernel.cluster[i] || kernel.grid[i] % kernel.cluster[i]) return wrong("the grid is no multiple of the cluster");
    }
    if (threads > std::uint64_t(device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) return wrong("threads of a block");
    if (threads > std::uint64_t(function.entry.max_threads)) return wrong("more threads than it was compiled for");
    if (kernel.shared > unsigned(function.max_dynamic_shared)) return wrong("more shared memory than its attribute allows");
    const unsigned shared = kernel.shared + unsigned(function.entry.static_shared);
    if (shared > unsigned(device[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN])) return wrong("shared memory");
    const unsigned members = kernel.cluster[0] * kernel.cluster[1] * kernel.cluster[2];
    if (members > 1 && !device[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH]) return wrong("this GPU has no clusters");
    if (members > (function.non_portable ? 16u : 8u)) return wrong("cluster of more than 8 blocks without its attribute");
    if (kernel.cooperative) {
        const auto reserved = unsigned(device[CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK]);
        std::uint64_t resident = std::uint64_t(device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR]) / threads;
        resident = std::min(resident, std::uint64_t(device[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR]));
        if (shared + reserved) resident = std::min(resident, std::uint64_t(unsigned(device[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR]) / (shared + reserved)));
        if (blocks > resident * std::uint64_t(device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]))
            return refuse(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, function.name + ": more blocks than can be resident");
    }
    return CUDA_SUCCESS;
}

std::string argument_text(const std::vector<unsigned char>& bytes) {
    char text[400];
    if (bytes.size() == sizeof(CUtensorMap) && std::memcmp(bytes.data(), kMagic, 8) == 0) {
        const Map map = fake::read<Map>(reinterpret_cast<const char*>(bytes.data()));
        std::snprintf(text, sizeof text, "{\"address\":%llu,\"dtype\":%u,\"rows\":%llu,\"columns\":%llu,\"stride\":%llu,\"box\":[%u,%u],\"swizzle\":%u,\"promotion\":%u}",
                      static_cast<unsigned long long>(map.address), map.dtype, static_cast<unsigned long long>(map.rows), static_cast<unsigned long long>(map.columns),
                      static_cast<unsigned long long>(map.stride), map.box_rows, map.box_columns, map.swizzle, map.promotion);
        return text;
    }
    std::string hex = "\"";
    for (unsigned char byte : bytes) {
        std::snprintf(text, sizeof text, "%02x", byte);
        hex += text;
    }
    return hex + "\"";
}

void write_line(const std::string& line) {
    static std::FILE* file = [] {
        const char* path = std::getenv("FAKE_CUDA_LOG");
        return path ? std::fopen(path, "a") : nullptr;
    }();
    if (!file) return;
    std::fprintf(file, "%s\n", line.c_str());
    std::fflush(file);
}

void where_blocks_are(const Kernel& kernel) {
    if (kernel.arguments.empty() || kernel.arguments[0].size() != 8) return;
    const auto address = fake::read<CUdeviceptr>(reinterpret_cast<const char*>(kernel.arguments[0].data()));
    if (!allocated(address, 4 * kernel.grid[0])) return;
    auto* sms = reinterpret_cast<int*>(address);
    // Seven GPCs of 18 SMs: clusters go to them in turn, and the blocks of a cluster to neighbours.
    const unsigned members = kernel.cluster[0];
    for (unsigned i = 0; i < kernel.grid[0]; ++i) {
        const unsigned cluster = i / members;
        sms[i] = static_cast<int>(18 * (cluster % 7) + (cluster / 7 * members + i % members) % 18);
    }
}

CUresult run_kernel(const Kernel& kernel, CUstream stream, bool in_graph) {
    const Guard guard(lock);
    ++counts()["launches"];
    char text[400];
    std::snprintf(text, sizeof text, "{\"kernel\":\"%s\",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared\":%u,\"cluster\":[%u,%u,%u],\"cooperative\":%d,\"programmatic\":%d,\"carveout\":%d,\"stream\":%llu,\"graph\":%d,\"arguments\":[",
                  kernel.function->name.c_str(), kernel.grid[0], kernel.grid[1], kernel.grid[2], kernel.block[0], kernel.block[1], kernel.block[2], kernel.shared,
                  kernel.cluster[0], kernel.cluster[1], kernel.cluster[2], kernel.cooperative, kernel.programmatic, kernel.function->carveout.load(),
                  static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(stream)), in_graph);
    if (std::getenv("FAKE_CUDA_LOG")) {
        std::string line = text;
        for (std::size_t i = 0; i < kernel.arguments.size(); ++i) line += (i ? "," : "") + argument_text(kernel.arguments[i]);
        write_line(line + "]}");
    }
    if (kernel.function->name == "whereabouts") where_blocks_are(kernel);
    return CUDA_SUCCESS;
}

CUresult fill(CUdeviceptr address, unsigned value, std::size_t element, std::size_t number) {
    if (!allocated(address, element * number)) return refuse(CUDA_ERROR_ILLEGAL_ADDRESS, "a memset outside of what was allocated");
    const Guard guard(lock);
    ++counts()["memsets"];
    for (std::size_t i = 0; element > 1 && i < number; ++i) std::memcpy(reinterpret_cast<char*>(address) + i * element, &value, element);
    if (element == 1) std::memset(reinterpret_cast<void*>(address), int(value), number);
    char text[200];
    std::snprintf(text, sizeof text, "{\"memset\":%llu,\"bytes\":%zu,\"value\":%u}", static_cast<unsigned long long>(address), element * number, value);
    write_line(text);
    return CUDA_SUCCESS;
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, bool device_to, bool device_from) {
    if ((device_to && !allocated(to, bytes)) || (device_from && !allocated(from, bytes)))
        return refuse(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy outside of what was allocated");
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    count("copies");
    return CUDA_SUCCESS;
}

CUresult run_node(const CUgraphNode_st& node, CUstream stream);

CUresult run_graph(const CUgraph_st& graph, CUstream stream) {
    for (CUgraphNode node : graph.nodes)
        if (const CUresult result = run_node(*node, stream)) return result;
    return CUDA_SUCCESS;
}

CUresult run_node(const CUgraphNode_st& node, CUstream stream) {
    switch (node.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: return run_kernel(node.kernel, stream, true);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return fill(node.memset.dst, node.memset.value, node.memset.elementSize, node.memset.width * node.memset.height);
        case CU_GRAPH_NODE_TYPE_MEMCPY: {
            const bool to = node.copy.dstMemoryType != CU_MEMORYTYPE_HOST, from = node.copy.srcMemoryType != CU_MEMORYTYPE_HOST;
            return copy(to ? node.copy.dstDevice : reinterpret_cast<CUdeviceptr>(node.copy.dstHost),
                        from ? node.copy.srcDevice : reinterpret_cast<CUdeviceptr>(node.copy.srcHost), node.copy.WidthInBytes, to, from);
        }
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD: node.event->when = std::chrono::steady_clock::now(); return CUDA_SUCCESS;
        case CU_GRAPH_NODE_TYPE_GRAPH: return run_graph(*node.child, stream);
        default: return CUDA_SUCCESS;
    }
}

// Add a node to a captured graph, or run it now.
CUresult submit(CUstream stream, CUgraphNode_st node) {
    if (const CUresult result = in_context(stream)) return result;
    if (capturing(stream)) {
        const Guard guard(lock);
        ++counts()["captured"];
        stream->capture->nodes.push_back(new CUgraphNode_st(node));
        return CUDA_SUCCESS;
    }
    return node.type == CU_GRAPH_NODE_TYPE_KERNEL ? run_kernel(node.kernel, stream, false) : run_node(node, stream);
}

void bind(Kernel& kernel, void** parameters) {
    for (std::size_t i = 0; parameters && i < kernel.function->entry.parameters.size(); ++i) {
        const auto* bytes = static_cast<const unsigned char*>(parameters[i]);
        kernel.arguments.emplace_back(bytes, bytes + kernel.function->entry.parameters[i].second);
    }
}

CUresult set_attribute(Kernel& kernel, CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            kernel.cluster[0] = value.clusterDim.x;
            kernel.cluster[1] = value.clusterDim.y;
            kernel.cluster[2] = value.clusterDim.z;
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: kernel.cooperative = value.cooperative != 0; return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            kernel.programmatic = value.programmaticStreamSerializationAllowed != 0;
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_IGNORE: case CU_LAUNCH_ATTRIBUTE_PRIORITY: return CUDA_SUCCESS;
        default: return refuse(CUDA_ERROR_INVALID_VALUE, "a launch attribute that the fake driver lacks");
    }
}

CUresult launch(CUfunction function, const CUlaunchConfig& config, void** parameters, bool cooperative) {
    if (!function) return refuse(CUDA_ERROR_INVALID_HANDLE, "no function");
    if (const CUresult result = in_context(config.hStream)) return result;
    if (function->module->context != context_now()) return refuse(CUDA_ERROR_INVALID_HANDLE, "a function of another context");
    if (!parameters && !function->entry.parameters.empty()) return refuse(CUDA_ERROR_INVALID_VALUE, "no arguments");
    CUgraphNode_st node;
    node.type = CU_GRAPH_NODE_TYPE_KERNEL;
    Kernel& kernel = node.kernel;
    kernel.function = function;
    kernel.cooperative = cooperative;
    const unsigned grid[3] = {config.gridDimX, config.gridDimY, config.gridDimZ}, block[3] = {config.blockDimX, config.blockDimY, config.blockDimZ};
    std::memcpy(kernel.grid, grid, sizeof grid);
    std::memcpy(kernel.block, block, sizeof block);
    kernel.shared = config.sharedMemBytes;
    for (unsigned i = 0; i < config.numAttrs; ++i)
        if (const CUresult result = set_attribute(kernel, config.attrs[i].id, config.attrs[i].value)) return result;
    if (const CUresult result = checked(kernel)) return result;
    if (!function->loaded) {
        if (const CUresult result = unsafe_call()) return result;
        function->loaded = true;
    }
    bind(kernel, parameters);
    return submit(config.hStream, node);
}

CUgraphNode add(CUgraph graph, CUgraphNodeType type) {
    const Guard guard(lock);
    graph->nodes.push_back(new CUgraphNode_st);
    graph->nodes.back()->type = type;
    return graph->nodes.back();
}

CUresult add_kernel(CUgraphNode* node, CUgraph graph, const CUDA_KERNEL_NODE_PARAMS& p) {
    if (!p.func) return refuse(CUDA_ERROR_INVALID_HANDLE, "no function");
    *node = add(graph, CU_GRAPH_NODE_TYPE_KERNEL);
    Kernel& kernel = (*node)->kernel;
    kernel.function = p.func;
    const unsigned grid[3] = {p.gridDimX, p.gridDimY, p.gridDimZ}, block[3] = {p.blockDimX, p.blockDimY, p.blockDimZ};
    std::memcpy(kernel.grid, grid, sizeof grid);
    std::memcpy(kernel.block, block, sizeof block);
    kernel.shared = p.sharedMemBytes;
    bind(kernel, p.kernelParams);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

long fake_cuda_count(const char* what);

#include "entry_points.hpp"

// Numbers since the start (or fake_cuda_reset): launches, captured, graph_launches, loads, maps, memsets, copies,
// allocations, synchronisations, refused.
long fake_cuda_count(const char* what) {
    const Guard guard(lock);
    return counts()[what];
}
void fake_cuda_reset() {
    const Guard guard(lock);
    counts().clear();
    refusal().clear();
}
// Why the last call was refused; empty if none was.
const char* fake_cuda_refusal() { return refusal().c_str(); }

}  // extern "C"
