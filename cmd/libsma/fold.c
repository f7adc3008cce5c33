//go:build libsma && cgo && linux

/* What reductions do with elements: acc becomes acc OP v. */
#include "sma.h"

#define LOOP(T, E) { \
    T *x = acc; \
    const T *y = v; \
    for (size_t i = 0; i < bytes / sizeof(T); i++) { \
      T a = x[i], b = y[i]; \
      x[i] = (T)(E); \
    } \
    return; }

#define SUM(T) case SMA_SUM: LOOP(T, a + b) case SMA_PROD: LOOP(T, a * b)
/* A product of unsigned short would be one of int, which may overflow. */
#define WRAP(T) case SMA_SUM: LOOP(T, 1u * a + b) case SMA_PROD: LOOP(T, 1u * a * b)
#define ORDER(T) case SMA_MIN: LOOP(T, b < a ? b : a) case SMA_MAX: LOOP(T, b > a ? b : a)
/* A NaN makes the result NaN. */
#define ORDERF(T) case SMA_MIN: LOOP(T, b < a || b != b ? b : a) case SMA_MAX: LOOP(T, b > a || b != b ? b : a)
#define BITS(T) case SMA_AND: LOOP(T, a & b) case SMA_OR: LOOP(T, a | b) case SMA_XOR: LOOP(T, a ^ b)
#define INTEGER(NAME, S, U) \
  case SMA_I##NAME: switch (op) { ORDER(S) BITS(U) WRAP(U) } return; \
  case SMA_U##NAME: switch (op) { ORDER(U) BITS(U) WRAP(U) } return;
#define REAL(NAME, T) case SMA_##NAME: switch (op) { ORDERF(T) SUM(T) } return;
#define COMPLEX(NAME, T) case SMA_##NAME: switch (op) { SUM(T) } return;

void sma_fold(int op, int type, void *acc, const void *v, size_t bytes) {
  switch (type) {
    INTEGER(8, int8_t, uint8_t)
    INTEGER(16, int16_t, uint16_t)
    INTEGER(32, int32_t, uint32_t)
    INTEGER(64, int64_t, uint64_t)
    REAL(F32, float)
    REAL(F64, double)
    REAL(FLONG, long double)
    COMPLEX(C32, float _Complex)
    COMPLEX(C64, double _Complex)
  }
}
