//! Prints the stack of each of many blocks, found with the C++ runtime's unwinder.
//
// `known-stack MODULE+OFFSET…`: return addresses outermost first, relative to the module (`-` is
// the program), without the allocating function itself.
#include "guest.h"
#include <algorithm>
#include <alloca.h>
#include <functional>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <unwind.h>
#include <vector>

struct Trace { uintptr_t frames[256]; int count; };

static _Unwind_Reason_Code step(_Unwind_Context *context, void *data)
{
    Trace *trace = static_cast<Trace *>(data);
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (!pc)
        return _URC_END_OF_STACK;
    // The pc of an interrupted function, and of the trampoline that a handler returns to, is not a
    // return address but the instruction itself. It is printed incremented by one, like a return
    // address.
    if (before)
        trace->frames[trace->count - 1]++;
    trace->frames[trace->count++] = pc + (before ? 1 : 0);
    return trace->count < 256 ? _URC_NO_REASON : _URC_END_OF_STACK;
}

struct Find { uintptr_t pc; const char *name; uintptr_t base; };

static int find(dl_phdr_info *info, size_t, void *data)
{
    Find *wanted = static_cast<Find *>(data);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &part = info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && wanted->pc >= start && wanted->pc < start + part.p_memsz) {
            wanted->base = info->dlpi_addr;
            wanted->name = info->dlpi_name;
            return 1;
        }
    }
    return 0;
}

static void print(const Trace &trace)
{
    static char line[1 << 15];
    int length = snprintf(line, sizeof line, "known-stack");
    for (int i = trace.count - 1; i > 0; i--) {
        Find wanted{trace.frames[i], "", 0};
        dl_iterate_phdr(find, &wanted);
        const char *slash = strrchr(wanted.name, '/');
        const char *name = slash ? slash + 1 : *wanted.name ? wanted.name : "-";
        length += snprintf(line + length, sizeof line - (size_t)length, " %s+%zx", name,
                           trace.frames[i] - wanted.base);
    }
    line[length++] = '\n';
    CHECK(write(1, line, (size_t)length) == length);
}

static NOINLINE void probe()
{
    void *p = keep(malloc(5000));
    static thread_local Trace trace;
    trace.count = 0;
    _Unwind_Backtrace(step, &trace);
    print(trace);
    free(p);
}

struct Shape {
    virtual void visit(int depth) = 0;
    virtual ~Shape() {}
};
struct Plain : Shape { NOINLINE void visit(int depth) override; };
struct Aligned : Shape { NOINLINE void visit(int depth) override; };
struct Dynamic : Shape { NOINLINE void visit(int depth) override; };
static Plain plain;
static Aligned aligned;
static Dynamic dynamic;
static Shape *const shapes[] = {&plain, &aligned, &dynamic};

static NOINLINE void next(int depth)
{
    if (depth == 0)
        probe();
    else
        shapes[(depth * 7 + 3) % 3]->visit(depth - 1);
    stay();
}
void Plain::visit(int depth) { next(depth); stay(); }
void Aligned::visit(int depth)
{
    alignas(64) volatile char room[64];
    room[depth % 64] = 1;
    CHECK(room[depth % 64] == 1);
    next(depth);
    stay();
}
void Dynamic::visit(int depth)
{
    volatile char *room = static_cast<volatile char *>(alloca(16 + 8 * (size_t)depth));
    room[0] = 1;
    next(depth);
    stay();
}

static void on_signal(int) { next(3); }
static void *in_thread(void *)
{
    for (int depth = 0; depth < 20; depth++)
        next(depth);
    return nullptr;
}

int main()
{
    for (int depth = 0; depth < 60; depth++)
        next(depth);
    int numbers[20];
    for (int i = 0; i < 20; i++)
        numbers[i] = (i * 7) % 20;
    std::sort(numbers, numbers + 20, [](int a, int b) {
        if (a % 5 == 0)
            next(a % 4);
        return a < b;
    });
    qsort(numbers, 20, sizeof *numbers, [](const void *a, const void *b) {
        next(2);
        return *static_cast<const int *>(b) - *static_cast<const int *>(a);
    });
    std::function<void(int)> indirect = [&indirect](int depth) {
        depth ? indirect(depth - 1) : next(4);
        stay();
    };
    indirect(12);
    for (int i = 0; i < 20; i++) {
        try {
            next(i);
            throw i;
        } catch (int caught) {
            next(caught);
        }
    }
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, nullptr);
    raise(SIGUSR1);
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, in_thread, nullptr) == 0);
    pthread_join(thread, nullptr);
    return 0;
}
