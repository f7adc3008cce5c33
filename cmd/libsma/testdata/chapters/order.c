#include "test.h"

static long flag, value[64];

void order(void) {
  flag = 0;
  shmem_barrier_all();
  for (long round = 1; round <= 200; round++) {
    for (int i = 0; i < 64; i++)
      shmem_p(&value[i], round * 100 + i, next);
    shmem_fence();
    shmem_p(&flag, round, next);
    shmem_wait_until(&flag, SHMEM_CMP_GE, round);
    for (int i = 0; i < 64; i++)
      CHECK(value[i] == round * 100 + i);
    shmem_quiet();
    shmem_ctx_quiet(SHMEM_CTX_DEFAULT);
    shmem_sync_all();
  }
}
