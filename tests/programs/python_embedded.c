//! A program that loads the library of CPython named by its argument, long after its start, and
//! executes Python code by it.
//!
//! Known: the function `embedded` at line 2 of `<string>` allocates one block of 100002 bytes.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (!library) {
    puts(argc > 1 ? dlerror() : "expected a library");
    return 1;
  }
  void (*initialize)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
  int (*run)(const char *, void *) =
      (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
  initialize(0);
  return run("def embedded():\n    return bytearray(100001)\nembedded()\n", NULL);
}
