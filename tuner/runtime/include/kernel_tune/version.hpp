// The version of these headers, and of the bundles that they read.
//
// Each version has an inline namespace of its own, so that parts of a program that were compiled with different versions
// do not mix. Within one source file the first version that is included serves all bundles: it reads older ones, and
// refuses newer ones in a clear line.
#ifndef KERNEL_TUNE_VERSION_HPP
#define KERNEL_TUNE_VERSION_HPP

#if !defined(__linux__)
#error "kernel_tune is for Linux"
#endif

#define KERNEL_TUNE_NAMESPACE v0_1_0

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {

constexpr int kFormatVersion = 2;

}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
