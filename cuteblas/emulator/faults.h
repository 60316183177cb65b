// What the processor reports while a thread of a kernel runs, and threads that run for ever. Without this they would end the process, or
// the call would not.
//
// A fault ends the launch: its handler, on a stack of its own, notes it and goes to whoever decides what runs. A timer of this thread's
// processor time interrupts kernels in which no thread waits. That happens between any two instructions of the kernel; in the runtime
// nothing is done, and the next tick comes soon.
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "global.h"
#include "shared.h"

namespace cb::emulator {

// A signal; where the fault is, and the instruction.
struct Found {
    int number = 0;
    void const* address = nullptr;
    void const* at = nullptr;
};

class Faults {
  public:
    // While an object of this class lives, faults and ticks come here.
    Faults() {
        runner = pthread_self();
        stack_t own{};
        own.ss_sp = handler_stack.data();
        own.ss_size = handler_stack.size();
        sigaltstack(&own, &stack_before);
        for (size_t i = 0; i < signals.size(); ++i) {
            struct sigaction action{};
            action.sa_sigaction = signals[i] == tick_signal ? tick : fault;
            // A handler may not return, so nothing is blocked; ticks go on later, so each is on the stack of its thread.
            action.sa_flags = SA_SIGINFO | SA_NODEFER | (signals[i] == tick_signal ? SA_RESTART : SA_ONSTACK);
            sigaction(signals[i], &action, &before[i]);
        }
        start_timer();
    }

    ~Faults() {
        stop_timer();
        for (size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
    }

    Faults(Faults const&) = delete;
    Faults& operator=(Faults const&) = delete;

    // Lets a thread of the kernel run; says whether it came back by a fault.
    bool run(Context& from, Context& thread) {
        found = {};
        in_thread = true;
        from.switch_to(thread);
        in_thread = false;
        return found.number != 0;
    }

    void report() const {
        auto const address = reinterpret_cast<uint64_t>(found.address);
        int const line = line_at(found.at);
        auto const say = [&](Error kind, std::string const& text) { machine.report(kind, line, machine.where(true, line) + text); };
        if (found.number == tick_signal)
            return say(Error::deadlock, "runs for ever: a loop never ends, or waits for a change of ordinary memory that no other thread makes");
        if (found.number == SIGFPE) return say(Error::misuse, "divides an integer by zero, or the smallest integer by -1");
        if (found.number == SIGILL || found.number == SIGTRAP) return say(Error::misuse, "executes a trap");
        auto const stack = reinterpret_cast<uint64_t>(machine.self().stack);
        if (address - stack + near_stack < Stacks::bytes + 2 * near_stack)
            return say(Error::registers, "goes past the end of its registers and local variables");
        auto const window = static_cast<unsigned>(address >> window_bits);
        if (window == shared_window >> window_bits) {
            long long const offset = static_cast<long long>(address - shared_window) - shared_start;
            bool const inside = offset >= 0 && offset < machine.launch->shared_bytes;
            return say(inside ? Error::misuse : Error::shared_out_of_bounds,
                       "dereferences a pointer to shared offset " + std::to_string(offset) + " instead of calling load_shared or store_shared; the block has " +
                           std::to_string(machine.launch->shared_bytes) + " bytes");
        }
        if (window >= first_argument_window && window - first_argument_window < static_cast<unsigned>(machine.launch->window_count)) {
            Window const& w = machine.launch->windows[window - first_argument_window];
            uint64_t const host = address - translation(window - first_argument_window);
            bool const inside = host >= w.low && host < w.high;
            auto const relative = [&](uint64_t at) { return std::to_string(static_cast<long long>(at - w.address)); };
            return say(inside ? Error::misuse : Error::global_out_of_bounds,
                       "dereferences a pointer to byte offset " + relative(host) + " of argument '" + w.name +
                           "' instead of calling load_global or store_global; it holds the bytes [" + relative(w.low) + ", " + relative(w.high) + ")");
        }
        say(Error::global_out_of_bounds, "dereferences a pointer that belongs to no argument");
    }

  private:
    static constexpr int tick_signal = SIGURG;  // which nobody notices if it comes too late
    static constexpr std::array<int, 6> signals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, tick_signal};
    static constexpr uint64_t near_stack = 1 << 16;

    static inline std::array<char, 1 << 16> handler_stack;
    static inline std::array<struct sigaction, signals.size()> before;
    static inline stack_t stack_before;
    static inline pthread_t runner;
    static inline volatile bool in_thread = false;
    static inline Found found;
    static inline double armed;  // seconds until the next tick
#ifdef __linux__
    static inline timer_t timer;
    static inline bool ticking;
#endif

    static void const* instruction(void* context) {
        auto const& at = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__linux__) && defined(__x86_64__)
        return reinterpret_cast<void const*>(at.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
        return reinterpret_cast<void const*>(at.pc);
#elif defined(__APPLE__) && defined(__x86_64__)
        return reinterpret_cast<void const*>(at->__ss.__rip);
#elif defined(__APPLE__) && defined(__aarch64__)
        return reinterpret_cast<void const*>(__darwin_arm_thread_state64_get_pc(at->__ss));
#else
        return (void)at, nullptr;
#endif
    }

    // Whether a thread of the kernel was interrupted; otherwise whoever else wants the signal gets it.
    static bool is_ours() { return in_thread && pthread_equal(runner, pthread_self()) != 0; }

    [[noreturn]] static void leave(int number, void const* address, void const* at) {
        found = {number, address, at};
        machine.self().context.switch_to(machine.main);
        __builtin_unreachable();
    }

    static void fault(int number, siginfo_t* info, void* context) {
        if (is_ours()) leave(number, info->si_addr, instruction(context));
        for (size_t i = 0; i < signals.size(); ++i)
            if (signals[i] == number) sigaction(number, &before[i], nullptr);  // it happens again, and is seen by them
    }

    static bool in_kernel(void const* at) {
        Dl_info here, kernel;
        return at != nullptr && dladdr(at, &here) != 0 && dladdr(reinterpret_cast<void const*>(machine.launch->entry), &kernel) != 0 &&
               here.dli_fbase == kernel.dli_fbase;
    }

    static void tick(int number, siginfo_t* info, void* context) {
        if (!is_ours() || info->si_code != SI_TIMER) {
            struct sigaction const& other = before.back();
            if (info->si_code != SI_TIMER && (other.sa_flags & SA_SIGINFO) == 0 && other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN)
                other.sa_handler(number);
            return;
        }
        constexpr double soon = 0.001;
        machine.idle += armed;
        void const* const at = instruction(context);
        if (!in_kernel(at)) return arm(soon);
        arm(machine.launch->slice);
        if (machine.idle >= machine.launch->endless) leave(number, nullptr, at);
        if (machine.idle < machine.launch->endless / 2) return machine.pause();
        machine.make_ready(machine.running);  // perhaps others change what it waits for
        machine.resume_next();
    }

    // The line of the kernel of an instruction, or 0: the compiler's tools know.
    static int line_at(void const* at) {
        Dl_info library;
        if (at == nullptr || !in_kernel(at) || dladdr(at, &library) == 0 || std::strchr(machine.launch->library, '\'') != nullptr) return 0;
        char command[4352];
        snprintf(command, sizeof command, "addr2line -i -e '%s' %#llx 2>/dev/null", machine.launch->library,
                 static_cast<unsigned long long>(static_cast<char const*>(at) - static_cast<char const*>(library.dli_fbase)));
        FILE* const answer = popen(command, "r");
        if (answer == nullptr) return 0;
        std::string const kernel = machine.launch->kernel;
        char text[4352];
        int line = 0;
        while (fgets(text, sizeof text, answer) != nullptr) {
            char const* const colon = std::strrchr(text, ':');
            if (line != 0 || colon == nullptr) continue;
            std::string const file(text, static_cast<size_t>(colon - text));
            if (file == kernel || (file.size() > kernel.size() && file.compare(file.size() - kernel.size() - 1, std::string::npos, "/" + kernel) == 0))
                line = atoi(colon + 1);
        }
        pclose(answer);
        return line;
    }

    // In this thread's processor time, once.
    static void arm(double seconds) {
        armed = seconds;
#ifdef __linux__
        itimerspec time{};
        time.it_value.tv_sec = static_cast<time_t>(seconds);
        time.it_value.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.it_value.tv_sec)) * 1e9);
        if (ticking) timer_settime(timer, 0, &time, nullptr);
#endif
    }

    static void start_timer() {
#ifdef __linux__
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = tick_signal;
        event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
        ticking = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0;
#endif
        arm(machine.launch->slice);
    }

    static void stop_timer() {
#ifdef __linux__
        if (ticking) timer_delete(timer);
#endif
    }
};

}  // namespace cb::emulator
