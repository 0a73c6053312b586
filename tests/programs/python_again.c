//! A program that loads the CPython library given as argument, and initialises and ends the
//! interpreter as often as the second argument states. From 3.12 on, each time but the first resets
//! the interpreter's allocators.
//!
//! Known: each time, `build` at line 4 of `<string>` allocates 20000 blocks of 120 bytes.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const SCRIPT =
    "class Node:\n    __slots__ = tuple('abcdefghijk')\n"
    "def build():\n    kept = [Node() for _ in [None] * 20000]\n"
    "build()\n";

int main(int argc, char **argv) {
  void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (!library) {
    puts(argc > 2 ? dlerror() : "expected a library and a number");
    return 1;
  }
  void (*initialize)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
  int (*run)(const char *, void *) =
      (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
  int (*finalize)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
  int status = 0;
  for (int times = atoi(argv[2]); times > 0; times--) {
    initialize(0);
    status |= run(SCRIPT, NULL) | finalize();
  }
  return status;
}
