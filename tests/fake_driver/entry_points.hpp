// The driver's functions; fake_driver.cpp includes this inside extern "C". cuda.h's macros give each its exported name.

CUresult cuInit(unsigned) {
    count("inits");
    return devices().empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
    const char* text = std::getenv("FAKE_CUDA_DRIVER");
    *version = text ? std::atoi(text) : 13000;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
    static const std::map<int, const char*> names{
        {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"},
        {101, "CUDA_ERROR_INVALID_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}};
    const auto found = names.find(error);
    *text = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
    return CUDA_SUCCESS;
}
CUresult cuGetExportTable(const void** table, const CUuuid*) {  // NVRTC asks for one when it precompiles headers
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

// ---- devices and contexts ------------------------------------------------------------------------------------------
static bool no_device(CUdevice device) { return device < 0 || device >= static_cast<int>(devices().size()); }

CUresult cuDeviceGetCount(int* number) {
    *number = static_cast<int>(devices().size());
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (no_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    if (no_device(device) || length < 1) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", devices()[static_cast<std::size_t>(device)].name.c_str());
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    if (no_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    std::memset(uuid, device + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}
static std::size_t memory_of_each() {
    const char* text = std::getenv("FAKE_CUDA_MEMORY");
    return text ? std::strtoull(text, nullptr, 10) : 150754820096ull;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
    if (no_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = memory_of_each();
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    if (no_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *value = devices()[static_cast<std::size_t>(device)][attribute];
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (no_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *context = primary(device);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    if (no_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    if (current.empty()) current.push_back(context);
    current.back() = context;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
    current.push_back(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
    if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = current.back();
    current.pop_back();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = context_now();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(std::size_t* size, CUlimit) {
    *size = 0;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    if (!context_now()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context_now()->device;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
    context = context ? context : context_now();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    *id = static_cast<unsigned long long>(context->device) + 1;
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
    count("synchronisations");
    return unsafe_call();
}

// ---- modules and functions -----------------------------------------------------------------------------------------
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    if (!context_now()) return refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current");
    if (const CUresult result = unsafe_call()) return result;
    const Guard guard(lock);
    ++counts()["loads"];
    const auto entries = fake::entries_of(static_cast<const char*>(image));
    *module = new CUmod_st{context_now(), entries.empty(), {}};
    for (const auto& [name, entry] : entries) {
        auto* function = new CUfunc_st;
        function->module = *module;
        function->name = name;
        function->entry = entry;
        (*module)->functions[name] = function;
    }
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
    return cuModuleLoadData(module, image);
}
CUresult cuModuleUnload(CUmodule) {
    count("unloads");
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    const Guard guard(lock);
    CUfunction& found = module->functions[name];
    if (!found && module->any_entry) {
        found = new CUfunc_st;
        found->module = module;
        found->name = name;
    }
    *function = found;
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
// A module has every variable, of 64 KiB.
CUresult cuModuleGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUmodule module, const char* name) {
    const Guard guard(lock);
    static std::map<std::pair<CUmodule, std::string>, CUdeviceptr> variables;
    CUdeviceptr& found = variables[{module, name}];
    *bytes = 65536;
    if (!found) {
        found = reinterpret_cast<CUdeviceptr>(std::calloc(1, *bytes));
        memory[found] = {*bytes, module->context};
    }
    *address = found;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    const int most = device_of(function->module->context)[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || value + function->entry.static_shared > most)
            return refuse(CUDA_ERROR_INVALID_VALUE, function->name + ": more shared memory than this GPU has");
        function->max_dynamic_shared = value;
    }
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) function->carveout = value;
    if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) function->non_portable = value;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    *value = 0;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) *value = function->entry.max_threads;
    if (attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) *value = function->entry.static_shared;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) *value = function->max_dynamic_shared;
    if (attribute == CU_FUNC_ATTRIBUTE_NUM_REGS) *value = 32;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char** name, CUfunction function) {
    *name = function->name.c_str();
    return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
    if (index >= function->entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = function->entry.parameters[index].first;
    if (bytes) *bytes = function->entry.parameters[index].second;
    return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction function) {
    const CUresult result = unsafe_call();
    if (result == CUDA_SUCCESS) function->loaded = true;
    return result;
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
    *state = function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, std::size_t) {
    *blocks = threads > 0 ? std::max(1, 2048 / threads / 2) : 0;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig*) {
    *clusters = device_of(function->module->context)[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] / 2;
    return CUDA_SUCCESS;
}

// ---- launches ------------------------------------------------------------------------------------------------------
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    return launch(function, *config, parameters, false);
}
static CUresult launch_plain(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream stream, void** parameters, bool cooperative) {
    CUlaunchConfig config{};
    config.gridDimX = gx, config.gridDimY = gy, config.gridDimZ = gz;
    config.blockDimX = bx, config.blockDimY = by, config.blockDimZ = bz;
    config.sharedMemBytes = shared, config.hStream = stream;
    return launch(f, config, parameters, cooperative);
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void** parameters, void**) {
    return launch_plain(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, false);
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void** parameters) {
    return launch_plain(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, true);
}
// Its checks are those that cuda.h's documentation lists for two dimensions without interleaving.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType dtype, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill out_of_bounds) {
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    const unsigned item = dtype == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    const unsigned widths[] = {0, 32, 64, 128};
    if (reinterpret_cast<std::uintptr_t>(map) % 64) return refuse(CUDA_ERROR_INVALID_VALUE, "a tensor map not aligned to 64");
    if (rank != 2 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: kind");
    if (!address || where % 16) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: address not aligned to 16");
    if (strides[0] % 16 || strides[0] >= 1ull << 40) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: stride");
    for (int i = 0; i < 2; ++i) {
        if (!sizes[i] || sizes[i] > 1ull << 32) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: size");
        if (!box[i] || box[i] > 256) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: box");
        if (element_strides[i] != 1) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: element strides");
    }
    if (box[0] * item % 16) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: width of the box");
    if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B || (swizzle && box[0] * item > widths[swizzle]))
        return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: swizzle");
    if (promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B) return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: promotion");
    Map written{};
    std::memcpy(written.magic, kMagic, 8);
    written.address = where, written.columns = sizes[0], written.rows = sizes[1], written.stride = strides[0];
    written.dtype = dtype, written.box_columns = box[0], written.box_rows = box[1];
    written.swizzle = swizzle, written.promotion = promotion, written.interleave = interleave, written.fill = out_of_bounds;
    std::memset(static_cast<void*>(map), 0, sizeof *map);
    std::memcpy(static_cast<void*>(map), &written, sizeof written);
    count("maps");
    return CUDA_SUCCESS;
}
CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    auto written = fake::read<Map>(reinterpret_cast<const char*>(map));
    if (std::memcmp(written.magic, kMagic, 8) != 0 || reinterpret_cast<std::uintptr_t>(address) % 16)
        return refuse(CUDA_ERROR_INVALID_VALUE, "tensor map: replaced address");
    written.address = reinterpret_cast<std::uintptr_t>(address);
    std::memcpy(static_cast<void*>(map), &written, sizeof written);
    count("maps");
    return CUDA_SUCCESS;
}

// ---- memory --------------------------------------------------------------------------------------------------------
static CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
    CUcontext context = context_now();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    const Guard guard(lock);
    if (context->used + bytes > memory_of_each()) return CUDA_ERROR_OUT_OF_MEMORY;
    void* block = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    ++counts()["allocations"];
    context->used += bytes;
    *address = reinterpret_cast<CUdeviceptr>(block);
    memory[*address] = {bytes, context};
    return CUDA_SUCCESS;
}
static CUresult release(CUdeviceptr address) {
    const Guard guard(lock);
    const auto found = memory.find(address);
    if (found == memory.end()) return address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    ++counts()["frees"];
    found->second.second->used -= found->second.first;
    std::free(reinterpret_cast<void*>(address));
    memory.erase(found);
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
    if (const CUresult result = unsafe_call()) return result;
    return allocate(address, bytes);
}
CUresult cuMemFree(CUdeviceptr address) {
    if (const CUresult result = unsafe_call()) return result;
    return release(address);
}
CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream) { return allocate(address, bytes); }
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream) { return release(address); }
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
    if (!context_now()) return CUDA_ERROR_INVALID_CONTEXT;
    *total = memory_of_each();
    *free = *total - context_now()->used;
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
    const Guard guard(lock);
    auto after = memory.upper_bound(address);
    if (after == memory.begin() || !allocated(address, 1)) return CUDA_ERROR_INVALID_VALUE;
    const auto& [start, block] = *--after;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<CUcontext*>(data) = block.second; return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(data) = block.second->device; return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *static_cast<unsigned*>(data) = CU_MEMORYTYPE_DEVICE; return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(data) = start; return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<std::size_t*>(data) = block.first; return CUDA_SUCCESS;
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}
static CUresult submit_memset(CUstream stream, CUdeviceptr address, unsigned value, unsigned element, std::size_t number) {
    CUgraphNode_st node;
    node.type = CU_GRAPH_NODE_TYPE_MEMSET;
    node.memset.dst = address, node.memset.value = value, node.memset.elementSize = element;
    node.memset.width = number, node.memset.height = 1;
    return submit(stream, node);
}
CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, std::size_t number) {
    if (const CUresult result = unsafe_call()) return result;
    return fill(address, value, 1, number);
}
CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t number) {
    if (const CUresult result = unsafe_call()) return result;
    return fill(address, value, 4, number);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, std::size_t number, CUstream stream) {
    return submit_memset(stream, address, value, 1, number);
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, std::size_t number, CUstream stream) {
    return submit_memset(stream, address, value, 4, number);
}
static CUresult submit_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, bool device_to, bool device_from) {
    CUgraphNode_st node;
    node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    node.copy.WidthInBytes = bytes, node.copy.Height = node.copy.Depth = 1;
    node.copy.dstMemoryType = device_to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    node.copy.srcMemoryType = device_from ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    node.copy.dstDevice = to, node.copy.dstHost = reinterpret_cast<void*>(to);
    node.copy.srcDevice = from, node.copy.srcHost = reinterpret_cast<void*>(from);
    return submit(stream, node);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
    if (const CUresult result = unsafe_call()) return result;
    return copy(to, reinterpret_cast<CUdeviceptr>(from), bytes, true, false);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
    if (const CUresult result = unsafe_call()) return result;
    return copy(reinterpret_cast<CUdeviceptr>(to), from, bytes, false, true);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    if (const CUresult result = unsafe_call()) return result;
    return copy(to, from, bytes, true, true);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    return submit_copy(stream, to, reinterpret_cast<CUdeviceptr>(from), bytes, true, false);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return submit_copy(stream, reinterpret_cast<CUdeviceptr>(to), from, bytes, false, true);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    write_line("{\"copied\":[" + std::to_string(from) + "," + std::to_string(bytes) + "]}");
    return submit_copy(stream, to, from, bytes, true, true);
}

// ---- streams, events, capture --------------------------------------------------------------------------------------
CUresult cuStreamCreate(CUstream* stream, unsigned) {
    if (!context_now()) return CUDA_ERROR_INVALID_CONTEXT;
    const Guard guard(lock);
    *stream = new CUstream_st{context_now()};
    streams.insert(*stream);
    return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
CUresult cuStreamDestroy(CUstream stream) {
    const Guard guard(lock);
    if (!streams.erase(stream)) return CUDA_ERROR_INVALID_HANDLE;
    delete stream;
    return CUDA_SUCCESS;
}
static CUresult wait_for(CUstream stream) {
    if (const CUresult result = in_context(stream)) return result;
    if (special(stream)) return unsafe_call();
    if (!capturing(stream)) return CUDA_SUCCESS;
    stream->invalidated = true;
    return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a captured stream is waited for");
}
CUresult cuStreamSynchronize(CUstream stream) {
    count("synchronisations");
    return wait_for(stream);
}
CUresult cuStreamQuery(CUstream stream) { return wait_for(stream); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent, unsigned) {
    count("waits");
    if (capturing(stream)) return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "an event from outside of the capture");
    return in_context(stream);
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
    *context = special(stream) ? context_now() : stream->context;
    return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
    const Guard guard(lock);
    if (!special(stream) && !streams.count(stream)) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (capturing(stream)) {
        stream->invalidated = true;
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the number of a captured stream is asked for");
    }
    *id = special(stream) ? reinterpret_cast<std::uintptr_t>(stream) : stream->id;
    return CUDA_SUCCESS;
}
CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
    CUcontext context = nullptr;
    const CUresult result = cuStreamGetCtx(stream, &context);
    if (!result) *device = context->device;
    return result;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    *status = !capturing(stream)    ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                const CUgraphNode** nodes, const CUgraphEdgeData** edges, std::size_t* number) {
    cuStreamIsCapturing(stream, status);
    if (*status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_SUCCESS;
    if (id) *id = stream->capture->id;
    if (graph) *graph = stream->capture;
    if (nodes) *nodes = stream->capture->nodes.empty() ? nullptr : &stream->capture->nodes.back();
    if (edges) *edges = nullptr;
    if (number) *number = !stream->capture->nodes.empty();
    return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    if (special(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (const CUresult result = in_context(stream)) return result;
    const Guard guard(lock);
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture = new CUgraph_st;
    stream->mode = mode;
    stream->thread = this_thread();
    return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    const Guard guard(lock);
    if (!capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
    const bool invalidated = stream->invalidated;
    *graph = invalidated ? nullptr : stream->capture;
    stream->capture = nullptr;
    stream->invalidated = false;
    return invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
    *event = new CUevent_st;
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
    delete event;
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    CUgraphNode_st node;
    node.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    node.event = event;
    return submit(stream, node);
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }
CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) {
    count("synchronisations");
    return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
    *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return CUDA_SUCCESS;
}

// ---- graphs --------------------------------------------------------------------------------------------------------
CUresult cuGraphCreate(CUgraph* graph, unsigned) {
    *graph = new CUgraph_st;
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
    delete graph;  // its nodes are left to instances, which share them
    return CUDA_SUCCESS;
}
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t, const CUDA_KERNEL_NODE_PARAMS* p) {
    return add_kernel(node, graph, *p);
}
CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
    *node = add(graph, CU_GRAPH_NODE_TYPE_MEMSET);
    (*node)->memset = *p;
    return CUDA_SUCCESS;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t, const CUDA_MEMCPY3D* p, CUcontext) {
    *node = add(graph, CU_GRAPH_NODE_TYPE_MEMCPY);
    (*node)->copy = *p;
    return CUDA_SUCCESS;
}
CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t, CUevent event) {
    *node = add(graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    (*node)->event = event;
    return CUDA_SUCCESS;
}
CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t) {
    *node = add(graph, CU_GRAPH_NODE_TYPE_EMPTY);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t, CUgraph child) {
    *node = add(graph, CU_GRAPH_NODE_TYPE_GRAPH);
    (*node)->child = new CUgraph_st(*child);
    return CUDA_SUCCESS;
}
// Of its kinds those that a launch needs: kernels, perhaps after a programmatic edge.
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, const CUgraphEdgeData* edges, std::size_t number, CUgraphNodeParams* p) {
    if (p->type != CU_GRAPH_NODE_TYPE_KERNEL) return refuse(CUDA_ERROR_NOT_SUPPORTED, "a node that the fake driver lacks");
    const auto& kernel = p->kernel;
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernel.func, params.kernelParams = kernel.kernelParams, params.sharedMemBytes = kernel.sharedMemBytes;
    params.gridDimX = kernel.gridDimX, params.gridDimY = kernel.gridDimY, params.gridDimZ = kernel.gridDimZ;
    params.blockDimX = kernel.blockDimX, params.blockDimY = kernel.blockDimY, params.blockDimZ = kernel.blockDimZ;
    const CUresult result = add_kernel(node, graph, params);
    for (std::size_t i = 0; !result && edges && i < number; ++i)
        (*node)->kernel.programmatic |= edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    return result;
}
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode*, const CUgraphNode* to, const CUgraphEdgeData* edges, std::size_t number) {
    for (std::size_t i = 0; edges && i < number; ++i)
        to[i]->kernel.programmatic |= edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value) {
    return set_attribute(node->kernel, id, *value);
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
    CUgraph_st scrap;
    CUgraphNode made = nullptr;
    const CUresult result = add_kernel(&made, &scrap, *p);
    if (!result) {
        std::memcpy(made->kernel.cluster, node->kernel.cluster, sizeof made->kernel.cluster);
        made->kernel.cooperative = node->kernel.cooperative;
        made->kernel.programmatic = node->kernel.programmatic;
        node->kernel = made->kernel;
        delete made;
    }
    return result;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* number) {
    for (std::size_t i = 0; nodes && i < *number && i < graph->nodes.size(); ++i) nodes[i] = graph->nodes[i];
    *number = graph->nodes.size();
    return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    *type = node->type;
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
    for (CUgraphNode node : graph->nodes)
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
            if (const CUresult result = checked(node->kernel)) return result;
    *executable = new CUgraphExec_st{*graph};
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
    return cuGraphInstantiate(executable, graph, 0);
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    if (const CUresult result = in_context(stream)) return result;
    count("graph_launches");
    return run_graph(executable->graph, stream);
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
    delete executable;
    return CUDA_SUCCESS;
}

// The newest of a function's versions that is here; callers that want an older one are not served.
CUresult cuGetProcAddress(const char* symbol, void** function, int, cuuint64_t, CUdriverProcAddressQueryResult* status) {
    static void* const self = [] {
        Dl_info info{};
        dladdr(reinterpret_cast<void*>(&fake_cuda_count), &info);
        return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }();
    *function = nullptr;
    const std::string name = std::strcmp(symbol, "cuGraphInstantiate") == 0 ? "cuGraphInstantiateWithFlags" : symbol;
    for (const char* suffix : {"_v4", "_v3", "_v2", ""})
        if (!*function) *function = dlsym(self, (name + suffix).c_str());
    if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
