//! A library to preload before the recorder: unwinds each allocation a second time, with the C++
//! runtime.
//
// At exit it writes `$AGREE.PID`, with a line for each distinct stack: its count, then its
// addresses in their modules, outermost first, each the return address minus one, like in
// recordings.
// plugin: agree.so agree.c -fexceptions -lgcc_s
#include "guest.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unwind.h>

enum { DEEPEST = 400, SLOTS = 1 << 18 };
static const size_t ARENA = (size_t)1 << 32;

struct Stack { uint64_t hash, count; uint32_t first, frames; };

static struct Stack *stacks;
static uintptr_t *arena;
static uint32_t used = 1;
static int ready;
static __thread int inside __attribute__((tls_model("initial-exec")));
static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);

struct Trace { uintptr_t frames[DEEPEST]; uint32_t count; };

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *data)
{
    struct Trace *trace = (struct Trace *)data;
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (pc)
        trace->frames[trace->count++] = pc - (before ? 0 : 1);
    return trace->count < DEEPEST ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static void note(void)
{
    static __thread struct Trace trace __attribute__((tls_model("initial-exec")));
    static int lock;
    trace.count = 0;
    _Unwind_Backtrace(step, &trace);
    uint64_t hash = 1469598103934665603u;
    for (uint32_t i = 2; i < trace.count; i++)
        hash = (hash ^ trace.frames[i]) * 1099511628211u;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        continue;
    uint32_t slot = (uint32_t)(hash >> 40) % SLOTS;
    while (stacks[slot].count && stacks[slot].hash != hash)
        slot = (slot + 1) % SLOTS;
    if (!stacks[slot].count++) {
        uint32_t frames = trace.count - 2;
        stacks[slot].hash = hash;
        stacks[slot].first = used;
        stacks[slot].frames = frames;
        memcpy(arena + used, trace.frames + 2, frames * sizeof *arena);
        used += frames;
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

static void look_up(void)
{
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
}

static int enters(void)
{
    if (!next_malloc)
        look_up();
    return ready && !inside && (inside = 1);
}
// The stack has one function more than that of the hook: `note` is frame 0, the hook frame 1, its
// caller frame 2.
#define HOOK(call)                                                                        \
    if (enters()) {                                                                      \
        note();                                                                          \
        inside = 0;                                                                      \
    }                                                                                    \
    return keep(call)

void *malloc(size_t size) { HOOK(next_malloc(size)); }
void *calloc(size_t n, size_t size) { HOOK(next_calloc(n, size)); }
void *realloc(void *p, size_t size) { HOOK(next_realloc(p, size)); }

__attribute__((constructor)) static void start(void)
{
    inside = 1;
    struct Trace trace = {.count = 0};
    _Unwind_Backtrace(step, &trace);  // one-time initialization
    int kind = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    arena = (uintptr_t *)mmap(NULL, ARENA, kind, flags, -1, 0);
    stacks = (struct Stack *)mmap(NULL, SLOTS * sizeof *stacks, kind, flags, -1, 0);
    inside = 0;
    ready = arena != MAP_FAILED && stacks != MAP_FAILED;
}

struct Find { uintptr_t pc, bias; };

static int find(struct dl_phdr_info *info, size_t size, void *data)
{
    struct Find *wanted = (struct Find *)data;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && wanted->pc >= start &&
            wanted->pc < start + info->dlpi_phdr[i].p_memsz) {
            wanted->bias = info->dlpi_addr;
            return 1;
        }
    }
    return 0;
}

__attribute__((destructor)) static void finish(void)
{
    char line[DEEPEST * 18 + 32], path[4096];
    snprintf(path, sizeof path, "%s.%d", getenv("AGREE"), (int)getpid());
    inside = 1;
    ready = 0;
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!stacks[slot].count)
            continue;
        int length = snprintf(line, sizeof line, "%lu ", (unsigned long)stacks[slot].count);
        for (uint32_t i = stacks[slot].frames; i-- > 0;) {
            struct Find wanted = {arena[stacks[slot].first + i], 0};
            dl_iterate_phdr(find, &wanted);
            length += sprintf(line + length, "%lx;", (unsigned long)(wanted.pc - wanted.bias));
        }
        line[length++] = '\n';
        if (write(fd, line, (size_t)length) != length)
            _exit(97);
    }
    close(fd);
}
