// The tests' programs that run with sanitizers, as one: the headers take g++ longer than all of them do.
#include <kernel_tune/launcher.hpp>

#include <sys/stat.h>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

namespace damaged {
#include "damaged.cpp"
}
namespace dispatch {
#include "dispatch.cpp"
}
namespace expressions {
#include "expressions.cpp"
}
namespace manifests {
#include "manifests.cpp"
}
namespace plans {
#include "plans.cpp"
}

// The first argument is the program's name.
int main(int count, char** arguments) {
    const std::string name = arguments[1];
    if (name == "damaged") return damaged::main(count - 1, arguments + 1);
    if (name == "dispatch") return dispatch::main(count - 1, arguments + 1);
    if (name == "expressions") return expressions::main(count - 1, arguments + 1);
    if (name == "manifests") return manifests::main();
    if (name == "plans") return plans::main(count - 1, arguments + 1);
    return 99;
}
