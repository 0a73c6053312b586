//! Every form of annotation of Caliper's C interface, with known numbers of allocations in each
//! scope.
//
// Own allocations by path: function=main 1; main > annotate 1 (region); phase=p 1; comm.region=c 1;
// loop=l > iteration#l=0, 1, 2: 1 each; count=7 1; ratio=2.5 1; flag=true 1; name=text 1; the value
// set to 8 inside of count: 1. Values that end in a different order than they began: a=1 > b=2 1,
// then b=2 alone 1.
#include <caliper/cali.h>

#include "../programs/guest.h"

static void allocate(void)
{
    free(keep(malloc(100)));
}

static NOINLINE void regions(void)
{
    CALI_MARK_BEGIN("annotate");
    CHECK(!heaptide_loaded() || !strcmp(cali_get_current_region_or("none"), "annotate"));
    allocate();
    CALI_MARK_END("annotate");
    CALI_MARK_PHASE_BEGIN("p");
    allocate();
    CALI_MARK_PHASE_END("p");
    CALI_MARK_COMM_REGION_BEGIN("c");
    allocate();
    CALI_MARK_COMM_REGION_END("c");
    CALI_WRAP_STATEMENT("wrapped", allocate());
}

static NOINLINE void loops(void)
{
    int i;
    CALI_MARK_LOOP_BEGIN(l, "l");
    for (i = 0; i < 3; i++) {
        CALI_MARK_ITERATION_BEGIN(l, i);
        allocate();
        CALI_MARK_ITERATION_END(l);
    }
    CALI_MARK_LOOP_END(l);
}

static NOINLINE void values(void)
{
    cali_id_t count = cali_create_attribute("count", CALI_TYPE_INT, CALI_ATTR_ASVALUE);
    cali_id_t a, b;
    CHECK(count == cali_find_attribute("count") && cali_attribute_type(count) == CALI_TYPE_INT);
    CHECK(!strcmp(cali_attribute_name(count), "count"));
    CHECK(cali_attribute_properties(count) == CALI_ATTR_ASVALUE);
    CHECK(cali_find_attribute("no such attribute") == CALI_INV_ID);
    cali_begin_int(count, 7);
    allocate();
    CHECK(!heaptide_loaded() || cali_get(count).value.v_int == 7);
    cali_set_int(count, 8);
    allocate();
    cali_end(count);
    CHECK(cali_variant_is_empty(cali_get(count)));
    cali_begin_double_byname("ratio", 2.5);
    allocate();
    cali_end_byname("ratio");
    cali_begin_byname("flag");
    allocate();
    cali_end_byname("flag");
    cali_begin_string_byname("name", "text");
    allocate();
    cali_end_byname("name");
    a = cali_create_attribute("a", CALI_TYPE_INT, 0);
    b = cali_create_attribute("b", CALI_TYPE_INT, 0);
    cali_begin_int(a, 1);
    cali_begin_int(b, 2);
    allocate();
    cali_end(a);
    allocate();
    cali_end(b);
    cali_end(b); // not open: ignored
    cali_end(CALI_INV_ID);
}

int main(void)
{
    errno = 5;
    CALI_MARK_FUNCTION_BEGIN;
    allocate();
    regions();
    loops();
    values();
    cali_set_global_int_byname("ranks", 4);
    CHECK(errno == 5);
    CALI_MARK_FUNCTION_END;
    say("annotated\n");
    return 0;
}
