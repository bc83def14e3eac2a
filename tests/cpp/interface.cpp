// The launcher's C interface, and two programs as functions of the same library: the headers are compiled once.
#include <kernel_tune/launcher.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace threads {
#include "threads.cpp"
}
namespace measure {
#include "../../scripts/cpp/measure.cpp"
}

#include "../../scripts/cpp/c_interface.cpp"

extern "C" int run_program(const char* name, int count, char** arguments) {
    const int status = std::string(name) == "threads" ? threads::main(count, arguments) : measure::main(count, arguments);
    std::fflush(nullptr);
    return status;
}
