//go:build (libsma || libsdp) && cgo && linux

package csignals

/*
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>

// Go's threads block the signals that a process gets, so that handlers of the program run on
// its own threads. Go's first thread begins in a constructor, with the mask that it finds,
// and all others copy that.
static sigset_t mask_before;

__attribute__((constructor(101))) static void block_signals(void) {
  sigset_t all;
  sigfillset(&all);
  // Those that a thread causes itself, and the one by which Go stops its threads.
  const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGURG};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    sigdelset(&all, own[i]);
  pthread_sigmask(SIG_BLOCK, &all, &mask_before);
}

// This one has no number, so it comes behind Go's.
__attribute__((constructor)) static void unblock_signals(void) { pthread_sigmask(SIG_SETMASK, &mask_before, NULL); }
*/
import "C"
