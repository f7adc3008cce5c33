#include "test.h"

static long locks[2], count;

void lock(void) {
  for (int i = 0; i < 30; i++) {
    shmem_set_lock(&locks[0]);
    long v = shmem_g(&count, 0);
    shmem_p(&count, v + 1, 0);
    shmem_clear_lock(&locks[0]);
  }
  shmem_barrier_all();
  CHECK(shmem_g(&count, 0) == 30L * n);
  shmem_barrier_all();
  for (int i = 0; i < 10; i++) {
    while (shmem_test_lock(&locks[1]))
      ;
    shmem_p(&count, shmem_g(&count, 0) + 1, 0);
    shmem_clear_lock(&locks[1]);
    shmem_barrier_all();
  }
  CHECK(shmem_g(&count, 0) == 40L * n);
}
