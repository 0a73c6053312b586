//! A program that loads the CPython library given as argument, long after its start, and executes
//! Python code with it.
//!
//! Known: the function `embedded` at line 2 of `<string>` allocates one block of 100002 bytes. With
//! `unload` the library is then closed, with `end` after ending the interpreter. In all cases
//! `after` allocates one block of 100003 bytes. With `leave` and a library of leaves_plugin.c, a
//! destructor of that library first leaves `dlclose` by a jump.
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void after(void) {
  void *volatile block = malloc(100003);
  free(block);
}

// The library that leaves it stays loaded.
static int leave_dlclose(const char *file) {
  static jmp_buf here;
  void *library = dlopen(file, RTLD_NOW);
  jmp_buf **leave_to = library ? (jmp_buf **)dlsym(library, "leave_to") : NULL;
  if (!leave_to)
    return 1;
  *leave_to = &here;
  if (setjmp(here) == 0) {
    dlclose(library);
    return 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 3 && leave_dlclose(argv[3]) != 0)
    return 1;
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (!library) {
    puts(argc > 1 ? dlerror() : "expected a library");
    return 1;
  }
  void (*initialize)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
  int (*run)(const char *, void *) =
      (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
  initialize(0);
  int status = run("def embedded():\n    return bytearray(100001)\nembedded()\n", NULL);
  if (argc > 2 && strcmp(argv[2], "leave") != 0) {
    int (*finalize)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
    if (strcmp(argv[2], "end") == 0) {
      status += finalize();
    }
    status += dlclose(library);
  }
  after();
  return status;
}
