// c = a b for square row-major matrices. A block computes a tile of c; each thread TILE_Y x TILE_X elements of it, in
// registers, from slices of a and b in shared memory that are DEPTH long.
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    constexpr int rows = BLOCK_Y * TILE_Y, columns = BLOCK_X * TILE_X, threads = BLOCK_X * BLOCK_Y;
    __shared__ float a_slice[rows][DEPTH + 1];  // a column more: its readers would meet in one bank
    __shared__ float b_slice[DEPTH][columns];
    const int first_row = blockIdx.y * rows, first_column = blockIdx.x * columns;
    const int thread = threadIdx.y * BLOCK_X + threadIdx.x;
    float sums[TILE_Y][TILE_X] = {};
    for (int k = 0; k < n; k += DEPTH) {
        for (int i = thread; i < rows * DEPTH; i += threads) {
            const int row = first_row + i / DEPTH, column = k + i % DEPTH;
            a_slice[i / DEPTH][i % DEPTH] = row < n && column < n ? a[row * n + column] : 0.0f;
        }
        for (int i = thread; i < DEPTH * columns; i += threads) {
            const int row = k + i / columns, column = first_column + i % columns;
            b_slice[i / columns][i % columns] = row < n && column < n ? b[row * n + column] : 0.0f;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; ++d) {
            for (int y = 0; y < TILE_Y; ++y) {
                for (int x = 0; x < TILE_X; ++x) {
                    sums[y][x] += a_slice[threadIdx.y + y * BLOCK_Y][d] * b_slice[d][threadIdx.x + x * BLOCK_X];
                }
            }
        }
        __syncthreads();
    }
    for (int y = 0; y < TILE_Y; ++y) {
        for (int x = 0; x < TILE_X; ++x) {
            const int row = first_row + threadIdx.y + y * BLOCK_Y, column = first_column + threadIdx.x + x * BLOCK_X;
            if (row < n && column < n) {
                c[row * n + column] = sums[y][x];
            }
        }
    }
}
