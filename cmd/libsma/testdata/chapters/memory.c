#include "test.h"

void memory(void) {
  static int global;
  int local;
  char *a = shmem_malloc(1000), *b = shmem_calloc(100, 8), *c = shmem_align(4096, 10), *d = shmem_align(100, 10);
  CHECK(a && b && c && d && (uintptr_t)c % 4096 == 0 && (uintptr_t)d % 128 == 0);
  for (int i = 0; i < 800; i++)
    CHECK(b[i] == 0);
  CHECK(shmem_addr_accessible(a, n - 1) && shmem_addr_accessible(&global, 0) && !shmem_addr_accessible(&local, 0));
  CHECK(!shmem_addr_accessible(a, n) && shmem_ptr(a, me) == a && shmem_ptr(&global, me) == &global && !shmem_ptr(&local, me));
  char *far = shmem_ptr(a, next);
  if (far) {
    far[7] = (char)me;
    shmem_barrier_all();
    CHECK(a[7] == (char)before);
  } else {
    shmem_barrier_all();
  }
  memset(a, 42, 1000);
  CHECK((a = shmem_realloc(a, 100000)) != NULL);
  for (int i = 0; i < 1000; i++)
    CHECK(a[i] == 42);
  CHECK((a = shmem_realloc(a, 10)) && a[9] == 42);
  CHECK(shmem_realloc(a, 0) == NULL && shmem_malloc(0) == NULL && shmem_malloc((size_t)1 << 62) == NULL);
  CHECK(shmem_calloc((size_t)1 << 40, (size_t)1 << 40) == NULL && shmem_realloc(b, (size_t)1 << 42) == NULL);
  shmem_free(NULL);
  shmem_free(b);
  shmem_free(c);
  shmem_free(d);
  char *e = shmem_malloc_with_hints(8, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE), *f = shmem_realloc(NULL, 8);
  CHECK(e && f && e != f);
  shmem_free(e);
  shmem_free(f);
}
