package main

import (
	"errors"
	"fmt"
	"io"
	"net"

	shmipc "github.com/cloudwego/shmipc-go"
)

// serve accepts sessions on a Unix socket until commands ends.
func serve(path, api string, ready io.Writer, commands io.Reader) error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	defer ln.Close()
	go accept(ln, api)
	if _, err := fmt.Fprintln(ready, "ready"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, commands)
	return err
}

func accept(ln *net.UnixListener, api string) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			s, err := shmipc.Server(conn, config(64, io.Discard))
			if err != nil {
				conn.Close() // the client reports it
				return
			}
			defer s.Close()
			for {
				stream, err := s.AcceptStream()
				if err != nil {
					return
				}
				go func() {
					defer stream.Close()
					_ = answer(stream, api) // the client reports what it misses
				}()
			}
		}()
	}
}

// answer serves one stream until it ends.
func answer(s *shmipc.Stream, api string) error {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(s, head); err != nil {
		return err
	}
	h, err := parseHeader(head)
	if err != nil {
		return err
	}
	m := newMessenger(s, api, h.size)
	for i := 1; ; i++ {
		if err := m.receive(); err != nil {
			if errors.Is(err, shmipc.ErrEndOfStream) {
				return nil
			}
			return err
		}
		switch {
		case h.stretch == 0:
			err = m.send()
		case i%h.stretch == 0:
			_, err = s.Write(head[:1])
		}
		if err != nil {
			return err
		}
	}
}
