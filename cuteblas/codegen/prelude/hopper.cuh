// cuteblas prelude, Hopper: mbarriers, the tensor memory accelerator, warpgroup matrix instructions (sm_90a).
namespace cb {

struct alignas(64) TensorMap { unsigned long long opaque[16]; };

// -- mbarriers (PTX ISA, "mbarrier") ------------------------------------------------------------------------------------------
CB_DEVICE void mbarrier_init(unsigned long long* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
CB_DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory"); }
CB_DEVICE void mbarrier_arrive(unsigned long long* bar) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
CB_DEVICE void mbarrier_arrive_expect_tx(unsigned long long* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
CB_DEVICE void mbarrier_wait(unsigned long long* bar, int parity) {
  asm volatile("{\n.reg .pred done;\n"
               "again:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(shared_address(bar)), "r"(parity) : "memory");
}
// -- Clusters (PTX ISA, "barrier.cluster", "mapa"); a rank is that of a block in its cluster --------------------------------------
// All of this is relaxed: it tells of initialised mbarriers (mbarrier_init_fence) and finished asynchronous operations, and makes no ordinary
// write visible. A release at the scope of a cluster (cluster_sync_ordered) waits for all writes of the thread, those to device memory included.
CB_DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory"); }
CB_DEVICE void cluster_sync_ordered() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
CB_DEVICE void mbarrier_arrive_at(unsigned long long* bar, int rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(bar)), "r"(rank) : "memory");
}
// A word to the same place in the block of that rank, completing on the same mbarrier there (PTX ISA, "st.async"). Whoever waits for that
// sees the word: no write before it has to be finished, as a release at the scope of the cluster would ask for.
template <class T> CB_DEVICE void store_async(T* s, T value, int rank, unsigned long long* bar) {
  static_assert(sizeof(T) == 4, "a word");
  asm volatile("{\n.reg .b32 there, done;\nmapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 done, %3, %2;\n"
               "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [done];\n}" ::"r"(shared_address(s)),
               "r"(*reinterpret_cast<unsigned const*>(&value)), "r"(rank), "r"(shared_address(bar)) : "memory");
}

CB_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// -- Tensor memory accelerator (PTX ISA, "cp.async.bulk.tensor"); coordinates innermost first -----------------------------------
CB_DEVICE void tma_prefetch(TensorMap const* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

#define CB_TMA_LOAD(rank, coords) \
  "cp.async.bulk.tensor." rank ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" coords "}], [%2];"
#define CB_TMA_MULTICAST(rank, coords) \
  "cp.async.bulk.tensor." rank ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {" coords "}], [%2], %3;"
#define CB_TMA_STORE(rank, coords) "cp.async.bulk.tensor." rank ".global.shared::cta.tile.bulk_group [%0, {" coords "}], [%1];"

template <class T> CB_DEVICE void tma_load(T* s, TensorMap const* map, unsigned long long* bar, int c0) {
  asm volatile(CB_TMA_LOAD("1d", "%3") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)), "r"(c0) : "memory");
}
template <class T> CB_DEVICE void tma_load(T* s, TensorMap const* map, unsigned long long* bar, int c0, int c1) {
  asm volatile(CB_TMA_LOAD("2d", "%3, %4") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1) : "memory");
}
template <class T> CB_DEVICE void tma_load(T* s, TensorMap const* map, unsigned long long* bar, int c0, int c1, int c2) {
  asm volatile(CB_TMA_LOAD("3d", "%3, %4, %5") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
template <class T> CB_DEVICE void tma_load(T* s, TensorMap const* map, unsigned long long* bar, int c0, int c1, int c2, int c3) {
  asm volatile(CB_TMA_LOAD("4d", "%3, %4, %5, %6") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
template <class T> CB_DEVICE void tma_load(T* s, TensorMap const* map, unsigned long long* bar, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(CB_TMA_LOAD("5d", "%3, %4, %5, %6, %7") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1), "r"(c2),
               "r"(c3), "r"(c4) : "memory");
}
// To the same place in every block whose rank is in the mask; completes on the same barrier of each.
template <class T> CB_DEVICE void tma_load_multicast(T* s, TensorMap const* map, unsigned long long* bar, int mask, int c0, int c1) {
  asm volatile(CB_TMA_MULTICAST("2d", "%4, %5") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)),
               "h"(static_cast<unsigned short>(mask)), "r"(c0), "r"(c1) : "memory");
}
template <class T> CB_DEVICE void tma_load_multicast(T* s, TensorMap const* map, unsigned long long* bar, int mask, int c0, int c1, int c2) {
  asm volatile(CB_TMA_MULTICAST("3d", "%4, %5, %6") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)),
               "h"(static_cast<unsigned short>(mask)), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
template <class T>
CB_DEVICE void tma_load_multicast(T* s, TensorMap const* map, unsigned long long* bar, int mask, int c0, int c1, int c2, int c3) {
  asm volatile(CB_TMA_MULTICAST("4d", "%4, %5, %6, %7") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)),
               "h"(static_cast<unsigned short>(mask)), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
template <class T>
CB_DEVICE void tma_load_multicast(T* s, TensorMap const* map, unsigned long long* bar, int mask, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(CB_TMA_MULTICAST("5d", "%4, %5, %6, %7, %8") ::"r"(shared_address(s)), "l"(map), "r"(shared_address(bar)),
               "h"(static_cast<unsigned short>(mask)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
template <class T> CB_DEVICE void tma_store(TensorMap const* map, T const* s, int c0) {
  asm volatile(CB_TMA_STORE("1d", "%2") ::"l"(map), "r"(shared_address(s)), "r"(c0) : "memory");
}
template <class T> CB_DEVICE void tma_store(TensorMap const* map, T const* s, int c0, int c1) {
  asm volatile(CB_TMA_STORE("2d", "%2, %3") ::"l"(map), "r"(shared_address(s)), "r"(c0), "r"(c1) : "memory");
}
template <class T> CB_DEVICE void tma_store(TensorMap const* map, T const* s, int c0, int c1, int c2) {
  asm volatile(CB_TMA_STORE("3d", "%2, %3, %4") ::"l"(map), "r"(shared_address(s)), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
template <class T> CB_DEVICE void tma_store(TensorMap const* map, T const* s, int c0, int c1, int c2, int c3) {
  asm volatile(CB_TMA_STORE("4d", "%2, %3, %4, %5") ::"l"(map), "r"(shared_address(s)), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
template <class T> CB_DEVICE void tma_store(TensorMap const* map, T const* s, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(CB_TMA_STORE("5d", "%2, %3, %4, %5, %6") ::"l"(map), "r"(shared_address(s)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
CB_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> CB_DEVICE void tma_store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> CB_DEVICE void tma_store_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }

// -- Warpgroup matrix instructions ---------------------------------------------------------------------------------------------
// Matrix descriptor (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"): addresses and offsets in units of 16 bytes.
CB_DEVICE unsigned long long wgmma_descriptor(void const* s, int leading_bytes, int stride_bytes, int swizzle) {
  unsigned long long const mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
  return static_cast<unsigned long long>((shared_address(s) & 0x3ffff) >> 4) | static_cast<unsigned long long>((leading_bytes & 0x3ffff) >> 4) << 16 |
         static_cast<unsigned long long>((stride_bytes & 0x3ffff) >> 4) << 32 | mode << 62;
}
CB_DEVICE unsigned long long wgmma_descriptor_advance(unsigned long long desc, int bytes) { return desc + (bytes >> 4); }
CB_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
CB_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> CB_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N, class In, int MajorA, int MajorB>
CB_DEVICE void wgmma_m64k16(float (&d)[N / 2], unsigned long long a, unsigned long long b, int accumulate);
template <int N> CB_DEVICE void wgmma_m64k8_tf32(float (&d)[N / 2], unsigned long long a, unsigned long long b, int accumulate);
template <int N, class A, class B> CB_DEVICE void wgmma_m64k32(int (&d)[N / 2], unsigned long long a, unsigned long long b, int accumulate);
template <int N, class In, int MajorB>
CB_DEVICE void wgmma_m64k16_rs(float (&d)[N / 2], unsigned const (&a)[4], unsigned long long b, int accumulate);

template <int R> CB_DEVICE void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> CB_DEVICE void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }

}  // namespace cb
