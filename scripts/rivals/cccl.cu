// What CUDA's own libraries of parallel algorithms, Thrust and CUB, need for the problems of the built-in kernels: the
// calls that a user would write. Built and called by cccl.py.
//
// 16-bit numbers are computed in float and rounded once, like everywhere else here; sums of them are float from the
// start, since a 16-bit sum of many numbers means nothing. No call waits for the GPU, and memory that CUB wants is
// taken when it first wants so much, so that a call can be captured into a graph after it was made once.

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_transform.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thrust/execution_policy.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/system_error.h>
#include <thrust/transform.h>

#include <cuda/std/type_traits>

#include <exception>

namespace {

template <typename T>
struct Add {
    __host__ __device__ T operator()(T a, T b) const {
        return static_cast<T>(static_cast<float>(a) + static_cast<float>(b));
    }
};

template <typename T>
struct Saxpy {
    float alpha;
    __host__ __device__ T operator()(T x, T y) const {
        return static_cast<T>(alpha * static_cast<float>(x) + static_cast<float>(y));
    }
};

// The default expression of `transform`: half of the way to 20.
template <typename T>
struct Cool {
    __host__ __device__ T operator()(T number) const {
        const float x = static_cast<float>(number);
        return static_cast<T>(x + 0.5f * (20.0f - x));
    }
};

struct Sum {
    __host__ __device__ float operator()(float a, float b) const { return a + b; }
};

// Memory for CUB, as much as the largest call has asked for; kept until the process ends.
void* temporary = nullptr;
size_t temporary_bytes = 0;

template <typename Call>
cudaError_t with_temporary(Call call) {
    size_t bytes = 0;
    cudaError_t error = call(nullptr, bytes);
    if (error == cudaSuccess && bytes > temporary_bytes) {
        cudaFree(temporary);
        temporary_bytes = 0;
        error = cudaMalloc(&temporary, bytes);
        temporary_bytes = error == cudaSuccess ? bytes : 0;
    }
    return error == cudaSuccess ? call(temporary, bytes) : error;
}

template <typename Call>
int guarded(Call call) {
    try {
        call();
        return cudaPeekAtLastError();
    } catch (const thrust::system_error& error) {
        return error.code().value();
    } catch (const std::exception&) {
        return cudaErrorUnknown;
    }
}

template <typename T>
struct Rivals {
    static int thrust_add(const void* a, const void* b, void* c, long long n, cudaStream_t stream) {
        const T* from = static_cast<const T*>(a);
        return guarded([=] {
            thrust::transform(thrust::cuda::par_nosync.on(stream), from, from + n, static_cast<const T*>(b),
                              static_cast<T*>(c), Add<T>{});
        });
    }

    static int thrust_saxpy(float alpha, const void* x, void* y, long long n, cudaStream_t stream) {
        const T* from = static_cast<const T*>(x);
        return guarded([=] {
            thrust::transform(thrust::cuda::par_nosync.on(stream), from, from + n, static_cast<T*>(y),
                              static_cast<T*>(y), Saxpy<T>{alpha});
        });
    }

    static int thrust_cool(const void* x, void* out, long long n, cudaStream_t stream) {
        const T* from = static_cast<const T*>(x);
        return guarded([=] {
            thrust::transform(thrust::cuda::par_nosync.on(stream), from, from + n, static_cast<T*>(out), Cool<T>{});
        });
    }

    static int cub_cool(const void* x, void* out, long long n, cudaStream_t stream) {
        return cub::DeviceTransform::Transform(static_cast<const T*>(x), static_cast<T*>(out), n, Cool<T>{}, stream);
    }

    static int cub_sum(const void* x, float* out, long long n, cudaStream_t stream) {
        const T* from = static_cast<const T*>(x);
        return with_temporary([=](void* memory, size_t& bytes) {
            if constexpr (cuda::std::is_same_v<T, float>) {
                return cub::DeviceReduce::Sum(memory, bytes, from, out, n, stream);
            } else {
                return cub::DeviceReduce::Reduce(memory, bytes, from, out, n, Sum{}, 0.0f, stream);
            }
        });
    }
};

}  // namespace

#define RIVALS(T, NAME)                                                                                              \
    int thrust_vector_add_##NAME(const void* a, const void* b, void* c, long long n, cudaStream_t stream) {          \
        return Rivals<T>::thrust_add(a, b, c, n, stream);                                                            \
    }                                                                                                                \
    int thrust_saxpy_##NAME(float alpha, const void* x, void* y, long long n, cudaStream_t stream) {                 \
        return Rivals<T>::thrust_saxpy(alpha, x, y, n, stream);                                                      \
    }                                                                                                                \
    int thrust_transform_##NAME(const void* x, void* out, long long n, cudaStream_t stream) {                        \
        return Rivals<T>::thrust_cool(x, out, n, stream);                                                            \
    }                                                                                                                \
    int cub_transform_##NAME(const void* x, void* out, long long n, cudaStream_t stream) {                           \
        return Rivals<T>::cub_cool(x, out, n, stream);                                                               \
    }                                                                                                                \
    int cub_sum_##NAME(const void* x, void* out, long long n, cudaStream_t stream) {                                 \
        return Rivals<T>::cub_sum(x, static_cast<float*>(out), n, stream);                                           \
    }

extern "C" {
RIVALS(float, float32)
RIVALS(__half, float16)
RIVALS(__nv_bfloat16, bfloat16)

const char* error_name(int error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }
int cccl_version() { return CCCL_VERSION; }
}
