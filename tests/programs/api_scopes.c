//! Scopes by name, by attribute and value and by handle, as paths: the same name at two paths,
//! names with a common prefix, names of 10 000 bytes, 10 000 nested scopes, ends that do not match.
//
// expect leaf:block allocations=19 frees=19 live_blocks=0
// expect scope:outer requested_bytes=10 entered=2 frees_here=1
// expect scope+:outer requested_bytes=30 allocations=2
// expect scope:outer>inner requested_bytes=20 entered=3
// expect scope:inner requested_bytes=40 entered=1
// expect scope:hot allocations=5 entered=5
// expect scope:dummy1 requested_bytes=1
// expect scope:dummy10 requested_bytes=10
// expect scope: allocations=1 requested_bytes=7
// losses: allowed
#include "api_guest.h"

static uint64_t allocate_in(const char *name, size_t size)
{
    uint64_t context;
    heaptide_begin(name);
    context = heaptide_context();
    free(block(size));
    heaptide_end(name);
    return context;
}

static void paths(void)
{
    uint64_t outer, inner, again;
    heaptide_begin("outer");
    outer = heaptide_context();
    free(block(10));
    inner = allocate_in("inner", 20);
    KNOWN(heaptide_context() == outer);
    heaptide_end("outer");
    KNOWN(heaptide_context() == 0);
    KNOWN(outer != 0 && inner != 0 && inner != outer);
    KNOWN(own(outer).requested_bytes == 10 && own(inner).requested_bytes == 20);
    KNOWN(inclusive(outer).requested_bytes == 30 && inclusive(outer).allocations == 2);
    KNOWN(own(outer).frees == 1 && own(outer).live_blocks == 0);
    again = allocate_in("inner", 40);
    KNOWN(again != inner && own(inner).allocations == 1 && own(again).requested_bytes == 40);
}

static void attributes(void)
{
    uint64_t phase, seven, negative, text;
    heaptide_begin_string("phase", "init");
    phase = heaptide_context();
    free(block(1));
    heaptide_begin_int("iteration#main", 7);
    seven = heaptide_context();
    free(block(2));
    heaptide_end_int("iteration#main", 7);
    heaptide_begin_int("iteration#main", -7);
    negative = heaptide_context();
    heaptide_end_int("iteration#main", -7);
    heaptide_begin_string("iteration#main", "7");
    text = heaptide_context();
    heaptide_end_string("iteration#main", "7");
    heaptide_end_string("phase", "init");
    KNOWN(heaptide_context() == 0);
    KNOWN(own(phase).requested_bytes == 1 && own(seven).requested_bytes == 2);
    KNOWN(seven != negative && seven != text && negative != text);
    KNOWN(allocate_in("init", 3) != phase);
}

// Each iteration enters the same path, with the same number.
static void handles(void)
{
    uint64_t context = 0;
    for (int i = 0; i < 5; i++) {
        HEAPTIDE_BEGIN("hot");
        KNOWN(context == 0 || context == heaptide_context());
        context = heaptide_context();
        free(block(6));
        HEAPTIDE_END("hot");
        KNOWN(HEAPTIDE_NAME("hot") == heaptide_name("hot"));
        KNOWN(HEAPTIDE_NAME("hot") == heaptide_name_string("region", "hot"));
        KNOWN(HEAPTIDE_NAME("hot") != HEAPTIDE_NAME_STRING("loop", "hot"));
    }
    KNOWN(own(context).allocations == 5 && own(context).requested_bytes == 30);
}

static void names(void)
{
    static char first[10001], second[10001];
    uint64_t one = allocate_in("dummy1", 1), ten = allocate_in("dummy10", 10);
    KNOWN(one != ten && own(one).requested_bytes == 1 && own(ten).requested_bytes == 10);
    one = allocate_in("a name of more than thirty-two characters, 1", 1);
    ten = allocate_in("a name of more than thirty-two characters, 10", 10);
    KNOWN(one != ten && own(one).requested_bytes == 1 && own(ten).requested_bytes == 10);
    memset(first, 'n', 10000);
    memset(second, 'n', 10000);
    second[9999] = 'm';
    one = allocate_in(first, 1);
    ten = allocate_in(second, 10);
    KNOWN(one != ten && own(one).requested_bytes == 1 && own(ten).requested_bytes == 10);
}

static void depth(void)
{
    uint64_t bottom, top = 0;
    for (int i = 0; i < 10000; i++) {
        heaptide_begin("deep");
        if (i == 0)
            top = heaptide_context();
    }
    bottom = heaptide_context();
    free(block(100));
    for (int i = 0; i < 10000; i++)
        heaptide_end("deep");
    KNOWN(heaptide_context() == 0);
    KNOWN(own(top).allocations == 0 && inclusive(top).allocations == 1);
    KNOWN(own(bottom).requested_bytes == 100);
}

static void mismatches(void)
{
    uint64_t outer, inner;
    heaptide_end("never opened");
    heaptide_end_innermost();
    KNOWN(heaptide_context() == 0);
    heaptide_begin("outer");
    outer = heaptide_context();
    heaptide_begin("inner");
    inner = heaptide_context();
    heaptide_end("never opened");
    KNOWN(heaptide_context() == inner);
    heaptide_begin("innermost");
    heaptide_end_innermost();
    KNOWN(heaptide_context() == inner);
    heaptide_begin("innermost");
    heaptide_end("inner");
    KNOWN(heaptide_context() == outer);
    heaptide_begin("inner");
    KNOWN(heaptide_context() == inner);
    heaptide_end("outer");
    KNOWN(heaptide_context() == 0);
    free(block(7));
}

int main(void)
{
    errno = 77;
    paths();
    attributes();
    handles();
    names();
    depth();
    mismatches();
    CHECK(errno == 77);
    say("scopes\n");
    return 0;
}
