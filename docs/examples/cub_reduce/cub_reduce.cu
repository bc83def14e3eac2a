// The sum of each row of a matrix: a block loads a row by cub::BlockLoad, and adds it up by cub::BlockReduce.
#include <cub/cub.cuh>

constexpr int tile = block_size * items_per_thread;
using T = input_type;
using Load = cub::BlockLoad<T, block_size, items_per_thread, cub::load>;
using Reduce = cub::BlockReduce<T, block_size, cub::algorithm>;

__global__ void row_sums(const T* x, T* sums, int columns) {
    __shared__ union {
        typename Load::TempStorage load;
        typename Reduce::TempStorage reduce;
    } memory;
    const T* row = x + static_cast<long long>(blockIdx.x) * columns;
    T sum = 0;
    for (int first = 0; first < columns; first += tile) {
        T items[items_per_thread];
        if (columns - first >= tile) {
            Load(memory.load).Load(row + first, items);
        } else {
            Load(memory.load).Load(row + first, items, columns - first, T(0));
        }
        for (int i = 0; i < items_per_thread; ++i) {
            sum += items[i];
        }
        __syncthreads();  // the memory is used again
    }
    sum = Reduce(memory.reduce).Sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}
