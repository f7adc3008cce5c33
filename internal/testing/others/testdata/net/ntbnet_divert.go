package net

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"
)

// NtbnetDial, unless nil, is asked before Dialer.DialContext. It reports by its last
// result whether it has made the connection.
var NtbnetDial func(d *Dialer, ctx context.Context, network, address string) (Conn, error, bool)

// NtbnetListen, unless nil, is asked before ListenConfig.Listen, likewise.
var NtbnetListen func(lc *ListenConfig, ctx context.Context, network, address string) (Listener, error, bool)

// NtbnetTCPConn stands for *TCPConn in tests. It has the methods that connections of
// both kinds have.
type NtbnetTCPConn interface {
	Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
	SetKeepAlive(keepalive bool) error
	SetKeepAliveConfig(config KeepAliveConfig) error
	SetKeepAlivePeriod(d time.Duration) error
	SetNoDelay(noDelay bool) error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	SyscallConn() (syscall.RawConn, error)
}

// NtbnetTCPListener stands for *TCPListener in tests, likewise.
type NtbnetTCPListener interface {
	Listener
	File() (*os.File, error)
	SetDeadline(t time.Time) error
}
