#include "test.h"
#include <shmemx.h>

static long sums[3], before_me[3];
static uint64_t sig;

#define BLOCKS(N, T) { \
    static T there[8]; \
    T here[8], back[4]; \
    for (int i = 0; i < 8; i++) \
      there[i] = 0, here[i] = (T)(me * 8 + i); \
    shmem_barrier_all(); \
    shmemx_##N##_ibput(there, here, 4, 2, 2, 2, next); \
    shmem_barrier_all(); \
    CHECK(there[1] == (T)(before * 8 + 1) && there[2] == 0 && there[4] == (T)(before * 8 + 2) && there[5] == (T)(before * 8 + 3)); \
    shmemx_ctx_##N##_ibget(SHMEM_CTX_DEFAULT, back, there, 2, 4, 2, 2, next); \
    CHECK(back[0] == here[0] && back[1] == here[1] && back[2] == here[2] && back[3] == here[3]); \
    shmem_barrier_all(); \
  }

static void counters(void) {
  static int data;
  int mine = me, got = -1;
  shmemx_ct_t ct;
  shmemx_ct_create(&ct);
  CHECK(shmemx_ct_get(ct) == 0);
  shmem_barrier_all();
  shmemx_putmem_ct(ct, &data, &mine, sizeof mine, next);
  shmemx_ct_wait(ct, 1);
  CHECK(data == before);
  shmem_barrier_all();
  shmemx_ct_set(ct, 0);
  shmem_barrier_all();
  shmemx_getmem_ct(ct, &got, &data, sizeof got, next);
  CHECK(got == me);
  shmemx_ct_wait(ct, 1);
  shmemx_ct_free(&ct);
}

static uint64_t gettid_(void) { return 1; }

void extensions(void) {
  shmemx_register_gettid(gettid_);
  RMA(BLOCKS)
#if __STDC_VERSION__ >= 201112L
  long here[2] = {me, me + 1};
  static long there[2];
  shmemx_ibput(SHMEM_CTX_DEFAULT, there, here, 1, 1, 1, 2, next);
  shmem_barrier_all();
  CHECK(there[0] == before && there[1] == before + 1);
  shmemx_ibget(here, there, 1, 1, 1, 2, next);
  CHECK(here[0] == me && here[1] == me + 1);
#endif
  for (int i = 0; i < 3; i++)
    sums[i] = me + i;
  CHECK(shmemx_long_sum_exscan(SHMEM_TEAM_WORLD, before_me, sums, 3) == 0);
  CHECK(shmemx_long_sum_inscan(SHMEM_TEAM_WORLD, sums, sums, 3) == 0);
  for (int i = 0; i < 3; i++)
    CHECK(before_me[i] == me * (me - 1) / 2 + me * i && sums[i] == before_me[i] + me + i);
  sig = 0;
  shmem_barrier_all();
  shmemx_signal_set(SHMEM_CTX_DEFAULT, &sig, 5, next);
  shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 5);
  shmem_barrier_all();
  shmemx_signal_add(&sig, 2, next);
  shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 7);
  shmem_barrier_all();
  counters();
  CHECK(shmem_team_my_pe(SHMEMX_TEAM_NODE) >= 0);
}
