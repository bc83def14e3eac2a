// Interprets configurations of a manifest: a line of numbers for each, a line of text with its plan, or why it has none.
#include <kernel_tune/interpret.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace kernel_tune::detail;

static void print_numbers(const std::vector<std::int64_t>& numbers) {
    for (const std::int64_t number : numbers) std::printf(" %lld", static_cast<long long>(number));
}

static void print_triple(const char* what, const std::int64_t (&numbers)[3]) {
    std::printf(" %s", what);
    print_numbers({numbers[0], numbers[1], numbers[2]});
}

static void print_buffer(const char* what, const Concrete& plan, const BufferIndex& buffer) {
    if (buffer.scratch) std::printf(" %s scratch %zu", what, buffer.index);
    else std::printf(" %s %s", what, plan.tensors[buffer.index].name.c_str());
}

static void print_value(const ArgumentBytes& bytes) {
    std::printf(" value ");
    for (const unsigned char byte : bytes.bytes) std::printf("%02x", byte);
}

static void print_fields(const Concrete& plan, const Argument& argument) {
    std::vector<unsigned char> memory = argument.memory;
    for (const Field& field : argument.fields) {
        if (field.is_scalar) std::memcpy(&memory[field.offset], plan.scalars[field.scalar].value.bytes, field.bytes);
        if (field.is_stride) std::memcpy(&memory[field.offset], &plan.tensors[field.buffer.index].shape.back(), field.bytes);
    }
    std::printf(" fields ");
    for (const unsigned char byte : memory) std::printf("%02x", byte);
    for (const Field& field : argument.fields) {
        if (field.is_scalar || field.is_stride) continue;
        std::printf(" at %zu", field.offset);
        print_buffer("", plan, field.buffer);
    }
}

static void print_plan(const Concrete& plan) {
    for (const auto& tensor : plan.tensors) {
        if (!tensor.present) continue;
        std::printf(" tensor %s", tensor.name.c_str());
        print_numbers(tensor.shape);
    }
    for (const ScratchBuffer& buffer : plan.scratch) {
        if (!buffer.present) continue;
        std::printf(" memory %zu %zu %d %d", buffer.offset, buffer.bytes, buffer.zeroed, buffer.zeroed_once);
        print_numbers(buffer.shape);
    }
    std::printf(" workspace %zu %zu", plan.once_bytes, plan.workspace_bytes);
    for (const Launch& launch : plan.launches) {
        std::printf(" launch %s", launch.entry.c_str());
        print_triple("grid", launch.grid);
        print_triple("block", launch.block);
        print_triple("cluster", launch.cluster);
        std::printf(" shared");
        print_numbers({launch.shared_bytes, launch.carveout, launch.cooperative, launch.programmatic});
        for (const Filled& one : launch.constants) std::printf(" fills %s from %s %zu", one.symbol.c_str(), plan.tensors[one.tensor].name.c_str(), one.bytes);
        for (const Argument& argument : launch.arguments) {
            const MapShape& map = argument.map;
            switch (argument.kind) {
                case Argument::Kind::constant: print_value(argument.constant); break;
                case Argument::Kind::scalar: print_value(plan.scalars[argument.scalar].value); break;
                case Argument::Kind::buffer: print_buffer("buffer", plan, argument.buffer); break;
                case Argument::Kind::stride: print_buffer("stride", plan, argument.buffer); break;
                case Argument::Kind::fields: print_fields(plan, argument); break;
                case Argument::Kind::table: std::printf(" table"), print_numbers({argument.sharing}); break;
                case Argument::Kind::map:
                    print_buffer("map", plan, argument.buffer);
                    std::printf(" %s", map.dtype.c_str());
                    print_numbers({map.rows, map.columns, map.box_rows, map.box_columns, map.swizzle, map.promotion});
                    break;
            }
        }
    }
    std::printf("\n");
}

int main(int, char** arguments) {
    std::ifstream file{arguments[1]};
    std::stringstream text;
    text << file.rdbuf();
    Manifest manifest;
    const auto status = ManifestReader::read(text.str(), manifest);
    if (!status.ok()) return std::printf("%s\n", status.message().c_str()), 1;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream numbers{line};
        std::size_t configuration = 0;
        bool apart = false;
        numbers >> configuration >> apart;
        std::vector<std::int64_t> values;
        for (std::int64_t value = 0; numbers >> value;) values.push_back(value);
        Concrete plan;
        const std::string reason = Interpreter::run(manifest, manifest.configurations[configuration], values, plan, apart);
        if (reason.empty()) print_plan(plan);
        else std::printf("invalid: %s\n", reason.c_str());
    }
    return 0;
}
