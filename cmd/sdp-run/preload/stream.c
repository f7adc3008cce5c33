/* The stream of a connection: phases by TCP and by SDP.

   The writer goes over to SDP when the reader has reached its phase by TCP, and much is unread or to be written. It
   goes back where SDP has no room, and where little is to be written to a reader that has read all: the wake byte costs
   what that costs by TCP. So at most two phases have ended that the reader has not reached, and each end of one has a
   word of its own.

   No thread sleeps in libsdp. Who must wait does so in the kernel, at the socket, as by TCP: a reader for a wake byte,
   a writer for room in the socket. */
#include "run.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

#define SPIN 50000     /* ns that a call polls before it sleeps */
#define PEEKED 65536   /* bytes that MSG_PEEK sees of SDP */
#define LONGEST 1000000000 /* ns that a step of the other end may take */

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int may_spin(void) {
  static int processors;
  if (processors == 0) {
    cpu_set_t set;
    processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }
  return processors > 1;
}

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/* cursor is a place in the buffers of a call. */
struct cursor {
  const struct iovec *iov;
  int count;
  size_t offset; /* in the first one */
  size_t left;   /* in all */
};

static struct cursor begin(const struct iovec *iov, int count) {
  struct cursor k = {iov, count, 0, 0};
  for (int i = 0; i < count; i++)
    k.left += iov[i].iov_len;
  return k;
}

static void advance(struct cursor *k, size_t n) {
  k->left -= n;
  k->offset += n;
  while (k->count > 0 && k->offset >= k->iov->iov_len) {
    k->offset -= k->iov->iov_len;
    k->iov++;
    k->count--;
  }
}

/* piece returns the rest of the first buffer that is not empty. */
static void *piece(struct cursor *k, size_t *n) {
  advance(k, 0);
  *n = k->iov->iov_len - k->offset;
  return (char *)k->iov->iov_base + k->offset;
}

#define PIECES 64 /* buffers of a call of the kernel */

/* rest makes a message of what is left, or its first buffers, and returns its length. */
static size_t rest(const struct cursor *k, struct msghdr *m, struct iovec v[PIECES]) {
  size_t n = 0;
  memset(m, 0, sizeof *m);
  m->msg_iov = v;
  for (int i = 0; i < k->count && i < PIECES; i++) {
    v[i] = k->iov[i];
    if (i == 0) {
      v[0].iov_base = (char *)v[0].iov_base + k->offset;
      v[0].iov_len -= k->offset;
    }
    n += v[i].iov_len;
    m->msg_iovlen++;
  }
  return n;
}

/* send_by_tcp and receive_by_tcp take the call that costs less for one buffer. */
static ssize_t send_by_tcp(int fd, const struct msghdr *m, int flags) {
  return m->msg_iovlen == 1 ? REAL(sendto)(fd, m->msg_iov->iov_base, m->msg_iov->iov_len, flags, NULL, 0) : REAL(sendmsg)(fd, m, flags);
}

static ssize_t receive_by_tcp(int fd, struct msghdr *m) {
  return m->msg_iovlen == 1 ? REAL(recvfrom)(fd, m->msg_iov->iov_base, m->msg_iov->iov_len, MSG_DONTWAIT, NULL, NULL)
                            : REAL(recvmsg)(fd, m, MSG_DONTWAIT);
}

/* take_byte takes the wake byte, which is in the socket or about to be sent. */
static void take_byte(int fd) {
  unsigned char b;
  int64_t until = 0;
  for (;;) {
    ssize_t n = REAL(recvfrom)(fd, &b, 1, MSG_DONTWAIT, NULL, NULL);
    if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
      if (n == 1 && b != WAKE_BYTE)
        say(PROBLEM, fd, "a byte that is none of sdp-run's was between those by SDP");
      return;
    }
    if (until == 0)
      until = now() + LONGEST;
    else if (now() > until)
      return;
    struct pollfd p = {fd, POLLIN, 0};
    poll(&p, 1, 1);
  }
}

/* settle clears WOKEN if all was taken, and reports whether that is so. */
static int settle(struct conn *c, int fd, struct way *in) {
  uint64_t all = c->end->taken << 1;
  uint64_t w = all | WOKEN;
  if (atomic_compare_exchange_strong(&in->word, &w, all)) {
    take_byte(fd);
    return 1;
  }
  return w == all;
}

/* keep makes room for n more bytes ahead. */
static int keep(struct end *e, size_t n) {
  size_t have = e->ahead_end - e->ahead_at;
  if (e->ahead_size - e->ahead_end >= n)
    return 1;
  if (e->ahead_size < have + n) {
    size_t size = (have + n + 0xffff) & ~(size_t)0xffff;
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      return 0;
    if (e->ahead != NULL) {
      memcpy(p, e->ahead + e->ahead_at, have);
      munmap(e->ahead, e->ahead_size);
    }
    e->ahead = p;
    e->ahead_size = size;
  } else {
    memmove(e->ahead, e->ahead + e->ahead_at, have);
  }
  e->ahead_at = 0;
  e->ahead_end = have;
  return 1;
}

/* from_sdp reads at most n bytes, which have been published. */
static ssize_t from_sdp(struct conn *c, void *p, size_t n) {
  int64_t until = 0;
  for (;;) {
    ssize_t r = c->sdp < 0 ? 0 : sdp.read(c->sdp, p, n);
    if (r > 0)
      return r;
    if (r == 0 || errno != EAGAIN) {
      errno = ECONNRESET;
      return -1;
    }
    if (until == 0)
      until = now() + LONGEST;
    else if (now() > until)
      return -1;
    sched_yield();
  }
}

/* read_ahead reads n published bytes ahead. */
static int read_ahead(struct conn *c, size_t n) {
  struct end *e = c->end;
  if (!keep(e, n))
    return 0;
  while (n > 0) {
    ssize_t r = from_sdp(c, e->ahead + e->ahead_end, n);
    if (r < 0)
      return 0;
    e->ahead_end += r;
    n -= r;
  }
  return 1;
}

/* by_sdp moves published bytes to the program's buffers: all of them, or as many as these take. */
static ssize_t by_sdp(struct conn *c, struct cursor *k, size_t avail, int peek) {
  struct end *e = c->end;
  ssize_t got = 0;
  if (peek && e->ahead_end - e->ahead_at < avail) {
    size_t have = e->ahead_end - e->ahead_at, want = avail < PEEKED ? avail : PEEKED;
    if (want > have && !read_ahead(c, want - have))
      return -1;
  }
  size_t from = e->ahead_at;
  while (k->left > 0 && (size_t)got < avail) {
    size_t n;
    char *p = piece(k, &n);
    if (n > avail - got)
      n = avail - got;
    if (e->ahead_end > from) {
      if (n > e->ahead_end - from)
        n = e->ahead_end - from;
      memcpy(p, e->ahead + from, n);
      from += n;
    } else {
      ssize_t r = peek ? 0 : from_sdp(c, p, n);
      if (r <= 0)
        return got > 0 ? got : r;
      n = r;
    }
    advance(k, n);
    got += n;
    if (!peek) {
      e->ahead_at = from;
      e->taken += n;
    }
  }
  return got;
}

/* enter notes that the next phase is reached. */
static void enter(struct end *e, struct way *in) {
  e->reached++;
  atomic_store(&in->reached, e->reached);
}

/* took notes that n bytes came by TCP. */
static void took(struct end *e, struct way *in, size_t n) {
  e->received += n;
  if (in != NULL)
    atomic_store(&in->received, e->received);
}

/* step reads what is there of the phase that the reader is in, and goes on to the next one. It returns the number of
   bytes, -1 with errno for an error, EAGAIN if nothing is there, or 0 at the end of the stream. *go says that there may
   be more. The caller holds reading. */
static ssize_t step(struct conn *c, int fd, struct cursor *k, int flags, int *go) {
  struct end *e = c->end;
  int peek = flags & MSG_PEEK;
  *go = 0;
  if (e->reached % 2 == 0) {
    struct msghdr m;
    struct iovec v[PIECES];
    rest(k, &m, v);
    struct way *in = atomic_load(&c->state) == UP ? way_in(c) : NULL;
    if (in == NULL && !peek) { /* all bytes by TCP are the program's */
      ssize_t n = receive_by_tcp(fd, &m);
      if (n > 0) {
        took(e, in, n);
        advance(k, n);
      }
      return n;
    }
    ssize_t n = REAL(recvmsg)(fd, &m, MSG_PEEK | MSG_DONTWAIT);
    int error = errno;
    int over = in != NULL && atomic_load(&in->phase) > e->reached;
    size_t until = over ? atomic_load(&in->tcp_end) - e->received : SIZE_MAX;
    if (over && until == 0) {
      enter(e, in);
      *go = 1;
      return 0;
    }
    if (n <= 0) {
      errno = error;
      return n;
    }
    if ((size_t)n > until)
      n = until;
    if (!peek) {
      n = REAL(recvfrom)(fd, NULL, n, MSG_TRUNC | MSG_DONTWAIT, NULL, NULL);
      if (n <= 0)
        return n;
      took(e, in, n);
      *go = over;
    }
    advance(k, n);
    return n;
  }
  struct way *in = way_in(c);
  int over = atomic_load(&in->phase) > e->reached;
  size_t avail = (atomic_load(&in->word) >> 1) - e->taken;
  if (avail > 0) {
    ssize_t n = by_sdp(c, k, avail, peek);
    if (n > 0 && !peek)
      *go = !settle(c, fd, in);
    return n;
  }
  if (!settle(c, fd, in))
    *go = 1;
  else if (over && atomic_load(&in->sdp_end) == e->taken) {
    enter(e, in);
    *go = 1;
  } else
    errno = EAGAIN;
  return *go ? 0 : -1;
}

/* ready reports whether a reader that has found nothing would find something now, or would by TCP. */
static int ready(struct conn *c) {
  struct end *e = c->end;
  if (atomic_load(&c->state) != UP || e->reached % 2 == 0)
    return 1;
  struct way *in = way_in(c);
  return atomic_load(&in->word) >> 1 != e->taken || atomic_load(&in->phase) > e->reached;
}

static int waits(int fd, int flags) { return !(flags & MSG_DONTWAIT) && !(REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK); }

/* moved notes that n bytes have gone in a direction, for meet. */
static void moved(struct conn *c, int out, size_t n) {
  if (atomic_load(&c->state) == UP)
    return;
  if (atomic_exchange(&c->row_out, out) != out)
    atomic_store(&c->row, 0);
  atomic_fetch_add(&c->row, n);
}

ssize_t stream_read(struct conn *c, int fd, const struct iovec *iov, int count, int flags) {
  struct cursor k = begin(iov, count);
  ssize_t got = 0;
  int ended = 0;
  for (;;) {
    meet(c, fd);
    if (atomic_load(&c->state) == PLAIN && got == 0) {
      struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = count};
      return REAL(recvmsg)(fd, &m, flags);
    }
    int go;
    ssize_t n;
    pthread_mutex_lock(&c->end->reading);
    do {
      n = step(c, fd, &k, flags, &go);
      if (n > 0) {
        got += n;
        moved(c, 0, n);
      }
    } while (go && k.left > 0 && n >= 0);
    int error = errno;
    pthread_mutex_unlock(&c->end->reading);
    errno = error;
    if (k.left == 0 || (got > 0 && !(flags & MSG_WAITALL && waits(fd, flags))))
      return got;
    if (n < 0 && error != EAGAIN)
      return got > 0 ? got : -1;
    if (n == 0 && c->end->reached % 2 == 0)
      return got; /* the end, by TCP */
    if (ended)
      return got;
    if (may_spin() && waits(fd, flags))
      for (int64_t until = now() + SPIN; !ready(c) && now() < until;)
        for (int i = 0; i < 50 && !ready(c); i++)
          pause_briefly();
    if (c->end->reached % 2 != 0 && ready(c))
      continue;
    char b;
    n = REAL(recvfrom)(fd, &b, 1, MSG_PEEK | (flags & MSG_DONTWAIT), NULL, NULL);
    if (n < 0)
      return got > 0 ? got : -1;
    if (n == 0)
      ended = 1; /* look again: what was written by SDP came before */
    else if (c->end->reached % 2 != 0 && !ready(c))
      sched_yield(); /* the byte is ahead of what it stands for */
  }
}

/* stream_unread returns how many bytes FIONREAD counts by SDP. */
size_t stream_unread(struct conn *c) {
  size_t n = 0;
  if (atomic_load(&c->state) == UP) {
    pthread_mutex_lock(&c->end->reading);
    n = (atomic_load(&way_in(c)->word) >> 1) - c->end->taken;
    pthread_mutex_unlock(&c->end->reading);
  }
  return n;
}

/* send_byte sends a wake byte. */
static int send_byte(int fd) {
  unsigned char b = WAKE_BYTE;
  return REAL(sendto)(fd, &b, 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == 1;
}

static int has_room(int fd) {
  struct pollfd p = {fd, POLLOUT, 0};
  return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

/* over goes over to the next phase. The caller holds writing. */
static void over(struct end *e, struct way *out) {
  if (e->phase % 2 == 0)
    atomic_store(&out->tcp_end, e->sent);
  else
    atomic_store(&out->sdp_end, e->put);
  e->phase++;
  atomic_store(&out->phase, e->phase);
}

/* little reports whether n bytes are not worth SDP: the reader has read all, or all but a little. */
static int little(struct conn *c, size_t n) {
  struct end *e = c->end;
  struct way *out = way_out(c);
  if (n >= smallest)
    return 0;
  if (e->phase % 2 == 1)
    return !(atomic_load(&out->word) & WOKEN);
  return e->sent + n < atomic_load(&out->received) + smallest;
}

/* to_sdp goes over to SDP, if that may be. If the socket may have no room for a wake byte later, one is sent now: it is
   behind other bytes. */
static int to_sdp(struct conn *c, int fd, size_t n) {
  struct end *e = c->end;
  if (e->stays || e->sending > 0 || atomic_load(&c->state) != UP || !atomic_load(&c->page->ready[!c->which]) ||
      little(c, n))
    return 0;
  struct way *out = way_out(c);
  if (atomic_load(&out->refused) || atomic_load(&out->reached) != e->phase)
    return 0;
  int room = has_room(fd);
  over(e, out);
  if (!room && !send_byte(fd)) {
    over(e, out);
    return 0;
  }
  if (!room)
    atomic_fetch_or(&out->word, WOKEN);
  return 1;
}

/* publish says that n bytes were written by SDP, and wakes the reader if no byte stands for them. */
static void publish(struct conn *c, int fd, size_t n) {
  struct way *out = way_out(c);
  c->end->put += n;
  if (!(atomic_exchange(&out->word, c->end->put << 1 | WOKEN) & WOKEN) && !send_byte(fd))
    c->end->stays = 1; /* the other end is gone; the next call says it */
}

/* put writes what there is room for by SDP. It returns -1 if the direction must go over to TCP. */
static ssize_t put(struct conn *c, int fd, struct cursor *k) {
  struct way *out = way_out(c);
  ssize_t sum = 0;
  atomic_store(&out->writing, 1); /* before refused is read: stream_stop waits for it */
  while (k->left > 0) {
    size_t n;
    void *p = piece(k, &n);
    if (atomic_load(&out->refused) || c->sdp < 0) {
      sum = -1;
      break;
    }
    ssize_t r = sdp.write(c->sdp, p, n);
    if (r < 0 && errno != EAGAIN) {
      c->end->stays = 1;
      sum = -1;
      break;
    }
    if (r > 0) {
      publish(c, fd, r);
      advance(k, r);
      sum += r;
    }
    if (r < (ssize_t)n)
      break;
  }
  atomic_store(&out->writing, 0);
  return sum;
}

ssize_t stream_write(struct conn *c, int fd, const struct iovec *iov, int count, int flags) {
  struct end *e = c->end;
  struct cursor k = begin(iov, count);
  size_t all = k.left;
  moved(c, 1, all);
  meet(c, fd);
  pthread_mutex_lock(&e->writing);
  if (e->phase % 2 == 1 && little(c, all))
    over(e, way_out(c));
  else if (e->phase % 2 == 1 || to_sdp(c, fd, all)) {
    int64_t until = 0;
    while (k.left > 0) {
      ssize_t n = put(c, fd, &k);
      if (n < 0 || k.left == 0 || !may_spin())
        break;
      if (n > 0 || until == 0)
        until = now() + SPIN;
      else if (now() > until)
        break;
      pause_briefly();
    }
    if (k.left > 0 && e->phase % 2 == 1)
      over(e, way_out(c));
  }
  if (k.left == 0 && all > 0) {
    pthread_mutex_unlock(&e->writing);
    return all;
  }
  e->sending++;
  pthread_mutex_unlock(&e->writing);
  ssize_t sum = 0, n, offered;
  do {
    struct msghdr m;
    struct iovec v[PIECES];
    offered = rest(&k, &m, v);
    n = send_by_tcp(fd, &m, flags);
    if (n > 0) {
      sum += n;
      advance(&k, n);
    }
  } while (n == offered && k.left > 0);
  int error = errno;
  pthread_mutex_lock(&e->writing);
  e->sending--;
  e->sent += sum;
  pthread_mutex_unlock(&e->writing);
  errno = error;
  return k.left < all || n >= 0 ? (ssize_t)(all - k.left) : -1;
}

/* stream_stays_tcp keeps what the program writes from now on by TCP. */
void stream_stays_tcp(struct conn *c) {
  pthread_mutex_lock(&c->end->writing);
  c->end->stays = 1;
  if (c->end->phase % 2 == 1)
    over(c->end, way_out(c));
  pthread_mutex_unlock(&c->end->writing);
}

/* stream_stop ends SDP both ways. What has come by it is kept in memory that forked processes share. */
void stream_stop(struct conn *c) {
  struct end *e = c->end;
  struct way *in = way_in(c);
  stream_stays_tcp(c);
  pthread_mutex_lock(&e->reading);
  atomic_store(&in->refused, 1);
  for (int64_t until = now() + LONGEST; atomic_load(&in->writing) && now() < until;)
    sched_yield();
  size_t left = (atomic_load(&in->word) >> 1) - e->taken - (e->ahead_end - e->ahead_at);
  if (left > 0 && !read_ahead(c, left))
    say(PROBLEM, -1, "what has come by SDP cannot be kept for a fork");
  say(NEWS, -1, "a connection by SDP goes on by TCP: the process forks");
  pthread_mutex_unlock(&e->reading);
}
