/* The system's functions, behind those of calls.c. */
#ifndef CALLS_H
#define CALLS_H

#include "run.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#define DECLARE(f) extern __typeof__(f) *real_##f;
CALLS(DECLARE)

/* REAL is the function of that name which the program would call without this library. Other libraries may call it
   before begin has run. */
#define REAL(f) ((__typeof__(f) *)resolved((void **)&real_##f, #f))

static inline void *resolved(void **f, const char *name) {
  if (__builtin_expect(*f == NULL, 0))
    *f = dlsym(RTLD_NEXT, name);
  return *f;
}

#endif
