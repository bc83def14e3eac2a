// Just enough of CUDA for a rendered kernel to run on the host: every thread is a fiber, which gives way where it waits
// for others. Which fiber goes on is drawn from a seed, so that blocks and warps overtake each other in ways that a GPU
// might once in a million runs.
//
// A kernel's shared variables lie in one section of the program, which is exchanged whenever a fiber of another block
// goes on. PTX is not run: functions that hold it are replaced by those at the end of this file, by name.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ __attribute__((section("shared_memory"))) static

struct uint2 {
    unsigned int x, y;
};
struct alignas(16) uint4 {
    unsigned int x, y, z, w;
};
struct Index {
    unsigned int x, y, z;
};

extern unsigned char __start_shared_memory[], __stop_shared_memory[];
__attribute__((section("shared_memory"), used)) static unsigned char something = 0;  // the section must exist

namespace host {

constexpr std::size_t STACK = 32 << 10;

struct Group {  // whoever waits for each other: a block, a warp, a cluster
    int alive = 0, waiting = 0;
    long long generation = 0;
};

struct Block {
    Index index;
    std::vector<unsigned char> shared;
    std::vector<uint4> dynamic_shared;
    Group threads;
    std::vector<Group> warps;
    std::vector<float> lanes;
};

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Block* block;
    Index index;
    bool done = false;
    long long arrived_at = -1;  // generation of the cluster barrier at which this thread arrived
};

struct Barrier {
    int expected = 0, pending = 0, phase = 0;
    long long bytes = 0;
};

inline Index grid, block_shape;
inline std::vector<std::unique_ptr<Block>> blocks;
inline std::vector<std::unique_ptr<Thread>> threads;
inline Thread* current;
inline ucontext_t scheduler;
inline std::function<void()> body;
inline Group cluster;
inline std::map<std::pair<Block*, std::size_t>, Barrier> barriers;  // by block and place in shared memory
inline long long turns;
inline bool lost;  // an index out of range, an endless wait

inline void give_way() { swapcontext(&current->context, &scheduler); }

inline void open(Group& group) {
    group.waiting = 0;
    ++group.generation;
}

inline void meet(Group& group) {
    const long long mine = group.generation;
    if (++group.waiting == group.alive) {
        open(group);
        return;
    }
    while (group.generation == mine) {
        give_way();
    }
}

inline void leave(Group& group) {
    if (--group.alive > 0 && group.waiting == group.alive) {
        open(group);
    }
}

inline void start() {
    body();
    Block* block = current->block;
    leave(block->threads);
    leave(block->warps[current->index.x / 32]);
    if (current->arrived_at != cluster.generation) {  // who ends has arrived at all later barriers
        leave(cluster);
    } else {
        --cluster.alive;
        --cluster.waiting;
        if (cluster.alive > 0 && cluster.waiting == cluster.alive) {
            open(cluster);
        }
    }
    current->done = true;
    give_way();
}

inline unsigned char* shared_begin() { return __start_shared_memory; }
inline std::size_t shared_bytes() { return __stop_shared_memory - __start_shared_memory; }

inline std::size_t place_of(const void* shared) {
    const std::size_t place = static_cast<const unsigned char*>(shared) - shared_begin();
    if (place >= shared_bytes()) {
        std::abort();
    }
    return place;
}

inline unsigned char* dynamic_shared() {
    return reinterpret_cast<unsigned char*>(current->block->dynamic_shared.data());
}

inline Barrier& barrier_at(Block* block, const void* shared) { return barriers[{block, place_of(shared)}]; }

inline void settle(Barrier& barrier) {
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.pending = barrier.expected;
        barrier.phase ^= 1;
    }
}

// Runs a kernel; gives whether all threads came to an end. `resident` blocks are there at once; the others start in the
// order of their numbers, or, with `shuffled`, in any.
inline bool launch(unsigned int blocks_x, unsigned int threads_x, std::size_t dynamic_bytes, unsigned int resident,
                   bool shuffled, unsigned int seed, std::function<void()> kernel) {
    std::mt19937 draw(seed);
    grid = {blocks_x, 1, 1};
    block_shape = {threads_x, 1, 1};
    body = std::move(kernel);
    blocks.clear();
    threads.clear();
    barriers.clear();
    cluster = {static_cast<int>(blocks_x * threads_x), 0, 0};
    turns = 0;
    std::vector<unsigned int> order(blocks_x);
    for (unsigned int i = 0; i < blocks_x; ++i) {
        order[i] = i;
    }
    if (shuffled) {
        std::shuffle(order.begin(), order.end(), draw);
    }
    std::size_t next = 0;
    std::vector<std::vector<Thread*>> running;
    Block* loaded = nullptr;
    while (next < order.size() || !running.empty()) {
        while (running.size() < resident && next < order.size()) {
            auto block = std::make_unique<Block>();
            block->index = {order[next++], 0, 0};
            block->shared.assign(shared_bytes(), 0xFF);  // not a number, so that it shows
            block->dynamic_shared.assign((dynamic_bytes + 127) / 16, uint4{~0u, ~0u, ~0u, ~0u});
            block->threads.alive = static_cast<int>(threads_x);
            block->warps.assign((threads_x + 31) / 32, Group{});
            block->lanes.assign(threads_x, 0.0f);
            running.emplace_back();
            for (unsigned int i = 0; i < threads_x; ++i) {
                auto thread = std::make_unique<Thread>();
                thread->block = block.get();
                thread->index = {i, 0, 0};
                thread->stack.reset(new char[STACK]);  // not cleared
                ++block->warps[i / 32].alive;
                getcontext(&thread->context);
                thread->context.uc_stack.ss_sp = thread->stack.get();
                thread->context.uc_stack.ss_size = STACK;
                thread->context.uc_link = nullptr;
                makecontext(&thread->context, start, 0);
                running.back().push_back(thread.get());
                threads.push_back(std::move(thread));
            }
            blocks.push_back(std::move(block));
        }
        // A block goes on for a while, its warps in any order; then perhaps another one.
        const std::size_t chosen = draw() % running.size();
        std::vector<Thread*>& those = running[chosen];
        Block* block = those.front()->block;
        if (loaded != block) {
            if (loaded != nullptr) {
                std::memcpy(loaded->shared.data(), shared_begin(), shared_bytes());
            }
            std::memcpy(shared_begin(), block->shared.data(), shared_bytes());
            loaded = block;
        }
        for (unsigned int round = 1 + draw() % 8; round > 0; --round) {
            std::vector<std::size_t> warps((those.size() + 31) / 32);
            for (std::size_t i = 0; i < warps.size(); ++i) {
                warps[i] = i;
            }
            std::shuffle(warps.begin(), warps.end(), draw);
            for (const std::size_t warp : warps) {
                for (std::size_t i = 32 * warp; i < std::min(32 * (warp + 1), those.size()); ++i) {
                    if (!those[i]->done) {
                        current = those[i];
                        swapcontext(&scheduler, &current->context);
                    }
                }
            }
        }
        if (std::all_of(those.begin(), those.end(), [](Thread* thread) { return thread->done; })) {
            std::memcpy(block->shared.data(), shared_begin(), shared_bytes());
            loaded = nullptr;
            running.erase(running.begin() + static_cast<long>(chosen));
        }
        if (++turns > 2000000) {
            return false;
        }
    }
    return true;
}

}  // namespace host

#define threadIdx (host::current->index)
#define blockIdx (host::current->block->index)
#define gridDim (host::grid)
#define blockDim (host::block_shape)
#define ring (host::dynamic_shared())  // the name of `extern __shared__` memory

inline void __syncthreads() { host::meet(host::current->block->threads); }
inline void __syncwarp() { host::meet(host::current->block->warps[host::current->index.x / 32]); }
inline void __threadfence() {}

inline float __shfl_xor_sync(unsigned int, float mine, int distance) {
    std::vector<float>& lanes = host::current->block->lanes;
    lanes[host::current->index.x] = mine;
    __syncwarp();
    const float other = lanes[host::current->index.x ^ distance];
    __syncwarp();
    return other;
}

template <typename To, typename From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}
inline unsigned int __float_as_uint(float x) { return bits_as<unsigned int>(x); }
inline float __uint_as_float(unsigned int x) { return bits_as<float>(x); }
inline float __int_as_float(int x) { return bits_as<float>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline unsigned int __cvta_generic_to_shared(const void*) { return 0; }
inline unsigned long long __cvta_generic_to_global(const void*) { return 0; }
template <typename T>
inline T __ldcg(const T* from) {
    return *from;
}
inline unsigned int atomicAdd(unsigned int* at, unsigned int more) {
    const unsigned int before = *at;
    *at += more;
    host::give_way();
    return before;
}

// -- what stands in for functions that hold PTX

using Barrier = unsigned long long;

inline unsigned int draw(unsigned int* tickets, unsigned int last) {
    host::give_way();
    const unsigned int ticket = *tickets;
    *tickets = ticket >= last ? 0 : ticket + 1;
    host::give_way();
    return ticket;
}
inline unsigned long long look(const unsigned long long* box) {
    host::give_way();
    return *box;
}
inline void put(unsigned long long* box, unsigned long long what) {
    host::give_way();
    *box = what;
}
inline void init_barrier(Barrier* barrier, unsigned int arrivals) {
    host::Barrier& found = host::barrier_at(host::current->block, barrier);
    found.expected = found.pending = static_cast<int>(arrivals);
}
inline void publish_barriers() {}
inline void expect_bytes(Barrier* barrier, unsigned int bytes) {
    host::Barrier& found = host::barrier_at(host::current->block, barrier);
    found.bytes += bytes;
    --found.pending;
    host::settle(found);
}
inline void arrive(Barrier* barrier) {
    host::Barrier& found = host::barrier_at(host::current->block, barrier);
    --found.pending;
    host::settle(found);
}
inline void wait_barrier(Barrier* barrier, unsigned int parity) {
    while (host::barrier_at(host::current->block, barrier).phase == static_cast<int>(parity)) {
        host::give_way();
    }
}
inline unsigned long long keep_first_out() { return 0; }
inline void bulk_load(void* shared, const void* global, unsigned int bytes, Barrier* barrier,
                      unsigned long long = 0) {
    const std::size_t place = static_cast<unsigned char*>(shared) - ring;
    if (bytes == 0 || bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(global) % 16 != 0 || place % 16 != 0 ||
        place + bytes > 16 * host::current->block->dynamic_shared.size()) {
        std::abort();
    }
    host::give_way();  // the bytes come later than they were asked for
    std::memcpy(shared, global, bytes);
    host::Barrier& found = host::barrier_at(host::current->block, barrier);
    found.bytes -= bytes;
    host::settle(found);
}
inline void arrive_in_cluster() {
    host::current->arrived_at = host::cluster.generation;
    if (++host::cluster.waiting == host::cluster.alive) {
        host::open(host::cluster);
    }
}
inline void wait_for_cluster() {
    while (host::cluster.generation == host::current->arrived_at) {
        host::give_way();
    }
}
inline void send_to_first_block(float number, float* place, Barrier* barrier) {
    host::Block* first = nullptr;
    for (const auto& block : host::blocks) {
        first = block->index.x == 0 ? block.get() : first;
    }
    if (first == nullptr) {
        std::abort();  // it has not started
    }
    unsigned char* memory = first == host::current->block ? host::shared_begin() : first->shared.data();
    std::memcpy(memory + host::place_of(place), &number, sizeof(number));
    host::Barrier& found = host::barrier_at(first, barrier);
    found.bytes -= sizeof(number);
    host::settle(found);
}
inline void wait_for_senders(Barrier* barrier) { wait_barrier(barrier, 0); }
