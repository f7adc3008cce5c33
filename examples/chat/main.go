// Command chat is a room: what one writes, all others read.
//
//	go run ./chat serve
//	go run ./chat NAME       as often as you like, of one user
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

const address = "localhost:7700"

// writeTimeout is how long one who does not read may hold up a line before it is put out of the room.
const writeTimeout = time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chat serve, or chat NAME")
		os.Exit(2)
	}
	do := func() error { return talk(os.Args[1]) }
	if os.Args[1] == "serve" {
		do = serve
	}
	if err := do(); err != nil {
		log.Fatal(err)
	}
}

// room has the connections of all who are there.
type room struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func serve() error {
	ln, err := sdp.Listen("sdp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", ln.Addr())
	r := room{conns: map[net.Conn]bool{}}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go r.listen(c)
	}
}

// listen passes on each line of c until it ends.
func (r *room) listen(c net.Conn) {
	r.mu.Lock()
	r.conns[c] = true
	r.mu.Unlock()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		r.say(c, lines.Text())
	}
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	c.Close()
}

// say sends a line to all but from.
func (r *room) say(from net.Conn, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		if c == from {
			continue
		}
		c.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := fmt.Fprintln(c, line); err != nil {
			c.Close() // its listen takes it out
		}
	}
}

func talk(name string) error {
	c, err := sdp.Dial("sdp", address)
	if err != nil {
		return err
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Fprintf(c, "%s: %s\n", name, lines.Text())
		}
		c.(*sdp.Conn).CloseWrite() // the room closes its half then
	}()
	_, err = io.Copy(os.Stdout, c)
	return err
}
