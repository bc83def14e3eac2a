// Copies to shared memory that go on by themselves, each in as many bytes as it has.
#pragma once

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0) {
    if (bytes > zeros) emulator::copy_async(to, from, bytes - zeros, true);
    if (zeros) emulator::copy_async(static_cast<char*>(to) + bytes - zeros, from, zeros, false);
}
inline void __pipeline_commit() { ptx::commit_copies(); }
inline void __pipeline_wait_prior(std::size_t newest) { emulator::wait_copies(newest); }
