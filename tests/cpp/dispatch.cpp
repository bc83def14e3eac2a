// Chooses configurations as a program would: a manifest, a GPU's name, and its limits with sizes behind them, a line for each
// problem of computation 0. Prints configuration, match and expected slowdown of each, or the error.
#include <kernel_tune/dispatch.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace kernel_tune;

int main(int, char** arguments) {
    std::ifstream file(arguments[1]);
    std::stringstream text;
    text << file.rdbuf();
    detail::Manifest manifest;
    const Status read = detail::ManifestReader::read(text.str(), manifest);
    if (!read.ok()) return std::puts(read.message().c_str()), 1;
    const auto policy = static_cast<Policy>(std::atoi(arguments[3]));
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream numbers(line);
        detail::Gpu gpu{arguments[2], std::vector<std::int64_t>(detail::kLimits)};
        for (std::int64_t& limit : gpu.limits) numbers >> limit;
        Problem problem;
        for (const std::string& size : manifest.sizes) {
            std::int64_t value = 0;
            numbers >> value;
            problem.sizes.emplace_back(size, value);
        }
        for (const auto& one : manifest.computations[0].dtypes) problem.dtypes.push_back(one);
        for (const auto& one : manifest.computations[0].options) problem.options.push_back(one);
        detail::Choice choice;
        const Status status = detail::Dispatcher(manifest, gpu).choose(problem, policy, choice);
        if (status.ok()) std::printf("%zu %d %.17g\n", choice.configuration, static_cast<int>(choice.match), choice.slowdown);
        else std::printf("%d %s\n", static_cast<int>(status.code()), status.message().c_str());
    }
    return 0;
}
