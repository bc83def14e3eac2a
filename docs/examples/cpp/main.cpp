// C = A B with a tuned kernel: checked against a plain product on the CPU at a small size, then timed at a large one.
#include <cuda_runtime_api.h>
#include <kernel_tune/launcher.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace kt = kernel_tune;

static void check(const kt::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
}

static void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    std::exit(1);
}

// Inputs are -1, -0.5, 0, 0.5 or 1, whose bits in float16 are these: their products and small sums are exact.
static const std::uint16_t kBits[] = {0xbc00, 0xb800, 0x0000, 0x3800, 0x3c00};
static std::size_t digit(std::size_t i) { return i * 2654435761u / 65536 % 5; }
static double value(std::size_t i) { return 0.5 * static_cast<double>(digit(i)) - 1.0; }

static double from_float16(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double magnitude = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// A plan with its memory on the GPU.
struct Product {
    kt::Plan plan;
    void *a = nullptr, *b = nullptr, *c = nullptr, *scratch = nullptr;

    Product(const kt::Bundle& bundle, std::size_t m, std::size_t n, std::size_t k, cudaStream_t stream) {
        const auto size = [](std::size_t of) { return static_cast<std::int64_t>(of); };
        const kt::Problem problem{{{"m", size(m)}, {"n", size(n)}, {"k", size(k)}},
                                  {{"input", "float16"}, {"output", "float16"}},
                                  {{"layout", "nn"}}};
        check(bundle.plan(problem, 0, kt::Policy::nearest_valid, plan));
        std::printf("%zu x %zu x %zu: %s (%s)\n", m, n, k, plan.configuration().c_str(), plan.reason().c_str());

        std::vector<std::uint16_t> host(std::max(m * k, k * n));
        for (std::size_t i = 0; i < host.size(); ++i) host[i] = kBits[digit(i)];
        check(cudaMalloc(&a, 2 * m * k));
        check(cudaMalloc(&b, 2 * k * n));
        check(cudaMalloc(&c, 2 * m * n));
        check(cudaMemcpy(a, host.data(), 2 * m * k, cudaMemcpyHostToDevice));
        check(cudaMemcpy(b, host.data(), 2 * k * n, cudaMemcpyHostToDevice));

        // Once for a workspace and a stream: it loads the kernels, and sets to zero what has to be.
        if (plan.workspace_bytes()) check(cudaMalloc(&scratch, plan.workspace_bytes()));
        check(plan.prepare({scratch, plan.workspace_bytes()}, stream));
    }

    // Neither allocates nor waits.
    void run(cudaStream_t stream) const { check(plan.run({{"a", a}, {"b", b}, {"c", c}}, {scratch, plan.workspace_bytes()}, stream)); }

    ~Product() {
        for (void* one : {a, b, c, scratch}) cudaFree(one);
    }
};

int main(int count, char** arguments) {
    kt::Bundle bundle;
    check(kt::Bundle::open(count > 1 ? arguments[1] : BUNDLE, bundle));
    cudaStream_t stream = nullptr;
    check(cudaSetDevice(0));  // makes the context that kernels are loaded into
    check(cudaFree(nullptr));
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    const std::size_t m = 200, n = 136, k = 264;
    const Product small(bundle, m, n, k, stream);
    small.run(stream);
    std::vector<std::uint16_t> got(m * n);
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(got.data(), small.c, 2 * m * n, cudaMemcpyDeviceToHost));
    double largest = 0.0;
    for (std::size_t row = 0; row < m; ++row)
        for (std::size_t column = 0; column < n; ++column) {
            double sum = 0.0;
            for (std::size_t i = 0; i < k; ++i) sum += value(row * k + i) * value(i * n + column);
            largest = std::max(largest, std::fabs(sum - from_float16(got[row * n + column])) / std::max(1.0, std::fabs(sum)));
        }
    std::printf("largest relative error: %g\n", largest);
    if (!(largest <= 0x1p-11)) return std::fprintf(stderr, "the product is wrong\n"), 1;

    // Twenty runs as one CUDA graph: what a program pays that captures its work.
    const Product large(bundle, 4096, 4096, 4096, stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runs = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    float milliseconds = 0.0f;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 20; ++i) large.run(stream);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&runs, graph, 0));
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
    check(cudaGraphLaunch(runs, stream));
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(runs, stream));
    check(cudaEventRecord(end, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    const double seconds = static_cast<double>(milliseconds) / 1e3 / 20;
    std::printf("%.1f us, %.0f TFLOP/s\n", seconds * 1e6, 2.0 * 4096 * 4096 * 4096 / seconds / 1e12);
    return 0;
}
