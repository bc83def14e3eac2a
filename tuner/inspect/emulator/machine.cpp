// Runs a kernel on the CPU: every thread is a fiber, which gives way where it waits for others.
//
// Not an exact machine but a hostile one. Which block and which thread goes on is drawn from a seed, so that they
// overtake each other in ways that a GPU might once in a million runs. An asynchronous copy happens at once, or as late
// as the rules allow, by the toss of a coin. So a wait that is missing, a stage that is filled again too early and a
// barrier that nobody serves show as wrong results or as a standstill. Shared memory starts as NaNs. A thread that repeats
// itself, as one does that waits for a flag, gives way; where all do, or wait, and nothing changes, the run will not end.
//
// The compiler calls `__tsan_read4` and the like before each access of a kernel to memory (-fsanitize=thread, without its
// library). One outside of the arrays and of shared memory ends the run, as do a signal from memory that may not be
// touched, or from an address that is no multiple of the access. The first read of memory that nothing has set is kept: it
// may be why a result is wrong.
//
// A kernel's shared variables are its library's thread-local segment, which is exchanged whenever another block goes on.
// How many blocks along x are a cluster, the kernel says.
#include "cuda.hpp"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

dim3 threadIdx, blockIdx, gridDim, blockDim;

namespace emulator {

// A copy that may still have to happen. Its group and the list of what is under way share it.
struct Copy {
    std::function<void()> move;
    bool done = false;
    void finish() {
        if (!done) {
            done = true;
            move();
        }
    }
};
using Copies = std::vector<std::shared_ptr<Copy>>;

struct Groups {
    Copies open;
    std::vector<Copies> committed;  // oldest first
    void commit() { committed.push_back(std::exchange(open, {})); }
    void finish_all_but(std::size_t newest) {
        for (; committed.size() > newest; committed.erase(committed.begin())) {
            for (auto& copy : committed.front()) {
                copy->finish();
            }
        }
    }
    bool empty() const { return open.empty() && committed.empty(); }
};

struct Meeting {  // whoever waits for each other: a block, some of its warps, a cluster
    int alive = 0, waiting = 0;
    long long generation = 0;
};

struct Barrier {  // what the eight bytes of shared memory stand for
    unsigned int expected, missing, phase = 0;
    long long bytes = 0;
};

struct Shown {  // by a lane to its warp
    alignas(8) unsigned char bytes[48];
};

// What the machine is told of memory, and what it tells of a run: as host.py has them.
struct Array {
    const unsigned char *begin, *from, *to;  // what is touched between the latter is meant for it: nothing else lies there
    unsigned long bytes;
    unsigned char* set;  // of each byte whether something was written there
};
struct Access {
    unsigned long at, line;      // addresses: of memory, and in the code behind the access
    unsigned int thread;         // counted over all blocks
    short array;                 // its number; below 0 for shared memory
    unsigned short bytes;
    unsigned int kind;           // 1 if it writes, 2 if it is atomic
};
struct Seen {
    const Array* arrays;
    unsigned long count;
    Access* accesses;  // those of the run, up to `most`
    unsigned long most, length;
    Access fault, unset;  // where the run has ended; the first read of what nothing has set
    unsigned long base, section, dynamic;  // where the library's code and shared memory lie
};
constexpr short NOWHERE = -3, DYNAMIC = -2, STATIC = -1;  // instead of an array's number

struct Thread;
struct Block {
    unsigned int number;
    std::vector<unsigned char> shared, set;  // the section, while another block's is loaded; which bytes were written
    std::vector<std::unique_ptr<Thread>> threads;
    Meeting all;
    std::map<int, Meeting> groups;
    std::vector<Shown> lanes;
    std::vector<unsigned int> alive;  // of each warp, the lanes that have not ended
    std::map<const void*, Barrier> barriers;
    Copies under_way;
};

struct Fiber {  // runs a thread to its end, and then another one: a beginning asks the kernel for the signal mask
    static constexpr std::size_t STACK = 256 << 10;
    jmp_buf goes_on_at;
    bool started = false;
    std::unique_ptr<char[]> stack{new char[STACK]};  // not cleared
};

struct Thread {
    std::unique_ptr<Fiber> fiber;
    Block* block;
    unsigned int number;
    dim3 index;
    bool done = false;
    bool holds = false;  // what it has said at a barrier that counts
    unsigned int waits_for = 0;  // the lanes of its warp that it meets: itself and others
    long long arrived_in = -1;  // generation of the cluster's barrier at which this thread arrived
    Access latest{};
    Groups copies, stores;
    unsigned int accesses = 0;   // since it has gone on
    bool repeats = false;        // did it stand where it stood before?
    unsigned int looks = 0;      // whether it does
    unsigned long state = 0;     // at the moment that it is compared with
    std::map<unsigned long, unsigned char> before;  // what it has written to since then, as it was
};

static std::vector<std::unique_ptr<Block>> running;
static std::vector<std::unique_ptr<Fiber>> spare_fibers;
static unsigned char* section[2];  // where the kernel's shared variables lie: from the first address to the second
static unsigned char* dynamic[3];  // among them dynamic shared memory: its beginning, its end, that of the room for it
static Seen* seen_here;
static bool atomic;                // an atomic operation is under way
static Block* loaded;              // whose shared variables are in the section
static Thread* current;
static jmp_buf scheduler;
static void (*body)(void** arguments);
static void** body_arguments;
static Meeting whole_grid;
static bool cooperative = false;  // whether the grid may meet
static std::map<unsigned int, Meeting> clusters;  // by number
static std::mt19937 random_bits;
static long long happened;  // counts what others may have waited for
static unsigned int patience;      // accesses of a thread before it is looked whether it repeats itself
static bool all_watched;           // whether each thread's state is looked at whenever it gives way
constexpr unsigned int LONG = 1 << 16, SHORT = 1 << 12, WATCHED = 1 << 10;  // accesses: patience at first, later; a look
static const char* fault;
static sigjmp_buf escape;

// Ends the run: called from a fiber, or by a signal in one.
[[noreturn]] static void fail_at(const char* what, const Access& access) {
    seen_here->fault = access;
    fault = what;
    siglongjmp(escape, 1);
}

[[noreturn]] static void fail(const char* what) {
    Access last = current != nullptr ? current->latest : Access{};
    last.array = NOWHERE;
    fail_at(what, last);
}

void stop(const char* why) {
    fail_at(why, {0, reinterpret_cast<unsigned long>(__builtin_return_address(0)), 0, NOWHERE, 0, 0});
}

static void on_signal(int number, siginfo_t* told, void*) {
    const auto at = reinterpret_cast<unsigned long>(told->si_addr);
    if (number == SIGILL || number == SIGFPE) {  // at an instruction
        fail_at(number == SIGILL ? "an address that is no multiple of its access" : "a division of integers by zero",
                {0, at + 1, 0, NOWHERE, 0, 0});
    }
    const Access latest = current != nullptr ? current->latest : Access{};
    fail_at(at < 4096 ? "an access through a null pointer" : "an access outside all arrays",
            at - latest.at < latest.bytes ? latest : Access{at, 0, 0, NOWHERE, 0, 0});
}

// Takes note of an access to memory that begins somewhere, and ends the run if the access is not inside.
static void take_note(Access& access, const unsigned char* begin, unsigned long bytes, unsigned char* set) {
    const unsigned long offset = access.at - reinterpret_cast<unsigned long>(begin);
    if (seen_here->length < seen_here->most) {
        seen_here->accesses[seen_here->length++] = access;
    }
    if (offset >= bytes || offset + access.bytes > bytes) {
        fail_at(access.kind & 1 ? "a write outside" : "a read outside", access);
    }
    if (access.kind & 1) {
        if (all_watched || current->accesses > patience) {
            for (unsigned long i = 0; i < access.bytes; ++i) {
                current->before.emplace(access.at + i, begin[offset + i]);
            }
        }
        std::memset(set + offset, 1, access.bytes);
    } else if (!(set[offset] && set[offset + access.bytes - 1]) && seen_here->unset.line == 0) {
        seen_here->unset = access;
    }
}

// A number for what the current thread goes on with, but for memory: the registers that outlive a call, and its stack.
// So callers ask for it first of all, when they have nothing there that differs from one time to the next.
__attribute__((noinline)) static unsigned long state() {
    jmp_buf here;
    std::memset(&here, 0, sizeof(here));
    _setjmp(here);
    unsigned long number = 0, word;
    const char* const end = current->fiber->stack.get() + Fiber::STACK;
    for (const char* at = reinterpret_cast<const char*>(&here); at + sizeof(word) <= end; at += sizeof(word)) {
        std::memcpy(&word, at, sizeof(word));
        number = (number ^ word) * 0x9e3779b97f4a7c15;
        number ^= number >> 29;
    }
    return number;
}

// Whether the current thread stands where it stood at a moment before, and has left memory as it was: then it goes on like
// this until others change something. The moment is another one after 1, 2, 4, 8, ... looks. `now`: its state.
static bool repeats(unsigned long now) {
    Thread& thread = *current;
    const bool same = thread.looks > 0 && now == thread.state &&
                      std::all_of(thread.before.begin(), thread.before.end(), [](const auto& one) {
                          return *reinterpret_cast<const unsigned char*>(one.first) == one.second;
                      });
    if (same || (thread.looks & (thread.looks - 1)) == 0) {
        thread.state = now;
        thread.before.clear();
    }
    ++thread.looks;
    thread.repeats |= same;
    return same;
}

static void switch_to_scheduler();

// At an access of a thread that has not given way for long: where it repeats itself, as in waiting for a flag, it does.
__attribute__((noinline)) static void look_for_repetition() {
    const unsigned long now = state();
    const unsigned int looks = current->accesses - patience;
    current->looks = looks == 1 ? 0 : current->looks;
    if (repeats(now)) {
        patience = SHORT;
        switch_to_scheduler();
        current->accesses = patience + 2;
    } else if (looks > WATCHED) {
        current->accesses = 0;
        current->repeats = false;
        ++happened;
    }
}

static void touch(const void* where, std::size_t bytes, bool writes, const void* line) {
    if (current == nullptr) {  // a library is loaded
        return;
    }
    const auto* const at = static_cast<const unsigned char*>(where);
    Block& block = *current->block;
    Access& access = current->latest;  // field by field: put together elsewhere and copied, it takes four times as long
    access.at = reinterpret_cast<unsigned long>(at);
    access.line = reinterpret_cast<unsigned long>(line);
    access.thread = block.number * static_cast<unsigned int>(block.threads.size()) + current->number;
    access.array = NOWHERE;
    access.bytes = static_cast<unsigned short>(bytes);
    access.kind = static_cast<unsigned int>(writes | atomic << 1);
    if (++current->accesses > patience && !atomic) {
        look_for_repetition();
    }
    for (unsigned long i = 0; i < seen_here->count; ++i) {
        const Array& array = seen_here->arrays[i];
        if (at >= array.from && at < array.to) {
            access.array = static_cast<short>(i);
            return take_note(access, array.begin, array.bytes, array.set);
        }
    }
    if (at >= dynamic[0] && at < dynamic[2]) {
        access.array = DYNAMIC;
        return take_note(access, dynamic[0], dynamic[1] - dynamic[0], block.set.data() + (dynamic[0] - section[0]));
    }
    if (at >= section[0] - BESIDE && at < section[1] + BESIDE) {
        access.array = STATIC;
        take_note(access, section[0], section[1] - section[0], block.set.data());
    }
}

static void touch_copy(const void* to, const void* from, std::size_t bytes, const void* line) {
    touch(from, bytes, false, line);
    touch(to, bytes, true, line);
}

static bool toss() { return random_bits() % 2; }

// Fibers change by jumps: swapcontext would ask the kernel for the signal mask, twice each time. A context is for the
// beginning of a fiber alone.
static void switch_to_scheduler() {
    if (_setjmp(current->fiber->goes_on_at) == 0) {
        _longjmp(scheduler, 1);
    }
}

__attribute__((noinline)) static void give_way() {
    if (all_watched) {
        repeats(state());
    }
    current->accesses = 0;
    switch_to_scheduler();
}

static void open(Meeting& meeting) {
    meeting.waiting = 0;
    ++meeting.generation;
}

static void arrive(Meeting& meeting) {
    ++happened;
    if (++meeting.waiting == meeting.alive) {
        open(meeting);
    }
}

static void meet(Meeting& meeting) {
    const long long mine = meeting.generation;
    arrive(meeting);
    while (meeting.generation == mine) {
        give_way();
    }
}

static void leave(Meeting& meeting) {
    if (--meeting.alive > 0 && meeting.waiting == meeting.alive) {
        open(meeting);
    }
}

// Lets the lanes that one of the current warp waits for go on, if all who have not ended wait for the same. Who has ended
// is looked up each time: between the arrivals of two lanes with one mask, others may end.
static void let_lanes_meet(unsigned int lane) {
    const auto& threads = current->block->threads;
    const unsigned int first = current->number / 32 * 32, alive = lanes_alive();
    const unsigned int meeting = threads[first + lane]->waits_for & alive;
    if (meeting == 0) {
        return;
    }
    const auto each = [&](auto holds) {
        for (unsigned int other = 0; other < 32; ++other) {
            if (meeting >> other & 1 && !holds(*threads[first + other])) {
                return false;
            }
        }
        return true;
    };
    if (each([&](Thread& other) { return (other.waits_for & alive) == meeting; })) {
        each([](Thread& other) { return other.waits_for = 0, true; });
    }
}

static void end_thread() {
    current->done = true;
    current->block->alive[current->number / 32] &= ~(1u << lane());
    leave(current->block->all);
    for (unsigned int lane = 0, alive = lanes_alive(); lane < 32; ++lane) {
        if (alive >> lane & 1) {
            let_lanes_meet(lane);
        }
    }
    leave(whole_grid);
    if (!current->stores.empty()) {
        fail("a thread has ended before its bulk stores have read shared memory");
    }
    ++happened;
}

static void start_fiber() {
    for (;; switch_to_scheduler()) {
        body(body_arguments);
        end_thread();
    }
}

static std::shared_ptr<Copy> start_copy(std::function<void()> move) {
    auto copy = std::make_shared<Copy>(Copy{std::move(move)});
    if (toss()) {
        copy->finish();
    } else {
        current->block->under_way.push_back(copy);
    }
    return copy;
}

static void go_on_copying(Block& block) {
    for (auto& copy : std::exchange(block.under_way, {})) {
        if (toss()) {
            ++happened;
            copy->finish();
        } else if (!copy->done) {
            block.under_way.push_back(copy);
        }
    }
}

static Barrier& barrier_at(Block* block, const void* shared) {
    const auto found = block->barriers.find(shared);
    if (found == block->barriers.end()) {
        fail("a barrier that was not initialised");
    }
    return found->second;
}

static void count(Barrier& barrier, unsigned int arrivals, long long bytes) {
    if (arrivals > barrier.missing) {
        fail("more arrivals at a barrier than it expects");
    }
    ++happened;
    barrier.missing -= arrivals;
    barrier.bytes += bytes;
    if (barrier.missing == 0 && barrier.bytes == 0) {
        barrier.missing = barrier.expected;
        barrier.phase ^= 1;
    }
}

static void check_multiple(const void* address, std::size_t of) {
    if (reinterpret_cast<std::size_t>(address) % of != 0) {
        fail("a copy between addresses that are not aligned");
    }
}

// Sets `section` to the thread-local segment, of whichever library, that holds a variable, but for what lies around it.
static void find_section(unsigned char* variable) {
    const auto look = [](dl_phdr_info* library, std::size_t, void* variable) {
        auto* const start = static_cast<unsigned char*>(library->dlpi_tls_data);
        for (int i = 0; start != nullptr && i < library->dlpi_phnum; ++i) {
            const auto& segment = library->dlpi_phdr[i];
            if (segment.p_type == PT_TLS && variable >= start && variable < start + segment.p_memsz) {
                section[0] = start + BESIDE;
                section[1] = start + segment.p_memsz - BESIDE;
                return 1;
            }
        }
        return 0;
    };
    dl_iterate_phdr(look, variable);
}

// Copies what a block has of the section, without the room for dynamic shared memory that no launch has asked for.
static void exchange(unsigned char* to, const unsigned char* from) {
    const auto copy = [=](const unsigned char* first, const unsigned char* last) {
        std::memcpy(to + (first - section[0]), from + (first - section[0]), last - first);
    };
    copy(section[0], dynamic[1]);
    copy(dynamic[2], section[1]);
}

static void load(Block* block) {
    if (loaded == block) {
        return;
    }
    if (loaded != nullptr) {
        exchange(loaded->shared.data(), section[0]);
    }
    exchange(section[0], block->shared.data());
    loaded = block;
}

static unsigned char poison = 0xff;  // of shared memory that nothing has written: NaN in every type, so that it shows

static void begin_block(unsigned int number) {
    auto block = std::make_unique<Block>();
    const unsigned int threads = blockDim.x * blockDim.y * blockDim.z;
    block->number = number;
    block->shared.assign(section[1] - section[0], poison);
    block->set.resize(section[1] - section[0]);
    block->all.alive = static_cast<int>(threads);
    block->lanes.resize(threads);
    block->alive.assign((threads + 31) / 32, ~0u);
    if (threads % 32 != 0) {
        block->alive.back() = (1u << threads % 32) - 1;
    }
    for (unsigned int i = 0; i < threads; ++i) {
        auto thread = std::make_unique<Thread>();
        thread->block = block.get();
        thread->number = i;
        thread->index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        if (spare_fibers.empty()) {
            spare_fibers.push_back(std::make_unique<Fiber>());
        }
        thread->fiber = std::move(spare_fibers.back());
        spare_fibers.pop_back();
        block->threads.push_back(std::move(thread));
    }
    running.push_back(std::move(block));
}

static void end_block(std::size_t number) {
    Block& block = *running[number];
    for (auto& thread : block.threads) {
        spare_fibers.push_back(std::move(thread->fiber));
    }
    loaded = loaded == &block ? nullptr : loaded;
    running.erase(running.begin() + static_cast<long>(number));
}

static void go_on(Thread* thread) {
    if (_setjmp(scheduler) != 0) {
        return;
    }
    Fiber& fiber = *thread->fiber;
    if (fiber.started) {
        _longjmp(fiber.goes_on_at, 1);
    }
    fiber.started = true;
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = Fiber::STACK;
    context.uc_link = nullptr;
    makecontext(&context, start_fiber, 0);
    setcontext(&context);
}

// Fails where a thread waits at a barrier; if none does, where one asks again and again: if all threads have repeated
// themselves since the last time.
static void stand_still() {
    Access last{};
    bool all = all_watched, loops = false;
    all_watched = true;
    for (const auto& block : running) {
        for (const auto& thread : block->threads) {
            if (!thread->done && (last.line == 0 || thread->latest.at == 0)) {
                last = thread->latest;
                loops = thread->accesses > patience;
            }
            all = all && (thread->done || thread->repeats);
            thread->repeats = false;
        }
    }
    if (all) {
        last.array = NOWHERE;
        fail_at(loops ? "an endless loop: its rounds are all the same" : "a standstill: threads wait for what nobody does",
                last);
    }
}

static void run_blocks(std::vector<unsigned int> order, std::size_t resident) {
    std::vector<Thread*> turn;
    std::size_t next = 0;
    long long before = -1;
    for (std::size_t idle = 0; next < order.size() || !running.empty(); idle = before == happened ? idle + 1 : 0) {
        before = happened;
        if (idle > 1000 + 30 * running.size()) {
            stand_still();
            idle = 0;
        }
        while (running.size() < resident && next < order.size()) {
            begin_block(order[next++]);
        }
        // A block goes on for a while, its threads in any order; then perhaps another one.
        const std::size_t chosen = random_bits() % running.size();
        Block& block = *running[chosen];
        load(&block);
        blockIdx = {block.number % gridDim.x, block.number / gridDim.x % gridDim.y, block.number / gridDim.x / gridDim.y};
        turn.clear();
        for (auto& thread : block.threads) {
            turn.push_back(thread.get());
        }
        // One warp may be overtaken by all the others: a barrier of a warp is none of its block.
        const unsigned int held = random_bits() % (2 * block.alive.size());
        for (unsigned int round = 1 + random_bits() % 8; round > 0; --round) {
            turn.erase(std::remove_if(turn.begin(), turn.end(), [](Thread* t) { return t->done; }), turn.end());
            std::shuffle(turn.begin(), turn.end(), random_bits);
            for (Thread* thread : turn) {
                if (thread->number / 32 == held) continue;
                current = thread;
                threadIdx = thread->index;
                go_on(thread);
            }
            go_on_copying(block);
        }
        if (std::all_of(turn.begin(), turn.end(), [](Thread* thread) { return thread->done; })) {
            end_block(chosen);
        }
    }
}

}  // namespace emulator

// Runs a kernel; gives what was wrong, or a null pointer. `resident` blocks are there at once; the others start in the
// order of their numbers, or, with `shuffled`, in any. With `together` the grid may meet. `places`: a shared variable, and the room for dynamic shared memory.
extern "C" const char* launch(void (*kernel)(void**), void** arguments, unsigned char* const* places, const dim3* grid,
                              const dim3* block, unsigned int dynamic_bytes, unsigned int resident, int shuffled,
                              int together, unsigned int seed, unsigned int byte, emulator::Seen* seen) {
    using namespace emulator;
    random_bits.seed(seed);
    poison = static_cast<unsigned char>(byte);
    cooperative = together != 0;
    gridDim = *grid;
    blockDim = *block;
    const unsigned int blocks = grid->x * grid->y * grid->z;
    body = kernel;
    body_arguments = arguments;
    find_section(places[0]);
    dynamic[0] = dynamic[1] = dynamic[2] = section[1];
    if (places[1] != nullptr) {
        dynamic[0] = places[1];
        dynamic[1] = places[1] + std::min<std::size_t>(dynamic_bytes, DYNAMIC_ROOM);
        dynamic[2] = places[1] + DYNAMIC_ROOM;
    }
    Dl_info library{};
    dladdr(reinterpret_cast<void*>(kernel), &library);
    seen_here = seen;
    seen->base = reinterpret_cast<unsigned long>(library.dli_fbase);
    seen->section = reinterpret_cast<unsigned long>(section[0] - BESIDE);
    seen->dynamic = reinterpret_cast<unsigned long>(dynamic[0]);
    whole_grid = {static_cast<int>(blocks * block->x * block->y * block->z)};
    clusters.clear();
    fault = nullptr;
    patience = LONG;
    all_watched = false;
    std::vector<unsigned int> order(blocks);
    std::iota(order.begin(), order.end(), 0u);
    if (shuffled) {
        std::shuffle(order.begin(), order.end(), random_bits);
    }
    const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {}, earlier[4];
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO;
    for (int i = 0; i < 4; ++i) {
        sigaction(numbers[i], &action, &earlier[i]);
    }
    if (sigsetjmp(escape, 1) == 0) {
        run_blocks(order, resident);
    }
    for (int i = 0; i < 4; ++i) {
        sigaction(numbers[i], &earlier[i], nullptr);
    }
    running.clear();
    current = nullptr;
    atomic = false;
    spare_fibers.clear();
    loaded = nullptr;
    return fault;
}

static void waits_at(const void* line) {
    emulator::current->latest = {0, reinterpret_cast<unsigned long>(line), 0, emulator::NOWHERE, 0, 0};
}

void __syncthreads() {
    waits_at(__builtin_return_address(0));
    emulator::meet(emulator::current->block->all);
}
int __syncthreads_count(int holds) {
    using namespace emulator;
    waits_at(__builtin_return_address(0));
    current->holds = holds != 0;
    meet(current->block->all);
    int sum = 0;
    for (const auto& thread : current->block->threads) {
        sum += !thread->done && thread->holds;
    }
    meet(current->block->all);
    return sum;
}

// Lanes of a warp meet: all that have not ended, or those that the mask names.
void __syncwarp(unsigned int mask) {
    using namespace emulator;
    waits_at(__builtin_return_address(0));
    if (!(mask >> lane() & 1)) {
        fail("a lane that its own mask leaves out");
    }
    ++happened;
    current->waits_for = mask;
    let_lanes_meet(lane());
    while (current->waits_for != 0) {
        give_way();
    }
}

void __nanosleep(unsigned int) { emulator::give_way(); }

void emulator::begin_atomic() {
    give_way();
    ++happened;
    atomic = true;
}
void emulator::end_atomic(bool changed) {
    happened -= !changed;
    atomic = false;
    give_way();
}

unsigned int emulator::lanes_alive() { return current->block->alive[current->number / 32]; }
unsigned int emulator::lane() { return current->number % 32; }

unsigned char* emulator::dynamic_shared() { return dynamic[0]; }

void emulator::copy_async(void* shared, const void* global, unsigned int bytes, bool is) {
    check_multiple(shared, bytes);
    check_multiple(global, bytes);
    touch_copy(shared, is ? global : shared, bytes, __builtin_return_address(0));
    const auto move = [=] { is ? std::memcpy(shared, global, bytes) : std::memset(shared, 0, bytes); };
    // Every second one only when its thread waits for it: others would come in time however long that takes.
    current->copies.open.push_back(toss() ? start_copy(move) : std::make_shared<Copy>(Copy{move}));
}

void emulator::sync_group(int number, unsigned int threads) {
    Meeting& group = current->block->groups[number];
    group.alive = static_cast<int>(threads);
    meet(group);
}

void emulator::sync_grid() {
    if (!cooperative) stop("grid.sync() needs cooperative = true in the launch");
    waits_at(__builtin_return_address(0));
    meet(whole_grid);
}

void emulator::show(const void* mine, std::size_t bytes, unsigned int mask) {
    std::memcpy(current->block->lanes[current->number].bytes, mine, std::min(bytes, sizeof(Shown)));
    __syncwarp(mask);
}

bool emulator::shows(unsigned int lane, unsigned int mask) {
    const bool does = (lanes_alive() & mask) >> lane & 1;
    if (!does && seen_here->unset.line == 0) {
        seen_here->unset = {0, 1, 0, NOWHERE, 0, 0};
    }
    return does;
}
const void* emulator::seen(unsigned int lane) { return current->block->lanes[current->number / 32 * 32 + lane].bytes; }

void emulator::wait_copies(unsigned int newest) { current->copies.finish_all_but(newest); }
void emulator::wait_bulk_stores(unsigned int newest) { current->stores.finish_all_but(newest); }

namespace ptx {

using namespace emulator;

void commit_copies() { current->copies.commit(); }
void commit_bulk_stores() { current->stores.commit(); }

void init_barrier(const void* barrier, unsigned int arrivals) {
    current->block->barriers[barrier] = {arrivals, arrivals};
}

void expect_bytes(const void* barrier, unsigned int bytes) { count(barrier_at(current->block, barrier), 1, bytes); }

void wait_barrier(const void* barrier, unsigned int parity) {
    while (barrier_at(current->block, barrier).phase == parity) {
        give_way();
    }
}

static void check_bulk(const void* shared, const void* global, unsigned int bytes) {
    check_multiple(shared, 16);
    check_multiple(global, 16);
    if (bytes == 0 || bytes % 16 != 0) {
        fail("a bulk copy of no multiple of 16 bytes");
    }
}

void bulk_load(void* shared, const void* global, unsigned int bytes, const void* barrier, unsigned long long) {
    check_bulk(shared, global, bytes);
    touch_copy(shared, global, bytes, __builtin_return_address(0));
    Block* block = current->block;
    start_copy([=] {
        std::memcpy(shared, global, bytes);
        count(barrier_at(block, barrier), 0, -static_cast<long long>(bytes));
    });
}

void bulk_store(void* global, const void* shared, unsigned int bytes, unsigned long long) {
    check_bulk(shared, global, bytes);
    touch_copy(global, shared, bytes, __builtin_return_address(0));
    current->stores.open.push_back(start_copy([=] { std::memcpy(global, shared, bytes); }));
}

// Where another block has the variable at `place`.
static unsigned char* in_block(unsigned int number, const void* place, Block*& there) {
    const auto found =
        std::find_if(running.begin(), running.end(), [=](const auto& block) { return block->number == number; });
    const std::size_t offset = static_cast<const unsigned char*>(place) - section[0];
    if (found == running.end() || offset >= static_cast<std::size_t>(section[1] - section[0])) {
        fail("sent to a block that is not there, or beside its shared memory");
    }
    there = found->get();
    std::fill_n(there->set.begin() + offset, sizeof(float), 1);
    return (there == loaded ? section[0] : there->shared.data()) + offset;
}

void arrive_in_cluster_of(unsigned int blocks) {
    Meeting& own = clusters[blockIdx.x / blocks];
    if (own.alive == 0) {
        own.alive = static_cast<int>(blocks * blockDim.x);
    }
    current->arrived_in = own.generation;
    arrive(own);
}

void wait_in_cluster_of(unsigned int blocks) {
    while (clusters[blockIdx.x / blocks].generation == current->arrived_in) {
        give_way();
    }
}

void store_in_block(float* place, unsigned int number, float what, const void* barrier) {
    Block* to;
    std::memcpy(in_block(number, place, to), &what, sizeof(what));
    ++happened;
    if (barrier != nullptr) {
        count(barrier_at(to, barrier), 0, -static_cast<long long>(sizeof(what)));
    }
}

// The four matrices' rows, each by the lane that names it; `element` of a matrix's eight rows to a lane's word.
template <typename Element>
static void read_matrices(unsigned int (&words)[4], const void* row, Element element) {
    check_multiple(row, 16);
    show(&row, sizeof(row));
    using Row = const unsigned short*;
    for (int matrix = 0; matrix < 4; ++matrix) {
        Row rows[8];
        unsigned int eighths = 0;
        for (int i = 0; i < 8; ++i) {
            rows[i] = *static_cast<const Row*>(seen(matrix * 8 + i));
            eighths |= 1u << reinterpret_cast<std::size_t>(rows[i]) / 16 % 8;
        }
        if (eighths != 0xff) {
            fail("rows of a matrix that lie in the same banks");
        }
        words[matrix] = element(rows, 0) | static_cast<unsigned int>(element(rows, 1)) << 16;
    }
    __syncwarp();
}

void load_matrices(unsigned int (&words)[4], const void* row) {
    const int lane = static_cast<int>(emulator::lane());
    read_matrices(words, row, [lane](auto rows, int i) { return rows[lane / 4][lane % 4 * 2 + i]; });
}

void load_matrices_transposed(unsigned int (&words)[4], const void* row) {
    const int lane = static_cast<int>(emulator::lane());
    read_matrices(words, row, [lane](auto rows, int i) { return rows[lane % 4 * 2 + i][lane / 4]; });
}

struct Fragments {
    float a[8], b[4];
};

void multiply_16x8x16(float (&sums)[4], const float (&a)[8], const float (&b)[4]) {
    Fragments mine;
    std::copy(a, a + 8, mine.a);
    std::copy(b, b + 4, mine.b);
    show(&mine, sizeof(mine));
    const auto fragments = [](int lane) { return static_cast<const Fragments*>(seen(lane)); };
    const int lane = static_cast<int>(emulator::lane());
    for (int i = 0; i < 4; ++i) {
        for (int term = 0; term < 16; ++term) {
            // A lane has two neighbouring terms of the first eight, and two of the others.
            const int holder = term % 8 / 2, part = term % 2;
            const Fragments* row = fragments(lane / 4 * 4 + holder);
            const Fragments* column = fragments((lane % 4 * 2 + i % 2) * 4 + holder);
            sums[i] += row->a[term / 8 * 4 + i / 2 * 2 + part] * column->b[term / 8 * 2 + part];
        }
    }
    __syncwarp();
}

}  // namespace ptx

// What the compiler calls before an access.
#define EMULATOR_ACCESS(name, bytes, writes) \
    extern "C" void __tsan_##name(const void* at) { emulator::touch(at, bytes, writes, __builtin_return_address(0)); }
#define EMULATOR_ACCESSES(bytes)                           \
    EMULATOR_ACCESS(read##bytes, bytes, false)             \
    EMULATOR_ACCESS(write##bytes, bytes, true)             \
    EMULATOR_ACCESS(unaligned_read##bytes, bytes, false)   \
    EMULATOR_ACCESS(unaligned_write##bytes, bytes, true)
EMULATOR_ACCESSES(1)
EMULATOR_ACCESSES(2)
EMULATOR_ACCESSES(4)
EMULATOR_ACCESSES(8)
EMULATOR_ACCESSES(16)
extern "C" {
void __tsan_read_range(const void* at, unsigned long bytes) {
    emulator::touch(at, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(const void* at, unsigned long bytes) {
    emulator::touch(at, bytes, true, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(const void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
}
