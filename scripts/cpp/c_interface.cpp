// The launcher behind functions of C, for programs that load it with ctypes:
//     g++ -std=c++17 -O2 -shared -fPIC -I BUNDLE/include -I CUDA/include -o launcher.so c_interface.cpp -ldl
// Each function returns 0, or the number of a kernel_tune::Code; `message` gets its text (of at most `room` bytes).
#include <kernel_tune/launcher.hpp>

#include <cstdio>
#include <sstream>

namespace {

int answer(const kernel_tune::Status& status, char* message, std::size_t room) {
    if (room) std::snprintf(message, room, "%s", status.message().c_str());
    return static_cast<int>(status.code());
}

// Lines such as "m=4096".
std::vector<std::pair<std::string, std::string>> pairs(const char* text) {
    std::istringstream lines{text};
    std::vector<std::pair<std::string, std::string>> found;
    for (std::string word; std::getline(lines, word);) {
        const std::size_t equals = std::min(word.find('='), word.size());
        found.emplace_back(word.substr(0, equals), equals < word.size() ? word.substr(equals + 1) : "");
    }
    return found;
}

}  // namespace

extern "C" {

int kt_open(const char* folder, void** bundle, char* message, std::size_t room) {
    auto* opened = new kernel_tune::Bundle;
    *bundle = opened;
    return answer(kernel_tune::Bundle::open(folder, *opened), message, room);
}

// Sizes, dtypes and options are lines such as "m=4096"; the policy is the number of a kernel_tune::Policy; apart is 0 or 1.
int kt_plan(const void* bundle, const char* sizes, const char* dtypes, const char* options, int device, int policy, int apart, void** plan,
            char* message, std::size_t room) {
    kernel_tune::Problem problem{{}, pairs(dtypes), pairs(options), apart != 0};
    for (const auto& [name, value] : pairs(sizes)) problem.sizes.emplace_back(name, std::strtoll(value.c_str(), nullptr, 10));
    auto* made = new kernel_tune::Plan;
    *plan = made;
    return answer(static_cast<const kernel_tune::Bundle*>(bundle)->plan(problem, device, static_cast<kernel_tune::Policy>(policy), *made),
                  message, room);
}

std::size_t kt_workspace_bytes(const void* plan) { return static_cast<const kernel_tune::Plan*>(plan)->workspace_bytes(); }
double kt_expected_slowdown(const void* plan) { return static_cast<const kernel_tune::Plan*>(plan)->expected_slowdown(); }
int kt_match(const void* plan) { return static_cast<int>(static_cast<const kernel_tune::Plan*>(plan)->match()); }

// A line for the plan, and one for each tensor: name, role, dtype, whether it is present, bytes, and its shape in memory.
void kt_describe(const void* of, char* text, std::size_t room) {
    const auto& plan = *static_cast<const kernel_tune::Plan*>(of);
    std::ostringstream lines;
    lines << plan.configuration() << " | " << plan.reason() << "\n";
    for (const auto& tensor : plan.tensors()) {
        lines << tensor.name << " " << tensor.role << " " << tensor.dtype << " " << tensor.present << " " << tensor.bytes;
        for (const auto side : tensor.shape) lines << " " << side;
        lines << "\n";
    }
    std::snprintf(text, room, "%s", lines.str().c_str());
}

int kt_prepare(const void* plan, unsigned long long workspace, std::size_t bytes, void* stream, char* message, std::size_t room) {
    return answer(static_cast<const kernel_tune::Plan*>(plan)->prepare({static_cast<CUdeviceptr>(workspace), bytes}, static_cast<CUstream>(stream)),
                  message, room);
}

// An address for each tensor of the plan, in its order.
int kt_run(const void* plan, const CUdeviceptr* addresses, std::size_t count, unsigned long long workspace, std::size_t bytes, void* stream,
           char* message, std::size_t room) {
    return answer(static_cast<const kernel_tune::Plan*>(plan)->run(addresses, count, {static_cast<CUdeviceptr>(workspace), bytes}, static_cast<CUstream>(stream)),
                  message, room);
}

int kt_run_apart(const void* plan, const CUdeviceptr* addresses, const std::size_t* row_strides, std::size_t count, unsigned long long workspace,
                 std::size_t bytes, void* stream, char* message, std::size_t room) {
    return answer(static_cast<const kernel_tune::Plan*>(plan)->run(addresses, count, {static_cast<CUdeviceptr>(workspace), bytes},
                                                                   static_cast<CUstream>(stream), nullptr, 0, row_strides),
                  message, room);
}

void kt_close_plan(void* plan) { delete static_cast<kernel_tune::Plan*>(plan); }
void kt_close(void* bundle) { delete static_cast<kernel_tune::Bundle*>(bundle); }

}  // extern "C"
