// Cubins as loaded kernels, and what was seen of a GPU: kept for each context of the process, and loaded once.
#ifndef KERNEL_TUNE_MODULES_HPP
#define KERNEL_TUNE_MODULES_HPP

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <tuple>

#include "cluster_order.hpp"
#include "dispatch.hpp"
#include "driver.hpp"
#include "sha256.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

// Read a whole plain file of at most `most` bytes; a pipe, for which a program would wait, is none.
inline Status read_file(const std::string& path, std::size_t most, const char* remedy, std::string& out) {
    const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status {};
    const bool plain = file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    const std::size_t size = plain ? static_cast<std::size_t>(status.st_size) : 0;
    out.resize(size <= most ? size : 0);
    std::size_t done = 0;
    for (ssize_t count = 1; done < out.size() && count > 0; done += count > 0 ? static_cast<std::size_t>(count) : 0)
        count = ::read(file, &out[done], out.size() - done);
    if (file >= 0) ::close(file);
    if (size > most) return {Code::damaged, path + " has more than " + std::to_string(most >> 20) + " MiB: " + remedy};
    return plain && done == size ? Status() : Status(Code::damaged, path + " cannot be read: " + remedy);
}

// A launch's configuration for cuLaunchKernelEx, with the attributes that it refers to.
class LaunchConfig {
public:
    explicit LaunchConfig(const Launch& launch) {
        config_.gridDimX = static_cast<unsigned>(launch.grid[0]);
        config_.gridDimY = static_cast<unsigned>(launch.grid[1]);
        config_.gridDimZ = static_cast<unsigned>(launch.grid[2]);
        config_.blockDimX = static_cast<unsigned>(launch.block[0]);
        config_.blockDimY = static_cast<unsigned>(launch.block[1]);
        config_.blockDimZ = static_cast<unsigned>(launch.block[2]);
        config_.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
        if (launch.clustered) {
            CUlaunchAttribute& one = next(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
            one.value.clusterDim.x = static_cast<unsigned>(launch.cluster[0]);
            one.value.clusterDim.y = static_cast<unsigned>(launch.cluster[1]);
            one.value.clusterDim.z = static_cast<unsigned>(launch.cluster[2]);
        }
        if (launch.cooperative) next(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.cooperative = 1;
        if (launch.programmatic)
            next(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).value.programmaticStreamSerializationAllowed = 1;
    }

    CUlaunchConfig on(CUstream stream) const {
        CUlaunchConfig config = config_;
        config.hStream = stream;
        config.attrs = const_cast<CUlaunchAttribute*>(attributes_);
        return config;
    }

private:
    CUlaunchAttribute& next(CUlaunchAttributeID id) {
        CUlaunchAttribute& one = attributes_[config_.numAttrs++];
        one.id = id;
        return one;
    }

    CUlaunchConfig config_{};
    CUlaunchAttribute attributes_[3] = {};
};

// Lets launches that fill variables follow each other, in whatever stream each is: a variable has one content at a time.
// What is captured is ordered within its graph alone.
class FillingOrder {
public:
    // Hold the lock from here until launched().
    Status wait(CUstream stream, std::unique_lock<std::mutex>& held) {
        held = std::unique_lock<std::mutex>(lock_);
        bool captured = false;
        Status status = is_captured(stream, captured);
        if (!status.ok() || captured || !event_) return status;
        const Driver& driver = Driver::get();
        return driver.check(driver.cuStreamWaitEvent(stream, event_, 0), "cuStreamWaitEvent");
    }
    Status launched(CUstream stream) {
        const Driver& driver = Driver::get();
        bool captured = false;
        Status status = is_captured(stream, captured);
        if (!status.ok() || captured) return status;
        if (!event_) status = driver.check(driver.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        return status.ok() ? driver.check(driver.cuEventRecord(event_, stream), "cuEventRecord") : status;
    }

private:
    static Status is_captured(CUstream stream, bool& captured) {
        const Driver& driver = Driver::get();
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        const CUresult result = driver.cuStreamIsCapturing(stream, &status);
        captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
        return driver.check(result, "cuStreamIsCapturing");
    }

    std::mutex lock_;
    CUevent event_ = nullptr;  // behind the last launch; kept as long as the context
};

class Modules {
public:
    // Those of this process. Modules stay loaded as long as their context: unloading one could end in a dead context.
    static Modules& get() {
        static Modules* const modules = new Modules;
        return *modules;
    }

    // Return a kernel in the current context, with the attributes that a launch needs.
    Status function(unsigned long long context, const std::string& folder, const Launch& launch, CUfunction& out) {
        const std::lock_guard<std::mutex> guard(lock_);
        return find(context, folder, launch, out);
    }

    // The order of launches that fill variables in a context.
    FillingOrder& order(unsigned long long context) {
        const std::lock_guard<std::mutex> guard(lock_);
        return orders_[context];
    }

    // Find a variable of a launch's code, which is loaded.
    Status variable(unsigned long long context, const Launch& launch, const Filled& filled, CUdeviceptr& out) {
        const std::lock_guard<std::mutex> guard(lock_);
        const Driver& driver = Driver::get();
        const CUmodule module = modules_.at(std::make_tuple(context, launch.cubin, launch.carveout));
        std::size_t bytes = 0;
        Status status = driver.check(driver.cuModuleGetGlobal(&out, &bytes, module, filled.symbol.c_str()), "cuModuleGetGlobal");
        if (status.ok() && bytes < filled.bytes)
            return {Code::invalid_argument, "the variable " + filled.symbol + " has " + std::to_string(bytes) + " bytes, and its tensor " +
                                                std::to_string(filled.bytes)};
        return status;
    }

    // Number the clusters of a launch: a table of kMaxClusters bytes.
    Status table(unsigned long long context, const std::string& folder, const Probe& probe, int cc, CUstream stream,
                 const Launch& launch, std::int64_t sharing, std::vector<unsigned char>& out) {
        const std::lock_guard<std::mutex> guard(lock_);
        const std::int64_t blocks = launch.blocks(), members = launch.members();
        std::vector<unsigned char>& kept = tables_[std::make_tuple(context, blocks, members, sharing)];
        if (kept.empty()) {
            std::vector<int> gpcs;
            if (!probe.cubin.empty() && cc >= 90) {
                const Prober prober{*this, context, folder, probe, stream};
                if (Status status = prober.gpcs_of_clusters(blocks, members, gpcs); !status.ok()) return status;
            }
            for (std::int64_t i = 0; gpcs.size() < static_cast<std::size_t>(blocks / members); ++i)
                gpcs.push_back(static_cast<int>(i % kUsualGpcs));
            kept = cluster_order(gpcs, static_cast<std::size_t>(sharing));
            kept.resize(kMaxClusters);
        }
        out = kept;
        return {};
    }

private:
    struct Function {
        CUfunction handle = nullptr;
        std::int64_t shared_bytes = 0;
    };

    Status find(unsigned long long context, const std::string& folder, const Launch& launch, CUfunction& out) {
        const Driver& driver = Driver::get();
        // The carveout belongs to a loaded function: launches that differ in it have a module each.
        const auto key = std::make_tuple(context, launch.cubin, launch.carveout);
        auto found = modules_.find(key);
        if (found == modules_.end()) {
            std::string image;
            const std::string path = folder + "/cubin/" + launch.cubin + ".cubin";
            if (Status status = read_file(path, std::size_t{256} << 20, "make the bundle again", image); !status.ok()) return status;
            if (Sha256::of(image).compare(0, 32, launch.cubin) != 0)
                return {Code::damaged, path + " is damaged: make the bundle again"};
            CUmodule module = nullptr;
            if (Status status = driver.check(driver.cuModuleLoadData(&module, image.c_str()), "cuModuleLoadData"); !status.ok()) return status;
            found = modules_.emplace(key, module).first;
        }
        Function& function = functions_[std::make_pair(found->second, launch.entry)];
        if (!function.handle) {
            Status status = driver.check(driver.cuModuleGetFunction(&function.handle, found->second, launch.entry.c_str()), "cuModuleGetFunction");
            // Else it is loaded by its first launch, which a capture would refuse.
            if (status.ok()) status = driver.check(driver.load_function(function.handle), "cuFuncLoad");
            if (status.ok() && launch.carveout >= 0)
                status = set(function.handle, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, launch.carveout);
            if (!status.ok()) {
                function.handle = nullptr;
                return status;
            }
        }
        if (launch.shared_bytes > function.shared_bytes) {
            Status status = set(function.handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes);
            if (!status.ok()) return status;
            function.shared_bytes = launch.shared_bytes;
        }
        out = function.handle;
        if (launch.members() <= 8) return {};
        return set(function.handle, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    }

    static Status set(CUfunction function, CUfunction_attribute attribute, std::int64_t value) {
        const Driver& driver = Driver::get();
        return driver.check(driver.cuFuncSetAttribute(function, attribute, static_cast<int>(value)), "cuFuncSetAttribute");
    }

    // Launches a kernel that says on which SM each block runs.
    struct Prober {
        Modules& modules;
        unsigned long long context;
        const std::string& folder;
        const Probe& probe;
        CUstream stream;

        // Leaves the result empty where a GPU cannot be probed.
        Status gpcs_of_clusters(std::int64_t blocks, std::int64_t members, std::vector<int>& gpcs) const {
            auto known = modules.gpcs_.find(context);
            if (known == modules.gpcs_.end()) {
                std::vector<std::vector<int>> together;
                for (const int size : {16, 8, 4}) {  // clusters of 16 may not fit, which smaller ones do
                    if (Status status = seen(std::int64_t{3} * kUsualGpcs * size, size, 20, together); !status.ok()) return status;
                }
                known = modules.gpcs_.emplace(context, gpcs_of_sms(together)).first;
            }
            std::vector<std::vector<int>> clusters;
            if (Status status = seen(blocks, members, 1, clusters); !status.ok() || known->second.empty()) return status;
            for (const std::vector<int>& sms : clusters) {
                // An SM that no cluster of several reached is a GPC of its own.
                const auto found = known->second.find(sms[0]);
                gpcs.push_back(found == known->second.end() ? -1 - sms[0] : found->second);
            }
            return {};
        }

        // Add the SMs of each cluster of a grid, for each of several launches; nothing if the grid does not fit.
        Status seen(std::int64_t blocks, std::int64_t members, int times, std::vector<std::vector<int>>& out) const {
            const Driver& driver = Driver::get();
            CUdevice device = 0;
            int shared = 0;
            Status status = driver.check(driver.cuCtxGetDevice(&device), "cuCtxGetDevice");
            if (status.ok())
                status = driver.check(driver.cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device),
                                      "cuDeviceGetAttribute");
            if (!status.ok()) return status;
            Launch launch;
            launch.cubin = probe.cubin;
            launch.entry = probe.entry;
            launch.grid[0] = blocks;
            launch.block[0] = 32;
            launch.cluster[0] = members;
            launch.clustered = members > 1;
            launch.shared_bytes = shared;  // one block an SM, as of kernels whose clusters are numbered
            CUfunction function = nullptr;
            status = modules.find(context, folder, launch, function);
            if (!status.ok()) return status.code() == Code::driver_error ? Status{} : status;
            const auto bytes = static_cast<std::size_t>(4 * blocks);
            CUdeviceptr address = 0;
            status = driver.check(driver.cuMemAlloc(&address, bytes), "cuMemAlloc");
            if (!status.ok()) return status;
            const LaunchConfig held(launch);
            const CUlaunchConfig config = held.on(stream);
            long long stay_ns = 20000;
            void* arguments[] = {&address, &stay_ns};
            std::vector<int> sms(static_cast<std::size_t>(blocks));
            for (int i = 0; i < times; ++i) {
                if (driver.cuLaunchKernelEx(&config, function, arguments, nullptr) != CUDA_SUCCESS) break;
                status = driver.check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
                if (status.ok()) status = driver.check(driver.cuMemcpyDtoH(sms.data(), address, bytes), "cuMemcpyDtoH");
                if (!status.ok()) break;
                for (auto at = sms.begin(); at != sms.end(); at += static_cast<std::ptrdiff_t>(members))
                    out.emplace_back(at, at + static_cast<std::ptrdiff_t>(members));
            }
            (void)driver.cuMemFree(address);
            return status;
        }
    };

    std::mutex lock_;
    std::map<std::tuple<unsigned long long, std::string, std::int64_t>, CUmodule> modules_;
    std::map<std::pair<CUmodule, std::string>, Function> functions_;
    std::map<unsigned long long, FillingOrder> orders_;  // by context
    std::map<unsigned long long, std::map<int, int>> gpcs_;
    std::map<std::tuple<unsigned long long, std::int64_t, std::int64_t, std::int64_t>, std::vector<unsigned char>> tables_;
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
