// The driver's functions, found in libcuda.so.1 when they are first needed: a program links nothing.
#ifndef KERNEL_TUNE_DRIVER_HPP
#define KERNEL_TUNE_DRIVER_HPP

#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "status.hpp"

#if CUDA_VERSION < 12000
#error "kernel_tune needs cuda.h of CUDA 12.0 or later"
#endif

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

// cuda.h's macros say which version of a function its declaration means, such as cuMemAlloc_v2.
#define KERNEL_TUNE_DRIVER_FUNCTIONS(X)                                                                       \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGetAttribute) X(cuDeviceGetName)              \
    X(cuCtxGetDevice) X(cuCtxGetId) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction)              \
    X(cuModuleGetGlobal) X(cuMemcpyDtoDAsync) X(cuEventCreate) X(cuEventRecord) X(cuStreamWaitEvent)          \
    X(cuFuncSetAttribute) X(cuLaunchKernelEx) X(cuTensorMapEncodeTiled) X(cuMemsetD8Async) X(cuMemAlloc)      \
    X(cuMemFree) X(cuMemcpyDtoH) X(cuStreamSynchronize) X(cuStreamIsCapturing)
#define KERNEL_TUNE_TEXT_OF(name) #name
#define KERNEL_TUNE_TEXT(name) KERNEL_TUNE_TEXT_OF(name)

struct Driver {
#define KERNEL_TUNE_MEMBER(name) decltype(&::name) name = nullptr;
    KERNEL_TUNE_DRIVER_FUNCTIONS(KERNEL_TUNE_MEMBER)
#undef KERNEL_TUNE_MEMBER
    CUresult(CUDAAPI* load_function)(CUfunction) = nullptr;  // cuFuncLoad, which cuda.h has since CUDA 12.4
    int version = 0;                                         // 1000 * major + 10 * minor
    Status status;    // why it cannot be used

    // The driver of this process, initialized.
    static const Driver& get() {
        static const Driver* const driver = new Driver;  // never destroyed: other threads may end later than main
        return *driver;
    }

    Status check(CUresult result, const char* call) const {
        if (result == CUDA_SUCCESS) return {};
        const char* name = nullptr;
        if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown error";
        return {Code::driver_error, std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")"};
    }

private:
    Driver() {
        void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        if (!library) {
            status = {Code::old_driver, "libcuda.so.1 cannot be loaded: install NVIDIA's driver"};
            return;
        }
        const char* missing = nullptr;
#define KERNEL_TUNE_FIND(name)                                                             \
    name = reinterpret_cast<decltype(&::name)>(dlsym(library, KERNEL_TUNE_TEXT(name)));    \
    if (!name) missing = KERNEL_TUNE_TEXT(name);
        KERNEL_TUNE_DRIVER_FUNCTIONS(KERNEL_TUNE_FIND)
#undef KERNEL_TUNE_FIND
        load_function = reinterpret_cast<decltype(load_function)>(dlsym(library, "cuFuncLoad"));
        if (!load_function) missing = "cuFuncLoad";
        if (missing) {
            status = {Code::old_driver, std::string("NVIDIA's driver lacks ") + missing + ": install a newer one"};
            return;
        }
        status = check(cuInit(0), "cuInit");
        if (status.ok()) status = check(cuDriverGetVersion(&version), "cuDriverGetVersion");
    }
};

#undef KERNEL_TUNE_DRIVER_FUNCTIONS
#undef KERNEL_TUNE_TEXT
#undef KERNEL_TUNE_TEXT_OF

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
