// Calls the kernels of a bundle, with NVIDIA's driver alone: no compiler, no CUDA runtime, nothing to link but libdl.
//
//     kernel_tune::Bundle bundle;
//     kernel_tune::Plan plan;
//     kernel_tune::Status status = kernel_tune::Bundle::open("gemm_bundle", bundle);
//     status = bundle.plan({{{"m", 4096}, {"n", 4096}, {"k", 4096}}, {{"input", "bfloat16"}}, {{"layout", "nt"}}}, device,
//                          kernel_tune::Policy::nearest_valid, plan);
//     // allocate plan.workspace_bytes()
//     status = plan.prepare({workspace, bytes}, stream);  // once
//     status = plan.run({{"a", a}, {"b", b}, {"c", c}}, {workspace, bytes}, stream);
//
// Nothing throws but what the standard library throws when there is no memory left. A bundle is trusted: its digests find
// damage, not malice.
#ifndef KERNEL_TUNE_LAUNCHER_HPP
#define KERNEL_TUNE_LAUNCHER_HPP

#include "plan.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {

// Copies share the manifest. All functions may be called by several threads at a time.
class Bundle {
public:
    // Read a bundle's manifest; it needs no GPU. Cubins are read when a plan is prepared.
    static Status open(const std::string& folder, Bundle& out) {
        std::string text;
        Status status = detail::read_file(folder + "/manifest.json", detail::kMaxJsonBytes, "is it the folder of a bundle?", text);
        if (!status.ok()) return status;
        auto manifest = std::make_shared<detail::Manifest>();
        status = detail::ManifestReader::read(text, *manifest);
        if (!status.ok()) return {status.code(), folder + ": " + status.message()};
        out.folder_ = folder;
        out.manifest_ = std::move(manifest);
        return {};
    }

    bool empty() const { return !manifest_; }
    const std::string& kernel() const {
        static const std::string none;
        return manifest_ ? manifest_->kernel : none;
    }

    // Choose a configuration for a problem on a GPU.
    Status plan(const Problem& problem, CUdevice device, Policy policy, Plan& out) const {
        using namespace detail;
        if (empty()) return {Code::invalid_argument, "the bundle is empty: call Bundle::open first"};
        const Driver& driver = Driver::get();
        if (!driver.status.ok()) return driver.status;
        if (driver.version < manifest_->minimum_driver)
            return {Code::old_driver, "the driver is of CUDA " + shown(driver.version) + ", and the bundle needs " +
                                          shown(manifest_->minimum_driver) + ": install a newer driver"};
        Gpu gpu;
        Status status = describe(device, gpu);
        Choice choice;
        if (status.ok()) status = Dispatcher(*manifest_, gpu).choose(problem, policy, choice);
        if (!status.ok()) return status;

        auto state = std::make_shared<PlanState>();
        state->folder = folder_;
        state->kernel = manifest_->kernel;
        state->configuration = manifest_->configurations[choice.configuration].text;
        state->reason = choice.reason;
        state->device = device;
        state->cc = static_cast<int>(gpu.cc());
        state->match = choice.match;
        state->slowdown = choice.slowdown;
        state->concrete = std::move(choice.concrete);
        const auto probe = manifest_->probes.find(state->cc);
        if (probe != manifest_->probes.end()) state->probe = probe->second;
        for (const Launch& launch : state->concrete.launches)
            state->maps.push_back(std::unique_ptr<MapCache[]>(new MapCache[launch.arguments.size()]));
        out.state_ = std::move(state);
        return {};
    }

private:
    static std::string shown(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

    static Status describe(CUdevice device, detail::Gpu& gpu) {
        const detail::Driver& driver = detail::Driver::get();
        char name[256] = {};
        if (driver.cuDeviceGetName(name, sizeof name - 1, device) != CUDA_SUCCESS)
            return {Code::invalid_argument, "there is no GPU number " + std::to_string(device)};
        gpu.name = name;
        int major = 0;
        const CUdevice_attribute wanted[] = {
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK};
        static_assert(sizeof(wanted) / sizeof(wanted[0]) == detail::kLimits, "one for each name");
        Status status = driver.check(driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
        for (const CUdevice_attribute attribute : wanted) {
            int value = 0;
            if (status.ok()) status = driver.check(driver.cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute");
            gpu.limits.push_back(value);
        }
        gpu.limits[0] += 10 * major;
        return status;
    }

    std::string folder_;
    std::shared_ptr<const detail::Manifest> manifest_;
};

}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
