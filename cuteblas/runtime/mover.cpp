// Arrays of the host to a GPU and back, through pinned slots, by threads that need no interpreter.
//
// Each thread takes what there is to do: a piece of a result that has arrived in a slot is unpacked, the next one is asked for, a
// piece of an operand is packed into a slot that is free and handed to the driver. runtime/mover.py is the other side.

// Threads are POSIX's: the headers of C++'s take most of a second to compile, for which the first products of a program wait.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

constexpr int NOT_READY = 600;          // CUDA_ERROR_NOT_READY
constexpr int MODES = 64;               // as many as NumPy has
constexpr int64_t SHORT = 64;           // bytes that are not worth a call of memcpy
constexpr int64_t LONG = 2048;          // bytes from which stores go past the cache
constexpr int SUMS = 4;                 // of a hash
constexpr int64_t NEAR = 4096;          // bytes that the nearest cache holds, with their part of a key
constexpr int64_t AHEAD = 2048;         // bytes that a hash asks for early: its loops are too long for the processor to do so
constexpr int PATIENCE = 2000;          // looks, of about a tenth of a microsecond, until a thread sleeps

struct Driver {
    int (*enter)(void *context);
    int (*copy)(uint64_t target, uint64_t source, size_t nbytes, void *stream);
    int (*record)(void *event, void *stream);
    int (*query)(void *event);
    void *context, *up, *down;
};

// Elements of the host, in the order in which they lie side by side on the device: runs of bytes along modes.
struct Array {
    char *host;
    uint64_t device;
    int64_t nbytes, run;
    int64_t piece, chunk;               // bytes that a thread moves at once: a multiple of short runs; and of a copy, some pieces
    int32_t modes, swapped;             // swapped: bytes of a number whose order is to be reversed, or 0
    int32_t past_cache;                 // whether long stores go past the cache
    int64_t shape[MODES], strides[MODES];
    uint64_t (*hashes)[SUMS];           // of each piece, if they are asked for: of bytes without modes
    const uint64_t *key;                // some words longer than a piece
};

enum Way { DOWN, UP, STAYS };           // of a job; what stays is hashed

// What waits in its turn: each knows what comes after it.
template <class T>
struct Queue {
    T *first = nullptr, *last = nullptr;

    bool empty() const { return !first; }
    T *front() const { return first; }

    void push_back(T *x) {
        x->after = nullptr;
        (first ? last->after : first) = x;
        last = x;
    }

    void pop_front() { first = first->after; }
};

class Mutex {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

public:
    void lock() { pthread_mutex_lock(&mutex); }
    bool try_lock() { return !pthread_mutex_trylock(&mutex); }
    void unlock() { pthread_mutex_unlock(&mutex); }
    void wait(pthread_cond_t &condition) { pthread_cond_wait(&condition, &mutex); }
};

// Holds a mutex until it is released, or its scope ends.
class Lock {
    Mutex &mutex;
    bool held;

public:
    explicit Lock(Mutex &x) : mutex(x), held(true) { mutex.lock(); }
    Lock(Mutex &x, bool taken) : mutex(x), held(taken) {}
    ~Lock() { unlock(); }

    explicit operator bool() const { return held; }
    void lock() { mutex.lock(), held = true; }
    void unlock() {
        if (held) mutex.unlock();
        held = false;
    }
};

int64_t nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

void sleep_a_moment() {
    timespec moment{0, 50000};
    nanosleep(&moment, nullptr);
}

struct Job {
    Job *after = nullptr;
    Array array;
    int64_t next = 0;                   // byte that no chunk has
    std::atomic<int64_t> left;          // chunks
    std::atomic<int> status{0};
    std::atomic<bool> cancelled{false};

    explicit Job(const Array &x) : array(x), left((x.nbytes + x.chunk - 1) / x.chunk) {}

    bool wanted() const { return !cancelled && !status; }
};

struct Slot {
    Slot *after = nullptr;
    char *memory = nullptr;
    void *event = nullptr;
    bool used = false;                  // whether the event says when its copy has ended

    // What is in it, or on its way.
    Job *job = nullptr;
    int64_t at = 0, nbytes = 0, taken = 0;
    std::atomic<int64_t> left{0};       // bytes that are not moved yet
};

// One direction.
struct Lane {
    Mutex mutex;
    Queue<Job> jobs;
    Slot *slots = nullptr;
    Queue<Slot> free, flying;
    Slot *open = nullptr;               // of which pieces are to be had
    bool asking = false;                // whether a thread is asking for the next chunk of a result
    std::atomic<int> pending{0};        // jobs of which no more has been begun, and chunks that fly or are open
    std::atomic<int64_t> look{0};       // when the driver is to be asked again: each question keeps it from its work

    ~Lane() { delete[] slots; }

    bool quiet() const { return !pending || nanoseconds() < look; }
    void later() { look = nanoseconds() + 2000; }

    // The next chunk of a job, in a slot.
    void begin(Slot *slot) {
        Job *job = jobs.front();
        int64_t left = job->array.nbytes - job->next;
        slot->job = job, slot->at = job->next, slot->taken = 0;
        slot->left = slot->nbytes = left < job->array.chunk ? left : job->array.chunk;
        if ((job->next += slot->nbytes) == job->array.nbytes) jobs.pop_front();
        else ++pending;
    }

    // The next piece of the slot that is open.
    int64_t take(int64_t &nbytes) {
        int64_t at = open->taken, left = open->nbytes - at;
        nbytes = left < open->job->array.piece ? left : open->job->array.piece;
        if ((open->taken += nbytes) == open->nbytes) open = nullptr;
        return at;
    }
};

void rest_a_moment() {
#if defined(__SSE2__)
    for (int i = 0; i < 4; ++i) _mm_pause();
#else
    sched_yield();
#endif
}

// A copy whose target nobody reads soon, or which is read by the copy engine.
void stream_bytes(char *to, const char *from, int64_t n) {
#if defined(__SSE2__)
    if (n >= LONG) {
        int64_t head = -reinterpret_cast<intptr_t>(to) & 15;
        std::memcpy(to, from, head);
        to += head, from += head, n -= head;
        for (; n >= 64; to += 64, from += 64, n -= 64) {
            auto source = reinterpret_cast<const __m128i *>(from);
            auto target = reinterpret_cast<__m128i *>(to);
            __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
                    d = _mm_loadu_si128(source + 3);
            _mm_stream_si128(target, a), _mm_stream_si128(target + 1, b), _mm_stream_si128(target + 2, c),
                _mm_stream_si128(target + 3, d);
        }
    }
#endif
    std::memcpy(to, from, n);
}

// Lets others see such copies.
void end_of_stream() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

template <int N>
void short_runs(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count) {
    for (; count; --count, to += to_step, from += from_step) std::memcpy(to, from, N);
}

void runs(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t nbytes, int64_t count) {
    switch (nbytes) {
        case 1: return short_runs<1>(to, to_step, from, from_step, count);
        case 2: return short_runs<2>(to, to_step, from, from_step, count);
        case 4: return short_runs<4>(to, to_step, from, from_step, count);
        case 8: return short_runs<8>(to, to_step, from, from_step, count);
        case 16: return short_runs<16>(to, to_step, from, from_step, count);
        default:
            for (; count; --count, to += to_step, from += from_step) std::memcpy(to, from, nbytes);
    }
}

void swap_bytes(char *x, int64_t nbytes, int unit) {
    for (char *end = x + nbytes; x < end; x += unit)
        for (int i = 0; i < unit / 2; ++i) {
            char other = x[i];
            x[i] = x[unit - 1 - i], x[unit - 1 - i] = other;
        }
}

void copy_bytes(const Array &x, char *to, const char *from, int64_t n) {
    if (x.past_cache) stream_bytes(to, from, n);
    else std::memcpy(to, from, n);
}

// Words of a vector register.
constexpr int64_t WIDTH = 4;
typedef uint64_t Words __attribute__((vector_size(8 * WIDTH), aligned(8)));
typedef int32_t Halves __attribute__((vector_size(8 * WIDTH)));

// The products of the two halves of each word.
Words folded(Words x) {
#if defined(__AVX2__)
    return (Words)__builtin_ia32_pmuludq256((Halves)x, (Halves)(x >> 32));
#else
    return (x & 0xffffffff) * (x >> 32);
#endif
}

// The hash of a piece, and a copy of the very bytes that it is of, to a slot if there is one: others may write to them meanwhile.
//
// It is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: "UMAC", Crypto '99) with sums of words: words of the key are added to those
// of the piece, and products of halves are summed, SUMS times with the key one word further on (Toeplitz's construction). Any two
// pieces have the same sum under at most 2^-31 of all keys, and all sums alike under 2^-124.
void hash(const Array &x, int64_t at, int64_t nbytes, char *slot) {
    alignas(64) char near[NEAR];
    Words sums[SUMS] = {};
    for (int64_t begin = 0; begin < nbytes; begin += NEAR) {
        int64_t n = nbytes - begin < NEAR ? nbytes - begin : NEAR;
        const char *from = x.host + at + begin;
        const uint64_t *key = x.key + begin / 8;
        if (slot || n % sizeof(Words)) {
            std::memcpy(near, from, n);
            std::memset(near + n, 0, -n % sizeof(Words));
            std::atomic_signal_fence(std::memory_order_seq_cst);    // what follows does not read the array again
            from = near;
        }
        for (int64_t i = 0; i < n; i += sizeof(Words), from += sizeof(Words), key += WIDTH) {
            Words words;
            std::memcpy(&words, from, sizeof(Words));
            __builtin_prefetch(from + AHEAD);
            for (int j = 0; j < SUMS; ++j) {
                Words part;
                std::memcpy(&part, key + j, sizeof(Words));
                sums[j] += folded(words + part);
            }
        }
        if (slot) copy_bytes(x, slot + begin, near, n);
    }
    for (int j = 0; j < SUMS; ++j) {
        uint64_t sum = nbytes;
        for (int i = 0; i < WIDTH; ++i) sum += sums[j][i];
        x.hashes[at / x.piece][j] = sum;
    }
}

// Bytes [at, at + nbytes) of the elements to or from a slot.
void pack(const Array &x, int64_t at, int64_t nbytes, char *slot, bool up) {
    auto move = [&](char *host, int64_t n) { copy_bytes(x, up ? slot : host, up ? host : slot, n); };
    if (!x.modes) return move(x.host + at, nbytes);
    int64_t index[MODES], rest = at / x.run, within = at % x.run, last = x.modes - 1;
    char *host = x.host + within;
    for (int64_t mode = last; mode >= 0; --mode) {
        index[mode] = rest % x.shape[mode];
        rest /= x.shape[mode];
        host += index[mode] * x.strides[mode];
    }
    while (nbytes) {
        int64_t steps = 1, moved = x.run - within < nbytes ? x.run - within : nbytes;
        if (x.run <= SHORT) {
            steps = x.shape[last] - index[last];
            if (steps * x.run > nbytes) steps = nbytes / x.run;
            if (up) runs(slot, x.run, host, x.strides[last], x.run, steps);
            else runs(host, x.strides[last], slot, x.run, x.run, steps);
            moved = steps * x.run;
        } else {
            move(host, moved);
        }
        slot += moved, nbytes -= moved, host -= within, within = 0;
        index[last] += steps, host += steps * x.strides[last];
        for (int64_t mode = last; mode && index[mode] == x.shape[mode]; --mode) {
            host -= index[mode] * x.strides[mode];
            index[mode] = 0;
            ++index[mode - 1], host += x.strides[mode - 1];
        }
    }
}

struct Mover {
    Driver driver;
    Lane up, down, staying;
    pthread_t *threads;
    int count = 0;                      // of them
    Mutex mutex;                        // of those that sleep
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
    std::atomic<int> open{0};           // jobs that have not ended
    std::atomic<bool> stopping{false};

    Mover(const Driver &calls, int most) : driver(calls), threads(new pthread_t[most]) {}
    ~Mover() { delete[] threads; }

    // A chunk has been moved, or never will be.
    void ended(Lane &lane, Slot *slot, int status) {
        Job *job = slot->job;
        {
            Lock lock(lane.mutex);
            lane.free.push_back(slot);
        }
        --lane.pending;
        if (status) job->status = status;
        if (job->left.fetch_sub(1) == 1) --open;        // who waits may free the job from now on
    }

    int copy(uint64_t target, uint64_t source, Slot *slot, void *stream) {
        int status = driver.copy(target, source, slot->nbytes, stream);
        if (!status) status = driver.record(slot->event, stream);
        slot->used = !status;
        return status;
    }

    // Packs a piece; the last one of a chunk hands it over.
    bool send() {
        if (up.quiet()) return false;
        Lock lock(up.mutex, up.mutex.try_lock());
        if (!lock) return false;
        if (!up.open) {
            if (up.jobs.empty() || up.free.empty()) return false;
            Slot *slot = up.free.front();
            int status = slot->used ? driver.query(slot->event) : 0;
            if (status == NOT_READY) return up.later(), false;
            slot->used = false;
            up.free.pop_front();
            up.begin(slot);
            if (status || !slot->job->wanted()) {
                lock.unlock();
                ended(up, slot, status);
                return true;
            }
            up.open = slot;
        }
        Slot *slot = up.open;
        int64_t nbytes, at = up.take(nbytes);
        lock.unlock();
        const Array &x = slot->job->array;
        if (x.hashes) hash(x, slot->at + at, nbytes, slot->memory + at);
        else pack(x, slot->at + at, nbytes, slot->memory + at, true);
        end_of_stream();
        if (x.swapped) swap_bytes(slot->memory + at, nbytes, x.swapped);
        if (slot->left.fetch_sub(nbytes) == nbytes)
            ended(up, slot, copy(x.device + slot->at, reinterpret_cast<uint64_t>(slot->memory), slot, driver.up));
        return true;
    }

    // Unpacks a piece of what has arrived, or asks for the next chunk.
    bool bring() {
        if (down.quiet()) return false;
        Lock lock(down.mutex, down.mutex.try_lock());
        if (!lock) return false;
        if (!down.open && !down.jobs.empty() && !down.free.empty() && !down.asking) {
            Slot *slot = down.free.front();
            down.free.pop_front();
            down.begin(slot);
            down.asking = true;                         // one thread at a time: chunks arrive in their order
            lock.unlock();
            bool wanted = slot->job->wanted();
            int status = wanted ? copy(reinterpret_cast<uint64_t>(slot->memory), slot->job->array.device + slot->at, slot,
                                       driver.down) : 0;
            lock.lock();
            down.asking = false;
            if (wanted && !status) {
                down.flying.push_back(slot);
            } else {
                lock.unlock();
                ended(down, slot, status);
            }
            return true;
        }
        if (!down.open) {
            if (down.flying.empty()) return false;
            Slot *slot = down.flying.front();
            int status = driver.query(slot->event);
            if (status == NOT_READY) return down.later(), false;
            down.flying.pop_front();
            if (status) {
                lock.unlock();
                ended(down, slot, status);
                return true;
            }
            down.open = slot;
        }
        Slot *slot = down.open;
        int64_t nbytes, at = down.take(nbytes);
        lock.unlock();
        const Array &x = slot->job->array;
        if (x.swapped) swap_bytes(slot->memory + at, nbytes, x.swapped);
        pack(x, slot->at + at, nbytes, slot->memory + at, false);
        end_of_stream();
        if (slot->left.fetch_sub(nbytes) == nbytes) ended(down, slot, 0);
        return true;
    }

    // Hashes a piece of what stays.
    bool look() {
        if (!staying.pending) return false;
        Lock lock(staying.mutex);
        if (staying.jobs.empty()) return false;
        Job *job = staying.jobs.front();
        const Array &x = job->array;
        int64_t at = job->next, nbytes = x.nbytes - at < x.piece ? x.nbytes - at : x.piece;
        if ((job->next += nbytes) == x.nbytes) staying.jobs.pop_front(), --staying.pending;
        lock.unlock();
        if (job->wanted()) hash(x, at, nbytes, nullptr);
        if (job->left.fetch_sub(1) == 1) --open;
        return true;
    }

    bool step() { return bring() || send() || look(); }

    void work() {
        driver.enter(driver.context);
        for (int idle = 0; !stopping;) {
            if (open && step()) {
                idle = 0;
            } else if (++idle < PATIENCE) {
                rest_a_moment();
            } else if (open) {
                sleep_a_moment();
            } else {
                Lock lock(mutex);
                while (!open && !stopping) mutex.wait(wake);
                idle = 0;
            }
        }
    }
};

void add_slots(Lane &lane, char *memory, int64_t nbytes, void **events, int count) {
    lane.slots = new Slot[count];
    for (int i = 0; i < count; ++i) {
        lane.slots[i].memory = memory + i * nbytes, lane.slots[i].event = events[i];
        lane.free.push_back(&lane.slots[i]);
    }
}

void *work_of(void *mover) {
    static_cast<Mover *>(mover)->work();
    return nullptr;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED Mover *mover_new(const Driver *driver, char *up, char *down, int64_t slot_bytes, void **up_events, void **down_events,
                          int slots, int threads) {
    Mover *mover = new Mover(*driver, threads);
    add_slots(mover->up, up, slot_bytes, up_events, slots);
    add_slots(mover->down, down, slot_bytes, down_events, slots);
    while (mover->count < threads && !pthread_create(&mover->threads[mover->count], nullptr, work_of, mover)) ++mover->count;
    return mover;
}

EXPORTED Job *mover_begin(Mover *mover, const Array *array, int way) {
    Job *job = new Job(*array);
    int64_t pieces = (array->nbytes + array->piece - 1) / array->piece;
    Lane &lane = way == UP ? mover->up : way == DOWN ? mover->down : mover->staying;
    ++mover->open;
    {
        Lock lock(lane.mutex);
        lane.jobs.push_back(job);
        ++lane.pending;
    }
    {
        Lock lock(mover->mutex);         // who is about to sleep sees the job
    }
    if (pieces > mover->count) pthread_cond_broadcast(&mover->wake);
    else while (--pieces) pthread_cond_signal(&mover->wake);    // who waits moves one, too
    return job;
}

// Moves pieces until the job has ended or some milliseconds have gone by: 0 for the latter, else 1.
EXPORTED int mover_wait(Mover *mover, Job *job, int milliseconds) {
    int64_t until = nanoseconds() + milliseconds * int64_t(1000000);
    for (int idle = 0; job->left;) {
        if (mover->step()) {
            idle = 0;
        } else if (++idle < PATIENCE) {
            rest_a_moment();
        } else {
            sleep_a_moment();
        }
        if (nanoseconds() > until) return !job->left;
    }
    return 1;
}

EXPORTED void mover_cancel(Job *job) { job->cancelled = true; }

// The driver's status of a job that has ended, which is given up.
EXPORTED int mover_end(Job *job) {
    int status = job->status;
    delete job;
    return status;
}

EXPORTED void mover_delete(Mover *mover) {
    mover->stopping = true;
    {
        Lock lock(mover->mutex);
    }
    pthread_cond_broadcast(&mover->wake);
    for (int i = 0; i < mover->count; ++i) pthread_join(mover->threads[i], nullptr);
    delete mover;
}
