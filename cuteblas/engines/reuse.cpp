// Memory of large NumPy arrays, which is used again: an allocator of NEP 49.
//
// A region is a mapping of its own that begins at a multiple of 2 MiB. What is freed stays here, and the kernel may take its pages
// back whenever it lacks memory (MADV_FREE): a region that it left is written to without a page fault. All else is NumPy's own.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>

namespace {

// As in numpy/ndarraytypes.h.
struct Allocator {
    void *context;
    void *(*allocate)(void *, size_t);
    void *(*zeros)(void *, size_t, size_t);
    void *(*resize)(void *, void *, size_t);
    void (*release)(void *, void *, size_t);
};
struct Handler {
    char name[127];
    uint8_t version;
    Allocator allocator;
};
struct Region {
    char *memory;
    size_t bytes;
};
// Regions in the order in which they came here.
struct Regions {
    Region *all;
    size_t count, room, bytes;

    bool add(Region region) {
        if (count == room) {
            void *larger = std::realloc(all, (2 * room + 16) * sizeof(Region));
            if (larger == nullptr) return false;
            all = static_cast<Region *>(larger);
            room = 2 * room + 16;
        }
        all[count++] = region;
        bytes += region.bytes;
        return true;
    }

    Region take(size_t index) {
        Region region = all[index];
        std::memmove(all + index, all + index + 1, (--count - index) * sizeof(Region));
        bytes -= region.bytes;
        return region;
    }

    // The index of a region, or count: arrays die soonest that were made last.
    size_t find(const void *memory) const {
        for (size_t i = count; i-- > 0;)
            if (all[i].memory == memory) return i;
        return count;
    }
};

constexpr size_t LEAST = size_t(4) << 20, HUGE_PAGE = size_t(2) << 20, PAGE = size_t(1) << 12;
constexpr size_t MOST_IDLE = 256;
constexpr int SPARE = 8;  // a region may be larger than what is asked for by one part of so many

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Handler usual, own;
Regions used, idle;
size_t most_idle_bytes;

struct Lock {
    Lock() { pthread_mutex_lock(&mutex); }
    ~Lock() { pthread_mutex_unlock(&mutex); }
};

char *mapped(size_t bytes) {
    void *found = mmap(nullptr, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return nullptr;
    char *start = static_cast<char *>(found), *end = start + bytes + HUGE_PAGE;
    char *memory = start + (HUGE_PAGE - reinterpret_cast<uintptr_t>(start) % HUGE_PAGE) % HUGE_PAGE;
    if (memory > start) munmap(start, memory - start);
    if (end > memory + bytes) munmap(memory + bytes, end - (memory + bytes));
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

// Memory of so many bytes, or null; new pages are zero.
void *taken(size_t bytes, bool new_pages) {
    if (bytes < LEAST || bytes > SIZE_MAX / 2) return nullptr;
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    Lock lock;
    size_t best = idle.count;
    for (size_t i = idle.count; i-- > 0 && !new_pages;) {
        size_t had = idle.all[i].bytes;
        if (had >= bytes && had <= bytes + bytes / SPARE && (best == idle.count || had < idle.all[best].bytes)) best = i;
    }
    Region region = best < idle.count ? idle.take(best) : Region{mapped(bytes), bytes};
    if (region.memory == nullptr) return nullptr;
    if (!used.add(region)) {
        munmap(region.memory, region.bytes);
        return nullptr;
    }
    return region.memory;
}

void shrink(size_t most) {
    while (idle.count > MOST_IDLE || idle.bytes > most) {
        Region oldest = idle.take(0);
        munmap(oldest.memory, oldest.bytes);
    }
}

// The bytes of a region that is used; 0 if this memory is NumPy's own.
size_t bytes_of(const void *memory) {
    if (reinterpret_cast<uintptr_t>(memory) % HUGE_PAGE) return 0;
    Lock lock;
    size_t index = used.find(memory);
    return index < used.count ? used.all[index].bytes : 0;
}

void *allocate(void *, size_t bytes) {
    void *memory = taken(bytes, false);
    return memory != nullptr ? memory : usual.allocator.allocate(usual.allocator.context, bytes);
}

void *zeros(void *, size_t count, size_t size) {
    size_t bytes;
    void *memory = __builtin_mul_overflow(count, size, &bytes) ? nullptr : taken(bytes, true);
    return memory != nullptr ? memory : usual.allocator.zeros(usual.allocator.context, count, size);
}

void release(void *, void *memory, size_t bytes) {
    if (bytes_of(memory) == 0) {
        usual.allocator.release(usual.allocator.context, memory, bytes);
        return;
    }
    Lock lock;
    Region region = used.take(used.find(memory));
    if (region.bytes > most_idle_bytes || madvise(region.memory, region.bytes, MADV_FREE) != 0 || !idle.add(region))
        munmap(region.memory, region.bytes);
    shrink(most_idle_bytes);
}

void *resize(void *, void *memory, size_t bytes) {
    size_t before = bytes_of(memory);
    if (before == 0) return usual.allocator.resize(usual.allocator.context, memory, bytes);
    if (bytes <= before && bytes > before / 2) return memory;
    void *other = allocate(nullptr, bytes);
    if (other != nullptr) {
        std::memcpy(other, memory, bytes < before ? bytes : before);
        release(nullptr, memory, before);
    }
    return other;
}

void lock() { pthread_mutex_lock(&mutex); }
void unlock() { pthread_mutex_unlock(&mutex); }

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// The handler in the place of another one, to which all else is left; the first call makes it.
EXPORTED void *cuteblas_reuse(const void *before, size_t most) {
    static Handler *const made = [&] {
        usual = own = *static_cast<const Handler *>(before);
        std::strcpy(own.name, "cuteblas");
        own.allocator = {nullptr, allocate, zeros, resize, release};
        most_idle_bytes = most;
        pthread_atfork(lock, unlock, unlock);
        return &own;
    }();
    return made;
}

// Give idle regions back until no more bytes are left; how many there were.
EXPORTED size_t cuteblas_shrink(size_t most) {
    Lock lock;
    size_t before = idle.bytes;
    shrink(most);
    return before;
}
