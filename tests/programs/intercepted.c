//! An executable with its own allocator, which does not forward calls: its functions are
//! intercepted in place.
//
// Sizes are known to the byte: the usable size of a block is the request rounded up to 32.
//
// expect recording lost_events=0
// expect function:plain allocations=1000 requested_bytes=100000 usable_bytes=128000
// expect function:plain frees=1000 live_bytes=0 live_blocks=0
// expect function:zeroed allocations=10 requested_bytes=300 live_bytes=320 live_blocks=10
// expect function:moved live_blocks=1 live_bytes=64
// expect function:strict allocations=5 requested_bytes=250 live_bytes=320 live_blocks=5
// expect function:threaded allocations=4000 frees=4000 requested_bytes=64000
// expect function:in_child allocations=500 frees=500 requested_bytes=25000
// build: -rdynamic -pthread
#include "guest.h"
#include <pthread.h>
#include <sys/wait.h>

// Blocks follow a header with their size. Each size class has a list of free blocks.
struct head {
    size_t size;
    struct head *next;
};
enum { CLASSES = 64, ROUND = 32 };
static char memory[8 << 20] __attribute__((aligned(4096)));
static size_t used;
static struct head *lists[CLASSES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t mallocs, frees;

static size_t rounded(size_t size)
{
    return size ? (size + ROUND - 1) & ~(size_t)(ROUND - 1) : ROUND;
}

static void *take(size_t alignment, size_t size)
{
    size = rounded(size);
    pthread_mutex_lock(&lock);
    size_t class = size / ROUND;
    struct head *head = alignment <= 16 && class < CLASSES ? lists[class] : NULL;
    if (head) {
        lists[class] = head->next;
    } else {
        size_t at = (used + sizeof *head + alignment - 1) & ~(alignment - 1);
        if (at + size <= sizeof memory) {
            head = (struct head *)(memory + at) - 1;
            head->size = size;
            used = at + size;
        }
    }
    mallocs++;
    pthread_mutex_unlock(&lock);
    if (!head)
        errno = ENOMEM;
    return head ? head + 1 : NULL;
}
static void give(void *block)
{
    if (!block)
        return;
    struct head *head = (struct head *)block - 1;
    pthread_mutex_lock(&lock);
    frees++;
    size_t class = head->size / ROUND;
    if (class < CLASSES) {
        head->next = lists[class];
        lists[class] = head;
    }
    pthread_mutex_unlock(&lock);
}

NOINLINE void *malloc(size_t size) { return take(16, size); }
NOINLINE void free(void *block) { give(block); }
NOINLINE size_t malloc_usable_size(void *block)
{
    return block ? ((struct head *)block)[-1].size : 0;
}
NOINLINE void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    void *block = malloc(bytes); // nested: not counted
    return block ? memset(block, 0, bytes) : NULL;
}
NOINLINE void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    if (moved && block) {
        size_t had = malloc_usable_size(block);
        memcpy(moved, block, had < size ? had : size);
        free(block);
    }
    return moved;
}
NOINLINE void *aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
NOINLINE int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *block = take(alignment, size);
    if (block)
        *out = block;
    return block ? 0 : ENOMEM;
}

static NOINLINE void plain(void)
{
    for (int i = 0; i < 1000; i++)
        free(keep(malloc(100)));
}
static NOINLINE void zeroed(void)
{
    for (int i = 0; i < 10; i++)
        CHECK(*(char *)keep(calloc(3, 10)) == 0);
}
static NOINLINE void moved(void)
{
    char *block = NULL;
    for (int i = 0; i < 20; i++)
        block = keep(realloc(block, 10 * (size_t)(i % 7) + 1));
    block = keep(block);
}
static NOINLINE void strict(void)
{
    for (int i = 0; i < 3; i++)
        CHECK((uintptr_t)keep(aligned_alloc(256, 50)) % 256 == 0);
    for (int i = 0; i < 2; i++) {
        void *block = NULL;
        CHECK(posix_memalign(&block, 1024, 50) == 0 && (uintptr_t)block % 1024 == 0);
        stay();
    }
}
static NOINLINE void *threaded(void *unused)
{
    for (int i = 0; i < 1000; i++)
        free(keep(malloc(16)));
    return unused;
}
static NOINLINE void in_child(void)
{
    for (int i = 0; i < 500; i++)
        free(keep(malloc(50)));
}

int main(void)
{
    size_t before = mallocs;
    plain();
    zeroed();
    moved();
    strict();
    CHECK(mallocs - before == 1000 + 10 + 20 + 3 + 2);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, threaded, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    pid_t child = fork();
    if (child == 0) {
        in_child();
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(malloc(SIZE_MAX / 4) == NULL && errno == ENOMEM);
    say("%d\n", frees >= 5000);
    return 0;
}
