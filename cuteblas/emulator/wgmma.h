#pragma once
#include "mbarrier.h"
namespace cb::emulator {
inline unsigned long long wgmma_descriptor(void const*, int, int, int, int) { return 0; }
inline void wgmma(WgmmaRequest const*) {}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
inline void wgmma_wait(int, int) {}
inline void expect_wgmmas_waited() {}
inline void start_block_wgmma() {}
}
