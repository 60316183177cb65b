// Fibers: one stack for each thread of a block, and the switch between them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(CUTEBLAS_UCONTEXT)
#define CUTEBLAS_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace cb::emulator {

#ifdef CUTEBLAS_OWN_SWITCH

#define CUTEBLAS_STRING2(x) #x
#define CUTEBLAS_STRING(x) CUTEBLAS_STRING2(x)
#define CUTEBLAS_SYMBOL(name) CUTEBLAS_STRING(__USER_LABEL_PREFIX__) name

// Saves the callee-saved registers on the running stack, leaves its pointer in *save, and goes on where `resume` was saved.
extern "C" void cuteblas_switch(void** save, void* resume);

#if defined(__x86_64__)
asm(".text\n"
    ".globl " CUTEBLAS_SYMBOL("cuteblas_switch") "\n"
    CUTEBLAS_SYMBOL("cuteblas_switch") ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
#else
asm(".text\n"
    ".p2align 2\n"
    ".globl " CUTEBLAS_SYMBOL("cuteblas_switch") "\n"
    CUTEBLAS_SYMBOL("cuteblas_switch") ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n");
#endif

class Context {
  public:
    // The next switch to this context calls `start` on an empty stack that ends at `top`.
    void prepare(char*, char* top, void (*start)()) {
        auto** frame = reinterpret_cast<void**>(top);
#if defined(__x86_64__)
        frame -= 2;  // the return address of `start`, which it never uses, at 8 below a multiple of 16
        frame[0] = reinterpret_cast<void*>(start);
        frame[1] = nullptr;
        frame -= 6;
        for (int i = 0; i < 6; ++i) frame[i] = nullptr;
#else
        frame -= 20;
        for (int i = 0; i < 20; ++i) frame[i] = nullptr;
        frame[11] = reinterpret_cast<void*>(start);  // x30, the link register
#endif
        stack_pointer = frame;
    }

    void switch_to(Context& next) { cuteblas_switch(&stack_pointer, next.stack_pointer); }

  private:
    void* stack_pointer = nullptr;
};

#else

class Context {
  public:
    void prepare(char* bottom, char* top, void (*start)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = bottom;
        context.uc_stack.ss_size = static_cast<size_t>(top - bottom);
        context.uc_link = nullptr;
        makecontext(&context, start, 0);
    }

    void switch_to(Context& next) { swapcontext(&context, &next.context); }

  private:
    ucontext_t context;
};

#endif

// Stacks for the threads of resident clusters, kept for the next ones. Below each is a page without access: an overflow faults.
class Stacks {
  public:
    static constexpr size_t bytes = 192 * 1024;

    char* bottom(size_t thread) {
        while (stacks.size() <= thread) add();
        return stacks[thread];
    }

  private:
    std::vector<char*> stacks;

    void add() {
        size_t const page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
        flags |= MAP_NORESERVE;
#endif
        void* memory = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        mprotect(memory, page, PROT_NONE);
        stacks.push_back(static_cast<char*>(memory) + page);
    }
};

}  // namespace cb::emulator
