// What a compiled kernel and the emulator's runtime know of each other: plain types and a table of functions.
// No standard header is included, so that kernels compile quickly.
#pragma once

namespace cb {

// 128 opaque bytes, as on the device; the emulator's own encoding is TensorMapContent below.
struct alignas(64) TensorMap {
    unsigned char content[128];
};

}  // namespace cb

namespace cb::emulator {

struct Extent3 {
    unsigned x, y, z;
};

// The kernel's view of where it runs; the runtime writes it before it resumes a thread.
struct Coordinates {
    Extent3* thread;
    Extent3* block;
    Extent3* block_extent;
    Extent3* grid;
};

// Pointers that a kernel sees are not host addresses: every pointer argument gets a window of its own, told by the bits above 44,
// and shared memory is the first window. So an access cannot stray from one argument into another, and running past an end is
// always noticed. The low 12 bits are those of the host address, so alignments agree.
constexpr int window_bits = 44;
constexpr unsigned long long shared_window = 1ull << window_bits;
constexpr unsigned first_argument_window = 2;

// This bit marks pointers to the aligned words that cover rows of shorter elements: such words have bytes that are not the reader's.
constexpr unsigned long long covering = 1ull << 62;

// The shared memory of a block starts 1024 bytes into the shared window: the first bytes belong to the system, as on the device.
constexpr unsigned shared_start = 1024;

// Accumulators hold this quiet NaN from the issue of a wgmma to the wait for it.
constexpr unsigned in_flight_pattern = 0x7fe5a5a5u;

// Registers hold this from their declaration until they are set: in each half and in each word a quiet NaN, of 2, 4 and 8 bytes, whose
// halves differ; so no likely number is mistaken for it. Arithmetic on floating types keeps it but for the sign.
constexpr unsigned unset_pattern = 0x7ffdfffbu;

enum class WgmmaInput : int { half, bfloat16, tfloat32, bytes };

struct WgmmaRequest {
    float* accumulators;  // of bytes, int32 in the same place
    int columns;
    WgmmaInput input;
    int major_a, major_b;
    unsigned long long descriptor_a, descriptor_b;
    unsigned const* registers_a;  // 4 words of this thread, in place of a descriptor
    int accumulate;
    int line;
    bool signed_a, signed_b;  // of bytes
};

enum class MmaInput : int { half, bfloat16, int8, uint8, float64 };

// mma.sync: D (m x n) += A (m x k) B (n x k)^T; the registers of one lane.
struct MmaRequest {
    int m, n, k;
    MmaInput input;
    void* d;
    void const* a;
    void const* b;
    int line;
};

// What the compiler's own checks of a kernel find; `file` is the kernel's name, or a header.
enum class Undefined : int { index, access, division, shift };

// The functions a kernel calls. `line` is the line of the kernel's source that makes the call.
struct Runtime {
    void (*load_global)(void* to, void const* from, int bytes, int line);
    void (*store_global)(void* to, void const* from, int bytes, int line);
    void (*load_shared)(void* to, void const* from, int bytes, int line);
    void (*load_covering)(void* to, void const* from, int bytes, int line);
    void (*store_shared)(void* to, void const* from, int bytes, int line);
    void (*inactive)(bool shared, bool write, int bytes, int line);
    unsigned (*load_flag)(unsigned const* from, int line);
    void (*store_flag)(unsigned* to, unsigned value, int line);

    void (*ldmatrix)(unsigned* to, void const* from, bool transposed, int line);
    void (*mma)(MmaRequest const* request);
    unsigned (*exchange)(unsigned value, int mask, int line);  // with the lane that differs in the mask's bits

    void (*cp_async)(void* to, void const* from, int bytes, bool fetch, int line);
    void (*cp_async_part)(void* to, void const* from, int bytes, int fetched, int line);
    void (*cp_async_commit)();
    void (*cp_async_wait)(int pending);

    void (*syncthreads)(int line);
    bool (*syncthreads_or)(bool vote, int line);
    void (*syncwarp)(int line);
    void (*named_barrier)(int id, int threads, bool wait, int line);
    void (*cluster_sync)(bool orders, int line);

    void (*mbarrier_init)(unsigned long long* barrier, int count, int line);
    void (*mbarrier_arrive)(unsigned long long* barrier, int expected_bytes, int line);
    void (*mbarrier_arrive_at)(unsigned long long* barrier, int rank, int line);
    void (*mbarrier_wait)(unsigned long long* barrier, int parity, int line);
    void (*fence_proxy_async)();
    void (*store_async)(void* to, unsigned value, int rank, unsigned long long* barrier, int line);

    void (*tma_load)(void* to, TensorMap const* map, unsigned long long* barrier, int rank, int const* coordinates, int line);
    void (*tma_load_multicast)(void* to, TensorMap const* map, unsigned long long* barrier, int mask, int rank,
                               int const* coordinates, int line);
    void (*tma_store)(TensorMap const* map, void const* from, int rank, int const* coordinates, int line);
    void (*tma_store_commit)();
    void (*tma_store_wait)(int pending, bool written);

    unsigned long long (*wgmma_descriptor)(void const* start, int leading_bytes, int stride_bytes, int swizzle, int line);
    void (*wgmma)(WgmmaRequest const* request);
    void (*wgmma_fence)();
    void (*wgmma_commit)();
    void (*wgmma_wait)(int pending, int line);
    void (*accumulator_in_flight)(int line);
    void (*register_unset)(int line);
    void (*past_registers)(int bytes, int line);
    void (*undefined)(Undefined kind, char const* file, int line, int index, char const* type);
};

// How Python encodes a TensorMapSpec and its memory into a TensorMap.
struct TensorMapContent {
    unsigned argument;  // index of the window
    unsigned short itemsize;
    unsigned char rank;
    unsigned char swizzle;  // span in bytes
    long long origin;       // host address of element (0, ..., 0)
    unsigned long long shape[5];
    unsigned long long strides[4];  // bytes, of modes 1 ...
    unsigned short box[5];
    unsigned char rounds;  // float to 10 bits of the fraction, as it comes into shared memory
};
static_assert(sizeof(TensorMapContent) <= sizeof(TensorMap), "a tensor map holds its content");

// Memory that one pointer argument may touch.
struct Window {
    char const* name;
    unsigned long long address;    // host address that the kernel receives, translated
    unsigned long long low, high;  // host addresses of the first byte and past the last
    int writable;
    unsigned char* written;  // of each byte, whether anything has written it; null if it need not have been
};

using Entry = void (*)(void* const* arguments);

// How often an access of a line of the kernel took how many transactions; filled in only when asked for.
struct AccessCount {
    int line;
    int bytes;  // per thread
    int shared;
    int write;
    unsigned long long requests;      // executions by a warp
    unsigned long long transactions;  // 32-byte sectors of global memory, wavefronts of shared memory
    unsigned long long ideal;         // the fewest transactions that move as many different bytes
    unsigned long long partial;       // sectors of which a write leaves bytes out
};

struct Launch {
    char const* kernel;
    char const* library;  // a copy of its file, for the compiler's tools
    Entry entry;
    Coordinates coordinates;
    void** arguments;  // in place: pointers are replaced by translated ones
    Window const* windows;
    int window_count;
    int threads;
    int shared_bytes;
    Extent3 grid;
    Extent3 cluster;                     // blocks of a cluster
    unsigned long long const* clusters;  // linear indices of the clusters to run, or null for all
    unsigned long long cluster_count;
    int residents;                       // clusters that run in turns from the beginning
    int shuffled;
    unsigned long long seed;
    int counting;
    double slice;  // seconds after which a launch returns `paused`, to be continued
    double endless;  // seconds of one thread, or of several that wait for nothing, after which that is an error
    // results
    unsigned long long finished;  // blocks
    unsigned long long total;
    char* message;
    int message_capacity;
    int error_line;
    AccessCount* counts;
    int count_capacity;
    int count_size;
};

enum class Error : int {
    paused = -1,  // no error: the caller looks around and continues
    none,
    global_out_of_bounds,
    shared_out_of_bounds,
    misaligned,
    read_only,
    unwritten,
    race,
    async_copy,
    proxy_fence,
    accumulator,
    descriptor,
    tensor_map,
    mbarrier,
    barrier,
    deadlock,
    misuse,
    unset,
    registers,
};

}  // namespace cb::emulator
