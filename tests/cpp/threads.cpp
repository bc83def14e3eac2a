// Eight threads plan, prepare and run one bundle 1,000 times each: its kernels are loaded once.
#include <kernel_tune/launcher.hpp>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace kt = kernel_tune;

int main(int, char** arguments) {
    kt::Bundle bundle;
    kt::Status status = kt::Bundle::open(arguments[1], bundle);
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    const auto counted = reinterpret_cast<long (*)(const char*)>(dlsym(driver, "fake_cuda_count"));
    const auto retain = reinterpret_cast<CUresult (*)(CUcontext*, CUdevice)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
    const auto use = reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(driver, "cuCtxSetCurrent"));
    const auto allocate = reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t)>(dlsym(driver, "cuMemAlloc_v2"));
    const auto create = reinterpret_cast<CUresult (*)(CUstream*, unsigned)>(dlsym(driver, "cuStreamCreate"));
    CUcontext context = nullptr;
    retain(&context, 0);
    std::atomic<int> wrong{status.ok() ? 0 : 1};
    kt::Plan shared;
    const kt::Problem problem{{{"m", 512}, {"n", 512}, {"k", 512}}, {{"input", "bfloat16"}}, {{"layout", "nt"}}};
    if (!bundle.plan(problem, 0, kt::Policy::exact, shared).ok()) return std::printf("no plan\n"), 1;
    const auto work = [&] {
        use(context);
        CUdeviceptr memory[5] = {};
        CUstream stream = nullptr;
        create(&stream, 1);
        for (CUdeviceptr& one : memory) allocate(&one, std::size_t{2} << 20);
        const kt::Workspace workspace(memory[3], std::size_t{2} << 20);
        if (!shared.prepare(workspace, stream).ok()) ++wrong;
        for (int i = 0; i < 1000; ++i) {
            // Every other call has other addresses, so that tensor maps are encoded again and again.
            const CUdeviceptr a = memory[i % 2 ? 4 : 0];
            const kt::Status ran = shared.run({{"a", a}, {"b", memory[1]}, {"c", memory[2]}}, workspace, stream);
            if (!ran.ok() && ++wrong == 1) std::printf("%s\n", ran.message().c_str());
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back(work);
    for (std::thread& one : threads) one.join();
    // The probes of where clusters run come before the launches that are counted here.
    std::printf("%d %ld %ld %ld\n", wrong.load(), counted("loads"), counted("launches"), counted("refused"));
    return wrong != 0;
}
