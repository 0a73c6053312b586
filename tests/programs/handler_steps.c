//! A signal handler runs at every instruction of malloc, free, realloc, mmap, munmap,
//! pthread_create and fork, and of the recorder within dlopen: another process traces this one and
//! executes it in single steps. Handlers map and unmap, read the clock and raise another signal
//! anywhere; where the C library is not interrupted, they allocate and look up a symbol, too. The
//! program continues, errno stays the same, and no event is lost.
//
// build: -pthread -ldl
// plugin: handler_steps_plugin.so plugin.c -DWORK=stepped_work
// args: %/handler_steps_plugin.so
// order: varies
// expect leaf:allocates allocations=6 live_blocks=0
// expect leaf:renames allocations=400 live_blocks=0
// expect function:handler live_blocks=0
// expect recording lanes=3
// mapped leaf:maps allocations=2 live_bytes=0
// mapped leaf:maps_in_handler allocations>=1000 live_bytes=0
#include "guest.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#define PAGE 4096
#define ROUNDS 2
#define ALLOCATES 3 // what the handler does then
#define TAKING 400  // steps

// What both processes know.
static struct shared {
    volatile long markers; // breakpoints of the program's own so far
    volatile int is_stepping, is_confined, in_handler, in_libc;
    volatile long fired;
    // Steps in the recorder, and the only one of them at which the handler runs; 0: at each.
    volatile long seen, chosen;
    volatile unsigned long recorder[2], libc[2], loader[2], clock[2];
} *shared;

// Stops this process, and lets the tracer look at what is shared.
static NOINLINE void stop_here(void)
{
    shared->markers++;
    __asm__ volatile("int3" ::: "memory");
}

static NOINLINE void nested(int number) { (void)number; }

static NOINLINE void maps_in_handler(void)
{
    void *start = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED && munmap(keep(start), PAGE) == 0);
}

static NOINLINE void handler(int number)
{
    struct timespec now;
    int before = errno;
    (void)number;
    switch (shared->fired++ % (shared->in_libc ? 3 : 5)) {
    case 0:
        maps_in_handler();
        break;
    case 1:
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        break;
    case 2:
        CHECK(raise(SIGUSR2) == 0);
        break;
    case ALLOCATES:
        free(keep(malloc(50)));
        break;
    default:
        CHECK(dlsym(RTLD_DEFAULT, "getpid") != NULL);
    }
    errno = before;
    shared->in_handler = 0;
    stop_here();
}

static int is_in(volatile unsigned long range[2], unsigned long pc)
{
    return pc >= range[0] && pc < range[1];
}

// Returns whether the handler runs at this instruction.
static int is_wanted(unsigned long pc)
{
    int is_recorder = is_in(shared->recorder, pc);
    shared->seen += is_recorder;
    if (shared->chosen)
        return is_recorder && shared->seen == shared->chosen;
    // The vDSO reads the clock again if that was set meanwhile: at this speed, always.
    return !is_in(shared->clock, pc) && (!shared->is_confined || is_recorder);
}

// Resumes the traced process by a request and returns the signal at which it stops next.
static int resume(pid_t pid, int request, int signal)
{
    int status;
    if (ptrace(request, pid, 0, signal) != 0 || waitpid(pid, &status, __WALL) != pid)
        _exit(97);
    if (!WIFSTOPPED(status))
        _exit(0); // the program has ended
    return WSTOPSIG(status);
}

// Sets a breakpoint in hardware; 0: removes it.
static void watch(pid_t pid, unsigned long at)
{
    ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[0]), at);
    ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[7]), at ? 1 : 0);
}

// Lets the handler run at the instruction at which the process is stopped, and returns to it.
static void fire(pid_t pid, struct user_regs_struct at)
{
    struct user_regs_struct now;
    shared->in_handler = 1;
    shared->in_libc = is_in(shared->libc, at.rip) || is_in(shared->loader, at.rip);
    long markers = shared->markers;
    resume(pid, PTRACE_CONT, SIGUSR1);
    while (shared->in_handler || shared->markers == markers)
        resume(pid, PTRACE_CONT, SIGUSR2); // the nested signal
    watch(pid, at.rip);
    do {
        resume(pid, PTRACE_CONT, 0);
        ptrace(PTRACE_GETREGS, pid, 0, &now);
    } while (now.rip != at.rip || now.rsp != at.rsp);
    watch(pid, 0);
}

static void trace(pid_t pid, int ready)
{
    int status, signal = SIGTRAP, is_sent = 0;
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0 || write(ready, "", 1) != 1)
        _exit(97);
    if (waitpid(pid, &status, __WALL) != pid)
        _exit(97);
    for (;;) {
        struct user_regs_struct at;
        ptrace(PTRACE_GETREGS, pid, 0, &at);
        if (!shared->is_stepping) {
            signal = resume(pid, PTRACE_CONT, signal == SIGTRAP ? 0 : signal);
            is_sent = 0;
        } else if (signal == SIGUSR1) {
            fire(pid, at);
            is_sent = 0;
            signal = resume(pid, shared->chosen ? PTRACE_CONT : PTRACE_SINGLESTEP, 0);
        } else {
            // While the recorder blocks signals, no handler can run: on to where it can.
            int request = is_sent ? PTRACE_CONT : PTRACE_SINGLESTEP;
            if (!is_sent && is_wanted(at.rip) && syscall(SYS_tgkill, pid, pid, SIGUSR1) == 0)
                is_sent = 1;
            signal = resume(pid, request, signal == SIGTRAP ? 0 : signal);
        }
    }
}

// Runs `work` in single steps, with a handler at each of them.
#define STEPS(work)                                                                      \
    do {                                                                                 \
        shared->is_stepping = 1;                                                         \
        errno = 77;                                                                      \
        stop_here();                                                                     \
        work;                                                                            \
        shared->is_stepping = 0;                                                         \
        stop_here();                                                                     \
        CHECK(errno == 77);                                                              \
    } while (0)

static NOINLINE void allocates(size_t bytes)
{
    char *block = keep(malloc(bytes));
    block = keep(realloc(block, 2 * bytes));
    block[0] = 1;
    free(block);
    free(keep(calloc(3, 40))); // small: each repetition of a string instruction is a step
}

static NOINLINE void maps(void)
{
    void *start = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED && munmap(keep(start), 2 * PAGE) == 0);
}

static void *thread(void *argument) { return argument; }

static NOINLINE void starts_thread(void)
{
    pthread_t id;
    CHECK(pthread_create(&id, NULL, thread, NULL) == 0 && pthread_join(id, NULL) == 0);
}

static NOINLINE void forks(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
}

// Takes another lane, as each renamed thread does, while the handler takes it at one of the first
// instructions of that.
static NOINLINE void renames(void)
{
    for (shared->chosen = 1; shared->chosen <= TAKING; shared->chosen++) {
        CHECK(prctl(PR_SET_NAME, shared->chosen % 2 ? "odd" : "even") == 0);
        shared->seen = 0;
        shared->fired = ALLOCATES;
        STEPS(free(keep(malloc(60))));
    }
    shared->chosen = 0;
}

static const char *plugin;

static NOINLINE void loads(void)
{
    void *library = dlopen(plugin, RTLD_NOW);
    CHECK(library != NULL && dlclose(library) == 0);
}

static NOINLINE void steps(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        STEPS(allocates(i ? 40 : 300000)); // from 128 KiB on, blocks are mappings
        STEPS(maps());
    }
    STEPS(starts_thread());
    STEPS(forks());
    renames();
    if (getenv("STEPS_WITHOUT_DLOPEN"))
        return;
    shared->is_confined = 1;
    STEPS(loads());
}

// Reads where the code of a file is mapped.
static void find(const char *name, volatile unsigned long range[2])
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        unsigned long low, high;
        char rights[5];
        int is_line = sscanf(line, "%lx-%lx %4s", &low, &high, rights) == 3;
        if (is_line && strstr(line, name) && rights[2] == 'x') {
            range[0] = low;
            range[1] = high;
        }
    }
    fclose(maps);
}

int main(int count, char **words)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct sigaction inner = {.sa_handler = nested, .sa_flags = SA_RESTART};
    int permitted[2], ready[2];
    char byte;
    CHECK(count == 2);
    plugin = words[1];
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && pipe(permitted) == 0 && pipe(ready) == 0);
    find("libheaptide", shared->recorder);
    find("libc.so", shared->libc);
    find("ld-linux", shared->loader);
    find("[vdso]", shared->clock);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &inner, NULL) == 0);
    // On one processor, a step is a switch; between two, it wakes one of them.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    pid_t program = getpid(), tracer = fork();
    if (tracer == 0) {
        CHECK(read(permitted[0], &byte, 1) == 1);
        trace(program, ready[1]);
    }
    prctl(PR_SET_PTRACER, tracer, 0, 0, 0);
    CHECK(tracer > 0 && write(permitted[1], "", 1) == 1);
    // Before the tracer has attached, a breakpoint would end the program.
    CHECK(read(ready[0], &byte, 1) == 1);
    steps();
    return 0;
}
