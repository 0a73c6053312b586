//! Code without unwind tables whose rbp points to data: numbers, addresses of data and of the
//! middle of code are where a return address would be. None of them is a frame, so that all blocks
//! have one stack. A frame pointer is still followed.
//
// expect function:pretends>called_back sites=1 allocations=300 frees=300
// expect function:main>pretends allocations=0
// expect function:decoy allocations=0
// expect function:main>framed>called_back sites=1 allocations=100 frees=100
#include "guest.h"

void pretends(void (*call)(void), void *frame);
void framed(void (*call)(void));
void decoy(void);

__asm__(".text\n"
        ".globl pretends\n.type pretends,@function\npretends:\n"
        "  push %rbp\n  mov %rsi, %rbp\n"
        "  call *%rdi\n"
        "  pop %rbp\n  ret\n.size pretends,.-pretends\n"
        ".globl framed\n.type framed,@function\nframed:\n"
        "  push %rbp\n  mov %rsp, %rbp\n"
        "  call *%rdi\n"
        "  pop %rbp\n  ret\n.size framed,.-framed\n"
        ".globl decoy\n.type decoy,@function\ndecoy:\n"
        "  .skip 128, 0xcc\n  ret\n.size decoy,.-decoy\n");

static NOINLINE void called_back(void)
{
    free(keep(malloc(10)));
    stay();
}

int main(void)
{
    for (uintptr_t i = 0; i < 100; i++) {
        uintptr_t frame[2] = {0, 0};
        frame[1] = i;
        frame[0] = 1;
        pretends(called_back, keep(&frame[0]));
        frame[1] = (uintptr_t)frame + i * 8;
        pretends(called_back, keep(&frame[0]));
        frame[1] = (uintptr_t)decoy + 16 + i;
        pretends(called_back, keep(&frame[0]));
        framed(called_back);
    }
    say("guessed\n");
    return 0;
}
