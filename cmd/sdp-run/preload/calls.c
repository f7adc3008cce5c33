/* The functions of the C library that this library stands in front of, and the table of descriptors. Descriptors that
   are not in the table are not touched. */
#include "calls.h"

#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PUBLIC __attribute__((visibility("default")))

#define DEFINE(f) __typeof__(f) *real_##f;
CALLS(DEFINE)

/* The table has the connection of each descriptor, or NULL. A look-up takes no lock: the memory of connections is used
   again for connections alone, and one without uses is not taken. */
#define TABLE (1 << 20)
static _Atomic(struct conn *) *table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct conn *all, *unused; /* guarded by lock, as stores to table are */

static struct conn *use(int fd) {
  if (table == NULL || fd < 0 || fd >= TABLE)
    return NULL;
  for (;;) {
    struct conn *c = atomic_load(&table[fd]);
    if (c == NULL || atomic_load(&c->state) == PLAIN)
      return NULL;
    int n = atomic_load(&c->uses);
    while (n > 0 && !atomic_compare_exchange_weak(&c->uses, &n, n + 1)) {
    }
    if (n > 0 && atomic_load(&table[fd]) == c)
      return c;
    if (n > 0)
      atomic_fetch_sub(&c->uses, 1);
  }
}

static void leave(struct conn *c) {
  if (atomic_fetch_sub(&c->uses, 1) != 1)
    return;
  int error = errno;
  meet_end(c);
  pthread_mutex_lock(&lock);
  c->next = unused;
  unused = c;
  pthread_mutex_unlock(&lock);
  errno = error;
}

/* put_at makes fd a descriptor of c, or of nothing. It returns the connection that fd was a descriptor of. */
static struct conn *put_at(int fd, struct conn *c) {
  struct conn *old = NULL;
  if (table == NULL || fd < 0 || fd >= TABLE || (c == NULL && atomic_load(&table[fd]) == NULL))
    return NULL;
  pthread_mutex_lock(&lock);
  if (c != NULL) {
    atomic_fetch_add(&c->uses, 1);
    c->descriptors++;
  }
  old = atomic_exchange(&table[fd], c);
  if (old != NULL && --old->descriptors == 0) {
    *old->before = old->next;
    if (old->next != NULL)
      old->next->before = old->before;
  }
  pthread_mutex_unlock(&lock);
  return old;
}

/* forget is put_at of nothing. */
static void forget(int fd) {
  struct conn *old = put_at(fd, NULL);
  if (old != NULL)
    leave(old);
}

static void also(int fd, struct conn *c) {
  struct conn *old = put_at(fd, c);
  if (old != NULL)
    leave(old);
}

/* add makes a connection of fd. The caller leaves it. */
static struct conn *add(int fd, int which) {
  struct end *e = mmap(NULL, sizeof *e, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (e == MAP_FAILED)
    return NULL;
  pthread_mutexattr_t shared;
  pthread_mutexattr_init(&shared);
  pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&e->reading, &shared);
  pthread_mutex_init(&e->writing, &shared);
  pthread_mutex_lock(&lock);
  struct conn *c = unused;
  if (c != NULL)
    unused = c->next;
  else
    c = calloc(1, sizeof *c);
  if (c != NULL) {
    memset((char *)c + offsetof(struct conn, which), 0, sizeof *c - offsetof(struct conn, which));
    c->which = which;
    c->end = e;
    c->offer = c->sdp = -1;
    atomic_store(&c->state, WAITING);
    c->next = all;
    c->before = &all;
    if (all != NULL)
      all->before = &c->next;
    all = c;
    atomic_store(&c->uses, 1);
  }
  pthread_mutex_unlock(&lock);
  if (c != NULL)
    also(fd, c);
  else
    munmap(e, sizeof *e);
  return c;
}

/* A fork. A child has the memory of its parent, but not Go's threads, so the connections go on by TCP in both. */
static void stop_all(void) {
  pthread_mutex_lock(&meeting); /* no connection goes over to SDP meanwhile */
  pthread_mutex_lock(&lock);
  for (struct conn *c = all; c != NULL; c = c->next)
    if (atomic_load(&c->state) == UP)
      stream_stop(c); /* it says so */
    else
      meet_plain(c, "the process forks");
}

static void go_on(void) {
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&meeting);
}

static void in_child(void) {
  if (sdp.handle != NULL)
    sdp_off = 1;
  for (struct conn *c = all; c != NULL; c = c->next)
    c->sdp = -1;
  go_on();
}

/* stopped is for calls that make a process without the handlers of a fork. */
static void stopped(void) {
  stop_all();
  go_on();
}

__attribute__((constructor)) static void begin_calls(void) {
  void *p = mmap(NULL, TABLE * sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED)
    table = p;
  pthread_atfork(stop_all, go_on, in_child);
}

/* Connections. */

static int is_tcp(int fd, const struct sockaddr *a) {
  int protocol = 0;
  socklen_t n = sizeof protocol;
  return (a->sa_family == AF_INET || a->sa_family == AF_INET6) &&
         getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0 && protocol == IPPROTO_TCP;
}

PUBLIC int connect(int fd, const struct sockaddr *to, socklen_t n) {
  struct conn *c = use(fd);
  if (c != NULL || to == NULL || n < sizeof(struct sockaddr_in) || table == NULL || sdp_off || !is_tcp(fd, to) ||
      !rules_allow(CONNECTS, to)) {
    if (c != NULL)
      leave(c);
    return REAL(connect)(fd, to, n);
  }
  c = add(fd, CONNECTS);
  int offered = c != NULL && meet_offer(c, fd); /* before the other end can accept */
  int r = REAL(connect)(fd, to, n);
  int error = errno;
  if (c != NULL) {
    if (!offered || (r < 0 && error != EINPROGRESS && error != EINTR && error != EALREADY))
      forget(fd);
    leave(c);
  }
  errno = error;
  return r;
}

static int accepted(int fd) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  int error = errno;
  if (fd < 0)
    return fd;
  forget(fd);
  if (table != NULL && !sdp_off && getsockname(fd, (struct sockaddr *)&a, &n) == 0 && is_tcp(fd, (struct sockaddr *)&a) &&
      rules_allow(ACCEPTS, (struct sockaddr *)&a)) {
    struct conn *c = add(fd, ACCEPTS);
    if (c != NULL)
      leave(c);
  }
  errno = error;
  return fd;
}

PUBLIC int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags) { return accepted(REAL(accept4)(fd, a, n, flags)); }

PUBLIC int accept(int fd, struct sockaddr *a, socklen_t *n) { return accept4(fd, a, n, 0); }

PUBLIC int shutdown(int fd, int how) {
  struct conn *c = use(fd);
  if (c != NULL) {
    if (how != SHUT_RD)
      stream_stays_tcp(c);
    leave(c);
  }
  return REAL(shutdown)(fd, how);
}

/* Descriptors. */

PUBLIC int close(int fd) {
  struct conn *c = put_at(fd, NULL);
  int r = REAL(close)(fd);
  if (c != NULL)
    leave(c);
  return r;
}

static void forget_from(unsigned first, unsigned last) {
  if (table == NULL)
    return;
  for (unsigned fd = first; fd <= last && fd < TABLE; fd++)
    forget(fd);
}

PUBLIC int close_range(unsigned first, unsigned last, int flags) {
  if (flags == 0)
    forget_from(first, last < 65536 ? last : 65536);
  return REAL(close_range)(first, last, flags);
}

PUBLIC void closefrom(int first) { close_range(first < 0 ? 0 : first, UINT_MAX, 0); }

static int same(int fd, int copy) {
  if (copy >= 0 && copy != fd) {
    struct conn *c = use(fd);
    if (c != NULL) {
      also(copy, c);
      leave(c);
    } else {
      forget(copy);
    }
  }
  return copy;
}

PUBLIC int dup(int fd) { return same(fd, REAL(dup)(fd)); }
PUBLIC int dup2(int fd, int to) { return same(fd, REAL(dup2)(fd, to)); }
PUBLIC int dup3(int fd, int to, int flags) { return same(fd, REAL(dup3)(fd, to, flags)); }

PUBLIC int fcntl(int fd, int command, ...) {
  va_list l;
  va_start(l, command);
  void *p = va_arg(l, void *);
  va_end(l);
  int r = REAL(fcntl)(fd, command, p);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? same(fd, r) : r;
}
PUBLIC int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

PUBLIC int ioctl(int fd, unsigned long request, ...) {
  va_list l;
  va_start(l, request);
  void *p = va_arg(l, void *);
  va_end(l);
  struct conn *c = request == FIONREAD ? use(fd) : NULL;
  int r = REAL(ioctl)(fd, request, p);
  if (c != NULL) {
    size_t n = stream_unread(c);
    if (r == 0 && n > 0)
      *(int *)p = n < INT_MAX ? (int)n : INT_MAX;
    leave(c);
  }
  return r;
}

/* The kernel's socket never holds a wake byte back. */
static int *kept(struct conn *c, int level, int name) {
  if (level != IPPROTO_TCP || (name != TCP_NODELAY && name != TCP_CORK))
    return NULL;
  int state = atomic_load(&c->state);
  return state != UP ? NULL : name == TCP_NODELAY ? &c->no_delay : &c->cork;
}

PUBLIC int setsockopt(int fd, int level, int name, const void *value, socklen_t n) {
  struct conn *c = use(fd);
  int *option = c != NULL ? kept(c, level, name) : NULL;
  int r = 0;
  if (option != NULL && n >= sizeof *option)
    *option = *(const int *)value != 0;
  else
    r = REAL(setsockopt)(fd, level, name, value, n);
  if (c != NULL)
    leave(c);
  return r;
}

PUBLIC int getsockopt(int fd, int level, int name, void *value, socklen_t *n) {
  struct conn *c = use(fd);
  int *option = c != NULL ? kept(c, level, name) : NULL;
  int r = REAL(getsockopt)(fd, level, name, value, n);
  if (option != NULL && r == 0 && *n >= sizeof *option)
    *(int *)value = *option;
  if (c != NULL)
    leave(c);
  return r;
}

/* The stdio of the C library calls the kernel itself. */
PUBLIC FILE *fdopen(int fd, const char *mode) {
  struct conn *c = use(fd);
  if (c != NULL) {
    int state = atomic_load(&c->state);
    if (state == UP)
      say(PROBLEM, fd, "fdopen of a connection by SDP is not possible"), errno = EINVAL;
    else
      meet_plain(c, "the program uses stdio");
    leave(c);
    if (state == UP)
      return NULL;
  }
  return REAL(fdopen)(fd, mode);
}

/* Data. */

static ssize_t one_in(struct conn *c, int fd, void *p, size_t n, int flags) {
  struct iovec v = {p, n};
  ssize_t r = stream_read(c, fd, &v, 1, flags);
  leave(c);
  return r;
}

static ssize_t one_out(struct conn *c, int fd, const void *p, size_t n, int flags) {
  struct iovec v = {(void *)p, n};
  ssize_t r = stream_write(c, fd, &v, 1, flags);
  leave(c);
  return r;
}

PUBLIC ssize_t read(int fd, void *p, size_t n) {
  struct conn *c = use(fd);
  return c != NULL ? one_in(c, fd, p, n, 0) : REAL(read)(fd, p, n);
}

PUBLIC ssize_t write(int fd, const void *p, size_t n) {
  struct conn *c = use(fd);
  return c != NULL ? one_out(c, fd, p, n, 0) : REAL(write)(fd, p, n);
}

PUBLIC ssize_t recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *a, socklen_t *size) {
  struct conn *c = flags & (MSG_OOB | MSG_ERRQUEUE) ? NULL : use(fd);
  if (c == NULL)
    return REAL(recvfrom)(fd, p, n, flags, a, size);
  if (a != NULL && size != NULL)
    *size = 0;
  return one_in(c, fd, p, n, flags);
}

PUBLIC ssize_t recv(int fd, void *p, size_t n, int flags) { return recvfrom(fd, p, n, flags, NULL, NULL); }

/* flags_out returns the flags of a call that writes. What SDP has nothing like stays by TCP. */
static int flags_out(struct conn *c, int flags) {
  if (flags & (MSG_OOB | MSG_ZEROCOPY | MSG_FASTOPEN))
    stream_stays_tcp(c);
  return flags;
}

PUBLIC ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *a, socklen_t size) {
  struct conn *c = use(fd);
  return c != NULL ? one_out(c, fd, p, n, flags_out(c, flags)) : REAL(sendto)(fd, p, n, flags, a, size);
}

PUBLIC ssize_t send(int fd, const void *p, size_t n, int flags) { return sendto(fd, p, n, flags, NULL, 0); }

PUBLIC ssize_t readv(int fd, const struct iovec *iov, int count) {
  struct conn *c = count >= 0 && count <= IOV_MAX ? use(fd) : NULL;
  if (c == NULL)
    return REAL(readv)(fd, iov, count);
  ssize_t r = stream_read(c, fd, iov, count, 0);
  leave(c);
  return r;
}

PUBLIC ssize_t writev(int fd, const struct iovec *iov, int count) {
  struct conn *c = count >= 0 && count <= IOV_MAX ? use(fd) : NULL;
  if (c == NULL)
    return REAL(writev)(fd, iov, count);
  ssize_t r = stream_write(c, fd, iov, count, 0);
  leave(c);
  return r;
}

PUBLIC ssize_t recvmsg(int fd, struct msghdr *m, int flags) {
  struct conn *c = flags & (MSG_OOB | MSG_ERRQUEUE) || m->msg_iovlen > IOV_MAX ? NULL : use(fd);
  if (c == NULL)
    return REAL(recvmsg)(fd, m, flags);
  ssize_t r = stream_read(c, fd, m->msg_iov, m->msg_iovlen, flags);
  m->msg_namelen = m->msg_controllen = m->msg_flags = 0;
  leave(c);
  return r;
}

PUBLIC ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
  struct conn *c = m->msg_iovlen > IOV_MAX ? NULL : use(fd);
  if (c == NULL)
    return REAL(sendmsg)(fd, m, flags);
  ssize_t r = stream_write(c, fd, m->msg_iov, m->msg_iovlen, flags_out(c, flags));
  leave(c);
  return r;
}

PUBLIC int recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout) {
  struct conn *c = n > 0 ? use(fd) : NULL;
  if (c == NULL)
    return REAL(recvmmsg)(fd, v, n, flags, timeout);
  leave(c);
  ssize_t r = recvmsg(fd, &v->msg_hdr, flags & ~MSG_WAITFORONE);
  v->msg_len = r;
  return r < 0 ? -1 : 1;
}

PUBLIC int sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags) {
  struct conn *c = n > 0 ? use(fd) : NULL;
  if (c == NULL)
    return REAL(sendmmsg)(fd, v, n, flags);
  leave(c);
  ssize_t r = sendmsg(fd, &v->msg_hdr, flags);
  v->msg_len = r;
  return r < 0 ? -1 : 1;
}

/* sendfile copies by way of memory. */
PUBLIC ssize_t sendfile(int fd, int from, off_t *offset, size_t n) {
  char b[65536];
  struct conn *c = use(fd);
  if (c == NULL)
    return REAL(sendfile)(fd, from, offset, n);
  off_t at = offset != NULL ? *offset : lseek(from, 0, SEEK_CUR);
  ssize_t sum = 0, r = at < 0 ? -1 : 0;
  while (at >= 0 && (size_t)sum < n) {
    size_t most = n - sum < sizeof b ? n - sum : sizeof b;
    struct iovec v = {b, most};
    ssize_t have = r = pread(from, b, most, at);
    if (have <= 0)
      break;
    v.iov_len = have;
    r = stream_write(c, fd, &v, 1, 0);
    if (r > 0) {
      sum += r;
      at += r;
    }
    if (r < have)
      break;
  }
  int error = errno;
  if (offset != NULL)
    *offset = at;
  else if (sum > 0)
    lseek(from, at, SEEK_SET);
  leave(c);
  errno = error;
  return sum > 0 || r >= 0 ? sum : -1;
}
PUBLIC ssize_t sendfile64(int fd, int from, off64_t *offset, size_t n) __attribute__((alias("sendfile")));

/* splice is refused, as for files that cannot be spliced: programs then copy. */
PUBLIC ssize_t splice(int from, off64_t *a, int to, off64_t *b, size_t n, unsigned flags) {
  struct conn *c = use(from);
  if (c == NULL)
    c = use(to);
  if (c == NULL)
    return REAL(splice)(from, a, to, b, n, flags);
  leave(c);
  errno = EINVAL;
  return -1;
}

/* What a program is compiled to with _FORTIFY_SOURCE. */
extern void __chk_fail(void) __attribute__((noreturn));

PUBLIC ssize_t __read_chk(int fd, void *p, size_t n, size_t room) {
  if (n > room)
    __chk_fail();
  return read(fd, p, n);
}

PUBLIC ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags) {
  if (n > room)
    __chk_fail();
  return recv(fd, p, n, flags);
}

PUBLIC ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags, struct sockaddr *a, socklen_t *size) {
  if (n > room)
    __chk_fail();
  return recvfrom(fd, p, n, flags, a, size);
}

/* Processes. */

PUBLIC pid_t vfork(void) { return fork(); }

PUBLIC int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                       char *const argv[], char *const env[]) {
  stopped();
  return REAL(posix_spawn)(pid, path, actions, attributes, argv, env);
}

PUBLIC int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                        char *const argv[], char *const env[]) {
  stopped();
  return REAL(posix_spawnp)(pid, file, actions, attributes, argv, env);
}

PUBLIC int system(const char *command) {
  stopped();
  return REAL(system)(command);
}

PUBLIC FILE *popen(const char *command, const char *mode) {
  stopped();
  return REAL(popen)(command, mode);
}

#define EXEC(f, parameters, arguments) \
  PUBLIC int f parameters { \
    stopped(); \
    return REAL(f) arguments; \
  }
EXEC(execv, (const char *path, char *const argv[]), (path, argv))
EXEC(execve, (const char *path, char *const argv[], char *const env[]), (path, argv, env))
EXEC(execvp, (const char *file, char *const argv[]), (file, argv))
EXEC(execvpe, (const char *file, char *const argv[], char *const env[]), (file, argv, env))
EXEC(fexecve, (int fd, char *const argv[], char *const env[]), (fd, argv, env))

/* Signals. A handler that interrupts a call of Go must not run on that call's small stack. */

PUBLIC int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
  struct sigaction with;
  if (new != NULL && new->sa_handler != SIG_DFL && new->sa_handler != SIG_IGN) {
    with = *new;
    with.sa_flags |= SA_ONSTACK;
    new = &with;
  }
  return REAL(sigaction)(number, new, old);
}

PUBLIC sighandler_t signal(int number, sighandler_t handler) {
  sighandler_t old = REAL(signal)(number, handler);
  struct sigaction a;
  if (old != SIG_ERR && handler != SIG_DFL && handler != SIG_IGN && REAL(sigaction)(number, NULL, &a) == 0) {
    a.sa_flags |= SA_ONSTACK;
    REAL(sigaction)(number, &a, NULL);
  }
  return old;
}
