// Cooperative groups for the CPU: blocks, tiles of a warp and grids, with what they reduce, scan and copy.
//
// Which lanes are together in a branch is not known here: each is a group of its own, as it may be on a GPU.
#pragma once

namespace cooperative_groups {

class thread_block {
public:
    static void sync() { __syncthreads(); }
    static unsigned int thread_rank() {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    static unsigned int size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned int num_threads() { return size(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

class grid_group {
public:
    static void sync() { emulator::sync_grid(); }
    static bool is_valid() { return true; }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
    static unsigned long long block_rank() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
    static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static unsigned long long size() { return num_blocks() * thread_block::size(); }
    static unsigned long long num_threads() { return size(); }
};
inline grid_group this_grid() { return {}; }

// Neighbouring lanes of a warp; none stand for the block.
class thread_group {
public:
    explicit thread_group(unsigned int lanes) : lanes_(lanes) {}
    thread_group(thread_block) : lanes_(0) {}
    void sync() const { lanes_ ? __syncwarp(mask()) : __syncthreads(); }
    unsigned int size() const { return lanes_ ? lanes_ : thread_block::size(); }
    unsigned int num_threads() const { return size(); }
    unsigned int thread_rank() const { return lanes_ ? emulator::lane() % lanes_ : thread_block::thread_rank(); }
    unsigned int meta_group_rank() const { return thread_block::thread_rank() / lanes_; }
    unsigned int meta_group_size() const { return (thread_block::size() + lanes_ - 1) / lanes_; }
    template <typename T>
    T shfl(T mine, int rank) const {
        return __shfl_sync(mask(), mine, rank, width());
    }
    template <typename T>
    T shfl_up(T mine, unsigned int distance) const {
        return __shfl_up_sync(mask(), mine, distance, width());
    }
    template <typename T>
    T shfl_down(T mine, unsigned int distance) const {
        return __shfl_down_sync(mask(), mine, distance, width());
    }
    template <typename T>
    T shfl_xor(T mine, unsigned int distance) const {
        return __shfl_xor_sync(mask(), mine, static_cast<int>(distance), width());
    }
    int any(int holds) const { return __any_sync(mask(), holds); }
    int all(int holds) const { return __all_sync(mask(), holds); }
    unsigned int ballot(int holds) const { return __ballot_sync(mask(), holds) >> first(); }

private:
    unsigned int lanes_;
    int width() const { return static_cast<int>(lanes_); }
    unsigned int first() const { return emulator::lane() / lanes_ * lanes_; }
    unsigned int mask() const { return (lanes_ == 32 ? ~0u : (1u << lanes_) - 1) << first(); }
};
using coalesced_group = thread_group;
inline coalesced_group coalesced_threads() { return coalesced_group(1); }
template <unsigned int LANES, typename Parent = void>
class thread_block_tile : public thread_group {
public:
    static_assert(LANES <= 32, "tiles of several warps");
    thread_block_tile() : thread_group(LANES) {}
    template <typename Other>
    thread_block_tile(const thread_block_tile<LANES, Other>&) : thread_block_tile() {}
    static constexpr unsigned int size() { return LANES; }
    static constexpr unsigned int num_threads() { return LANES; }
};
template <unsigned int LANES, typename Parent>
thread_block_tile<LANES, Parent> tiled_partition(const Parent&) {
    return {};
}
template <typename Parent>
thread_group tiled_partition(const Parent&, unsigned int lanes) {
    return thread_group(lanes);
}

template <typename Group>
void sync(const Group& group) {
    group.sync();
}
template <typename Group>
auto thread_rank(const Group& group) {
    return group.thread_rank();
}
template <typename Group>
auto group_size(const Group& group) {
    return group.size();
}

#define EMULATOR_OPERATION(name, expression)                          \
    template <typename T = void>                                      \
    struct name {                                                     \
        T operator()(const T& a, const T& b) const { return expression; } \
    };
EMULATOR_OPERATION(plus, a + b)
EMULATOR_OPERATION(less, a < b ? a : b)
EMULATOR_OPERATION(greater, a < b ? b : a)
EMULATOR_OPERATION(bit_and, a& b)
EMULATOR_OPERATION(bit_or, a | b)
EMULATOR_OPERATION(bit_xor, a ^ b)

template <typename Group, typename T, typename Operation>
T reduce(const Group& group, T mine, Operation combine) {
    T all = group.shfl(mine, 0);
    for (unsigned int rank = 1; rank < group.size(); ++rank) {
        all = combine(all, group.shfl(mine, static_cast<int>(rank)));
    }
    return all;
}
template <typename Group, typename T, typename Operation>
T inclusive_scan(const Group& group, T mine, Operation combine) {
    T all = group.shfl(mine, 0);
    for (unsigned int rank = 1; rank < group.size(); ++rank) {
        const T other = group.shfl(mine, static_cast<int>(rank));
        all = rank <= group.thread_rank() ? combine(all, other) : all;
    }
    return all;
}
template <typename Group, typename T>
T inclusive_scan(const Group& group, T mine) {
    return inclusive_scan(group, mine, plus<T>());
}
template <typename Group, typename T, typename Operation>
T exclusive_scan(const Group& group, T mine, Operation combine) {
    const T before = group.shfl_up(inclusive_scan(group, mine, combine), 1);
    return group.thread_rank() == 0 ? T() : before;
}
template <typename Group, typename T>
T exclusive_scan(const Group& group, T mine) {
    return exclusive_scan(group, mine, plus<T>());
}

// A byte at a time, each by one of the group: to come at once, or when it is waited for.
template <typename Group, typename T, typename U, typename Bytes>
void memcpy_async(const Group& group, T* to, const U* from, const Bytes& bytes) {
    for (std::size_t i = group.thread_rank(); i < static_cast<std::size_t>(bytes); i += group.size()) {
        emulator::copy_async(reinterpret_cast<char*>(to) + i, reinterpret_cast<const char*>(from) + i, 1, true);
    }
    ptx::commit_copies();
}
template <unsigned int NEWEST, typename Group>
void wait_prior(const Group& group) {
    emulator::wait_copies(NEWEST);
    group.sync();
}
template <typename Group>
void wait(const Group& group) {
    wait_prior<0>(group);
}

}  // namespace cooperative_groups
