// Ways to keep and to lose blocks, for `lost.py`. The first argument selects one of `WAYS`, without
// an argument their names are printed. Each allocates blocks of 104 bytes (`CHILD`) and others of
// other sizes; comments state what a reader of the source would call lost.
#include <dlfcn.h>
#include <malloc.h>
#include <memory>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

enum { CHILD = 104, PARENT = 200, COUNT = 10 };

// Keeps a value that nothing reads.
static void *volatile sink;
template <class T> static T *used(T *pointer)
{
    sink = (void *)pointer;
    sink = nullptr;
    asm volatile("" : : "r"(pointer) : "memory");
    return pointer;
}
static void *block(size_t bytes = CHILD)
{
    return used(calloc(1, bytes));
}

static void *one, *many[COUNT];
static uintptr_t coded[COUNT];
static thread_local void *local[COUNT];

static void variable() { for (auto &at : many) at = block(); }                        // none
static void lost() { for (int i = 0; i < COUNT; i++) block(); }                       // 10
static void list()                                                                    // 10
{
    void **last = nullptr;
    for (int i = 0; i < COUNT; i++) {
        void **next = (void **)block();
        *next = last, last = next;
    }
}
static void ring()                                                                    // 10
{
    void **first = (void **)block(), **last = first;
    for (int i = 1; i < COUNT; i++, last = (void **)*last)
        *last = block();
    *last = first;
}
static void **tree(int depth)
{
    void **node = (void **)block();
    if (depth > 0)
        node[0] = tree(depth - 1), node[1] = tree(depth - 1);
    return node;
}
static void kept_tree() { one = tree(4); }                                            // none
static void lost_tree() { used(tree(4)); }                                            // 31
static void itself() { void **own = (void **)block(); *own = own; }                   // 1
static void interior() { for (auto &at : many) at = (char *)block() + 16; }           // none
static void interior_of_block()                                                       // none
{
    void **table = (void **)block(PARENT);
    one = table;
    for (int i = 0; i < COUNT; i++)
        table[i] = (char *)block() + 16;
}
static void one_past_the_end() { for (auto &at : many) at = (char *)block() + CHILD; } // 10
static void low_tags() { for (auto &at : many) at = (char *)block() + 1; }            // none
static void high_tags() { for (auto &at : coded) at = (uintptr_t)block() | 1ull << 62; } // none
static void complement() { for (auto &at : coded) at = ~(uintptr_t)block(); }         // none
static void xor_list()                                                                // none
{
    uintptr_t before = 0, *last = (uintptr_t *)block();
    one = last;
    for (int i = 1; i < COUNT; i++) {
        uintptr_t *next = (uintptr_t *)block();
        *last = before ^ (uintptr_t)next;
        before = (uintptr_t)last, last = next;
    }
    *last = before;
}
static void unaligned()                                                               // none
{
    char *table = (char *)block(PARENT);
    one = table;
    for (int i = 0; i < COUNT; i++) {
        void *at = block();
        memcpy(table + 4 + 8 * i, &at, sizeof at);
    }
}
static void of_thread() { for (auto &at : local) at = block(); }                      // none
static pthread_barrier_t ready;
static void *waits(void *)
{
    void *volatile own[COUNT];
    for (auto &at : own)
        at = block();
    pthread_barrier_wait(&ready);
    pause();
    return (void *)own[0];
}
static void start(void *(*work)(void *))
{
    pthread_t thread;
    pthread_barrier_init(&ready, nullptr, 2);
    pthread_create(&thread, nullptr, work, nullptr);
    pthread_barrier_wait(&ready);
}
static void stack_of_thread() { start(waits); }                                       // none
static void *waits_with_local(void *)
{
    of_thread();
    pthread_barrier_wait(&ready);
    pause();
    return nullptr;
}
static void local_of_thread() { start(waits_with_local); }                            // none
static void *ends_with_local(void *)
{
    of_thread();
    return nullptr;
}
static void local_of_ended_thread()                                                   // 10
{
    pthread_t thread;
    pthread_create(&thread, nullptr, ends_with_local, nullptr);
    pthread_join(thread, nullptr);
}
static void *waits_with_key(void *)
{
    pthread_key_t key;
    pthread_key_create(&key, nullptr);
    void **table = (void **)block(PARENT);
    for (int i = 0; i < COUNT; i++)
        table[i] = block();
    pthread_setspecific(key, table);
    pthread_barrier_wait(&ready);
    pause();
    return nullptr;
}
static void key_of_thread() { start(waits_with_key); }                                // none
static void keep_in_mapping(int kind)
{
    int rights = PROT_READ | PROT_WRITE;
    void **table = (void **)mmap(nullptr, 4096, rights, kind | MAP_ANONYMOUS, -1, 0);
    one = table;
    for (int i = 0; i < COUNT; i++)
        table[i] = block();
}
static void mapping() { keep_in_mapping(MAP_PRIVATE); }                               // none
static void shared_memory() { keep_in_mapping(MAP_SHARED); }                          // none
static void mapping_without_pointer()                                                 // none
{
    mapping();
    one = nullptr;
}
static void read_only_mapping()                                                       // none
{
    mapping();
    mprotect(one, 4096, PROT_READ);
}
static void freed_block()                                                             // 10
{
    void **table = (void **)block(PARENT);
    for (int i = 0; i < COUNT; i++)
        table[i + 4] = block();
    one = table;
    free(table);
}
static void grown()                                                                   // none
{
    void **table = nullptr;
    for (int i = 0; i < COUNT; i++) {
        table = (void **)realloc(table, sizeof(void *) * (i + 1) * 100);
        table[i * 100] = block();
    }
    one = table;
}
static void shrunk()                                                                  // 9
{
    grown();
    one = realloc(one, sizeof(void *) * 4);
}
static void large() { block(4 << 20), one = block(8 << 20); }                         // 1
static void end_of_large()                                                            // none
{
    void **table = (void **)block(8 << 20);
    one = table;
    for (int i = 0; i < COUNT; i++)
        table[(1 << 20) - 1 - i * 1000] = block();
}
static void aligned()                                                                 // 1
{
    one = aligned_alloc(64, 256);
    used(aligned_alloc(4096, 8192));
}
static void nothing() { one = malloc(0), used(malloc(0)); }                           // 1
struct Destroyed {
    void *kept = nullptr;
    char rest[24];
    ~Destroyed() { sink = kept; }
};
static Destroyed *array;
static void array_with_count()                                                        // none
{
    array = new Destroyed[COUNT];
    for (int i = 0; i < COUNT; i++)
        array[i].kept = block();
}
struct First { virtual ~First() {} void *kept = nullptr; };
struct Second { virtual ~Second() {} void *other = nullptr; };
struct Both : First, Second {};
static Second *volatile second;
static void second_base()                                                             // none
{
    Both *both = new Both;
    both->kept = block();
    second = both;
    used(second);
}
static std::vector<void *> owner;
static void destroyed_container()                                                     // 10
{
    for (int i = 0; i < COUNT; i++)
        owner.push_back(block());
}
static std::string text;
static void destroyed_text() { text = std::string(1000, 'x'); }                       // none
struct Node { std::shared_ptr<Node> next; char rest[80]; };
static void cycle_of_shared_pointers()                                                // 2
{
    auto a = std::make_shared<Node>(), b = std::make_shared<Node>();
    a->next = b, b->next = a;
}
static void coroutine_on(void *stack, size_t bytes);
static ucontext_t outside, inside;
static NOINLINE void coroutine()
{
    void *volatile own[COUNT];
    for (auto &at : own)
        at = block();
    swapcontext(&inside, &outside);
    sink = own[0];
}
static void coroutine_on(void *stack, size_t bytes)
{
    one = stack;
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack, inside.uc_stack.ss_size = bytes, inside.uc_link = nullptr;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
}
static void coroutine_in_block() { coroutine_on(block(64 << 10), 64 << 10); }         // none
static void coroutine_in_mapping()                                                    // none
{
    int rights = PROT_READ | PROT_WRITE;
    coroutine_on(mmap(nullptr, 64 << 10, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 64 << 10);
}
static void environment() { setenv("KEPT", "value", 1), putenv(strdup("ALSO=kept")); } // none
static const struct {
    const char *name;
    void (*make)();
} WAYS[] = {
#define WAY(name) {#name, name}
    WAY(variable), WAY(lost), WAY(list), WAY(ring), WAY(kept_tree), WAY(lost_tree), WAY(itself),
    WAY(interior), WAY(interior_of_block), WAY(one_past_the_end), WAY(low_tags), WAY(high_tags),
    WAY(complement), WAY(xor_list), WAY(unaligned), WAY(of_thread), WAY(stack_of_thread),
    WAY(local_of_thread), WAY(local_of_ended_thread), WAY(key_of_thread), WAY(mapping),
    WAY(mapping_without_pointer), WAY(read_only_mapping), WAY(freed_block), WAY(grown), WAY(shrunk),
    WAY(large), WAY(end_of_large), WAY(aligned), WAY(nothing), WAY(array_with_count),
    WAY(second_base), WAY(destroyed_container), WAY(destroyed_text), WAY(cycle_of_shared_pointers),
    WAY(coroutine_in_block), WAY(coroutine_in_mapping), WAY(environment), WAY(shared_memory),
};

// Overwrites what lower functions left on the stack.
static NOINLINE void scrub()
{
    volatile char rest[1 << 16];
    for (size_t i = 0; i < sizeof rest; i++)
        rest[i] = 0;
}

int main(int count, char **words)
{
    for (const auto &way : WAYS) {
        if (count < 2)
            puts(way.name);
        else if (strcmp(way.name, words[1]) == 0)
            way.make();
    }
    scrub();
    return 0;
}
