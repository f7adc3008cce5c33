//go:build libsma && cgo && linux

/* Setup, memory, remote access by requests, and mistakes. */
#define _GNU_SOURCE
#include "sma.h"
#include "_cgo_export.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct sma_table sma;
struct sma_ctx sma_world = {.id = 1};
struct sma_ctx sma_no_ctx;
static struct sma_ctx invalid; /* SHMEM_CTX_INVALID */
struct sma_ctx *sma_ctxs[SMA_CTXS] = {&invalid, &sma_world};

static int thread_level;
static enum { NOT_YET, OPEN, CLOSED } state;
static int opens; /* calls of shmem_init that no shmem_finalize has matched */

/* say prints one line about a call. */
static void say(const char *name, const char *format, va_list args) {
  char text[512], line[640];
  vsnprintf(text, sizeof text, format, args);
  int n = sma.npes > 0 ? snprintf(line, sizeof line, "libsma: PE %d: %s: %s\n", sma.pe, name, text)
                       : snprintf(line, sizeof line, "libsma: %s: %s\n", name, text);
  if (n >= (int)sizeof line)
    n = sizeof line - 1;
  if (write(STDERR_FILENO, line, (size_t)n) < 0)
    return;
}

void sma_die(const char *name, const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(name, format, args);
  va_end(args);
  smaEnd(1);
  for (;;)
    pause();
}

void sma_check(const char *name) {
  if (state == NOT_YET)
    sma_die(name, "call shmem_init first");
  if (state == CLOSED)
    sma_die(name, "the library is closed by shmem_finalize");
}

void sma_bad_pe(const struct sma_ctx *c, const char *name, int pe) {
  sma_check(name);
  if (c->n == 0)
    sma_die(name, "the context is not open");
  sma_die(name, "there is no PE %d, of %d", pe, (int)c->n);
}

void sma_bad_address(const char *name, const void *address, size_t bytes) {
  sma_check(name);
  if (sma_offset(address, 0) != SMA_NOT)
    sma_die(name, "%zu bytes at %p are more than there is", bytes, address);
  sma_die(name, "address %p is not symmetric: neither of the symmetric heap nor of a global or static variable of the program", address);
}

static void at_exit(int status, void *arg) {
  (void)arg;
  if (state != OPEN)
    return;
  if (status == 0) {
    opens = 1;
    sma_finalize("exit");
    return;
  }
  fflush(NULL);
  smaLeave(status);
}

int sma_init(const char *name, int requested, int *provided) {
  if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE)
    requested = SHMEM_THREAD_MULTIPLE;
  if (state != OPEN) {
    if (sma_unshare() != 0)
      sma_die(name, "no memory for %zu bytes of static data", sma.data_size);
    sma.data_size = 0;
    smaOpen(name, sma_static_size());
    if (state == NOT_YET)
      on_exit(at_exit, NULL);
    state = OPEN;
    thread_level = requested;
    sma_static(name);
  }
  opens++;
  if (provided != NULL)
    *provided = thread_level;
  return 0;
}

void sma_query_thread(const char *name, int *provided) {
  sma_check(name);
  *provided = thread_level;
}

int sma_initialized(void) { return state == OPEN; }

void sma_finalize(const char *name) {
  if (state == CLOSED)
    return;
  sma_check(name);
  if (--opens > 0) {
    sma_team(name, SMA_BARRIER, SHMEM_TEAM_WORLD, 0, 0, 0, 1, 0, 0);
    return;
  }
  smaClose(name);
  state = CLOSED;
}

/* These two go on working after the end. */
int sma_my_pe(const char *name) {
  if (unlikely(sma.npes == 0))
    sma_check(name);
  return sma.pe;
}

int sma_n_pes(const char *name) {
  if (unlikely(sma.npes == 0))
    sma_check(name);
  return sma.npes;
}

void sma_global_exit(const char *name, int status) {
  sma_check(name);
  smaEnd(status);
  for (;;)
    pause();
}

int sma_pe_accessible(const char *name, int pe) {
  sma_check(name);
  return pe >= 0 && pe < sma.npes;
}

int sma_addr_accessible(const char *name, const void *address, int pe) {
  return sma_pe_accessible(name, pe) && sma_offset(address, 0) != SMA_NOT;
}

void *sma_ptr(const char *name, const void *address, int pe) {
  struct sma_peer *p = sma_peer(&sma_world, name, pe);
  size_t off = sma_offset(address, 0);
  if (off == SMA_NOT || p->base == NULL)
    return NULL;
  return pe == sma.pe ? (void *)address : p->base + off;
}

static void *at(size_t off) { return off == 0 ? NULL : sma.heap + (off - sma.at); }

void *sma_malloc(const char *name, size_t size, size_t align, int zero) {
  sma_check(name);
  if (size == 0)
    return NULL;
  size_t whole = sizeof(void *); /* the next power of two */
  while (whole < align && whole <= SIZE_MAX / 2)
    whole *= 2;
  return at(smaAlloc(name, size, whole, zero));
}

void sma_free(const char *name, void *ptr) {
  sma_check(name);
  if (ptr != NULL)
    smaFree(name, sma_object(name, ptr, 0));
}

void *sma_realloc(const char *name, void *ptr, size_t size) {
  if (ptr == NULL)
    return sma_malloc(name, size, 0, 0);
  if (size == 0) {
    sma_free(name, ptr);
    return NULL;
  }
  return at(smaRealloc(name, sma_object(name, ptr, 0), size));
}

void sma_look(struct sma_peer *p) {
  if (p->fence)
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  uint32_t arm = __atomic_load_n(p->arm, __ATOMIC_RELAXED);
  if (__atomic_exchange_n(&p->rung, arm, __ATOMIC_SEQ_CST) != arm)
    smaStored((int)(p - sma.peers));
}

void sma_put_far(const struct sma_ctx *c, const char *name, size_t off, const void *src, size_t bytes, int pe) {
  smaPut(name, c->id, off, (void *)src, bytes, pe);
}

void sma_get_far(const struct sma_ctx *c, const char *name, void *dst, size_t off, size_t bytes, int pe, int nbi) {
  smaGet(name, c->id, dst, off, bytes, pe, nbi);
}

/* span returns the bytes that n blocks of elements take that begin step elements apart. */
static size_t span(const char *name, size_t n, ptrdiff_t step, size_t block, size_t size) {
  if (step < 1 || (size_t)step < block)
    sma_die(name, "a stride of %td elements, between blocks of %zu", step, block);
  size_t last;
  if (__builtin_mul_overflow(n - 1, (size_t)step, &last) || __builtin_add_overflow(last, block, &last))
    return SIZE_MAX - 1;
  return sma_bytes(last, size);
}

void sma_ibput(const struct sma_ctx *c, const char *name, void *dst, const void *src, ptrdiff_t dstep, ptrdiff_t sstep, size_t block, size_t n, size_t size, int pe) {
  struct sma_peer *p = sma_peer(c, name, pe);
  if (n == 0 || block == 0)
    return;
  size_t off = sma_object(name, dst, span(name, n, dstep, block, size));
  span(name, n, sstep, block, size);
  if (p->base == NULL) {
    smaPutStrided(name, c->id, off, (void *)src, dstep, sstep, block, n, size, pe);
    return;
  }
  char *to = p->base + off;
  const char *from = src;
  for (size_t i = 0; i < n; i++, to += (size_t)dstep * size, from += (size_t)sstep * size)
    sma_copy(to, from, block * size);
  sma_stored(p);
}

void sma_ibget(const struct sma_ctx *c, const char *name, void *dst, const void *src, ptrdiff_t dstep, ptrdiff_t sstep, size_t block, size_t n, size_t size, int pe) {
  struct sma_peer *p = sma_peer(c, name, pe);
  if (n == 0 || block == 0)
    return;
  size_t off = sma_object(name, src, span(name, n, sstep, block, size));
  span(name, n, dstep, block, size);
  if (p->base == NULL) {
    smaGetStrided(name, c->id, dst, off, dstep, sstep, block, n, size, pe);
    return;
  }
  char *to = dst;
  const char *from = p->base + off;
  for (size_t i = 0; i < n; i++, to += (size_t)dstep * size, from += (size_t)sstep * size)
    sma_copy(to, from, block * size);
}

void sma_put_signal(const struct sma_ctx *c, const char *name, void *dst, const void *src, size_t bytes, uint64_t *sig, uint64_t v, int op, int pe) {
  sma_object(name, sig, sizeof *sig); /* before anything is stored */
  if (op != SHMEM_SIGNAL_SET && op != SHMEM_SIGNAL_ADD)
    sma_die(name, "signal operation %d", op);
  sma_put(c, name, dst, src, bytes, pe);
  sma_fence();
  if (op == SHMEM_SIGNAL_SET)
    sma_put(c, name, sig, &v, sizeof v, pe); /* also by a window */
  else
    sma_do(c, name, SMA_ADD, sig, sizeof *sig, v, 0, pe);
}

uint64_t sma_signal_fetch(const char *name, const uint64_t *sig) {
  sma_object(name, sig, sizeof *sig);
  return __atomic_load_n(sig, __ATOMIC_ACQUIRE);
}

uint64_t sma_amo_far(const struct sma_ctx *c, const char *name, int op, size_t off, size_t size, uint64_t v, uint64_t cond, int pe) {
  return smaFetch(name, c->id, op, off, size, v, cond, pe);
}

void sma_do_far(const struct sma_ctx *c, const char *name, int op, size_t off, size_t size, uint64_t v, int pe) {
  smaDo(name, c->id, op, off, size, v, pe);
}

void sma_amo_nbi(const struct sma_ctx *c, const char *name, void *fetch, int op, void *dst, size_t size, uint64_t v, uint64_t cond, int pe) {
  struct sma_peer *p = sma_peer(c, name, pe);
  size_t off = sma_object(name, dst, size);
  if (p->base == NULL) {
    smaFetchNBI(name, c->id, fetch, op, off, size, v, cond, pe);
    return;
  }
  uint64_t old = sma_atomic(p->base + off, op, size, v, cond);
  if (op != SMA_FETCH)
    sma_stored(p);
  memcpy(fetch, &old, size);
}

void sma_quiet(const struct sma_ctx *c, const char *name) {
  if (c == &invalid)
    return;
  if (c->n == 0)
    sma_bad_pe(c, name, 0);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (sma.far)
    smaQuiet(name, c->id);
}

void sma_pe_quiet(const struct sma_ctx *c, const char *name, const int *pes, size_t n) {
  if (n == 0 || c == &invalid)
    return;
  for (size_t i = 0; i < n; i++)
    sma_peer(c, name, pes[i]);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (sma.far)
    smaPEQuiet(name, c->id, (int *)pes, n);
}

uint64_t sma_wait_far(const char *name, const void *ivar, size_t size, int is_signed, int cmp, uint64_t v) {
  return smaWait(name, (void *)ivar, size, is_signed, cmp, v);
}

/* A program that tests in a loop waits for others, which may need this processor. */
void sma_false(void) {
  static __thread unsigned tests;
  if (++tests % 64 == 0)
    sched_yield();
}

int sma_lock(const char *name, int what, long *lock) {
  return smaLock(name, what, sma_object(name, lock, sizeof *lock));
}
