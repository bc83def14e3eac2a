// Reads manifests from standard input, each after a line with its bytes; prints 0 for each that is one, or else why not.
#include <kernel_tune/manifest.hpp>

#include <cstdio>
#include <iostream>

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        std::string text(std::stoul(line), '\0');
        std::cin.read(&text[0], static_cast<std::streamsize>(text.size()));
        kernel_tune::detail::Manifest manifest;
        const kernel_tune::Status status = kernel_tune::detail::ManifestReader::read(text, manifest);
        std::printf("%d %s\n", static_cast<int>(status.code()), status.message().c_str());
    }
    return 0;
}
