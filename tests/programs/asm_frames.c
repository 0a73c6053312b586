//! Hand-written frames: with tables, with a frame pointer and no tables, and with neither.
//
// With neither, outer frames may be missing, but nothing may crash, and every block is counted.
// expect function:main>with_tables>called_back allocations=300
// expect function:main>called_back>framed allocations=0
// expect function:called_back allocations=900 frees=900 requested_bytes=9000
// expect function:main>framed>called_back allocations=300
#include "guest.h"

void with_tables(void (*call)(void));
void framed(void (*call)(void));
void bare_frame(void (*call)(void));

__asm__(".text\n"
        ".globl with_tables\n.type with_tables,@function\nwith_tables:\n"
        ".cfi_startproc\n"
        "  push %rbx\n.cfi_adjust_cfa_offset 8\n"
        "  sub $80, %rsp\n.cfi_adjust_cfa_offset 80\n"
        "  call *%rdi\n"
        "  add $80, %rsp\n.cfi_adjust_cfa_offset -80\n"
        "  pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "  ret\n.cfi_endproc\n.size with_tables,.-with_tables\n"
        ".globl framed\n.type framed,@function\nframed:\n"
        "  push %rbp\n  mov %rsp, %rbp\n  sub $48, %rsp\n"
        "  call *%rdi\n"
        "  leave\n  ret\n.size framed,.-framed\n"
        ".globl bare_frame\n.type bare_frame,@function\nbare_frame:\n"
        "  push %rbp\n  mov $0x1234, %ebp\n  sub $32, %rsp\n"
        "  call *%rdi\n"
        "  add $32, %rsp\n  pop %rbp\n  ret\n.size bare_frame,.-bare_frame\n");

static NOINLINE void called_back(void)
{
    free(keep(malloc(10)));
    stay();
}

int main(void)
{
    for (int i = 0; i < 300; i++) {
        with_tables(called_back);
        framed(called_back);
        bare_frame(called_back);
    }
    say("by hand\n");
    return 0;
}
