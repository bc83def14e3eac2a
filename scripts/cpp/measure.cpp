// Times a bundle's plans, a line of JSON for each problem:
//     g++ -std=c++17 -O2 -I BUNDLE/include -I CUDA/include -o measure measure.cpp -ldl -pthread
//     ./measure BUNDLE PROBLEMS
// A line of PROBLEMS has sizes, dtypes and options, with tabs between: "m=4096;n=4096;k=4096\tinput=bfloat16\tlayout=nt".
//   kernel_us  a run in a CUDA graph of 20, by events, with warm caches: the median of 21 graphs
//   host_us    host time of one warm call of run() in a stream: the median of 50 batches of 100
//   cold_ms    open, plan and prepare, with a context there (of the first problem; of others without open)
#include <kernel_tune/launcher.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace kt = kernel_tune;
using Clock = std::chrono::steady_clock;

#define FUNCTIONS(X)                                                                                                    \
    X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuStreamCreate) X(cuStreamSynchronize) X(cuMemAlloc)     \
    X(cuMemFree) X(cuMemsetD8Async) X(cuEventCreate) X(cuEventRecord) X(cuEventElapsedTime) X(cuStreamBeginCapture)     \
    X(cuStreamEndCapture) X(cuGraphInstantiate) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy)
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define MEMBER(name) decltype(&::name) name = reinterpret_cast<decltype(&::name)>(dlsym(library, TEXT(name)));

struct Cuda {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    FUNCTIONS(MEMBER)
};

static void check(const kt::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
}
static void check(CUresult result) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "the driver refused a call: %d\n", static_cast<int>(result));
    std::exit(1);
}

static double elapsed_us(Clock::time_point from) { return std::chrono::duration<double, std::micro>(Clock::now() - from).count(); }

static double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

static kt::Problem problem_of(const std::string& line) {
    kt::Problem problem;
    std::istringstream parts{line};
    std::string part;
    for (int i = 0; std::getline(parts, part, '\t'); ++i) {
        std::istringstream words{part};
        for (std::string word; std::getline(words, word, ';');) {
            const std::size_t equals = std::min(word.find('='), word.size() - 1);
            const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
            if (i == 0) problem.sizes.emplace_back(name, std::strtoll(value.c_str(), nullptr, 10));
            if (i == 1) problem.dtypes.emplace_back(name, value);
            if (i == 2) problem.options.emplace_back(name, value);
        }
    }
    return problem;
}

int main(int count, char** arguments) {
    if (count < 3) return std::fprintf(stderr, "usage: measure BUNDLE PROBLEMS\n"), 2;
    const Cuda cuda;
    if (!cuda.library) return std::fprintf(stderr, "there is no driver\n"), 1;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUevent begin = nullptr, end = nullptr;
    check(cuda.cuInit(0));
    check(cuda.cuDevicePrimaryCtxRetain(&context, 0));
    check(cuda.cuCtxSetCurrent(context));
    check(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check(cuda.cuEventCreate(&begin, CU_EVENT_DEFAULT));
    check(cuda.cuEventCreate(&end, CU_EVENT_DEFAULT));

    kt::Bundle bundle;
    std::ifstream lines{arguments[2]};
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        const Clock::time_point start = Clock::now();
        kt::Plan plan;
        if (bundle.empty()) check(kt::Bundle::open(arguments[1], bundle));
        check(bundle.plan(problem_of(line), 0, kt::Policy::nearest_valid, plan));
        double cold_us = elapsed_us(start);

        std::vector<CUdeviceptr> memory(plan.tensors().size() + 1), tensors;
        for (std::size_t i = 0; i < memory.size(); ++i) {
            const std::size_t bytes = i < plan.tensors().size() ? plan.tensors()[i].bytes : plan.workspace_bytes();
            if (!bytes) continue;
            check(cuda.cuMemAlloc(&memory[i], bytes));
            check(cuda.cuMemsetD8Async(memory[i], 0, bytes, stream));
        }
        check(cuda.cuStreamSynchronize(stream));
        tensors.assign(memory.begin(), memory.end() - 1);
        const kt::Workspace workspace(memory.back(), plan.workspace_bytes());
        const Clock::time_point loading = Clock::now();
        check(plan.prepare(workspace, stream));
        check(cuda.cuStreamSynchronize(stream));
        cold_us += elapsed_us(loading);
        const auto run = [&] { check(plan.run(tensors.data(), tensors.size(), workspace, stream)); };

        for (int i = 0; i < 3; ++i) run();
        check(cuda.cuStreamSynchronize(stream));
        const auto free_all = [&] {
            for (CUdeviceptr one : memory)
                if (one) check(cuda.cuMemFree(one));
        };
        std::vector<double> host, kernel;
        for (int batch = 0; batch < 50; ++batch) {
            const Clock::time_point from = Clock::now();
            for (int i = 0; i < 100; ++i) run();
            host.push_back(elapsed_us(from) / 100);
            check(cuda.cuStreamSynchronize(stream));
        }
        CUgraph graph = nullptr;
        CUgraphExec executable = nullptr;
        check(cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for (int i = 0; i < 20; ++i) run();
        check(cuda.cuStreamEndCapture(stream, &graph));
        check(cuda.cuGraphInstantiate(&executable, graph, 0));
        for (int i = 0; i < 22; ++i) {
            float milliseconds = 0.0f;
            check(cuda.cuEventRecord(begin, stream));
            check(cuda.cuGraphLaunch(executable, stream));
            check(cuda.cuEventRecord(end, stream));
            check(cuda.cuStreamSynchronize(stream));
            check(cuda.cuEventElapsedTime(&milliseconds, begin, end));
            if (i) kernel.push_back(static_cast<double>(milliseconds) * 1000 / 20);  // the first uploads the graph
        }
        std::printf("{\"configuration\":\"%s\",\"match\":%d,\"launches\":%zu,\"workspace_bytes\":%zu,\"cold_ms\":%.3f,"
                    "\"host_us\":%.3f,\"kernel_us\":%.3f}\n",
                    plan.configuration().c_str(), static_cast<int>(plan.match()), plan.launches(), plan.workspace_bytes(), cold_us / 1000,
                    median(host), median(kernel));
        check(cuda.cuGraphExecDestroy(executable));
        check(cuda.cuGraphDestroy(graph));
        free_all();
    }
    return 0;
}
