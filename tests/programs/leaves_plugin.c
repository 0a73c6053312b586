//! A library of python_embedded.c whose destructor leaves `dlclose` by a jump, once.
#include <setjmp.h>
#include <stddef.h>

jmp_buf *leave_to;

__attribute__((destructor)) static void leave(void)
{
    jmp_buf *to = leave_to;
    leave_to = NULL;
    if (to)
        longjmp(*to, 1);
}
