// Arrays of the host to a GPU and back, through pinned slots, by threads that need no interpreter.
//
// Each thread takes what there is to do: a piece of a result that has arrived in a slot is unpacked, the next one is asked for, a
// piece of an operand is packed into a slot that is free and handed to the driver. runtime/movers.py is the other side.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

constexpr int NOT_READY = 600;          // CUDA_ERROR_NOT_READY
constexpr int MODES = 64;               // as many as NumPy has
constexpr int64_t SHORT = 64;           // bytes that are not worth a call of memcpy
constexpr int64_t LONG = 4096;          // bytes from which stores go past the cache
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
    int64_t nbytes, run, piece;         // a piece is a multiple of a run, or a part of one
    int32_t modes, swapped;             // swapped: bytes of a number whose order is to be reversed, or 0
    int64_t shape[MODES], strides[MODES];
};

struct Job {
    Array array;
    int64_t next = 0;                   // byte that nobody has taken
    std::atomic<int64_t> left;          // pieces
    std::atomic<int> status{0};
    std::atomic<bool> cancelled{false};

    explicit Job(const Array &x) : array(x), left((x.nbytes + x.piece - 1) / x.piece) {}
};

struct Slot {
    char *memory;
    void *event;
    bool used;
};

struct Flight {
    Slot *slot;
    Job *job;
    int64_t at, nbytes;
};

struct Lane {
    std::mutex mutex;
    std::deque<Job *> jobs;
    std::deque<Slot *> free;
    std::deque<Flight> flying;
    std::vector<Slot> slots;
};

void rest_a_moment() {
#if defined(__SSE2__)
    for (int i = 0; i < 4; ++i) _mm_pause();
#else
    std::this_thread::yield();
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
        _mm_sfence();
    }
#endif
    std::memcpy(to, from, n);
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
        for (int i = 0; i < unit / 2; ++i) std::swap(x[i], x[unit - 1 - i]);
}

// Bytes [at, at + nbytes) of the elements to or from a slot.
void pack(const Array &x, int64_t at, int64_t nbytes, char *slot, bool up, bool past_cache) {
    auto move = [&](char *host, int64_t n) {
        char *to = up ? slot : host;
        const char *from = up ? host : slot;
        if (past_cache) stream_bytes(to, from, n);
        else std::memcpy(to, from, n);
    };
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
    Lane up, down;
    std::vector<std::thread> threads;
    std::mutex mutex;                   // of those that sleep
    std::condition_variable wake;
    std::atomic<int> open{0};           // jobs that have not ended
    std::atomic<bool> stopping{false};
    bool up_past_cache = false, down_past_cache = true;

    explicit Mover(const Driver &calls) : driver(calls) {}

    // The next piece of a lane's jobs, which has some.
    Flight next_piece(Lane &lane) {
        Job *job = lane.jobs.front();
        int64_t at = job->next, left = job->array.nbytes - at, n = left < job->array.piece ? left : job->array.piece;
        if ((job->next += n) == job->array.nbytes) lane.jobs.pop_front();
        return {nullptr, job, at, n};
    }

    static bool wanted(const Flight &piece) { return !piece.job->cancelled && !piece.job->status; }

    void ended(const Flight &piece, int status) {
        if (status) piece.job->status = status;
        if (piece.job->left.fetch_sub(1) == 1) --open;          // who waits may free the job from now on
    }

    bool send() {
        std::unique_lock<std::mutex> lock(up.mutex, std::try_to_lock);
        if (!lock || up.jobs.empty() || up.free.empty()) return false;
        Slot *slot = up.free.front();
        int status = slot->used ? driver.query(slot->event) : 0;
        if (status == NOT_READY) return false;
        slot->used = false;
        Flight piece = next_piece(up);
        if (wanted(piece) && !status) {
            up.free.pop_front();
            lock.unlock();
            const Array &x = piece.job->array;
            pack(x, piece.at, piece.nbytes, slot->memory, true, up_past_cache);
            if (x.swapped) swap_bytes(slot->memory, piece.nbytes, x.swapped);
            status = driver.copy(x.device + piece.at, reinterpret_cast<uint64_t>(slot->memory), piece.nbytes, driver.up);
            if (!status) status = driver.record(slot->event, driver.up);
            slot->used = !status;
            lock.lock();
            up.free.push_back(slot);
        }
        lock.unlock();
        ended(piece, status);
        return true;
    }

    bool bring() {
        std::unique_lock<std::mutex> lock(down.mutex, std::try_to_lock);
        if (!lock) return false;
        bool begun = false;
        if (!down.jobs.empty() && !down.free.empty()) {
            Flight piece = next_piece(down);
            begun = true;
            if (!wanted(piece)) {
                lock.unlock();
                ended(piece, 0);
                return true;
            }
            piece.slot = down.free.front();
            int status = driver.copy(reinterpret_cast<uint64_t>(piece.slot->memory), piece.job->array.device + piece.at,
                                     piece.nbytes, driver.down);
            if (!status) status = driver.record(piece.slot->event, driver.down);
            if (status) {
                lock.unlock();
                ended(piece, status);
                return true;
            }
            down.free.pop_front();
            down.flying.push_back(piece);
        }
        if (down.flying.empty()) return begun;
        Flight piece = down.flying.front();
        int status = driver.query(piece.slot->event);
        if (status == NOT_READY) return begun;
        down.flying.pop_front();
        lock.unlock();
        if (!status) {
            const Array &x = piece.job->array;
            if (x.swapped) swap_bytes(piece.slot->memory, piece.nbytes, x.swapped);
            pack(x, piece.at, piece.nbytes, piece.slot->memory, false, down_past_cache);
        }
        lock.lock();
        down.free.push_back(piece.slot);
        lock.unlock();
        ended(piece, status);
        return true;
    }

    bool step() {
        bool brought = bring();
        return send() || brought;
    }

    void work() {
        driver.enter(driver.context);
        for (int idle = 0; !stopping;) {
            if (open && step()) {
                idle = 0;
            } else if (++idle < PATIENCE) {
                rest_a_moment();
            } else if (open) {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            } else {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [&] { return open || stopping; });
                idle = 0;
            }
        }
    }
};

void add_slots(Lane &lane, char *memory, int64_t nbytes, void **events, int count) {
    for (int i = 0; i < count; ++i) lane.slots.push_back({memory + i * nbytes, events[i], false});
    for (Slot &slot : lane.slots) lane.free.push_back(&slot);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED Mover *mover_new(const Driver *driver, char *up, char *down, int64_t slot_bytes, void **up_events, void **down_events,
                          int slots, int threads, int past_cache) {
    Mover *mover = new Mover(*driver);
    mover->up_past_cache = past_cache & 1, mover->down_past_cache = past_cache & 2;
    add_slots(mover->up, up, slot_bytes, up_events, slots);
    add_slots(mover->down, down, slot_bytes, down_events, slots);
    for (int i = 0; i < threads; ++i) mover->threads.emplace_back([mover] { mover->work(); });
    return mover;
}

EXPORTED Job *mover_begin(Mover *mover, const Array *array, int up) {
    Job *job = new Job(*array);
    size_t pieces = job->left;
    Lane &lane = up ? mover->up : mover->down;
    ++mover->open;
    {
        std::lock_guard<std::mutex> lock(lane.mutex);
        lane.jobs.push_back(job);
    }
    {
        std::lock_guard<std::mutex> lock(mover->mutex);         // who is about to sleep sees the job
    }
    if (pieces > mover->threads.size()) mover->wake.notify_all();
    else while (--pieces) mover->wake.notify_one();             // who waits moves one, too
    return job;
}

// Moves pieces until the job has ended or some milliseconds have gone by: 0 for the latter, else 1.
EXPORTED int mover_wait(Mover *mover, Job *job, int milliseconds) {
    auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (int idle = 0; job->left;) {
        if (mover->step()) {
            idle = 0;
        } else if (++idle < PATIENCE) {
            rest_a_moment();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        if (std::chrono::steady_clock::now() > until) return !job->left;
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
        std::lock_guard<std::mutex> lock(mover->mutex);
    }
    mover->wake.notify_all();
    for (std::thread &thread : mover->threads) thread.join();
    delete mover;
}
