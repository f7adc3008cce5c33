#include "test.h"

static uint64_t sig;
static long data[1000];

void signals(void) {
  long v[1000];
  for (int i = 0; i < 1000; i++)
    v[i] = me + i;
  sig = 0;
  shmem_barrier_all();
  shmem_long_put_signal(data, v, 1000, &sig, 5, SHMEM_SIGNAL_SET, next);
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 5) == 5 && shmem_signal_fetch(&sig) == 5);
  for (int i = 0; i < 1000; i++)
    CHECK(data[i] == before + i);
  shmem_barrier_all();
  shmem_put64_signal(data, v + 1, 1, &sig, 1, SHMEM_SIGNAL_ADD, next);
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_GT, 5) == 6 && data[0] == before + 1);
  shmem_barrier_all();
  shmem_putmem_signal_nbi(data, v + 2, sizeof(long), &sig, 1, SHMEM_SIGNAL_ADD, next);
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_GE, 7) == 7 && data[0] == before + 2);
  shmem_barrier_all();
  shmem_ctx_long_put_signal_nbi(SHMEM_CTX_DEFAULT, data, NULL, 0, &sig, 9, SHMEM_SIGNAL_SET, next);
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_NE, 7) == 9);
}
