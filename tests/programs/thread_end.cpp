//! Allocations in thread-local destructors, in destructors of thread keys, and in atexit functions.
//
// expect function:in_key_destructor allocations=24 frees=24 requested_bytes=2400
// expect function:in_local_destructor allocations=8 frees=8 requested_bytes=400
// expect function:made_by_thread allocations=8 frees=8 requested_bytes=8000
// expect function:in_atexit allocations=2 frees=2 requested_bytes=60
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

static pthread_key_t key;

static NOINLINE void *made_by_thread() { return keep(malloc(1000)); }
static NOINLINE void in_atexit()
{
    free(keep(malloc(30)));
    stay();
}
static NOINLINE void in_key_destructor(void *p)
{
    free(p);
    free(keep(malloc(100)));
    static __thread int again;
    if (!again++)
        pthread_setspecific(key, keep(malloc(100)));  // causes another round of destructors
}
static NOINLINE void in_local_destructor() { free(keep(malloc(50))); stay(); }

struct Local {
    int touched = 0;
    ~Local() { in_local_destructor(); }
};
static thread_local Local local;

static void *work(void *)
{
    local.touched = 1;
    pthread_setspecific(key, made_by_thread());
    return nullptr;
}

int main()
{
    atexit(in_atexit);
    atexit(in_atexit);
    pthread_key_create(&key, in_key_destructor);
    for (int i = 0; i < 4; i++) {
        pthread_t a, b;
        CHECK(pthread_create(&a, nullptr, work, nullptr) == 0);
        CHECK(pthread_create(&b, nullptr, work, nullptr) == 0);
        pthread_join(a, nullptr);
        pthread_join(b, nullptr);
    }
    say("threads ended\n");
    return 0;
}
