#include "test.h"

static long data[2][64];

void team(void) {
  CHECK(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_WORLD) == n);
  CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);
  int shared = shmem_team_n_pes(SHMEM_TEAM_SHARED), mine = shmem_team_my_pe(SHMEM_TEAM_SHARED);
  CHECK(shared >= 1 && mine >= 0 && shmem_team_translate_pe(SHMEM_TEAM_SHARED, mine, SHMEM_TEAM_WORLD) == me);
  shmem_team_config_t config = {3}, got = {0};
  shmem_team_t even = SHMEM_TEAM_WORLD;
  int evens = (n + 1) / 2;
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, evens, &config, SHMEM_TEAM_NUM_CONTEXTS, &even) == 0);
  CHECK((even != SHMEM_TEAM_INVALID) == (me % 2 == 0));
  if (even != SHMEM_TEAM_INVALID) {
    CHECK(shmem_team_my_pe(even) == me / 2 && shmem_team_n_pes(even) == evens);
    CHECK(shmem_team_translate_pe(even, evens - 1, SHMEM_TEAM_WORLD) == 2 * (evens - 1));
    CHECK(shmem_team_get_config(even, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0 && got.num_contexts == 3);
    for (int i = 0; i < evens; i++)
      CHECK(shmem_team_ptr(even, data, i) == shmem_ptr(data, 2 * i));
    CHECK(shmem_team_ptr(even, data, me / 2) == data && shmem_team_ptr(even, &got, me / 2) == NULL);
    data[1][0] = me + 1;
    CHECK(shmem_sum_reduce(even, data[0], data[1], 1) == 0 && data[0][0] == evens * evens);
    CHECK(shmem_team_sync(even) == 0 && shmem_sync(even) == 0);
    data[1][0] = me;
    CHECK(shmem_broadcast(even, data[0], data[1], 1, evens - 1) == 0 && data[0][0] == 2 * (evens - 1));
    shmem_ctx_t ctx, own;
    shmem_team_t of;
    CHECK(shmem_team_create_ctx(even, SHMEM_CTX_PRIVATE, &ctx) == 0 && shmem_team_create_ctx(even, 0, &own) == 0);
    CHECK(shmem_ctx_get_team(ctx, &of) == 0 && of == even);
    shmem_team_sync(even);
    shmem_p(ctx, &data[0][1], (long)me, (me / 2 + 1) % evens);
    shmem_ctx_quiet(ctx);
    shmem_team_sync(even);
    CHECK(data[0][1] == 2 * ((me / 2 + evens - 1) % evens));
    shmem_ctx_destroy(ctx);
    shmem_team_destroy(even); /* and its other context */
    CHECK(shmem_ctx_get_team(own, &of) != 0 && of == SHMEM_TEAM_INVALID);
  }
  CHECK(shmem_team_translate_pe(SHMEM_TEAM_INVALID, 0, SHMEM_TEAM_WORLD) == -1);
  CHECK(shmem_team_ptr(SHMEM_TEAM_INVALID, data, 0) == NULL && shmem_team_ptr(SHMEM_TEAM_WORLD, data, n) == NULL);
  shmem_team_t none = SHMEM_TEAM_WORLD;
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &none) != 0 && none == SHMEM_TEAM_INVALID);
  CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &none) != 0);
  shmem_team_t x, y;
  CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &x, NULL, 0, &y) == 0);
  CHECK(shmem_team_my_pe(x) == me % 2 && shmem_team_my_pe(y) == me / 2);
  shmem_team_destroy(x);
  shmem_team_destroy(y);
  shmem_team_destroy(SHMEM_TEAM_INVALID);
  for (int i = 0; i < 100; i++) { /* their numbers are used again */
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &x) == 0 && shmem_team_my_pe(x) == n - 1 - me);
    shmem_team_destroy(x);
  }
}
