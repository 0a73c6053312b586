//! `heaptide advise`: blocks that are freed before the next allocation. With -DALIKE, each block is
//! still live at the next allocation.
//
//   parse_field  20000 blocks of 64 bytes
#include "guest.h"

enum { FIELDS = 20000 };

static NOINLINE char *parse_field(void) { return keep((char *)malloc(64)); }

int main(void)
{
    char *before = NULL;
    for (int i = 0; i < FIELDS; i++) {
        char *field = parse_field();
#ifdef ALIKE
        free(before);
        before = field;
#else
        free(field);
#endif
    }
    free(before);
    return 0;
}
