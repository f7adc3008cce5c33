/* Stream sockets over shared memory, and over PCIe non-transparent bridges: package sdp of
   github.com/ntbnet/ntbnet for C. Both ends may be in C or in Go.

   A handle is a number greater than 0, of a connection or of a listener. It is no file descriptor.
   Times are nanoseconds from now, and sizes are bytes.

   ERRORS. A call that fails returns -1 and sets errno; sdp_error has the text. EBADF is a handle
   that is not open, was closed meanwhile, or is a listener's where a connection is wanted. EINVAL
   is an argument that does not fit. EAGAIN is a call that would wait, with SDP_NONBLOCK. ETIMEDOUT
   is a deadline. Others are those of the system calls of the same names, and of what each function
   says.

   THREADS. All functions may be called by any threads at the same time. Reads of a connection wait
   for each other, and so do its writes. sdp_close wakes calls that wait, which then fail with
   EBADF. A thread that is cancelled in a call of the library leaves its locks held: do not cancel
   it there.

   FORK, EXEC, DUP. A child of fork has none of the sockets. Each call there, but sdp_error, fails
   with ENOTRECOVERABLE and changes nothing of the parent's. It keeps copies of the parent's
   descriptors until it ends or calls exec: so peers learn that the parent was killed when the
   child has ended too. A child that needs sockets calls exec, or loads the library itself where
   the parent has not (dlopen). exec closes everything, and connections end as if the process had
   been killed. vfork and posix_spawn are exec. The handle is no descriptor, so there is no dup.
   That of sdp_fd may be duplicated; it stays what sdp_fd says.

   EXIT. exit closes what is open as sdp_close does, behind the program's functions of atexit.
   Calls of other threads that fail then do not return. After _exit and a signal that kills, peers read what was written, and then ECONNRESET.

   SIGNALS. Handlers of the program run on its own threads. A peer that has gone is EPIPE, without
   SIGPIPE. Handlers must not call the library, and need SA_ONSTACK. */
#ifndef SDP_H
#define SDP_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Directions, and events: bits. */
#define SDP_READ 1
#define SDP_WRITE 2

/* No deadline. */
#define SDP_NEVER (-1LL)

/* sdp_dial connects to address, such as "localhost:8080" or "node2:8080", and returns a handle.
   network is "sdp", for this transport alone, or "tcp", "tcp4" or "tcp6": then the server that TCP
   would reach is reached, by SDP if it listens by SDP in the same fabric, else by TCP. SDP_FABRIC
   names the fabric, as in Go.

   timeout limits the dial, in ns. SDP_NEVER leaves the system's limit, of about two minutes.

   Errors: ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT, EACCES (a user who is refused), ENOENT (an
   unknown name), EINVAL (network or address), ENOBUFS, EMFILE (2^20 handles are open), and those
   of joining the fabric. */
int sdp_dial(const char *network, const char *address, long long timeout);

/* sdp_listen listens at address, such as ":8080", and returns a handle. Port 0 picks a free one,
   see sdp_name. Networks are those of sdp_dial. backlog is how many connections may wait for
   sdp_accept; 0 means 4096.

   Errors: EADDRINUSE, EADDRNOTAVAIL, EACCES, EINVAL, EMFILE, and those of joining the fabric. */
int sdp_listen(const char *network, const char *address, int backlog);

/* sdp_accept waits for a connection and returns its handle, to which options of the listener are
   not passed on.

   Errors: EAGAIN, ETIMEDOUT, ESTALE (the fabric's directory was removed), EMFILE: then the
   connection was closed. */
int sdp_accept(int listener);

/* sdp_read reads what has arrived, at least one byte and at most n, and waits for it. It returns 0
   at the end of the stream, and if n is 0. A write of up to 64 KiB is mostly read whole.

   Errors: EAGAIN, ETIMEDOUT, ECONNRESET (once; then it returns 0). */
ssize_t sdp_read(int conn, void *buf, size_t n);

/* sdp_write writes all n bytes, and waits for room. It returns less than n if it failed behind
   that: the next call says why. With SDP_NONBLOCK it writes what there is room for.

   Errors: EAGAIN, ETIMEDOUT, ECONNRESET (once), EPIPE. */
ssize_t sdp_write(int conn, const void *buf, size_t n);

/* sdp_readv is sdp_read into count buffers, in order. */
ssize_t sdp_readv(int conn, const struct iovec *iov, int count);

/* sdp_writev is sdp_write of count buffers, in order. Writes of other threads do not come in
   between, but with SDP_NONBLOCK they may. */
ssize_t sdp_writev(int conn, const struct iovec *iov, int count);

/* sdp_shutdown ends directions: SDP_WRITE, so that the peer reads the end of the stream; SDP_READ,
   so that sdp_read returns 0 where it would wait; or both.

   Errors: ENOTCONN (the connection has ended). */
int sdp_shutdown(int conn, int which);

/* sdp_close closes a connection or listener. What was written reaches the peer. Over several nodes
   it waits for that, for 10 s at the most. If something has arrived that was not read, the peer
   gets ECONNRESET behind it. A listener's connections that were accepted stay.

   The handle is closed, whatever is returned, but for EBADF and for EBUSY: what sdp_peek or
   sdp_reserve lent is out. */
int sdp_close(int handle);

/* sdp_deadline has calls of the given directions fail with ETIMEDOUT, from after ns from now on:
   those that wait, and later ones. SDP_READ is also sdp_accept's. SDP_NEVER takes the deadline
   away. */
int sdp_deadline(int handle, int which, long long after);

/* sdp_name stores the address of this end (SDP_LOCAL) or of the other one (SDP_REMOTE) as text,
   such as "node2:8080", with a zero byte, in size bytes at text. It returns the length of the
   text.

   Errors: ERANGE (it needs more room), EINVAL (a listener has no other end). */
int sdp_name(int handle, int which, char *text, size_t size);
#define SDP_LOCAL 0
#define SDP_REMOTE 1

/* sdp_peer stores which process is at the other end, as the kernel of this machine says. pid is 0
   if it is of another PID namespace. A uid or gid is -1 if it has none in this user namespace.

   Errors: ENODATA (the process is of another node), EOPNOTSUPP (by TCP). */
struct sdp_peer {
  int pid, uid, gid;
};
int sdp_peer(int conn, struct sdp_peer *peer);

/* sdp_set sets an option. Of a listener there is SDP_NONBLOCK alone. Errors: EINVAL. */
int sdp_set(int handle, int option, long long value);
#define SDP_NONBLOCK 1     /* calls do not wait, but sdp_dial, sdp_peek and sdp_reserve; 0 or 1 */
#define SDP_READ_BUFFER 2  /* bytes: how large the buffer here may grow */
#define SDP_WRITE_BUFFER 3 /* bytes: how much may be written that the peer has not read */
#define SDP_LINGER 4       /* 0: sdp_close resets the connection. By TCP also seconds, as SO_LINGER */
#define SDP_NODELAY 5      /* by TCP; SDP never delays */
#define SDP_KEEPALIVE 6    /* by TCP; SDP needs none */

/* sdp_get returns the value of SDP_NONBLOCK, or of SDP_BY_TCP. Errors: EINVAL. */
long long sdp_get(int handle, int option);
#define SDP_BY_TCP 7 /* 1 if the connection is by TCP, 0 if it is by SDP */

/* sdp_peek waits for data, stores at data where some of it lies, and returns how many bytes. 0 is
   the end of the stream. The bytes are valid until sdp_discard, which must follow unless sdp_peek
   failed or returned 0. Until then other reads of the connection wait. Do not write there. A peer
   of the same user may change them meanwhile.

   Errors: those of sdp_read, but EAGAIN, and EOPNOTSUPP (by TCP). */
ssize_t sdp_peek(int conn, const void **data);

/* sdp_discard ends sdp_peek. The first n bytes count as read. Errors: EINVAL (more than sdp_peek
   returned, or nothing is lent). */
int sdp_discard(int conn, size_t n);

/* sdp_reserve waits for room, stores at room where it is, and returns how many bytes: at least
   one, and at most n, which is at least 1. Fill it in order, and do not read there. It is valid
   until sdp_commit, which must follow unless sdp_reserve failed. Until then other writes of the
   connection wait.

   Errors: those of sdp_write, but EAGAIN, and EOPNOTSUPP (by TCP). */
ssize_t sdp_reserve(int conn, size_t n, void **room);

/* sdp_commit ends sdp_reserve, and sends the first n bytes. Errors: EINVAL (more than sdp_reserve
   returned, or nothing is lent). */
int sdp_commit(int conn, size_t n);

/* sdp_fd returns a descriptor for poll, select and epoll. It is readable (EPOLLIN) while an event
   has come for which the handle was armed, and which sdp_ready has not taken. Nothing else may be
   done with it. sdp_close closes it.

   Set SDP_NONBLOCK. Call sdp_read, sdp_write or sdp_accept until EAGAIN, then sdp_arm, and wait. */
int sdp_fd(int handle);

/* sdp_arm asks for events, once: SDP_READ, that sdp_read or sdp_accept would not wait; SDP_WRITE,
   that sdp_write would not. An error, the end, and a deadline are events too. While a connection
   is armed, calls in that direction that wait get no data before the event. A listener is armed or
   waited for by sdp_accept, not both. */
int sdp_arm(int handle, int events);

/* sdp_ready returns the events that have come since it was called last, or 0. They are not armed
   any more. */
int sdp_ready(int handle);

/* sdp_error returns the text of the error of this thread's last call that failed. It is valid
   until the next one. */
const char *sdp_error(void);

#ifdef __cplusplus
}
#endif

#endif
