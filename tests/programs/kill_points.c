//! A short program with a known number of operations of each kind, which a test executes in single
//! steps: kill_points PAGE. After each store to the profile, the profile must be complete.
//
// PAGE is a file that is shared with the test: for each kind of operation, in the order of `kind`,
// two words: operations begun and done; then 1 when the operations begin, 2 when all are done.
// Sizes that are counted are at least 32 KiB, those of the C library smaller.
//
// build: -pthread
#include "api_guest.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

enum kind { ALLOCATIONS, FREES, REALLOCATIONS, LABELS, SCOPES, THREADS, STAGE };
enum { LEAST = 32 << 10 };

static volatile uint64_t *page;

static void begin(enum kind kind) { page[2 * kind]++; }
static void done(enum kind kind) { page[2 * kind + 1]++; }

// The test looks at the page at each system call.
static void reach(uint64_t stage)
{
    page[2 * STAGE] = stage;
    hear();
}

static NOINLINE void *allocate(size_t bytes)
{
    begin(ALLOCATIONS);
    void *block = keep(malloc(bytes));
    done(ALLOCATIONS);
    return block;
}

static NOINLINE void release(void *block)
{
    begin(FREES);
    free(block);
    done(FREES);
}

// A reallocation counts as an allocation and a free, too.
static NOINLINE void *resize(void *block, size_t bytes)
{
    enum kind kinds[] = {REALLOCATIONS, ALLOCATIONS, FREES};
    for (int i = 0; i < 3; i++)
        begin(kinds[i]);
    block = keep(realloc(block, bytes));
    for (int i = 0; i < 3; i++)
        done(kinds[i]);
    return block;
}

static NOINLINE void *thread(void *block)
{
    void *own = allocate(LEAST + 100);
    done(THREADS);
    release(block);
    return own;
}

static NOINLINE void *start(void *block)
{
    pthread_t id;
    void *own;
    begin(THREADS);
    CHECK(pthread_create(&id, NULL, thread, block) == 0 && pthread_join(id, &own) == 0);
    return own;
}

int main(int count, char **words)
{
    CHECK(count == 2);
    int fd = open(words[1], O_RDWR);
    page = (volatile uint64_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    void *blocks[3];
    reach(1);
    for (int i = 0; i < 3; i++) // on one stack
        blocks[i] = allocate(LEAST + 16 * (size_t)i);
    release(blocks[0]);
    blocks[1] = resize(blocks[1], 2 * LEAST);
    begin(LABELS);
    heaptide_label_block(blocks[2], "matrix");
    done(LABELS);
    begin(SCOPES);
    heaptide_begin("phase");
    done(SCOPES);
    release(allocate(LEAST + 50));
    heaptide_end("phase");
    release(start(blocks[2]));
    release(blocks[1]);
    reach(2);
    return 0;
}
