// Command hello is the program of README.md.
package main

import (
	"fmt"
	"io"
	"log"

	"github.com/ntbnet/ntbnet/sdp"
)

func main() {
	ln, err := sdp.Listen("sdp", ":0") // as net.Listen; 0 picks a free port
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	c, err := sdp.Dial("sdp", ln.Addr().String()) // as net.Dial, in this process or another one
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	answer := make([]byte, len("hello"))
	if _, err := io.ReadFull(c, answer); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, by %T\n", answer, c)
}
