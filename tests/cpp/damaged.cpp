// Opens, plans, prepares and runs 500 damaged copies of a bundle: a clear line each, or a bundle that still is one.
#include <kernel_tune/launcher.hpp>

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <random>

namespace kt = kernel_tune;

static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

int main(int, char** arguments) {
    const std::string good = arguments[1], bad = arguments[2], name = arguments[3];
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    const auto counted = reinterpret_cast<long (*)(const char*)>(dlsym(driver, "fake_cuda_count"));
    const auto retain = reinterpret_cast<CUresult (*)(CUcontext*, CUdevice)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
    const auto use = reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(driver, "cuCtxSetCurrent"));
    CUcontext context = nullptr;
    retain(&context, 0);
    use(context);
    std::string manifest, cubin;
    if (!kt::detail::read_file(good + "/manifest.json", 1 << 20, "", manifest).ok() ||
        !kt::detail::read_file(good + "/cubin/" + name + ".cubin", 1 << 20, "", cubin).ok())
        return std::printf("no bundle\n"), 1;
    mkdir(bad.c_str(), 0700);
    mkdir((bad + "/cubin").c_str(), 0700);
    std::mt19937 random(5);
    const auto below = [&random](std::size_t most) { return static_cast<std::size_t>(random() % most); };
    const std::string pieces = "{}[]\",:0123456789.eE+-\\u\x80\xff truefalsnm*/%";
    long launches = 0;  // with damaged cubins; later ones show where clusters run
    int refused = 0, unclear = 0, planned = 0, damaged_cubins = 0;
    for (int i = 0; i < 500; ++i) {
        std::string text = manifest, image = cubin;
        const bool of_cubin = i < 100;  // first: a kernel that is loaded is not read again
        std::string& target = of_cubin ? image : text;
        switch (below(5)) {
            case 0: target.resize(below(target.size())); break;
            case 1: target.erase(below(target.size()), 1 + below(40)); break;
            case 2: target.insert(below(target.size()), 1, pieces[below(pieces.size())]); break;
            case 3: target[below(target.size())] = static_cast<char>(random()); break;
            default: {  // a value becomes another
                const std::size_t at = target.find_first_of("0123456789", below(target.size()));
                if (at == std::string::npos) target.clear();
                else target.replace(at, 1, std::to_string((static_cast<std::uint64_t>(random()) << 32 | random())));
            }
        }
        write(bad + "/manifest.json", text);
        write(bad + "/cubin/" + name + ".cubin", image);
        kt::Bundle bundle;
        kt::Plan plan;
        kt::Status status = kt::Bundle::open(bad, bundle);
        const kt::Problem problem{{{"m", 512}, {"n", 512}, {"k", 512}}, {{"input", "bfloat16"}}, {{"layout", "nt"}}};
        if (status.ok()) status = bundle.plan(problem, 0, kt::Policy::nearest_valid, plan);
        if (status.ok()) {
            ++planned;
            status = plan.prepare({CUdeviceptr{256}, plan.workspace_bytes()}, nullptr);
            if (of_cubin && status.code() == kt::Code::damaged) ++damaged_cubins;
        }
        if (of_cubin) launches = counted("launches");
        if (!status.ok()) ++refused;
        if (!status.ok() && (status.message().empty() || status.message().find('\n') != std::string::npos)) ++unclear;
    }
    std::printf("%d %d %d %d %ld\n", refused, unclear, planned, damaged_cubins, launches);
    return 0;
}
