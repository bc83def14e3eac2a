// Runs the code of a CUDA kernel on the CPU: every thread of a block is a fiber, blocks run one after the other.
//
// Not an exact machine but a hostile one. Threads run in random order; an asynchronous copy happens at once, or as late as
// the rules allow, by the toss of a coin. So a wait that is missing, a stage that is filled again too early and a barrier
// that nobody serves show as wrong results or as a standstill. Arrays end at a page that may not be touched.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned int x, y, z;
};
struct alignas(8) uint2 {
    unsigned int x, y;
};
struct alignas(16) uint4 {
    unsigned int x, y, z, w;
};
inline dim3 threadIdx, blockIdx, gridDim;

namespace emulator {

[[noreturn]] inline void fail(const char* what) {
    std::printf("%s\n", what);
    std::exit(1);
}

inline void check_address(const void* address, std::size_t multiple) {
    if (reinterpret_cast<std::size_t>(address) % multiple != 0) {
        fail("an address is not aligned");
    }
}

inline std::mt19937 draw(1);

using Copy = std::function<void()>;

// A copy that may still have to happen. Groups and the list of what is under way share it.
struct Pending {
    Copy copy;
    bool done = false;
    void finish() {
        if (!done) {
            done = true;
            copy();
        }
    }
};
using Group = std::vector<std::shared_ptr<Pending>>;

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(128 << 10);
    unsigned int number = 0;
    bool finished = false;
    Group open, open_stores;
    std::deque<Group> copies, stores;  // committed, oldest first
};

struct BarrierState {
    unsigned int arrivals, missing;
    long long bytes;
    unsigned int phase;
};

inline ucontext_t scheduler;
inline std::vector<std::unique_ptr<Fiber>> fibers;
inline Fiber* current;
inline std::function<void()> body;
inline std::vector<std::shared_ptr<Pending>> under_way;
inline std::map<const void*, BarrierState> barriers;
inline unsigned int waiting, generation;

inline void yield() { swapcontext(&current->context, &scheduler); }

inline std::shared_ptr<Pending> start(Copy copy) {
    auto pending = std::make_shared<Pending>(Pending{std::move(copy)});
    if (draw() % 2) {
        pending->finish();
    } else {
        under_way.push_back(pending);
    }
    return pending;
}

inline void finish_all_but(std::deque<Group>& groups, std::size_t newest) {
    for (; groups.size() > newest; groups.pop_front()) {
        for (auto& pending : groups.front()) {
            pending->finish();
        }
    }
}

inline void run_fiber() {
    body();
    current->finished = true;
    yield();
}

inline void run_block(unsigned int threads) {
    fibers.clear();
    under_way.clear();
    barriers.clear();
    waiting = 0;
    for (unsigned int i = 0; i < threads; ++i) {
        auto fiber = std::make_unique<Fiber>();
        fiber->number = i;
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack.data();
        fiber->context.uc_stack.ss_size = fiber->stack.size();
        makecontext(&fiber->context, run_fiber, 0);
        fibers.push_back(std::move(fiber));
    }
    std::vector<Fiber*> left;
    for (auto& fiber : fibers) {
        left.push_back(fiber.get());
    }
    for (int rounds = 0; !left.empty(); ++rounds) {
        if (rounds == 4000) {
            fail("a standstill: threads wait for what nobody does");
        }
        std::shuffle(left.begin(), left.end(), draw);
        for (Fiber* fiber : left) {
            current = fiber;
            threadIdx.x = fiber->number;
            swapcontext(&scheduler, &fiber->context);
        }
        left.erase(std::remove_if(left.begin(), left.end(), [](Fiber* f) { return f->finished; }), left.end());
        auto copies = std::move(under_way);
        under_way.clear();
        for (auto& pending : copies) {
            if (draw() % 2) {
                pending->finish();
            } else if (!pending->done) {
                under_way.push_back(pending);
            }
        }
    }
    for (auto& fiber : fibers) {
        if (!fiber->stores.empty() || !fiber->open_stores.empty()) {
            fail("the block has ended before its bulk stores have read shared memory");
        }
    }
}

// Memory whose end is `bytes` behind its start, except for what the alignment leaves, and then not accessible.
struct Memory {
    static constexpr char BESIDE = 0x5a;  // no NaN: that would stay what it is when it is computed with
    char* start;
    std::size_t bytes, before, behind;
    Memory(std::size_t size, std::size_t alignment) : bytes(size) {
        const std::size_t page = 4096, room = (size + 256 + page - 1) / page * page;
        char* base = static_cast<char*>(
            mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (base == MAP_FAILED || mprotect(base + room, page, PROT_NONE) != 0) {
            fail("no memory");
        }
        before = (room - size) / alignment * alignment;
        behind = room - before - size;
        start = base + before;
        std::memset(base, BESIDE, room);
        std::memset(start, 0xff, size);  // NaN in every float type
    }
    void check() const {
        for (std::size_t i = 0; i < before + behind; ++i) {
            const char* byte = i < before ? start - 1 - i : start + bytes + (i - before);
            if (*byte != BESIDE) {
                fail("written beside an array");
            }
        }
    }
    ~Memory() { munmap(start - before, before + bytes + behind + 4096); }
    Memory(const Memory&) = delete;
};

}  // namespace emulator

inline void __syncthreads() {
    using namespace emulator;
    const unsigned int mine = generation;
    if (++waiting == fibers.size()) {
        waiting = 0;
        ++generation;
    }
    while (generation == mine) {
        yield();
    }
}
