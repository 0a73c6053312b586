//! A library for `python_exit.py`: allocates, without the lock of the interpreter, until the
//! process ends.
#include <stdlib.h>

void churn(void) {
  for (;;) {
    void *volatile block = malloc(100);
    free(block);
  }
}
