// Several lines of one function that allocate, each a different size, and one that frees at once.
//
//   grow  first   20 × 1000 bytes      third   5 × 504 bytes
//   grow  second  10 × 2008 bytes      fourth  1 × 40 bytes
//   grow  freed    7 × 104 bytes, temporary; the first of them is live at the peak
//   main  calls grow: 42,640 bytes in 36 blocks live at exit, 42,744 at the peak
//
// With an argument, `second` allocates 5 blocks more: 15 × 2008 bytes.
#include <stdlib.h>

static void *volatile kept[64];
static int count;

__attribute__((noinline)) static void grow(int more)
{
    for (int i = 0; i < 20; i++)
        kept[count++] = malloc(1000); // first
    for (int i = 0; i < 10 + more; i++)
        kept[count++] = malloc(2008); // second
    for (int i = 0; i < 5; i++)
        kept[count++] = malloc(504); // third
    kept[count++] = malloc(40); // fourth
    for (int i = 0; i < 7; i++) {
        void *volatile block = malloc(104); // freed
        free(block);
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    grow(argc > 1 ? 5 : 0); // call
    return 0;
}
