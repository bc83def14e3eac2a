// SHA-256 (FIPS 180-4), by which damaged files are found.
#ifndef KERNEL_TUNE_SHA256_HPP
#define KERNEL_TUNE_SHA256_HPP

#include <cstddef>
#include <cstdint>
#include <string>

#include "version.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

class Sha256 {
public:
    // Return the digest of some bytes as 64 hexadecimal digits.
    static std::string of(const std::string& bytes) {
        Sha256 hash;
        const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
        std::size_t done = 0;
        for (; bytes.size() - done >= 64; done += 64) hash.block(data + done);
        unsigned char last[128] = {};
        const std::size_t rest = bytes.size() - done, length = rest < 56 ? 64 : 128;
        for (std::size_t i = 0; i < rest; ++i) last[i] = data[done + i];
        last[rest] = 0x80;
        const std::uint64_t bits = static_cast<std::uint64_t>(bytes.size()) * 8;
        for (std::size_t i = 0; i < 8; ++i) last[length - 1 - i] = static_cast<unsigned char>(bits >> (8 * i) & 0xff);
        for (std::size_t i = 0; i < length; i += 64) hash.block(last + i);
        std::string text;
        for (std::uint32_t word : hash.state_)
            for (int shift = 28; shift >= 0; shift -= 4) text.push_back("0123456789abcdef"[word >> shift & 15]);
        return text;
    }

private:
    static std::uint32_t turned(std::uint32_t x, int by) { return x >> by | x << (32 - by); }

    void block(const unsigned char* bytes) {
        static const std::uint32_t constants[64] = {
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
            0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
            0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
            0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
            0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
            0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
            0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
        std::uint32_t w[64];
        for (int i = 0; i < 16; ++i, bytes += 4)
            w[i] = std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
        for (int i = 16; i < 64; ++i)
            w[i] = (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10) + w[i - 7] +
                   (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 16];
        std::uint32_t s[8];
        for (int i = 0; i < 8; ++i) s[i] = state_[i];
        for (int i = 0; i < 64; ++i) {
            const std::uint32_t t1 = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) +
                                     ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
            const std::uint32_t t2 = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) +
                                     ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            for (int j = 7; j > 0; --j) s[j] = s[j - 1];
            s[4] += t1;
            s[0] = t1 + t2;
        }
        for (int i = 0; i < 8; ++i) state_[i] += s[i];
    }

    std::uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
