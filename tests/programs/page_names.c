//! Names of scopes, labels, threads and marks that a page must show as text: markup, characters
//! that change the text direction, control characters, 10 kB without a space. 10 blocks of 100
//! bytes in each of 5 scopes, with labels of the same names.
#include "api_guest.h"
#include <pthread.h>

#define LONG 10000

static char long_name[LONG + 1];

static void in_scope(const char *name)
{
    heaptide_begin(name);
    for (int i = 0; i < 10; i++)
        heaptide_label_block(block(100), name);
    heaptide_mark_now(name);
    heaptide_end(name);
}

static void *in_thread(void *none)
{
    pthread_setname_np(pthread_self(), "</b><s>\u202ename");
    in_scope("in a thread");
    return none;
}

int main(void)
{
    memset(long_name, 'x', LONG);
    in_scope("</script><img src=x onerror=alert(1)><u>");
    in_scope("\u202etxet denrut\u2066 \u2069");
    in_scope("a\tb\nc\033[31m\x7f' onload=alert(1) x='${alert(1)}`\\u0041");
    in_scope(long_name);
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, in_thread, 0) == 0);
    CHECK(pthread_join(thread, 0) == 0);
    return 0;
}
