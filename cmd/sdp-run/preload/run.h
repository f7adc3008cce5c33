/* What the parts of the library share that sdp-run loads into a program.

   A connection of the program stays a TCP socket of the kernel. If both its ends have the library, they meet
   (meet.c), and have a page of memory in common, and a connection by SDP. Each direction of the stream is then
   a sequence of phases, in turn by TCP and by SDP, of which the first is by TCP (stream.c). */
#ifndef RUN_H
#define RUN_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "../../libsdp/include/sdp.h"

/* way is one direction of a connection, in the page that both ends have mapped. Phases are numbered from 0. Those
   with even numbers are by TCP. */
struct way {
  /* The writer stores these, but for the lowest bit of word. */
  _Atomic uint64_t word;    /* bytes written by SDP, times 2, plus WOKEN */
  _Atomic uint64_t tcp_end; /* bytes by TCP, up to the end of the last phase by TCP that has ended */
  _Atomic uint64_t sdp_end; /* likewise by SDP */
  _Atomic uint32_t phase;   /* which the writer is in; stored behind the end of the one before */
  _Atomic uint32_t writing; /* 1 while the writer may write by SDP; pairs with refused */
  char apart[88];
  /* The reader stores these. */
  _Atomic uint64_t received; /* bytes by TCP that it has taken, as of its last read */
  _Atomic uint32_t reached; /* the phase that the reader is in */
  _Atomic uint32_t refused; /* 1: the reader takes no more by SDP */
  char more[112];
};

/* WOKEN says that a byte is on its way by TCP, or in the reader's socket, which stands for all that was written by
   SDP and not read. The writer sets it, and then sends that byte. The reader clears it when it has read all, in one
   step with the check of that, and takes the byte. So the socket is readable just while there is something to read. */
#define WOKEN 1

#define WAKE_BYTE 0xa5

enum { CONNECTS, ACCEPTS }; /* the ends, and the directions by which end writes */

/* page is what the ends of a connection have in common. The accepting end makes it. */
struct page {
  uint64_t magic;
  uint32_t port; /* of SDP, where the accepting process listens */
  unsigned char key[16]; /* the first bytes of the connection by SDP, which say which one it is */
  char fabric[256];
  _Atomic uint32_t ready[2]; /* by end: it has the connection by SDP */
  _Atomic uint32_t failed;   /* it stays TCP */
  char apart[36];
  struct way way[2];
};

/* end is the state of one end. Processes that have forked share it. */
struct end {
  pthread_mutex_t reading;
  /* reading guards the following. */
  uint64_t received; /* bytes by TCP, but for wake bytes */
  uint64_t taken;    /* bytes by SDP */
  uint32_t reached;
  char *ahead; /* shared memory: bytes that came by SDP and that the program has not taken */
  size_t ahead_at, ahead_end, ahead_size;

  pthread_mutex_t writing;
  /* writing guards the following. */
  uint64_t sent; /* bytes by TCP, but for wake bytes */
  uint64_t put;  /* bytes by SDP */
  uint32_t phase;
  int sending;     /* threads that send by TCP now */
  int stays;       /* this direction stays by TCP */
};

enum state {
  WAITING, /* for the other end */
  MET,     /* the accepting end waits for the connection by SDP */
  UP,      /* the connection by SDP is there */
  PLAIN    /* TCP, with nothing to know of it */
};

struct conn {
  _Atomic int state;
  _Atomic int uses; /* descriptors, and calls under way */
  int which;        /* CONNECTS or ACCEPTS */
  int descriptors;  /* guarded by the table's lock */
  _Atomic size_t row; /* bytes in one direction since the last ones in the other, or since the last try to meet */
  _Atomic int row_out; /* which direction */
  struct end *end;
  struct conn *next, **before; /* of all; guarded by the table's lock */
  /* meeting guards the following until the state is UP. */
  int offer; /* a listening Unix socket, or -1 */
  int64_t since;         /* s, when the program moved much for the first time; 0 before */
  _Atomic int looked;    /* whether the connection leads to another machine */
  struct page *page;
  int sdp;               /* handle of libsdp, or -1 */
  int no_delay, cork;    /* as the program has set them */
};

static inline struct way *way_in(struct conn *c) { return &c->page->way[!c->which]; }
static inline struct way *way_out(struct conn *c) { return &c->page->way[c->which]; }

/* calls.c: the system's functions, and the table of descriptors. */
#define CALLS(X) \
  X(accept4) X(close) X(close_range) X(connect) X(dup) X(dup2) X(dup3) X(fcntl) X(getsockopt) X(ioctl) X(read) X(readv) \
  X(recvfrom) X(recvmsg) X(recvmmsg) X(sendfile) X(sendmmsg) X(sendmsg) X(sendto) X(setsockopt) X(shutdown) X(sigaction) \
  X(splice) X(write) X(writev) X(fdopen) X(popen) X(posix_spawn) X(posix_spawnp) X(system) X(execv) X(execve) X(execvp) X(execvpe) X(fexecve) X(signal)

/* stream.c */
ssize_t stream_read(struct conn *c, int fd, const struct iovec *iov, int count, int flags);
ssize_t stream_write(struct conn *c, int fd, const struct iovec *iov, int count, int flags);
size_t stream_unread(struct conn *c);
void stream_stays_tcp(struct conn *c);
void stream_stop(struct conn *c);

/* meet.c */
void meet(struct conn *c, int fd);
int meet_offer(struct conn *c, int fd);
void meet_end(struct conn *c);
void meet_plain(struct conn *c, const char *why);
extern pthread_mutex_t meeting; /* locked before the table's lock */
extern int sdp_off; /* this process cannot use libsdp */
extern struct sdp_calls {
  void *handle; /* of libsdp; NULL until it is loaded */
  int (*dial)(const char *, const char *, long long);
  int (*listen)(const char *, const char *, int);
  int (*accept)(int);
  ssize_t (*read)(int, void *, size_t);
  ssize_t (*write)(int, const void *, size_t);
  int (*close)(int);
  int (*deadline)(int, int, long long);
  int (*name)(int, int, char *, size_t);
  int (*peer)(int, struct sdp_peer *);
  int (*set)(int, int, long long);
  const char *(*error)(void);
} sdp;

/* rules.c */
extern char fabric[256]; /* SDP_FABRIC, as it was when the program began */
extern size_t smallest; /* bytes that are worth SDP */
int rules_allow(int which, const struct sockaddr *server);
void say(int level, int fd, const char *format, ...) __attribute__((format(printf, 3, 4)));
enum { PROBLEM = 1, NEWS = 2 };

#endif
