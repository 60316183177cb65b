#pragma once
#include "mbarrier.h"
namespace cb::emulator {
inline void tma_load(void*, TensorMap const*, unsigned long long*, int, int const*, int) {}
inline void tma_store(TensorMap const*, void const*, int, int const*, int) {}
inline void tma_store_commit() {}
inline void tma_store_wait(int, bool, int) {}
inline bool complete_tma_loads() { return false; }
inline void expect_loads_waited() {}
inline void start_block_tma() {}
}
