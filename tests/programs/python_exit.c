//! A library for `python_exit.py`: allocates, without the interpreter lock, until the process ends.
#include <stdlib.h>

void churn(void) {
  for (;;) {
    void *volatile block = malloc(100);
    free(block);
  }
}
