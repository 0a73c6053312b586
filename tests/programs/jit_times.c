//! Tests names by time: the program creates functions in executable memory, one after another at
//! the same address, and writes `jit-PID.dump` to its directory, like a JIT compiler.
//!
//! `first` allocates 1000 bytes, called from `before`. `second` replaces it and allocates 2000
//! bytes, called from `after`. `moved`, which allocates 500 bytes, is moved to another page, and
//! called at both addresses. Then `third` (3000) and `fourth` (4000) are called alternately from
//! one call in `alike`: their calls of malloc have the same return address, so that they share a
//! stack.
//!
//! The dump is mapped while it is empty, like in CPython, and the first code runs then: reading
//! that mapping would crash the program. `bare` is called by code like that of CPython's `-X perf`,
//! without a frame pointer, and allocates 200 bytes below `around`.

#include "guest.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

typedef void *(*function)(void);

static int dump;
static uint64_t made;

static uint64_t now(void)
{
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void put(const void *bytes, size_t size)
{
    CHECK(write(dump, bytes, size) == (ssize_t)size);
}

static void put_record(uint32_t kind, const uint64_t *words, size_t count, const char *name)
{
    uint64_t time = now();
    size_t text = name ? strlen(name) + 1 : 0;
    uint32_t head[] = {kind, (uint32_t)(24 + 8 * count + text)};
    uint32_t ids[] = {(uint32_t)getpid(), (uint32_t)getpid()};
    put(head, sizeof head);
    put(&time, sizeof time);
    put(ids, sizeof ids);
    put(words, 8 * count);
    put(name ? name : "", text);
}

// Writes code that sets up a frame pointer and calls malloc.
static size_t write_code(unsigned char *place, uint32_t size)
{
    unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xbf, 0, 0, 0, 0, 0x48, 0xb8, 0,
                            0,    0,    0,    0,    0,    0, 0, 0xff, 0xd0, 0x5d, 0xc3};
    void *(*allocate)(size_t) = malloc;
    memcpy(code + 5, &size, 4);
    memcpy(code + 11, &allocate, 8);
    memcpy(place, code, sizeof code);
    return sizeof code;
}

// Writes a function to an address, and records that in the dump.
static function load(unsigned char *place, uint32_t size, const char *name)
{
    uint64_t address = (uint64_t)place;
    uint64_t words[] = {address, address, write_code(place, size), ++made};
    put_record(0, words, 4, name);
    return (function)place;
}

static function move_code(unsigned char *from, unsigned char *to, uint32_t size)
{
    uint64_t words[] = {(uint64_t)to, (uint64_t)from, (uint64_t)to, write_code(to, size), made};
    put_record(1, words, 5, NULL);
    return (function)to;
}

typedef void (*trampoline)(void *, void *, void *, void (*)(void));

static NOINLINE void bare(void) { free(keep(malloc(200))); stay(); }
static NOINLINE void around(trampoline call) { call(NULL, NULL, NULL, bare); stay(); }
static NOINLINE void early(function call) { free(keep(call())); stay(); }
static NOINLINE void before(function call) { free(keep(call())); stay(); }
static NOINLINE void after(function call) { free(keep(call())); stay(); }
static NOINLINE void here(function call) { free(keep(call())); stay(); }
static NOINLINE void there(function call) { free(keep(call())); stay(); }
static NOINLINE void alike(function call) { free(keep(call())); stay(); }

int main(void)
{
    char name[64];
    snprintf(name, sizeof name, "jit-%d.dump", getpid());
    dump = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(dump >= 0);
    // The marker that lets profilers find the dump.
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0) != MAP_FAILED);
    unsigned char *place = mmap(NULL, 12288, PROT_READ | PROT_WRITE | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    write_code(place + 8192, 100);
    early((function)(place + 8192));
    unsigned char jump[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3};
    memcpy(place + 10240, jump, sizeof jump);
    around((trampoline)(place + 10240));
    uint32_t head[] = {0x4a695444, 1, 40, 62, 0, (uint32_t)getpid()};
    uint64_t start = now(), flags = 0;
    put(head, sizeof head);
    put(&start, sizeof start);
    put(&flags, sizeof flags);
    before(load(place, 1000, "first"));
    after(load(place, 2000, "second"));
    here(load(place, 500, "moved"));
    there(move_code(place, place + 4096, 500));
    for (uint32_t turn = 0; turn < keep(2u); turn++)
        alike(load(place, 3000 + 1000 * turn, turn ? "fourth" : "third"));
    return 0;
}
