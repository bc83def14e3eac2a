// cuda.hpp has assert, which ends a run and not the process.
