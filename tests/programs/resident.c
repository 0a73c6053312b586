//! Memory of one kind, in a known amount, resident when the program exits: the argument selects the
//! kind. Prints the resident memory of the process, in bytes.
//
// build: -pthread
#include "clock.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MIB = 1 << 20, BLOCKS = 32768, THREADS = 32 };

static char zeroed[24 * MIB];
static void *blocks[BLOCKS];
static pthread_barrier_t barrier;

static NOINLINE void touch(char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096)
        ((volatile char *)memory)[i] = 1;
    stay();
}

// Allocates 32768 blocks of `bytes` each and touches them; keeps only every `kept`-th one.
static NOINLINE void heap(size_t bytes, int kept)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = keep(malloc(bytes)), 1, bytes);
    for (int i = 0; i < BLOCKS; i++)
        if (i % kept)
            free(blocks[i]);
}

// Threads with an even number allocate; the others are unknown to the recorder.
static void *deep(void *number)
{
    char memory[MIB];
    touch(memory, sizeof memory);
    if ((long)number % 2 == 0)
        free(keep(malloc(8)));
    pthread_barrier_wait(&barrier);
    pause();
    return NULL;
}

static void stacks(void)
{
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (long i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, deep, (void *)i) == 0);
    }
    pthread_barrier_wait(&barrier);
}

static void file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 16 * MIB) == 0);
    char *memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    touch(memory, 16 * MIB);
}

static void shared(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    char *memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory != MAP_FAILED);
    touch(memory, 16 * MIB);
}

static char *map(void *at, size_t bytes, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory != MAP_FAILED && (at == NULL || memory == at));
    return memory;
}

// The kernel lists all of this as one mapping: 16 MiB of the program between untouched blocks of
// 256 and of 64 MiB.
static void neighbours(void)
{
    blocks[0] = keep(malloc((size_t)256 * MIB));
    touch(map(NULL, 16 * MIB, 0), 16 * MIB);
    blocks[1] = keep(malloc((size_t)64 * MIB));
}

// Maps 32 MiB as jemalloc and V8 do. The kernel merges neighbours with the same flags.
static void reserved(void)
{
    for (int i = 0; i < 4; i++)
        touch(map(NULL, 8 * MIB, MAP_NORESERVE), 8 * MIB);
}

// Maps 16 MiB directly after the program's zero-initialized data.
static void behind(void)
{
    extern char _end[];
    size_t page = 4096;
    char *end = (char *)(((size_t)_end + page - 1) / page * page);
    touch(map(end, 16 * MIB, MAP_FIXED_NOREPLACE), 16 * MIB);
}

// The parent has 16 blocks of 512 KiB; its child has copies of these and 16 more.
static void forked(void)
{
    for (int i = 0; i < 16; i++)
        touch(blocks[i] = keep(malloc(MIB / 2)), MIB / 2);
    pid_t child = fork();
    if (child == 0)
        for (int i = 0; i < 16; i++)
            touch(blocks[16 + i] = keep(malloc(MIB / 2)), MIB / 2);
    else
        CHECK(waitpid(child, NULL, 0) == child);
}

// Allocates 2 MiB of the heap and maps 1 MiB every 10 ms, for 200 ms.
static void growing(void)
{
    for (int i = 0; i < 20; i++) {
        for (int n = 0; n < 32; n++)
            touch(blocks[32 * i + n] = keep(malloc(MIB / 16)), MIB / 16);
        touch(map(NULL, MIB, 0), MIB);
        pass_us(10000);
    }
}

static void refuse_open(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Uses 60 MiB, and 16 MiB that are mapped 300 ms later; then prints a line and waits.
static void waits(void)
{
    growing();
    pass_us(300000);
    touch(map(NULL, 16 * MIB, 0), 16 * MIB);
    say("waits\n");
    pause();
}

// Events that end the program, or its accounts, before it exits.
static void ends(const char *how, const char *place)
{
    growing();
    if (strcmp(how, "killed") == 0) {
        raise(SIGKILL);
    } else if (strcmp(how, "execs") == 0) {
        execl("/bin/true", "true", NULL);
        CHECK(!"exec failed");
    } else if (strcmp(how, "confined") == 0) {
        refuse_open();
    } else {
        CHECK(strcmp(how, "rooted") == 0 && chroot(place) == 0);
    }
    growing();
    _exit(0);
}

static long resident(void)
{
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    long pages = 0;
    CHECK(sscanf(text, "%*d %ld", &pages) == 1);
    return pages * 4096;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "touched";
    if (strcmp(kind, "touched") == 0)
        heap(1001, 1);
    else if (strcmp(kind, "fragmented") == 0)
        heap(2000, 32);
    else if (strcmp(kind, "untouched") == 0)
        blocks[0] = keep(malloc((size_t)256 * MIB));
    else if (strcmp(kind, "stacks") == 0)
        stacks();
    else if (strcmp(kind, "file") == 0)
        file(argv[2]);
    else if (strcmp(kind, "bss") == 0)
        touch(zeroed, sizeof zeroed);
    else if (strcmp(kind, "neighbours") == 0)
        neighbours();
    else if (strcmp(kind, "reserved") == 0)
        reserved();
    else if (strcmp(kind, "behind") == 0)
        behind();
    else if (strcmp(kind, "growing") == 0)
        growing();
    else if (strcmp(kind, "waits") == 0)
        waits();
    else if (strcmp(kind, "ends") == 0)
        ends(argv[2], argv[3]);
    else if (strcmp(kind, "shared") == 0)
        shared();
    else if (strcmp(kind, "fork") == 0)
        forked();
    say("%ld\n", resident());
    return 0;
}
