// What a call returns: a code, and one line that says what is wrong and what to do about it. Nothing here throws.
#ifndef KERNEL_TUNE_STATUS_HPP
#define KERNEL_TUNE_STATUS_HPP

#include <string>
#include <utility>

#include "version.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {

enum class Code {
    ok,
    invalid_argument,  // a null or misaligned pointer, an overlap, a name that does not exist, a workspace too small
    damaged,           // the bundle's files are not what was written
    newer,             // the bundle was written for newer headers
    old_driver,        // no driver, or one that is too old for the bundle
    wrong_gpu,         // the bundle has nothing for this compute capability, or the context is of another GPU
    no_configuration,  // none is valid for the problem, or the policy excludes those that are
    not_prepared,      // run() before prepare() with this workspace in this context
    driver_error       // the driver refused a call
};

#ifdef __CUDACC__  // in a .cu file nvcc warns of every assignment to a class that is nodiscard
#define KERNEL_TUNE_NODISCARD
#else
#define KERNEL_TUNE_NODISCARD [[nodiscard]]
#endif

class KERNEL_TUNE_NODISCARD Status {
public:
    Status() = default;
    Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

    bool ok() const { return code_ == Code::ok; }
    explicit operator bool() const { return ok(); }
    Code code() const { return code_; }
    const std::string& message() const { return message_; }  // empty if all is well

private:
    Code code_ = Code::ok;
    std::string message_;
};
#undef KERNEL_TUNE_NODISCARD

}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
