//! `heaptide advise`: containers that grow by realloc. With -DALIKE their size is reserved, and
//! realloc returns the excess.
//
//   append  3000 lines of 640 bytes, each grown by 5 reallocations, starting with 20 bytes
//   log_to  one block of 4 MiB, grown by 1023 reallocations of 4 KiB each; with -DALIKE it doubles
#include "guest.h"

enum { LINES = 3000, PART = 20, PARTS = 32, STEP = 4096, STEPS = 1024 };

struct text {
    char *bytes;
    size_t length, room;
};

static NOINLINE void append(struct text *text, size_t reserve)
{
    if (text->length + PART > text->room) {
        text->room = text->room ? 2 * text->room : reserve;
        text->bytes = keep(realloc(text->bytes, text->room));
    }
    memset(text->bytes + text->length, 'x', PART);
    text->length += PART;
}

static NOINLINE void log_to(struct text *text)
{
    if (text->length + STEP > text->room) {
#ifdef ALIKE
        text->room = text->room ? 2 * text->room : STEP;
#else
        text->room += STEP;
#endif
        text->bytes = keep(realloc(text->bytes, text->room));
    }
    text->length += STEP;
}

int main(void)
{
    struct text all = { NULL, 0, 0 };
#ifdef ALIKE
    size_t reserve = PART * PARTS;
#else
    size_t reserve = PART;
#endif
    for (int line = 0; line < LINES; line++) {
        struct text text = { NULL, 0, 0 };
        for (int part = 0; part < PARTS; part++)
            append(&text, reserve);
        text.bytes = keep(realloc(text.bytes, text.length));
        free(text.bytes);
    }
    for (int step = 0; step < STEPS; step++)
        log_to(&all);
    free(all.bytes);
    return 0;
}
