// What a launch may check against a cubin: its kernels' parameters, most threads and static shared memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace fake {

struct Entry {
    std::vector<std::pair<std::size_t, std::size_t>> parameters;  // (offset, bytes), in order
    bool parameters_known = false;
    int max_threads = 1024;
    int static_shared = 0;
};

template <typename T>
T read(const char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
}

// Records of a kernel's .nv.info section: a format, an attribute, and a value of 16 bits or, in format 4, of so many bytes.
inline void read_info(const char* info, std::size_t size, Entry& entry) {
    constexpr int kParameter = 0x17, kMaxThreads = 0x05;
    std::map<int, std::pair<std::size_t, std::size_t>> parameters;
    entry.parameters_known = true;
    for (std::size_t i = 0; i + 4 <= size;) {
        const int format = info[i];
        const int attribute = static_cast<unsigned char>(info[i + 1]);
        const std::size_t length = format == 4 ? read<std::uint16_t>(info + i + 2) : 0;
        const char* value = info + i + 4;
        if (attribute == kParameter && length == 12)
            parameters[read<std::uint16_t>(value + 4)] = {read<std::uint16_t>(value + 6), read<std::uint32_t>(value + 8) >> 18};
        if (attribute == kMaxThreads && length == 12)
            entry.max_threads = static_cast<int>(read<std::uint32_t>(value) * read<std::uint32_t>(value + 4) * read<std::uint32_t>(value + 8));
        i += 4 + length;
    }
    for (const auto& item : parameters) entry.parameters.push_back(item.second);
}

// The kernels of a cubin; of a text that begins with "fake cubin", a line each: a name and its parameters' bytes.
// Other bytes have every kernel, with parameters that are not known.
inline std::map<std::string, Entry> entries_of(const char* image) {
    std::map<std::string, Entry> entries;
    if (std::strncmp(image, "fake cubin", 10) == 0) {
        std::istringstream lines{std::string(image)};
        std::string line, name;
        std::getline(lines, line);
        while (std::getline(lines, line)) {
            std::istringstream words{line};
            if (!(words >> name)) continue;
            Entry& entry = entries[name];
            entry.parameters_known = true;
            for (std::size_t bytes = 0, offset = 0; words >> bytes; offset += bytes) {
                const std::size_t alignment = bytes >= 128 ? (bytes == 128 ? 64 : 1) : bytes;
                offset = (offset + alignment - 1) / alignment * alignment;
                entry.parameters.push_back({offset, bytes});
            }
        }
        return entries;
    }
    if (std::strncmp(image, "\177ELF", 4) != 0) return entries;
    bool reserves = false;  // 1024 bytes of each block for the system, which its size counts, from sm_90 on
    const char* headers = image + read<std::uint64_t>(image + 0x28);
    const int count = read<std::uint16_t>(image + 0x3c), names_index = read<std::uint16_t>(image + 0x3e);
    const auto section = [&](int i) { return headers + 64 * i; };
    const char* names = image + read<std::uint64_t>(section(names_index) + 24);
    for (int i = 0; i < count; ++i) {
        const std::string name = names + read<std::uint32_t>(section(i));
        const char* data = image + read<std::uint64_t>(section(i) + 24);
        const std::size_t size = read<std::uint64_t>(section(i) + 32);
        if (name.rfind(".nv.info.", 0) == 0) read_info(data, size, entries[name.substr(9)]);
        if (name.rfind(".nv.shared.", 0) == 0 && name.rfind(".nv.shared.reserved", 0) != 0)
            entries[name.substr(11)].static_shared = static_cast<int>(size);
        reserves |= name.rfind(".nv.shared.reserved", 0) == 0;
    }
    if (reserves)
        for (auto& [name, entry] : entries) entry.static_shared = std::max(0, entry.static_shared - 1024);
    return entries;
}

}  // namespace fake
