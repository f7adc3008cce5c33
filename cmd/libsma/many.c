//go:build libsma && cgo && linux

/* Waits and tests for several words. */
#include "sma.h"
#include "_cgo_export.h"

static int holds(const struct sma_many *m, size_t i) {
  uint64_t v = sma_load((const char *)m->values + i * m->step * m->size, m->size, m->is_signed);
  return sma_holds("shmem_wait_until", m->cmp, m->is_signed, sma_load((const char *)m->ivars + i * m->size, m->size, m->is_signed), v);
}

/* These are sma_load and sma_holds for Go. */
uint64_t sma_load_word(const void *at, size_t size, int is_signed) { return sma_load(at, size, is_signed); }

int sma_word_holds(int cmp, int is_signed, uint64_t a, uint64_t b) { return sma_holds("shmem_wait_until", cmp, is_signed, a, b); }

static int counts(const struct sma_many *m, size_t i) { return m->status == NULL || m->status[i] == 0; }

/* sma_many_hold reports whether the words are as wanted. found is then which one is, or how
   many are. Words of which all have to be so are seen one after the other. */
int sma_many_hold(struct sma_many *m) {
  static __thread size_t first; /* of those that are looked at for any: each has its turn */
  switch (m->kind) {
  case SMA_ALL:
    for (; m->seen < m->n; m->seen++)
      if (counts(m, m->seen) && !holds(m, m->seen))
        return 0;
    return 1;
  case SMA_ANY:
    for (size_t k = 0; k < m->n; k++) {
      size_t i = (first + k) % m->n;
      if (counts(m, i) && holds(m, i)) {
        m->found = i;
        first = i + 1;
        return 1;
      }
    }
    return 0;
  }
  m->found = 0;
  for (size_t i = 0; i < m->n; i++)
    if (counts(m, i) && holds(m, i))
      m->indices[m->found++] = i;
  return m->found > 0;
}

/* begin fills m, and reports whether any word counts. If none does, found is the result. */
static int begin(struct sma_many *m, const char *name) {
  if (m->n > 0)
    sma_object(name, m->ivars, sma_bytes(m->n, m->size));
  sma_holds(name, m->cmp, 0, 0, 0); /* checks cmp */
  m->found = m->kind == SMA_ANY ? SIZE_MAX : m->kind == SMA_ALL;
  for (size_t i = 0; i < m->n; i++)
    if (counts(m, i))
      return 1;
  return 0;
}

size_t sma_wait_many(const char *name, int kind, void *ivars, size_t n, size_t *indices, const int *status, int cmp,
  const void *values, size_t step, size_t size, int is_signed) {
  struct sma_many m = {kind, cmp, is_signed, size, n, ivars, status, values, step, indices, 0, 0};
  sma_check(name);
  if (!begin(&m, name))
    return m.found;
  for (int i = 0; i < SMA_POLLS; i++) {
    if (sma_many_hold(&m))
      return m.found;
    sma_pause();
  }
  smaWaitMany(name, &m);
  return m.found;
}

size_t sma_test_many(const char *name, int kind, void *ivars, size_t n, size_t *indices, const int *status, int cmp,
  const void *values, size_t step, size_t size, int is_signed) {
  struct sma_many m = {kind, cmp, is_signed, size, n, ivars, status, values, step, indices, 0, 0};
  sma_check(name);
  if (!begin(&m, name))
    return m.found;
  size_t none = kind == SMA_ANY ? SIZE_MAX : 0;
  if (sma_many_hold(&m))
    return kind == SMA_ALL ? 1 : m.found;
  sma_false();
  return none;
}
