// The fake driver's GPUs: FAKE_CUDA_DEVICES="NVIDIA H200:90:132:52428800,NVIDIA L4:89:58" (name, compute capability times
// ten, SMs, bytes of L2). Without it, one H200.
#pragma once

#include <cuda.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace fake {

struct Device {
    std::string name;
    std::map<int, int> attributes;

    int operator[](int attribute) const {
        const auto found = attributes.find(attribute);
        return found == attributes.end() ? 0 : found->second;
    }
};

inline Device device_of(const std::string& text) {
    std::istringstream parts{text};
    std::string name, cc_text, sm_text, l2_text;
    std::getline(parts, name, ':');
    std::getline(parts, cc_text, ':');
    std::getline(parts, sm_text, ':');
    std::getline(parts, l2_text, ':');
    const int cc = cc_text.empty() ? 90 : std::atoi(cc_text.c_str());
    const bool large = cc >= 90 && cc < 120;
    Device device{name, {}};
    auto& of = device.attributes;
    of[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = cc / 10;
    of[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = cc % 10;
    of[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = sm_text.empty() ? 132 : std::atoi(sm_text.c_str());
    of[CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] = l2_text.empty() ? 52428800 : std::atoi(l2_text.c_str());
    of[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    of[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = of[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = 1024;
    of[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = 64;
    of[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = 2147483647;
    of[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = of[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535;
    of[CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32;
    of[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = 49152;
    of[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = of[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = 65536;
    of[CU_DEVICE_ATTRIBUTE_CLOCK_RATE] = 1980000;
    of[CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = 3201000;
    of[CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] = 6144;
    of[CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK] = cc == 75 ? 0 : 1024;
    of[CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH] = of[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1;
    of[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] = of[CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED] = cc >= 90;
    // NVIDIA's table of technical specifications for each compute capability.
    const int per_sm = cc == 75 ? 65536 : cc == 80 || cc == 87 ? 167936 : large ? 233472 : 102400;
    of[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] = per_sm;
    of[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] = cc == 75 ? per_sm : per_sm - 1024;
    of[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = cc == 75 ? 1024 : cc == 80 || large ? 2048 : 1536;
    of[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] = cc == 80 || large ? 32 : cc == 89 || cc >= 120 ? 24 : 16;
    return device;
}

inline const std::vector<Device>& devices() {
    static const std::vector<Device> all = [] {
        const char* text = std::getenv("FAKE_CUDA_DEVICES");
        std::istringstream parts{text ? text : "NVIDIA H200:90:132:52428800"};
        std::vector<Device> found;
        for (std::string part; std::getline(parts, part, ',');) found.push_back(device_of(part));
        return found;
    }();
    return all;
}

}  // namespace fake
