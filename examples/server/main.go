// Command server is an HTTP server for SDP and TCP on one port:
//
//	go run ./server [ADDRESS]
//	go run ./client http://127.0.0.1:8080/
//	curl http://127.0.0.1:8080/
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/ntbnet/ntbnet/sdp"
)

func main() {
	address := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	ln, err := sdp.Listen("tcp", address) // was: net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/\n", ln.Addr())
	log.Fatal(http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s\n", r.RemoteAddr)
	})))
}
