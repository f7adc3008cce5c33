/* How the two ends of a connection find each other, on one machine and in one network namespace.

   The connecting end listens at an abstract Unix socket, whose name has the kernel's cookie of its TCP socket, before
   it connects. When the program of the accepting end has moved much in one direction, that end asks the kernel for the cookie of
   the socket at the other end of the connection, by both addresses and ports, and connects to that name. If nobody
   listens there, the other end has no library, or is of another machine or namespace, and the connection stays TCP.
   Otherwise it sends a page of memory. The connecting end takes that in its next call, and dials the accepting
   process by SDP.

   Go's runtime begins in a process when it has met another end for the first time. */
#include "calls.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <time.h>

#ifndef MAGIC
#define MAGIC 0x3172756e70647332ull /* and the version of the page */
#endif
#define ROOM ((rlim_t)4 << 30)      /* address space for Go's runtime and windows */
#define PATIENCE 5                  /* s for which an offer stands */
#define STEP 1000000000ll           /* ns that a step of the other end may take */
#define PAUSE 60                    /* s after a dial that has failed, without another one */

int sdp_off;
struct sdp_calls sdp;

pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
/* meeting guards the following, and what is on its way in connections that are not UP. */
static int listener = -1; /* handle */
static uint32_t port;
static int64_t pause_until; /* s: until then no dial, since one has failed */
static struct came { /* connections by SDP whose end has not come for them */
  unsigned char key[16];
  int handle;
} came[256];

static int64_t seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec;
}

/* load loads libsdp, which is beside this library. Dispositions of signals that Go takes are put back. */
static int load(void) {
  static int tried;
  if (sdp.handle != NULL || tried || sdp_off)
    return sdp.handle != NULL && !sdp_off;
  tried = 1;
  struct rlimit space;
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < ROOM) { /* Go's runtime would end the program */
    say(PROBLEM, -1, "connections stay TCP: the address space is limited: ulimit -v unlimited");
    return 0;
  }
  Dl_info self;
  char path[4096];
  if (dladdr((void *)load, &self) == 0 || strlen(self.dli_fname) > sizeof path - 16)
    return 0;
  strcpy(path, self.dli_fname);
  strcpy(strrchr(path, '/') + 1, "libsdp.so");
  static const int theirs[] = {SIGPIPE, SIGURG, SIGPROF, SIGCHLD};
  enum { THEIRS = sizeof theirs / sizeof *theirs };
  struct sigaction before[THEIRS];
  for (int i = 0; i < THEIRS; i++)
    REAL(sigaction)(theirs[i], NULL, &before[i]);
  if (fabric[0] != 0)
    setenv("SDP_FABRIC", fabric, 1);
  void *l = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (l == NULL) {
    say(PROBLEM, -1, "%s", dlerror());
    return 0;
  }
#define FIND(f) *(void **)&sdp.f = dlsym(l, "sdp_" #f)
  FIND(dial), FIND(listen), FIND(accept), FIND(read), FIND(write), FIND(close), FIND(deadline), FIND(name), FIND(peer),
      FIND(set), FIND(error);
  if (sdp.peer == NULL || sdp.error == NULL) {
    say(PROBLEM, -1, "%s is of another version", path);
    return 0;
  }
  sdp.set(-1, SDP_NONBLOCK, 0); /* returns when Go's runtime has begun */
  for (int i = 0; i < THEIRS; i++) {
    if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN)
      before[i].sa_flags |= SA_ONSTACK;
    REAL(sigaction)(theirs[i], &before[i], NULL);
  }
  sdp.handle = l;
  return 1;
}

/* name_of makes the name of the socket at which the end of a TCP socket with a cookie listens. */
static socklen_t name_of(struct sockaddr_un *a, uint64_t cookie) {
  memset(a, 0, sizeof *a);
  a->sun_family = AF_UNIX;
  int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "ntbnet-sdp-run-%016llx", (unsigned long long)cookie);
  return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

/* meet_offer listens for the other end. */
int meet_offer(struct conn *c, int fd) {
  uint64_t cookie;
  socklen_t n = sizeof cookie;
  struct sockaddr_un a;
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &n) != 0)
    return 0;
  int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0)
    return 0;
  int high = REAL(fcntl)(s, F_DUPFD_CLOEXEC, 512); /* low numbers are for the program */
  if (high >= 0) {
    REAL(close)(s);
    s = high;
  }
  if (bind(s, (struct sockaddr *)&a, name_of(&a, cookie)) != 0 || listen(s, 1) != 0) {
    REAL(close)(s);
    return 0;
  }
  c->offer = s;
  return 1;
}

/* here reports whether two addresses are such as the ends of a connection inside a machine have. */
static int here(const struct sockaddr_storage *a, const struct sockaddr_storage *b) {
  if (a->ss_family != b->ss_family)
    return 0;
  if (a->ss_family == AF_INET) {
    uint32_t x = ntohl(((struct sockaddr_in *)a)->sin_addr.s_addr), y = ntohl(((struct sockaddr_in *)b)->sin_addr.s_addr);
    return x == y || (x >> 24 == 127 && y >> 24 == 127);
  }
  return memcmp(&((struct sockaddr_in6 *)a)->sin6_addr, &((struct sockaddr_in6 *)b)->sin6_addr, 16) == 0;
}

static int names(int fd, struct sockaddr_storage *own, struct sockaddr_storage *theirs) {
  socklen_t n = sizeof *own, m = sizeof *theirs;
  return getsockname(fd, (struct sockaddr *)own, &n) == 0 && getpeername(fd, (struct sockaddr *)theirs, &m) == 0;
}

static void address(const struct sockaddr_storage *a, __be32 to[4], __be16 *port_to) {
  if (a->ss_family == AF_INET) {
    memcpy(to, &((struct sockaddr_in *)a)->sin_addr, 4);
    *port_to = ((struct sockaddr_in *)a)->sin_port;
  } else {
    memcpy(to, &((struct sockaddr_in6 *)a)->sin6_addr, 16);
    *port_to = ((struct sockaddr_in6 *)a)->sin6_port;
  }
}

/* cookie_of asks the kernel for the cookie of the socket at the other end of fd. */
static int cookie_of(int fd, uint64_t *cookie) {
  struct sockaddr_storage own, theirs;
  if (!names(fd, &own, &theirs) || !here(&own, &theirs))
    return 0;
  struct {
    struct nlmsghdr head;
    struct inet_diag_req_v2 ask;
  } m = {.head = {sizeof m, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0},
         .ask = {.sdiag_family = own.ss_family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u}};
  address(&theirs, m.ask.id.idiag_src, &m.ask.id.idiag_sport);
  address(&own, m.ask.id.idiag_dst, &m.ask.id.idiag_dport);
  m.ask.id.idiag_cookie[0] = m.ask.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  struct {
    struct nlmsghdr head;
    struct inet_diag_msg found;
    char more[4096];
  } answer;
  int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), ok = 0;
  if (s < 0)
    return 0;
  if (REAL(sendto)(s, &m, sizeof m, 0, NULL, 0) == sizeof m) {
    ssize_t n = REAL(recvfrom)(s, &answer, sizeof answer, 0, NULL, NULL);
    ok = n >= (ssize_t)(sizeof answer.head + sizeof answer.found) && answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
         answer.found.id.idiag_dport == m.ask.id.idiag_dport;
    *cookie = (uint64_t)answer.found.id.idiag_cookie[1] << 32 | answer.found.id.idiag_cookie[0];
  }
  REAL(close)(s);
  return ok;
}

/* meet_plain leaves a connection to TCP. */
void meet_plain(struct conn *c, const char *why) {
  if (atomic_load(&c->state) == PLAIN)
    return;
  if (c->page != NULL)
    atomic_store(&c->page->failed, 1);
  if (c->offer >= 0)
    REAL(close)(c->offer);
  c->offer = -1;
  atomic_store(&c->state, PLAIN);
  if (why != NULL)
    say(NEWS, -1, "a connection stays TCP: %s", why);
}

/* meet_end frees what a connection has. Nobody uses it any more. */
void meet_end(struct conn *c) {
  if (c->offer >= 0)
    REAL(close)(c->offer);
  if (c->sdp >= 0 && !sdp_off)
    sdp.close(c->sdp);
  if (c->page != NULL)
    munmap(c->page, sizeof *c->page);
  if (c->end->ahead != NULL)
    munmap(c->end->ahead, c->end->ahead_size);
  munmap(c->end, sizeof *c->end);
}

/* up makes a connection one by SDP. */
static void up(struct conn *c, int fd) {
  socklen_t n = sizeof c->no_delay;
  int on = 1, off = 0;
  sdp.set(c->sdp, SDP_NONBLOCK, 1);
  REAL(getsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &c->no_delay, &n);
  n = sizeof c->cork;
  REAL(getsockopt)(fd, IPPROTO_TCP, TCP_CORK, &c->cork, &n);
  REAL(setsockopt)(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
  REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  pthread_mutex_lock(&c->end->reading); /* who reads takes all bytes by TCP for the program's while it is not UP */
  atomic_store(&c->state, UP);
  atomic_store(&c->page->ready[c->which], 1);
  pthread_mutex_unlock(&c->end->reading);
  say(NEWS, fd, "goes by SDP");
}

/* same_user reports whether the process at the other end of a Unix socket is of this user, and which it is. */
static int same_user(int s, pid_t *pid) {
  struct ucred who;
  socklen_t n = sizeof who;
  if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0 || who.uid != geteuid())
    return 0;
  *pid = who.pid;
  return 1;
}

/* listens has this process listen by SDP. */
static int listens(void) {
  if (listener >= 0)
    return 1;
  char name[64];
  int h = load() ? sdp.listen("sdp", ":0", 0) : -1;
  if (h < 0 || sdp.name(h, SDP_LOCAL, name, sizeof name) < 0) {
    if (sdp.handle != NULL)
      say(PROBLEM, -1, "connections stay TCP: %s", sdp.error());
    return 0;
  }
  sdp.deadline(h, SDP_READ, SDP_NEVER);
  listener = h;
  port = atoi(strrchr(name, ':') + 1);
  return 1;
}

/* find is the first step of the accepting end. */
static const char *find(struct conn *c, int fd) {
  uint64_t cookie;
  if (!cookie_of(fd, &cookie))
    return "the other end is not of this machine";
  struct sockaddr_un a;
  socklen_t n = name_of(&a, cookie);
  int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0 || REAL(connect)(s, (struct sockaddr *)&a, n) != 0) {
    if (s >= 0)
      REAL(close)(s);
    return "the other end has no library";
  }
  pid_t pid;
  const char *failed = NULL;
  int memory = -1;
  struct page *p = MAP_FAILED;
  if (!same_user(s, &pid))
    failed = "the other end is another user's";
  else if (!listens())
    failed = "libsdp cannot be used";
  else if ((memory = memfd_create("sdp-run", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0 || ftruncate(memory, sizeof *p) != 0 ||
           REAL(fcntl)(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
           (p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)) == MAP_FAILED ||
           getrandom(p->key, sizeof p->key, 0) != sizeof p->key)
    failed = "there is no memory";
  if (failed == NULL) {
    p->magic = MAGIC;
    p->port = port;
    strcpy(p->fabric, fabric);
    union {
      struct cmsghdr head;
      char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.head), &memory, sizeof memory);
    struct iovec v = {"", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (REAL(sendmsg)(s, &m, MSG_NOSIGNAL) != 1)
      failed = "the other end has gone";
  }
  if (failed == NULL) {
    c->page = p;
    atomic_store(&c->state, MET);
  } else if (p != MAP_FAILED) {
    munmap(p, sizeof *p);
  }
  if (memory >= 0)
    REAL(close)(memory);
  REAL(close)(s);
  return failed;
}

/* fetch is the second step of the accepting end: the connection by SDP is there. */
static const char *fetch(struct conn *c, int fd) {
  for (int i = 0; i < (int)(sizeof came / sizeof *came); i++)
    if (came[i].handle > 0 && memcmp(came[i].key, c->page->key, sizeof came[i].key) == 0) {
      c->sdp = came[i].handle;
      came[i].handle = 0;
      up(c, fd);
      return NULL;
    }
  for (;;) {
    struct came new;
    sdp.deadline(listener, SDP_READ, STEP);
    new.handle = sdp.accept(listener);
    if (new.handle < 0)
      return sdp.error();
    sdp.deadline(new.handle, SDP_READ, STEP);
    size_t have = 0;
    while (have < sizeof new.key) {
      ssize_t n = sdp.read(new.handle, new.key + have, sizeof new.key - have);
      if (n <= 0)
        break;
      have += n;
    }
    sdp.deadline(new.handle, SDP_READ, SDP_NEVER);
    if (have < sizeof new.key) {
      sdp.close(new.handle);
      continue;
    }
    if (memcmp(new.key, c->page->key, sizeof new.key) == 0) {
      c->sdp = new.handle;
      up(c, fd);
      return NULL;
    }
    int i = 0;
    while (i < (int)(sizeof came / sizeof *came) && came[i].handle > 0)
      i++;
    if (i == sizeof came / sizeof *came)
      sdp.close(new.handle);
    else
      came[i] = new;
  }
}

/* receive takes the page that the accepting end has sent to s. */
static struct page *receive(int s) {
  char b;
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec v = {&b, 1};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  struct timeval limit = {1, 0};
  REAL(setsockopt)(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (REAL(recvmsg)(s, &m, MSG_CMSG_CLOEXEC) != 1 || m.msg_controllen < sizeof control.head || control.head.cmsg_type != SCM_RIGHTS)
    return NULL;
  int memory;
  memcpy(&memory, CMSG_DATA(&control.head), sizeof memory);
  struct page *p = MAP_FAILED;
  if ((REAL(fcntl)(memory, F_GET_SEALS) & F_SEAL_SHRINK) && lseek(memory, 0, SEEK_END) >= (off_t)sizeof *p)
    p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  REAL(close)(memory);
  return p != MAP_FAILED ? p : NULL;
}

/* reach is the step of the connecting end. */
static const char *reach(struct conn *c, int fd) {
  int s = REAL(accept4)(c->offer, NULL, NULL, SOCK_CLOEXEC);
  if (s < 0) {
    if (c->since == 0)
      c->since = seconds();
    atomic_store(&c->row, 0);
    return seconds() - c->since > PATIENCE ? "the other end has not come" : NULL;
  }
  pid_t pid = 0;
  c->page = same_user(s, &pid) ? receive(s) : NULL;
  REAL(close)(s);
  REAL(close)(c->offer);
  c->offer = -1;
  if (c->page == NULL)
    return "the other end does not say how to reach it";
  if (c->page->magic != MAGIC)
    return "the other end has another version";
  if (strncmp(c->page->fabric, fabric, sizeof c->page->fabric) != 0)
    return "the other end has another fabric";
  if (!load())
    return "libsdp cannot be used";
  if (seconds() < pause_until)
    return "there was no room for others";
  char name[32];
  snprintf(name, sizeof name, "localhost:%u", c->page->port);
  int h = sdp.dial("sdp", name, STEP);
  struct sdp_peer peer;
  if (h < 0) {
    pause_until = seconds() + PAUSE;
    return sdp.error();
  }
  if (sdp.peer(h, &peer) != 0 || peer.pid != pid || sdp.write(h, c->page->key, sizeof c->page->key) != sizeof c->page->key) {
    sdp.close(h);
    return "another process is there by SDP";
  }
  c->sdp = h;
  up(c, fd);
  return NULL;
}

/* far reports whether a connection leads to another machine. */
static int far(struct conn *c, int fd) {
  struct sockaddr_storage own, theirs;
  return !atomic_exchange(&c->looked, 1) && names(fd, &own, &theirs) && !here(&own, &theirs);
}

/* meet goes on with meeting, where that needs no wait. */
void meet(struct conn *c, int fd) {
  int state = atomic_load(&c->state);
  if (state == WAITING && c->looked && atomic_load(&c->row) < smallest)
    return;
  if (state == UP || state == PLAIN || (state == MET && !atomic_load(&c->page->ready[CONNECTS]) && !atomic_load(&c->page->failed)))
    return;
  if (pthread_mutex_trylock(&meeting) != 0)
    return; /* the next call does it */
  int error = errno;
  const char *failed = NULL;
  switch (atomic_load(&c->state)) {
  case WAITING:
    if (far(c, fd))
      failed = "the other end is not of this machine";
    else if (atomic_load(&c->row) >= smallest)
      failed = sdp_off ? "the process has forked" : c->which == ACCEPTS ? find(c, fd) : reach(c, fd);
    break;
  case MET:
    failed = atomic_load(&c->page->failed) ? "the other end could not go by SDP" : fetch(c, fd);
  }
  if (failed != NULL)
    meet_plain(c, failed);
  pthread_mutex_unlock(&meeting);
  errno = error;
}
