// CUB's collectives of blocks and warps for the CPU, in their simplest form: what each thread has lies in TempStorage.
// Only what CUB promises holds: a sum is the first thread's alone, and a block that uses its storage again without a
// barrier reads what others have written.
#pragma once
#include <cuda/functional>

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
#define EMULATOR_MOVES(name)                                                                               \
    name##_DIRECT, name##_STRIPED, name##_VECTORIZE, name##_TRANSPOSE, name##_WARP_TRANSPOSE,              \
        name##_WARP_TRANSPOSE_TIMESLICED
enum BlockLoadAlgorithm { EMULATOR_MOVES(BLOCK_LOAD) };
enum BlockStoreAlgorithm { EMULATOR_MOVES(BLOCK_STORE) };
using Sum = cuda::std::plus<>;
using Max = cuda::maximum<>;
using Min = cuda::minimum<>;

namespace emulated {

template <int X, int Y, int Z>
struct Block {
    static constexpr int SIZE = X * Y * Z;
    static int rank() {
        const bool same = blockDim.x == X && blockDim.y == Y && blockDim.z == Z;
        if (!same) emulator::stop("a block of another size than CUB's template names");
        return (threadIdx.z * Y + threadIdx.y) * X + threadIdx.x;
    }
    static void meet() { __syncthreads(); }
    static void part() {}
};

template <int LANES>
struct Warp {
    static constexpr int SIZE = LANES;
    static int rank() { return emulator::lane() % LANES; }
    static void meet() { __syncwarp((LANES == 32 ? ~0u : (1u << LANES % 32) - 1) << emulator::lane() / LANES * LANES); }
    static void part() { meet(); }  // lanes exchange registers: the storage may be used again at once
};

template <typename T, int N>
struct Room { alignas(T) unsigned char bytes[N * sizeof(T)]; };
template <typename Storage>
Storage& own_storage() { static __shared__ Storage room; return room; }
template <typename T>
void forget(T& value) { std::memset(static_cast<void*>(&value), 0xff, sizeof(T)); }
template <typename T>
using Same = std::enable_if_t<true, T>;  // converted to what is told elsewhere

template <typename T, typename Group>
struct Reduction {
    struct TempStorage : Room<T, Group::SIZE> {};
    TempStorage& room;
    Reduction(TempStorage& given = own_storage<TempStorage>()) : room(given) {}
    template <typename Op>
    EMULATOR_INLINE T Reduce(T mine, Op op, int valid = Group::SIZE) {
        const int rank = Group::rank();
        T* const parts = reinterpret_cast<T*>(room.bytes);
        parts[rank] = mine;
        Group::meet();
        forget(mine);
        for (int i = 0; i < valid && rank == 0; ++i) mine = i ? op(mine, parts[i]) : parts[i];
        Group::part();
        return mine;
    }
    template <int N, typename Op>
    EMULATOR_INLINE T Reduce(T (&items)[N], Op op) {
        T mine = items[0];
        for (int i = 1; i < N; ++i) mine = op(mine, items[i]);
        return Reduce(mine, op);
    }
    template <typename Items, typename... Valid>
    EMULATOR_INLINE T Sum(Items&& items, Valid... valid) { return Reduce(items, cub::Sum(), valid...); }
};

// Of one item a thread or of arrays; what is behind them is given the sum of all, or says with which number to begin.
template <typename T, typename Group>
struct Scan {
    struct TempStorage : Room<T, Group::SIZE + 1> {};
    TempStorage& room;
    Scan(TempStorage& given = own_storage<TempStorage>()) : room(given) {}
#define EMULATOR_SCANS(kind, inclusive)                                                                    \
    template <typename Out, typename... More>                                                              \
    EMULATOR_INLINE void kind##Sum(const Same<Out>& in, Out& out, More&&... more) {                        \
        const T zero{};                                                                                    \
        scan<inclusive>(in, out, cub::Sum(), &zero, (&more)...);                                           \
    }                                                                                                      \
    template <typename Out, typename First, typename... More>                                              \
    EMULATOR_INLINE void kind##Scan(const Same<Out>& in, Out& out, First first, More&&... more) {          \
        if constexpr (std::is_invocable_v<First, T, T>) {                                                  \
            scan<inclusive>(in, out, first, static_cast<const T*>(nullptr), (&more)...);                   \
        } else {                                                                                           \
            const T begin = first;                                                                         \
            [&](auto op, auto&... rest) { scan<inclusive>(in, out, op, &begin, (&rest)...); }(more...);    \
        }                                                                                                  \
    }
    EMULATOR_SCANS(Inclusive, true)
    EMULATOR_SCANS(Exclusive, false)
    template <bool INCLUSIVE, typename Out, typename Op, typename More = T>
    EMULATOR_INLINE void scan(const Out& in, Out& out, Op op, const T* first, More* more = nullptr) {
        constexpr int N = sizeof(Out) / sizeof(T);
        const T* const items = reinterpret_cast<const T*>(&in);
        const int rank = Group::rank();
        T *const parts = reinterpret_cast<T*>(room.bytes), *const to = reinterpret_cast<T*>(&out);
        T start, all = items[0];
        forget(start);  // before all there is nothing: whatever
        for (int i = 1; i < N; ++i) all = op(all, items[i]);
        parts[rank] = all;
        Group::meet();
        all = parts[0];
        for (int i = 1; i < Group::SIZE; ++i) all = op(all, parts[i]);
        bool begun = first != nullptr;
        if (begun) start = *first;
        if constexpr (!std::is_same_v<More, T>) {
            if (rank < 32) start = (*more)(all);  // the first warp asks
            if (rank == 0) parts[Group::SIZE] = start;
            Group::meet();
            start = parts[Group::SIZE], begun = true;
        } else if (more != nullptr) {
            *more = all;
        }
        for (int i = 0; i < rank; ++i, begun = true) start = begun ? op(start, parts[i]) : parts[i];
        for (int i = 0; i < N; ++i, begun = true) {
            const T next = begun ? op(start, items[i]) : items[i];
            to[i] = INCLUSIVE ? next : start;
            start = next;
        }
        Group::part();
    }
};

template <typename Block, int ITEMS, bool STRIPED>
struct Moves {
    struct TempStorage {};
    Moves() {}
    Moves(TempStorage&) {}
    static int at(int i) { return STRIPED ? Block::rank() + i * Block::SIZE : Block::rank() * ITEMS + i; }
    template <typename From, typename T>
    EMULATOR_INLINE void Load(From from, T (&items)[ITEMS], int valid = 1 << 30) {
        for (int i = 0; i < ITEMS; ++i) if (at(i) < valid) items[i] = from[at(i)];
    }
    template <typename From, typename T, typename Other>
    EMULATOR_INLINE void Load(From from, T (&items)[ITEMS], int valid, Other other) {
        for (int i = 0; i < ITEMS; ++i) items[i] = other;
        Load(from, items, valid);
    }
    template <typename To, typename T>
    EMULATOR_INLINE void Store(To to, T (&items)[ITEMS], int valid = 1 << 30) {
        for (int i = 0; i < ITEMS; ++i) if (at(i) < valid) to[at(i)] = items[i];
    }
};

}  // namespace emulated

template <typename T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0>
using BlockReduce = emulated::Reduction<T, emulated::Block<X, Y, Z>>;
template <typename T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
using BlockScan = emulated::Scan<T, emulated::Block<X, Y, Z>>;
template <typename T, int X, int N, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int = 0>
using BlockLoad = emulated::Moves<emulated::Block<X, Y, Z>, N, A == BLOCK_LOAD_STRIPED>;
template <typename T, int X, int N, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int = 0>
using BlockStore = emulated::Moves<emulated::Block<X, Y, Z>, N, A == BLOCK_STORE_STRIPED>;
template <typename T, int LANES = 32, int = 0>
using WarpReduce = emulated::Reduction<T, emulated::Warp<LANES>>;
template <typename T, int LANES = 32, int = 0>
using WarpScan = emulated::Scan<T, emulated::Warp<LANES>>;

}  // namespace cub
