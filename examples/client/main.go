// Command client gets a page by SDP if the server listens so on this machine, and by TCP otherwise:
//
//	go run ./client URL
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"os"

	"github.com/ntbnet/ntbnet/sdp"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: client URL")
		os.Exit(2)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&sdp.Dialer{}).DialContext // without this line it is by TCP

	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { fmt.Printf("by %T\n", info.Conn) },
	})
	request, err := http.NewRequestWithContext(ctx, "GET", os.Args[1], nil)
	if err != nil {
		log.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		log.Fatal(err)
	}
}
