//go:build libsma && cgo && linux

/* Collective calls, teams and contexts, as far as they are not Go's. */
#include "sma.h"
#include "_cgo_export.h"

#include <stdlib.h>

static void collective(struct sma_coll *c, void *dst, const void *src) {
  sma_check(c->name);
  /* Where each PE says how many elements it has, one that has none gets those of others. */
  if (c->n > 0 || (c->op == SMA_COLLECT && dst != NULL))
    c->dst = sma_object(c->name, dst, 0);
  if (c->n > 0)
    c->src = sma_object(c->name, src, sma_bytes(c->n, c->size));
  smaCollective(c);
}

int sma_team(const char *name, int op, shmem_team_t team, void *dst, const void *src, size_t n, size_t size, ptrdiff_t a, ptrdiff_t b) {
  struct sma_coll c = {.name = name, .op = op, .team = SMA_ID(team), .n = n, .size = size, .a = a, .b = b};
  if (team == SHMEM_TEAM_INVALID)
    sma_die(name, "SHMEM_TEAM_INVALID");
  collective(&c, dst, src);
  return 0;
}

void sma_active(const char *name, int op, void *dst, const void *src, size_t n, size_t size, ptrdiff_t a, ptrdiff_t b, int start, int log, int npes) {
  struct sma_coll c = {.name = name, .op = op, .start = start, .log = log, .npes = npes, .n = n, .size = size, .a = a, .b = b};
  collective(&c, dst, src);
}

int sma_team_get_config(const char *name, shmem_team_t team, long mask, shmem_team_config_t *config) {
  int n = smaTeamContexts(name, SMA_ID(team));
  if (n < 0)
    return -1;
  if (mask & SHMEM_TEAM_NUM_CONTEXTS)
    config->num_contexts = n;
  return 0;
}

static int contexts(const shmem_team_config_t *config, long mask) {
  return config != NULL && mask & SHMEM_TEAM_NUM_CONTEXTS ? config->num_contexts : 0;
}

int sma_team_split_strided(const char *name, shmem_team_t parent, int start, int stride, int size,
  const shmem_team_config_t *config, long mask, shmem_team_t *team) {
  *team = SHMEM_TEAM_INVALID;
  if (parent == SHMEM_TEAM_INVALID)
    return -1;
  return smaTeamSplitStrided(name, SMA_ID(parent), start, stride, size, contexts(config, mask), (uintptr_t *)team);
}

int sma_team_split_2d(const char *name, shmem_team_t parent, int xrange, const shmem_team_config_t *xconfig, long xmask,
  shmem_team_t *x, const shmem_team_config_t *yconfig, long ymask, shmem_team_t *y) {
  *x = *y = SHMEM_TEAM_INVALID;
  if (parent == SHMEM_TEAM_INVALID)
    return -1;
  return smaTeamSplit2D(name, SMA_ID(parent), xrange, contexts(xconfig, xmask), contexts(yconfig, ymask), (uintptr_t *)x, (uintptr_t *)y);
}

int sma_ctx_create(const char *name, shmem_team_t team, long options, shmem_ctx_t *ctx) {
  (void)options;
  sma_check(name);
  *ctx = SHMEM_CTX_INVALID;
  if (team == SHMEM_TEAM_INVALID)
    return -1;
  struct sma_ctx *c = calloc(1, sizeof *c);
  if (c == NULL)
    return -1;
  if (smaCtxCreate(name, SMA_ID(team), c) == 0) {
    free(c);
    return -1;
  }
  __atomic_store_n(&sma_ctxs[c->id], c, __ATOMIC_RELEASE);
  *ctx = (shmem_ctx_t)(uintptr_t)c->id;
  return 0;
}

void sma_ctx_destroy(const char *name, shmem_ctx_t ctx) {
  sma_check(name);
  if (ctx == SHMEM_CTX_INVALID)
    return;
  const struct sma_ctx *c = sma_context(ctx);
  if (c == &sma_world)
    sma_die(name, "the default context cannot be destroyed");
  if (c->n == 0)
    sma_bad_pe(c, name, 0);
  smaCtxDestroy(name, c->id);
}

void sma_session(const char *name, shmem_ctx_t ctx) {
  sma_check(name);
  if (ctx != SHMEM_CTX_INVALID && sma_context(ctx)->n == 0)
    sma_bad_pe(sma_context(ctx), name, 0);
}

int sma_ctx_get_team(const char *name, shmem_ctx_t ctx, shmem_team_t *team) {
  sma_check(name);
  *team = SHMEM_TEAM_INVALID;
  const struct sma_ctx *c = sma_context(ctx);
  if (c->n == 0)
    return -1;
  *team = (shmem_team_t)smaCtxTeam(c->id);
  return 0;
}
