/* What the C half of the library shares: the table that Go fills, and the operations on
   memory that is mapped. Everything else is a call into Go. */
#ifndef SMA_H
#define SMA_H

#define SHMEM_NO_GENERICS_
#include "include/shmem.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

/* SMA_FN defines a function under its name for profiling, and its usual name, which a
   profiling library may define again. */
#define SMA_FN(R, N, P) \
  R pshmem_##N P; \
  extern __typeof__(pshmem_##N) shmem_##N __attribute__((weak, alias("pshmem_" #N))); \
  R pshmem_##N P

#define SMA_INLINE static inline __attribute__((always_inline))
#define SMA_COLD __attribute__((noinline, cold))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

typedef const char *sma_name; /* of a call, for messages */

/* A PE as this one sees it. */
struct sma_peer {
  char *base;    /* its heap as mapped here; NULL: it is reached by requests */
  uint32_t *arm; /* its arm word, which changes when it is about to sleep (pair S8) */
  uint32_t rung; /* the value of the arm word that was answered last */
  uint32_t fence; /* a barrier is needed between a store there and the load of arm */
};

/* A context: which PEs its operations may name. */
struct sma_ctx {
  uint32_t n;     /* 0: not open */
  int id;         /* the handle */
  const int *pes; /* their numbers in the world; NULL: they are the same */
};

#define SMA_CTXS 1024 /* handles */

/* The table. It does not change while the library is open, but for rung. */
struct sma_table {
  char *heap;    /* where objects begin in this PE's heap */
  size_t size;   /* bytes from there on; 0: the library is not open */
  size_t at;     /* offset of that in the heap */
  char *data;    /* the program's static data */
  size_t data_size;
  size_t data_at; /* offset of the object that is mapped there */
  struct sma_peer *peers;
  int pe, npes;
  int far; /* some PE is reached by requests */
};

extern struct sma_table sma;
extern struct sma_ctx sma_world;             /* the default context */
extern struct sma_ctx *sma_ctxs[SMA_CTXS];   /* by handle */
extern struct sma_ctx sma_no_ctx;            /* has no PEs */

enum { SMA_FETCH = 1, SMA_SET, SMA_SWAP, SMA_CSWAP, SMA_ADD, SMA_AND, SMA_OR, SMA_XOR, /* as in symheap */
       SMA_MIN, SMA_MAX, SMA_SUM, SMA_PROD };
enum { SMA_SYNC, SMA_BARRIER, SMA_BROADCAST, SMA_COLLECT, SMA_FCOLLECT, SMA_ALLTOALL, SMA_ALLTOALLS, SMA_REDUCE, SMA_INSCAN, SMA_EXSCAN };
enum { SMA_LOCK, SMA_TRY, SMA_CLEAR };
enum { SMA_ALL, SMA_ANY, SMA_SOME };
enum { SMA_I8, SMA_I16, SMA_I32, SMA_I64, SMA_U8, SMA_U16, SMA_U32, SMA_U64, SMA_F32, SMA_F64, SMA_FLONG, SMA_C32, SMA_C64,
       SMA_CHAR = CHAR_MIN < 0 ? SMA_I8 : SMA_U8 };

/* sma_coll is a collective call. Offsets are of the heap. */
struct sma_coll {
  const char *name;
  int op;
  uintptr_t team;         /* 0: the active set */
  int start, log, npes;   /* the active set */
  size_t dst, src, n, size;
  ptrdiff_t a, b;         /* root; strides; operation and type of a reduction */
};

/* sma_many is a comparison of many words here. */
struct sma_many {
  int kind, cmp, is_signed;
  size_t size, n;
  const void *ivars;
  const int *status;
  const void *values;
  size_t step; /* from one value to the next, 0 or 1 */
  size_t *indices;
  size_t seen, found;
};

#define SMA_SIGNED(T) ((T)-1 < (T)1)
#define SMA_ID(handle) ((uintptr_t)(handle))

/* The value of T as a word of 8 bytes, and back. */
#define SMA_BITS(T, v) ({ T v_ = (v); uint64_t w_ = 0; memcpy(&w_, &v_, sizeof v_); w_; })
#define SMA_FROM(T, w) ({ uint64_t w_ = (w); T v_; memcpy(&v_, &w_, sizeof v_); v_; })

/* Mistakes: one line, and the end of the job. */
void sma_bad_pe(const struct sma_ctx *c, const char *name, int pe) SHMEM_NORETURN_;
void sma_bad_address(const char *name, const void *address, size_t bytes) SHMEM_NORETURN_;
void sma_die(const char *name, const char *format, ...) SHMEM_NORETURN_ __attribute__((format(printf, 2, 3)));
void sma_check(const char *name); /* the library is open */
size_t sma_static_size(void);       /* whole pages */
void sma_static(const char *name); /* makes static data symmetric */
int sma_unshare(void);              /* makes it private again; -1: there is no memory */

int sma_init(const char *name, int requested, int *provided);
int sma_initialized(void);
void sma_finalize(const char *name);
void sma_query_thread(const char *name, int *provided);
int sma_my_pe(const char *name);
int sma_n_pes(const char *name);
void sma_global_exit(const char *name, int status) SHMEM_NORETURN_;
int sma_pe_accessible(const char *name, int pe);
int sma_addr_accessible(const char *name, const void *address, int pe);
void *sma_ptr(const char *name, const void *address, int pe);
void *sma_malloc(const char *name, size_t size, size_t align, int zero);
void sma_free(const char *name, void *ptr);
void *sma_realloc(const char *name, void *ptr, size_t size);
void sma_quiet(const struct sma_ctx *c, const char *name);
void sma_pe_quiet(const struct sma_ctx *c, const char *name, const int *pes, size_t n);
int sma_lock(const char *name, int what, long *lock);
int sma_team(const char *name, int op, shmem_team_t team, void *dst, const void *src, size_t n, size_t size, ptrdiff_t a, ptrdiff_t b);
void sma_active(const char *name, int op, void *dst, const void *src, size_t n, size_t size, ptrdiff_t a, ptrdiff_t b, int start, int log, int npes);
void sma_fold(int op, int type, void *acc, const void *v, size_t bytes);
int sma_team_get_config(const char *name, shmem_team_t team, long mask, shmem_team_config_t *config);
int sma_team_split_strided(const char *name, shmem_team_t parent, int start, int stride, int size,
  const shmem_team_config_t *config, long mask, shmem_team_t *team);
int sma_team_split_2d(const char *name, shmem_team_t parent, int xrange, const shmem_team_config_t *xconfig, long xmask,
  shmem_team_t *x, const shmem_team_config_t *yconfig, long ymask, shmem_team_t *y);
int sma_ctx_create(const char *name, shmem_team_t team, long options, shmem_ctx_t *ctx);
void sma_ctx_destroy(const char *name, shmem_ctx_t ctx);
int sma_ctx_get_team(const char *name, shmem_ctx_t ctx, shmem_team_t *team);
void sma_session(const char *name, shmem_ctx_t ctx); /* checks the context: hints change nothing */
void sma_look(struct sma_peer *p);
void sma_put_far(const struct sma_ctx *c, const char *name, size_t off, const void *src, size_t bytes, int pe);
void sma_get_far(const struct sma_ctx *c, const char *name, void *dst, size_t off, size_t bytes, int pe, int nbi);
void sma_ibput(const struct sma_ctx *c, const char *name, void *dst, const void *src, ptrdiff_t dstep, ptrdiff_t sstep, size_t block, size_t n, size_t size, int pe);
void sma_ibget(const struct sma_ctx *c, const char *name, void *dst, const void *src, ptrdiff_t dstep, ptrdiff_t sstep, size_t block, size_t n, size_t size, int pe);
void sma_put_signal(const struct sma_ctx *c, const char *name, void *dst, const void *src, size_t bytes, uint64_t *sig, uint64_t v, int op, int pe);
uint64_t sma_signal_fetch(const char *name, const uint64_t *sig);
uint64_t sma_amo_far(const struct sma_ctx *c, const char *name, int op, size_t off, size_t size, uint64_t v, uint64_t cond, int pe);
void sma_do_far(const struct sma_ctx *c, const char *name, int op, size_t off, size_t size, uint64_t v, int pe);
void sma_amo_nbi(const struct sma_ctx *c, const char *name, void *fetch, int op, void *dst, size_t size, uint64_t v, uint64_t cond, int pe);
uint64_t sma_wait_far(const char *name, const void *ivar, size_t size, int is_signed, int cmp, uint64_t v);
size_t sma_wait_many(const char *name, int kind, void *ivars, size_t n, size_t *indices, const int *status, int cmp,
  const void *values, size_t step, size_t size, int is_signed);
size_t sma_test_many(const char *name, int kind, void *ivars, size_t n, size_t *indices, const int *status, int cmp,
  const void *values, size_t step, size_t size, int is_signed);
int sma_many_hold(struct sma_many *m);
uint64_t sma_load_word(const void *at, size_t size, int is_signed);
int sma_word_holds(int cmp, int is_signed, uint64_t a, uint64_t b);
void sma_false(void); /* follows a test that was false */

/* sma_bytes returns n*size, or more than any heap has. */
SMA_INLINE size_t sma_bytes(size_t n, size_t size) {
  size_t all;
  return __builtin_mul_overflow(n, size, &all) ? SIZE_MAX : all;
}

SMA_INLINE const struct sma_ctx *sma_context(shmem_ctx_t ctx) {
  uintptr_t id = SMA_ID(ctx);
  const struct sma_ctx *c = id < SMA_CTXS ? __atomic_load_n(&sma_ctxs[id], __ATOMIC_ACQUIRE) : NULL;
  return likely(c != NULL) ? c : &sma_no_ctx;
}

#define SMA_NOT SIZE_MAX

/* sma_offset returns where bytes at an address are in the heap, or SMA_NOT. */
SMA_INLINE size_t sma_offset(const void *address, size_t bytes) {
  size_t off = (size_t)((uintptr_t)address - (uintptr_t)sma.heap);
  if (likely(off < sma.size))
    return bytes <= sma.size - off ? off + sma.at : SMA_NOT;
  off = (size_t)((uintptr_t)address - (uintptr_t)sma.data);
  if (off < sma.data_size && bytes <= sma.data_size - off)
    return off + sma.data_at;
  return SMA_NOT;
}

/* sma_object is sma_offset that ends the job if there is none. */
SMA_INLINE size_t sma_object(const char *name, const void *address, size_t bytes) {
  size_t off = sma_offset(address, bytes);
  if (unlikely(off == SMA_NOT))
    sma_bad_address(name, address, bytes);
  return off;
}

SMA_INLINE struct sma_peer *sma_peer(const struct sma_ctx *c, const char *name, int pe) {
  if (unlikely((uint32_t)pe >= c->n))
    sma_bad_pe(c, name, pe);
  return &sma.peers[c->pes ? c->pes[pe] : pe];
}

/* sma_stored follows each store to a PE's heap that is mapped (pair S8). The sleeper makes all
   processors pass a barrier, so that none is needed here unless fence says so. */
SMA_INLINE void sma_stored(struct sma_peer *p) {
  __asm__ volatile("" ::: "memory");
  if (unlikely(p->fence || __atomic_load_n(p->arm, __ATOMIC_RELAXED) != __atomic_load_n(&p->rung, __ATOMIC_RELAXED)))
    sma_look(p);
}

/* Words that may lie at any address and be of any type. */
typedef uint64_t __attribute__((may_alias, aligned(1))) sma_word8;
typedef uint32_t __attribute__((may_alias, aligned(1))) sma_word4;
typedef uint16_t __attribute__((may_alias, aligned(1))) sma_word2;
typedef uint8_t __attribute__((may_alias)) sma_word1;

/* sma_copy copies. What has the size of a word is one load and one store: who waits for it
   never sees half of it, nor a second store after the first. */
SMA_INLINE void sma_copy(void *dst, const void *src, size_t bytes) {
  switch (bytes) {
  case 8: *(volatile sma_word8 *)dst = *(const volatile sma_word8 *)src; break;
  case 4: *(volatile sma_word4 *)dst = *(const volatile sma_word4 *)src; break;
  case 2: *(volatile sma_word2 *)dst = *(const volatile sma_word2 *)src; break;
  case 1: *(volatile sma_word1 *)dst = *(const volatile sma_word1 *)src; break;
  default: memcpy(dst, src, bytes);
  }
}

SMA_INLINE void sma_put(const struct sma_ctx *c, const char *name, void *dst, const void *src, size_t bytes, int pe) {
  struct sma_peer *p = sma_peer(c, name, pe);
  if (unlikely(bytes == 0))
    return;
  size_t off = sma_object(name, dst, bytes);
  if (likely(p->base != NULL)) {
    sma_copy(p->base + off, src, bytes);
    sma_stored(p);
  } else {
    sma_put_far(c, name, off, src, bytes, pe);
  }
}

SMA_INLINE void sma_get(const struct sma_ctx *c, const char *name, void *dst, const void *src, size_t bytes, int pe, int nbi) {
  struct sma_peer *p = sma_peer(c, name, pe);
  if (unlikely(bytes == 0))
    return;
  size_t off = sma_object(name, src, bytes);
  if (likely(p->base != NULL))
    sma_copy(dst, p->base + off, bytes);
  else
    sma_get_far(c, name, dst, off, bytes, pe, nbi);
}

#define SMA_P(T, C, NAME, dest, value, pe) do { \
    T v_ = (value); \
    sma_put(C, NAME, dest, &v_, sizeof v_, pe); \
  } while (0)

#define SMA_G(T, C, NAME, source, pe) do { \
    T v_; \
    sma_get(C, NAME, &v_, source, sizeof v_, pe, 0); \
    return v_; \
  } while (0)

/* Atomic operations on words of 4 and 8 bytes. */
#define SMA_ATOMIC(T) \
  switch (op) { \
  case SMA_FETCH: return __atomic_load_n((T *)at, __ATOMIC_SEQ_CST); \
  case SMA_SET: __atomic_store_n((T *)at, (T)v, __ATOMIC_SEQ_CST); return 0; \
  case SMA_SWAP: return __atomic_exchange_n((T *)at, (T)v, __ATOMIC_SEQ_CST); \
  case SMA_ADD: return __atomic_fetch_add((T *)at, (T)v, __ATOMIC_SEQ_CST); \
  case SMA_AND: return __atomic_fetch_and((T *)at, (T)v, __ATOMIC_SEQ_CST); \
  case SMA_OR: return __atomic_fetch_or((T *)at, (T)v, __ATOMIC_SEQ_CST); \
  case SMA_XOR: return __atomic_fetch_xor((T *)at, (T)v, __ATOMIC_SEQ_CST); \
  default: { \
    T old = (T)cond; \
    __atomic_compare_exchange_n((T *)at, &old, (T)v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return old; } \
  }

SMA_INLINE uint64_t sma_atomic(char *at, int op, size_t size, uint64_t v, uint64_t cond) {
  if (size == 4)
    SMA_ATOMIC(uint32_t)
  else
    SMA_ATOMIC(uint64_t)
}

SMA_INLINE uint64_t sma_amo(const struct sma_ctx *c, const char *name, int op, void *dst, size_t size, uint64_t v, uint64_t cond, int pe) {
  struct sma_peer *p = sma_peer(c, name, pe);
  size_t off = sma_object(name, dst, size);
  if (unlikely(p->base == NULL))
    return sma_amo_far(c, name, op, off, size, v, cond, pe);
  uint64_t old = sma_atomic(p->base + off, op, size, v, cond);
  if (op != SMA_FETCH)
    sma_stored(p);
  return old;
}

/* sma_do is sma_amo that fetches nothing, and may return before it is done. */
SMA_INLINE void sma_do(const struct sma_ctx *c, const char *name, int op, void *dst, size_t size, uint64_t v, uint64_t cond, int pe) {
  struct sma_peer *p = sma_peer(c, name, pe);
  size_t off = sma_object(name, dst, size);
  if (likely(p->base != NULL)) {
    sma_atomic(p->base + off, op, size, v, cond);
    sma_stored(p);
  } else {
    sma_do_far(c, name, op, off, size, v, pe);
  }
}

SMA_INLINE void sma_fence(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }

SMA_INLINE void sma_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* sma_load loads a word as an 8-byte number that is ordered as its type is. */
SMA_INLINE uint64_t sma_load(const void *at, size_t size, int is_signed) {
  switch (size) {
  case 8: return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
  case 4: {
    uint32_t v = __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
    return is_signed ? (uint64_t)(int64_t)(int32_t)v : v; }
  default: {
    uint16_t v = __atomic_load_n((const uint16_t *)at, __ATOMIC_ACQUIRE);
    return is_signed ? (uint64_t)(int64_t)(int16_t)v : v; }
  }
}

SMA_INLINE int sma_holds(const char *name, int cmp, int is_signed, uint64_t a, uint64_t b) {
  uint64_t flip = is_signed ? (uint64_t)1 << 63 : 0;
  uint64_t x = a ^ flip, y = b ^ flip;
  switch (cmp) {
  case SHMEM_CMP_EQ: return x == y;
  case SHMEM_CMP_NE: return x != y;
  case SHMEM_CMP_GT: return x > y;
  case SHMEM_CMP_GE: return x >= y;
  case SHMEM_CMP_LT: return x < y;
  case SHMEM_CMP_LE: return x <= y;
  }
  sma_die(name, "comparison %d", cmp);
}

#define SMA_POLLS 64 /* before a wait is Go's; most answers take less */

/* sma_wait waits until a word here is as wanted, and returns it. */
SMA_INLINE uint64_t sma_wait(const char *name, const void *ivar, size_t size, int is_signed, int cmp, uint64_t v) {
  sma_object(name, ivar, size);
  for (int i = 0; i < SMA_POLLS; i++) {
    uint64_t is = sma_load(ivar, size, is_signed);
    if (sma_holds(name, cmp, is_signed, is, v))
      return is;
    sma_pause();
  }
  return sma_wait_far(name, ivar, size, is_signed, cmp, v);
}

SMA_INLINE int sma_test(const char *name, const void *ivar, size_t size, int is_signed, int cmp, uint64_t v) {
  sma_object(name, ivar, size);
  if (sma_holds(name, cmp, is_signed, sma_load(ivar, size, is_signed), v))
    return 1;
  sma_false();
  return 0;
}

#endif
